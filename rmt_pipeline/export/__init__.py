"""Exports of a table as a Delta or an Iceberg table, over the files of its parts."""
