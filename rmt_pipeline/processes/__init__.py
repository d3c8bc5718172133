"""Processes that we start: none outlives us (`child`), and which ones there are."""
