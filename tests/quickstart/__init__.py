"""The page of `examples/quickstart`, typed as it stands."""
