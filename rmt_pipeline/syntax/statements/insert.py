"""INSERT: where the rows go, and where they come from."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.sql_cursor import Cursor
from rmt_pipeline.syntax.statements.nodes import (
    FromFile,
    FromQuery,
    InlineRows,
    Insert,
    InsertSource,
    Settings,
    TableName,
    Values,
)
from rmt_pipeline.syntax.statements.split import rows_start
from rmt_pipeline.syntax.statements.tail import (
    answer_tail,
    query_text,
    settings_list,
    table_name,
)


def insert(cursor: Cursor) -> Insert:
    """After INSERT INTO."""
    cursor.accept("TABLE")
    if cursor.at("FUNCTION"):
        raise NotImplementedStatement("INSERT INTO FUNCTION is not implemented")
    table = table_name(cursor)
    columns: tuple[str, ...] | None = None
    if cursor.at_mark("(") and cursor.peek(1).upper not in ("SELECT", "WITH"):
        columns = _columns(cursor)
    settings = settings_list(cursor) if cursor.accept("SETTINGS") else ()
    source, more = _source(cursor, table)
    return Insert(table, columns, source, settings + more)


def _columns(cursor: Cursor) -> tuple[str, ...] | None:
    if cursor.peek(1).text == "*":
        cursor.advance()
        cursor.advance()
        if not cursor.accept_mark(")"):
            raise NotImplementedStatement(
                "INSERT INTO t (* …) is not implemented: name the columns"
            )
        return None
    names: list[str] = []
    cursor.in_parentheses(lambda: names.append(_column(cursor)))
    return tuple(names)


def _column(cursor: Cursor) -> str:
    name = cursor.name("the name of a column")
    return f"{name}.{cursor.name()}" if cursor.accept_mark(".") else name


def _source(cursor: Cursor, table: TableName) -> tuple[InsertSource, Settings]:
    # What follows VALUES or a format's name may be anything, so no token is read there: the
    # cursor holds one token only, the keyword itself.
    if cursor.at("VALUES"):
        return Values(cursor.source, cursor.token.stop, cursor.stop), ()
    if cursor.at("FORMAT"):
        return _rows(cursor), ()
    if cursor.accept("FROM", "INFILE"):
        return _file(cursor)
    if cursor.at("SELECT") or cursor.at("WITH") or cursor.at_mark("("):
        query = query_text(cursor)
        return FromQuery(query), answer_tail(cursor).settings
    if cursor.at("WATCH"):
        raise NotImplementedStatement(f"INSERT INTO {table} WATCH is not implemented")
    raise cursor.expected("VALUES, SELECT, FORMAT or FROM INFILE")


def _rows(cursor: Cursor) -> Values | InlineRows:
    name = cursor.peek(1)
    if name.upper == "VALUES":
        return Values(cursor.source, name.stop, cursor.stop)
    cursor.accept("FORMAT")
    if not cursor.token.upper:
        raise cursor.expected("the name of a format")
    start = rows_start(cursor.source, name.stop, cursor.stop)
    return InlineRows(name.text, cursor.source, start, cursor.stop)


def _file(cursor: Cursor) -> tuple[FromFile, Settings]:
    path = cursor.string("the name of a file in single quotes")
    compression = cursor.string().lower() if cursor.accept("COMPRESSION") else None
    tail = answer_tail(cursor)
    return FromFile(path, tail.format, compression), tail.settings
