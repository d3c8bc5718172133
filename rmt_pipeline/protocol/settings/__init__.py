"""Settings of tables and of statements: name, type, default, meaning (spec §15)."""
