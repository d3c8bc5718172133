"""The language: one lexer, one cursor, one tree of nodes for statements and expressions."""
