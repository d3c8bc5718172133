"""Which parts may be merged, which are worth it, which must be (spec §6, §13)."""
