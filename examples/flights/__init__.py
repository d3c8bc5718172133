"""A year of flights, loaded into a table with two replicas: its source, an ingest asset and a code
location.

`python -m examples.flights` (`make demo`) runs it with everything it needs, and checks the result.
"""
