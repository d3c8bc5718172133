"""Dagster resources: configuration to engine objects."""
