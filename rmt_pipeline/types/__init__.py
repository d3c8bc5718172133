"""The types of columns, their forms in Arrow and DuckDB, and their values from and to text."""
