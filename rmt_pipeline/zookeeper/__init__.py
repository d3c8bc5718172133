"""Where it is agreed: znode paths, each multi as data, ordered reads, the kazoo adapter."""
