"""Rows in memory and in files: read, brought to one form, ordered, computed, written."""
