"""Rows of an insert: split into blocks, ordered, staged as parts (spec §2.2)."""
