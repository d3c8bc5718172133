"""ALTER TABLE: tried, written, waited for; and taken up by each replica (spec §8)."""
