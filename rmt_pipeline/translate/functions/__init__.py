"""Functions and operators of the original, a module for each group of its manual."""
