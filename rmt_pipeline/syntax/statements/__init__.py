"""Statements, a module for each family."""
