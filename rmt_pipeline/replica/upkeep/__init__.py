"""What is looked at and thrown away beside the work: broken parts, old ones (spec §10)."""
