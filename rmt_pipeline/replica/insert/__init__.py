"""One logical insert: two multis, or a duplicate, or back-pressure (spec §2)."""
