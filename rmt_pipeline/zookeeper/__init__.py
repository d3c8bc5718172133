"""ZooKeeper: znode paths, each multi as data, reads whose order matters, the kazoo adapter."""
