"""The protocol as pure code: values, rules and decisions. Only the standard library is used; there
is no I/O, clock, randomness or logging.
"""
