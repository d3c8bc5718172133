"""The types of columns: their forms in Arrow and DuckDB, and values from and to text."""
