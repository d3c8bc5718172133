"""Hashes of files, against bit rot, and of rows, to prove that replicas are equal."""
