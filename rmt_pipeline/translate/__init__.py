"""Trees to DuckDB: expressions and what tables are defined with."""
