"""ALTER TABLE: the table's definition after it, and how parts from before it are read (spec §8)."""
