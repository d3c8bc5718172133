"""Inserts: their ids, records and outcomes, by which a retry is recognised (spec §2)."""
