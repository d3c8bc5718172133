"""ClickHouse's SQL as trees: one lexer, one cursor, and one tree of nodes for all expressions."""
