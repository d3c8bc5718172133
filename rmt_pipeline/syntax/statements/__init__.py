"""The parsers of statements, one module for each family, and the nodes that they give."""
