"""Work beside the queue: find broken, lost or unexpected parts, and remove what is outdated (spec
§10).
"""
