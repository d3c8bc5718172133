"""SHOW, DESCRIBE and EXISTS."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.sql_cursor import Cursor
from rmt_pipeline.syntax.sql_tokens import Kind
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
    if cursor.accept("DATABASES"):
        pattern = _pattern(cursor)
        return ShowDatabases(pattern, _limit(cursor), answer_tail(cursor))
    if cursor.accept("TABLES"):
        database = None
        if cursor.accept("FROM") or cursor.accept("IN"):
            database = cursor.name("the name of a database")
        pattern = _pattern(cursor)
        return ShowTables(database, pattern, _limit(cursor), answer_tail(cursor))
    if cursor.accept("CREATE"):
        if cursor.at("DATABASE") and cursor.peek(1).kind is not Kind.END:
            raise NotImplementedStatement("SHOW CREATE DATABASE is not implemented")
        cursor.accept("TABLE")
        return ShowCreateTable(table_name(cursor), answer_tail(cursor))
    changed = cursor.at("CHANGED", "SETTINGS") and cursor.accept("CHANGED")
    if cursor.accept("SETTINGS"):
        pattern = _pattern(cursor)
        if pattern is None:
            raise cursor.expected("LIKE")
        return ShowSettings(pattern, changed, answer_tail(cursor))
    if cursor.token.upper:
        raise NotImplementedStatement(f"SHOW {cursor.token.upper} is not implemented")
    raise cursor.expected("TABLES, DATABASES, CREATE TABLE or SETTINGS")


def _pattern(cursor: Cursor) -> Pattern | None:
    if cursor.at("WHERE"):
        raise NotImplementedStatement(
            "SHOW … WHERE is not implemented: use LIKE, or SELECT from system"
        )
    negated = cursor.accept("NOT")
    ignore_case = cursor.at("ILIKE")
    if cursor.accept("ILIKE") or cursor.accept("LIKE"):
        return Pattern(cursor.string(), negated, ignore_case)
    if negated:
        raise cursor.expected("LIKE")
    return None


def _limit(cursor: Cursor) -> int | None:
    if not cursor.accept("LIMIT"):
        return None
    if cursor.token.kind is not Kind.NUMBER or not cursor.token.text.isdigit():
        raise cursor.expected("a number")
    return int(cursor.advance().text)


def describe(cursor: Cursor) -> DescribeTable:
    """After DESCRIBE or DESC."""
    cursor.accept("TABLE")
    if cursor.at_mark("(") or cursor.at("SELECT"):
        raise NotImplementedStatement("DESCRIBE of a query is not implemented")
    return DescribeTable(table_name(cursor), answer_tail(cursor))


def exists(cursor: Cursor) -> ExistsTable | ExistsDatabase:
    """After EXISTS."""
    if cursor.at("DATABASE") and cursor.peek(1).kind is not Kind.END:
        cursor.advance()
        return ExistsDatabase(cursor.name("the name of a database"), answer_tail(cursor))
    if cursor.at("VIEW") or cursor.at("DICTIONARY") or cursor.at("TEMPORARY"):
        raise NotImplementedStatement(f"EXISTS {cursor.token.upper} is not implemented")
    cursor.accept("TABLE")
    return ExistsTable(table_name(cursor), answer_tail(cursor))
