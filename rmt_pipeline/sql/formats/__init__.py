"""Formats of rows: those that are inserted, and those of answers."""
