"""Checks what CREATE and ALTER define, and makes definitions and commands of it."""
