"""Queries of tests, read as a statement's are."""

from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.nodes import Query
from rmt_pipeline.syntax.query import inner_query, query


def parse_query(text: str) -> Query:
    """The one query that `text` is. Raises SyntaxProblem naming the place."""
    cursor = Cursor(text, read_query=inner_query)
    found = query(cursor)
    cursor.expect_end()
    return found
