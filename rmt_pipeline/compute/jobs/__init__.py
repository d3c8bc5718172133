"""Running units, in this process or in tasks of Spark."""
