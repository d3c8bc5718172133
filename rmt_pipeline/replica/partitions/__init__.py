"""Partitions and parts as a whole: dropped, detached, attached, replaced, frozen (spec §9)."""
