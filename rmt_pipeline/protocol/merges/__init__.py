"""Which parts may be merged, which merges are worth it, and which are due (spec §6, §13)."""
