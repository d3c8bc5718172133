"""What a table is after ALTER, and what parts of before have in its place (spec §8)."""
