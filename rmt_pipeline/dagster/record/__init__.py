"""What happened to parts, in Dagster's events: recorded by the runs, or by others for them."""
