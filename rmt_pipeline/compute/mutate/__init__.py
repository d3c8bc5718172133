"""Mutations: units of one file, rewritten only where a row is touched (spec §7)."""
