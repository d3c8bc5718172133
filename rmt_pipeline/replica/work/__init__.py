"""A queue's entries carried out: merged, mutated or fetched, one worker per pool (spec §5)."""
