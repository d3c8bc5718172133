"""Data from outside (Arrow, pandas, CSV, JSON lines, TSV), as the table's columns store it."""
