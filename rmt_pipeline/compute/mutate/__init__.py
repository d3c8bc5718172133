"""Mutations in units of one file, which is rewritten only if a command applies to one of its rows
(spec §7).
"""
