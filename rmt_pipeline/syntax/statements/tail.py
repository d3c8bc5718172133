"""Parsers that several statements share: table names, ON CLUSTER, SETTINGS, FORMAT."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.nodes import Query
from rmt_pipeline.syntax.query import inner_query, query
from rmt_pipeline.syntax.settings import Settings, settings_clause
from rmt_pipeline.syntax.statements.nodes import Answer, TableName


def table_name(cursor: Cursor) -> TableName:
    """Read `name` or `database.name`, and ON CLUSTER after it. The database is None if it was not
    given.
    """
    database, name = None, cursor.identifier("the name of a table")
    if cursor.take("."):
        database, name = name, cursor.identifier("the name of a table")
    on_cluster(cursor)
    return TableName(database, name)


def on_cluster(cursor: Cursor) -> None:
    """Read `ON CLUSTER c`, if it comes next. `parse` checks at the end whether the statement may
    have it.
    """
    if cursor.take_words("ON", "CLUSTER"):
        if cursor.cluster:
            raise cursor.expected("ON CLUSTER only once")
        what = "the name of a cluster"
        quoted = cursor.current.kind == "string"
        cursor.cluster = cursor.string(what) if quoted else cursor.identifier(what)


def snapshot_name(cursor: Cursor) -> str:
    """Read `WITH NAME 'n'`, and return the name."""
    cursor.expect_words("WITH", "NAME")
    return cursor.string("the name of a snapshot in single quotes")


def whole_query(cursor: Cursor) -> Query:
    """Read a query, up to its FORMAT and SETTINGS."""
    cursor.read_query = inner_query
    return query(cursor)


def answer_tail(cursor: Cursor) -> Answer:
    """Read `[SETTINGS …] [FORMAT f] [SETTINGS …]` up to the end of the statement."""
    given: Settings = ()
    format_name = None
    while not cursor.at_end:
        if cursor.take_words("SETTINGS"):
            given += settings_clause(cursor)
        elif format_name is None and cursor.take_words("FORMAT"):
            format_name = cursor.identifier("the name of a format")
        elif cursor.at_words("INTO", "OUTFILE"):
            raise NotImplementedStatement(
                "INTO OUTFILE is not implemented: redirect the output, with FORMAT or --format"
            )
        else:
            raise cursor.expected("SETTINGS, FORMAT or the end of the statement")
    return Answer(format_name, given)


def columns_left_out(cursor: Cursor) -> tuple[str, ...]:
    """Read `EXCEPT` with one name, or several in parentheses; () if it does not come next."""
    if not cursor.take_words("EXCEPT"):
        return ()
    if cursor.take("("):
        return cursor.list_of(lambda c: c.identifier("the name of a column"), ")")
    return (cursor.identifier("the name of a column"),)
