"""Entries of the shared log and of each replica's queue, and their text (spec §0.4.1)."""
