"""Rows on their way between assets and tables."""
