"""Statements for the servers of a cluster: their queue in ZooKeeper, put in and worked off."""
