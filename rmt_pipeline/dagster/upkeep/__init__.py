"""Checks of tables, and clean-up."""
