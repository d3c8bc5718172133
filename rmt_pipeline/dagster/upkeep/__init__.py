"""Checks of tables, clean-up, and what a person starts from a form."""
