"""SHOW, DESCRIBE and EXISTS."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.statements.nodes import (
    DescribeTable,
    ExistsDatabase,
    ExistsTable,
    Pattern,
    ShowCreateTable,
    ShowDatabases,
    ShowSettings,
    ShowTables,
    Statement,
)
from rmt_pipeline.syntax.statements.tail import answer_tail, table_name


def show(cursor: Cursor) -> Statement:
    """After SHOW."""
    if cursor.take_words("DATABASES"):
        pattern = _pattern(cursor)
        return ShowDatabases(pattern, _limit(cursor), answer_tail(cursor))
    if cursor.take_words("TABLES"):
        database = None
        if cursor.take_words("FROM") or cursor.take_words("IN"):
            database = cursor.identifier("the name of a database")
        pattern = _pattern(cursor)
        return ShowTables(database, pattern, _limit(cursor), answer_tail(cursor))
    if cursor.take_words("CREATE"):
        if cursor.at_words("DATABASE") and cursor.ahead(1).kind != "end":
            raise NotImplementedStatement("SHOW CREATE DATABASE is not implemented")
        cursor.take_words("TABLE")
        return ShowCreateTable(table_name(cursor), answer_tail(cursor))
    changed = cursor.at_words("CHANGED", "SETTINGS") and cursor.take_words("CHANGED")
    if cursor.take_words("SETTINGS"):
        pattern = _pattern(cursor)
        if pattern is None:
            raise cursor.expected("LIKE")
        return ShowSettings(pattern, changed, answer_tail(cursor))
    if cursor.current.upper:
        raise NotImplementedStatement(f"SHOW {cursor.current.upper} is not implemented")
    raise cursor.expected("TABLES, DATABASES, CREATE TABLE or SETTINGS")


def _pattern(cursor: Cursor) -> Pattern | None:
    if cursor.at_words("WHERE"):
        raise NotImplementedStatement(
            "SHOW … WHERE is not implemented: use LIKE, or SELECT from system"
        )
    negated = cursor.take_words("NOT")
    ignore_case = cursor.at_words("ILIKE")
    if cursor.take_words("ILIKE") or cursor.take_words("LIKE"):
        return Pattern(cursor.string(), negated, ignore_case)
    if negated:
        raise cursor.expected("LIKE")
    return None


def _limit(cursor: Cursor) -> int | None:
    if not cursor.take_words("LIMIT"):
        return None
    if cursor.current.kind != "number" or not cursor.current.text.isdigit():
        raise cursor.expected("a number")
    return int(cursor.advance().text)


def describe(cursor: Cursor) -> DescribeTable:
    """After DESCRIBE or DESC."""
    cursor.take_words("TABLE")
    if cursor.at("(") or cursor.at_words("SELECT"):
        raise NotImplementedStatement("DESCRIBE of a query is not implemented")
    return DescribeTable(table_name(cursor), answer_tail(cursor))


def exists(cursor: Cursor) -> ExistsTable | ExistsDatabase:
    """After EXISTS."""
    if cursor.at_words("DATABASE") and cursor.ahead(1).kind != "end":
        cursor.advance()
        return ExistsDatabase(cursor.identifier("the name of a database"), answer_tail(cursor))
    if cursor.at_words("VIEW") or cursor.at_words("DICTIONARY") or cursor.at_words("TEMPORARY"):
        raise NotImplementedStatement(f"EXISTS {cursor.current.upper} is not implemented")
    cursor.take_words("TABLE")
    return ExistsTable(table_name(cursor), answer_tail(cursor))
