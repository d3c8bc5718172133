"""A table as other programs' tables: Delta and Iceberg, over the files of its parts."""
