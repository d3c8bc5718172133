"""Statements for the servers of a cluster: their queue in ZooKeeper, how it is filled and worked
off.
"""
