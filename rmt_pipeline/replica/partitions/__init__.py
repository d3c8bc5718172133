"""Commands on whole partitions and parts: drop, detach, attach, fetch, replace, move, undo (spec
§9).
"""
