"""What translations stand on: typed SQL, casts, argument checks."""
