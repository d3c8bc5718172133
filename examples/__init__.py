"""Whole code locations that use `rmt_pipeline.dagster` as any other project would."""
