"""The parts on disk: names, manifests, hashes, Parquet; how they are staged, published, removed."""
