"""Shared test helpers: fakes, servers, builders."""
