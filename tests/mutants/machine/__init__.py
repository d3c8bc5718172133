"""Bugs planted by machine: every comparison, guard, order of effects, field of a multi, exception path."""
