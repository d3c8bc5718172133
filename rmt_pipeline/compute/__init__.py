"""Heavy lifting: kernels and their Spark jobs. Knows parts and directories, not replication."""
