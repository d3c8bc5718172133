"""Reading parts with the table's current columns: for other programs, for FINAL,
before an ALTER.
"""
