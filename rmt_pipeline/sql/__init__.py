"""The statements users know: parse, check, run, format answers."""
