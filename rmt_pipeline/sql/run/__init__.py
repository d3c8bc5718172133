"""Statements carried out in a client's session."""
