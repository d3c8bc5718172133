"""The texts of all other nodes in ZooKeeper (spec §0.4.2 to §0.4.12, and ours)."""
