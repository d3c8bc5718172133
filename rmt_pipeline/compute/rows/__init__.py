"""Rows of parts: reading them, conforming them to the table's columns, sorting, computing and
writing them.
"""
