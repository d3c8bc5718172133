"""The tables of the database system."""
