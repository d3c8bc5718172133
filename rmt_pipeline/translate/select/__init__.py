"""Compiles a SELECT to one query of DuckDB, clause by clause."""
