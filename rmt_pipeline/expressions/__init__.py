"""ClickHouse's types and expressions: parsed, checked against an allow-list, run by DuckDB."""
