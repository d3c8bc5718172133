"""Parts by their names: what contains what, and sets of them (spec §1)."""
