"""Dagster assets, checks, jobs, sensors and schedules; `definitions` is the code location."""
