"""A shop and its sales, day by day."""
