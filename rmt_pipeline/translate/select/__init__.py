"""SELECT to one query of DuckDB."""
