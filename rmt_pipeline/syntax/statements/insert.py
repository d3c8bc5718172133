"""The parser of INSERT: where the rows go, and where they come from."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import expression
from rmt_pipeline.syntax.mutation import Partition, read_partition
from rmt_pipeline.syntax.settings import Settings, settings_clause
from rmt_pipeline.syntax.statements.nodes import (
    ColumnsChosen,
    FromFile,
    FromQuery,
    InlineRows,
    InPlaceOf,
    Insert,
    InsertSource,
    TableName,
    ValuesText,
)
from rmt_pipeline.syntax.statements.split import rows_start
from rmt_pipeline.syntax.statements.tail import (
    answer_tail,
    columns_left_out,
    table_name,
    whole_query,
)


def insert(cursor: Cursor, *, overwrites: bool = False) -> Insert:
    """Read the rest of INSERT INTO, or of INSERT OVERWRITE (`overwrites`)."""
    cursor.take_words("TABLE")
    if cursor.at_words("FUNCTION"):
        raise NotImplementedStatement("INSERT INTO FUNCTION is not implemented")
    table = table_name(cursor)
    columns: tuple[str, ...] | ColumnsChosen | None = None
    if cursor.at("(") and cursor.ahead(1).upper not in ("SELECT", "WITH"):
        columns = _columns(cursor)
    in_place_of = _in_place_of(cursor) if overwrites else None
    given = settings_clause(cursor) if cursor.take_words("SETTINGS") else ()
    source, more = _source(cursor, table)
    return Insert(table, columns, source, given + more, in_place_of)


def _in_place_of(cursor: Cursor) -> InPlaceOf:
    """Read what INSERT OVERWRITE, a statement of ours, replaces: `PARTITION p, PARTITION q` or
    `WHERE condition`, before SETTINGS and the rows.
    """
    if cursor.take_words("WHERE"):
        return InPlaceOf(where=expression(cursor))
    partitions: list[Partition] = []
    while cursor.take_words("PARTITION"):
        partitions.append(read_partition(cursor))
        if not cursor.take(","):
            break
    return InPlaceOf(tuple(partitions))


def _columns(cursor: Cursor) -> tuple[str, ...] | ColumnsChosen | None:
    if cursor.at_mark(1, "*"):
        cursor.advance()
        cursor.advance()
        left_out = columns_left_out(cursor)
        cursor.expect(")")
        return ColumnsChosen("", left_out) if left_out else None
    cursor.expect("(")
    return cursor.list_of(_column, ")")


def _column(cursor: Cursor) -> str:
    name = cursor.identifier("the name of a column")
    return f"{name}.{cursor.identifier()}" if cursor.take(".") else name


def _source(cursor: Cursor, table: TableName) -> tuple[InsertSource, Settings]:
    # The text after VALUES or a format's name may be anything, so no token of it is read.
    if cursor.at_words("VALUES"):
        return ValuesText(cursor.source, cursor.current.end, cursor.stop), ()
    if cursor.at_words("FORMAT"):
        return _rows(cursor), ()
    if cursor.take_words("FROM", "INFILE"):
        return _file(cursor)
    if cursor.at_words("SELECT") or cursor.at_words("WITH") or cursor.at("("):
        start = cursor.current.start
        found = whole_query(cursor)
        text = cursor.source[start : cursor.last_end]
        return FromQuery(found, text), answer_tail(cursor).settings
    if cursor.at_words("WATCH"):
        raise NotImplementedStatement(f"INSERT INTO {table} WATCH is not implemented")
    raise cursor.expected("VALUES, SELECT, FORMAT or FROM INFILE")


def _rows(cursor: Cursor) -> ValuesText | InlineRows:
    name = cursor.ahead(1)
    if name.upper == "VALUES":
        return ValuesText(cursor.source, name.end, cursor.stop)
    cursor.take_words("FORMAT")
    if not cursor.current.upper:
        raise cursor.expected("the name of a format")
    start = rows_start(cursor.source, name.end, cursor.stop)
    return InlineRows(name.text, cursor.source, start, cursor.stop)


def _file(cursor: Cursor) -> tuple[FromFile, Settings]:
    path = cursor.string("the name of a file in single quotes")
    compression = cursor.string().lower() if cursor.take_words("COMPRESSION") else None
    tail = answer_tail(cursor)
    return FromFile(path, tail.format, compression), tail.settings
