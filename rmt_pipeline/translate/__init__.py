"""Compiles parsed expressions and queries to DuckDB SQL."""
