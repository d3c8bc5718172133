"""A year of flights onto two replicas: a table, its source, an ingest asset, a code location.

`python -m examples.flights` (`make demo`) runs it with everything it needs, and checks it.
"""
