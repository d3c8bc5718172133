"""The assets of this code location; `definitions` is what `workspace.yaml` points at."""
