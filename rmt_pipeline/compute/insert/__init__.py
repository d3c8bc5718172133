"""Inserts: rows are cut into blocks, sorted, and staged as parts (spec §2.2)."""
