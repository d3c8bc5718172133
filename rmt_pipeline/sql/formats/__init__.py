"""Rows from and to text: what goes in and what is answered."""
