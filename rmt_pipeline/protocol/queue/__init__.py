"""A replica's queue: which entries may run now, and why the others wait (spec §4)."""
