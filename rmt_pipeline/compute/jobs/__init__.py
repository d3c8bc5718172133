"""Whoever runs units: this process, or tasks of Spark."""
