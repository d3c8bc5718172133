"""Where the bytes are: directory names, manifest, hashes, Parquet; stage, publish, remove."""
