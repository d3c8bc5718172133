"""Reads data from outside (Arrow, pandas, CSV, JSON lines, TSV) and conforms it to the table's
columns.
"""
