"""Merges: their units, and the rules by which each engine merges rows (spec §17)."""
