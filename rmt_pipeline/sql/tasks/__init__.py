"""Statements that a queue in ZooKeeper brings to every server: how a server carries them out."""
