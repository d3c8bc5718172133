"""A shop: what it sold, day by day."""
