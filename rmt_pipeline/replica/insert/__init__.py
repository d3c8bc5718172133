"""One logical insert: its two multis, duplicates, quorum, and back-pressure (spec §2)."""
