"""Hashes: of files against bit rot, of rows to prove that replicas are equal."""
