"""The texts of all nodes in ZooKeeper but log entries: the original's (spec §0.4.2 to §0.4.12) and
ours.
"""
