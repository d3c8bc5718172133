"""Planted bugs, and whether the tests notice them: `make mutants`."""
