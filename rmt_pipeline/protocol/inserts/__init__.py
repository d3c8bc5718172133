"""What makes a second try of an insert harmless (spec §2)."""
