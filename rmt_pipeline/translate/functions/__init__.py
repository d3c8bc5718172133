"""The original's functions and operators, one module for each group of its manual."""
