"""`rmt`: the command line."""
