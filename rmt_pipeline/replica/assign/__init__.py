"""Merges and pieces of mutations proposed to the table, and why not (spec §6, §7.4)."""
