"""`rmt sql`: statements from a script or a terminal, and their answers."""
