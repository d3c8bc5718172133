"""Mutations of a table: asked for, followed, killed, forgotten (spec §7)."""
