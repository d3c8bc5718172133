"""What is true: values, rules and decisions. Standard library only; no I/O, clock,
randomness, logging.
"""
