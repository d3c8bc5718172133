"""Jobs that a person starts, with a form for each."""
