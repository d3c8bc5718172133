"""Merges: planned as units, and the rules of each engine for a unit (spec §17)."""
