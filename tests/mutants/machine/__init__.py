"""Bugs planted by machine: in comparisons, guards, orders of effects, multis, exception paths."""
