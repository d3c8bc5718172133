"""What a replica's queue may do now, and why the rest waits (spec §4)."""
