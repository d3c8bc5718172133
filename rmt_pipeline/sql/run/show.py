"""SHOW, DESCRIBE and EXISTS: answered from the catalog."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from rmt_pipeline.catalog.replicated import replicated_database
from rmt_pipeline.protocol.errors import UnknownDatabase, UnknownTable
from rmt_pipeline.protocol.settings.neutral import NEUTRAL_QUERY_SETTINGS
from rmt_pipeline.protocol.settings.query import QUERY_SETTINGS
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.sql.formats.rows import Columns, Rows, rows_of
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.syntax.canonical import identifier_text
from rmt_pipeline.syntax.statements.nodes import (
    SYSTEM_DATABASE,
    DescribeTable,
    ExistsDatabase,
    ExistsTable,
    Pattern,
    ShowCreateDatabase,
    ShowCreateTable,
    ShowDatabases,
    ShowSettings,
    ShowStatement,
    ShowTables,
    TableName,
)

if TYPE_CHECKING:
    from rmt_pipeline.sql.system.scope import SystemTable

DESCRIBED: Columns = (
    ("name", "String"),
    ("type", "String"),
    ("default_type", "String"),
    ("default_expression", "String"),
    ("comment", "String"),
    ("codec_expression", "String"),
    ("ttl_expression", "String"),
)


def show_or_describe(session: SessionContext, statement: ShowStatement) -> Rows:
    """The answer to a SHOW, DESCRIBE or EXISTS. Raises UnknownDatabase, UnknownTable."""
    match statement:
        case ShowDatabases():
            return show_databases(session, statement)
        case ShowTables():
            return show_tables(session, statement)
        case ShowCreateDatabase():
            return show_create_database(session, statement)
        case ShowCreateTable():
            return show_create_table(session, statement)
        case ShowSettings():
            return show_settings(session, statement)
        case DescribeTable():
            return describe_table(session, statement)
        case ExistsTable():
            return exists_table(session, statement)
        case ExistsDatabase():
            return exists_database(session, statement)
        case _:
            assert_never(statement)


def show_databases(session: SessionContext, statement: ShowDatabases) -> Rows:
    """SHOW DATABASES: the names, sorted, with `system`."""
    names = sorted([*session.server.catalog.databases(), SYSTEM_DATABASE])
    found = _limited(_matching(names, statement.pattern), statement.limit)
    return rows_of([("name", "String")], [(name,) for name in found], statement.answer.format)


def show_tables(session: SessionContext, statement: ShowTables) -> Rows:
    """SHOW TABLES: the names, sorted. Raises UnknownDatabase."""
    database = statement.database or session.database
    names = _system_tables() if database == SYSTEM_DATABASE else None
    tables = session.server.catalog.tables(database) if names is None else sorted(names)
    found = _limited(_matching(tables, statement.pattern), statement.limit)
    return rows_of([("name", "String")], [(name,) for name in found], statement.answer.format)


def show_create_table(session: SessionContext, statement: ShowCreateTable) -> Rows:
    """SHOW CREATE TABLE. Raises UnknownTable, also for a system table, which no
    statement has made.
    """
    table = statement.table
    database = session.database_of(table)
    if database == SYSTEM_DATABASE and table.name in _system_tables():
        raise UnknownTable(f"system.{table.name} was made by no CREATE TABLE")
    definition = session.server.catalog.definition(database, table.name)
    text = create_query(definition, lines=True)
    return rows_of([("statement", "String")], [(text,)], statement.answer.format)


def show_create_database(session: SessionContext, statement: ShowCreateDatabase) -> Rows:
    """SHOW CREATE DATABASE. Raises UnknownDatabase."""
    catalog, name = session.server.catalog, statement.name
    if name not in catalog.databases():
        raise UnknownDatabase(f"database {name!r} does not exist")
    replicated = replicated_database(catalog, name)
    engine = "Atomic" if replicated is None else replicated.typed
    text = f"CREATE DATABASE {identifier_text(name)}\nENGINE = {engine}"
    return rows_of([("statement", "String")], [(text,)], statement.answer.format)


def show_settings(session: SessionContext, statement: ShowSettings) -> Rows:
    """SHOW SETTINGS: name, type and value in this session."""
    settings = session.settings
    found = [
        (name, setting.type, settings.get(name, setting.default_text))
        for name, setting in {**QUERY_SETTINGS, **NEUTRAL_QUERY_SETTINGS}.items()
        if not statement.changed
        or settings.get(name, setting.default_text) != setting.default_text
    ]
    names = set(_matching([name for name, _, _ in found], statement.pattern))
    columns: Columns = (("name", "String"), ("type", "String"), ("value", "String"))
    return rows_of(columns, [row for row in found if row[0] in names], statement.answer.format)


def describe_table(session: SessionContext, statement: DescribeTable) -> Rows:
    """DESCRIBE TABLE: the columns. Raises UnknownTable."""
    table = statement.table
    database = session.database_of(table)
    if database == SYSTEM_DATABASE:
        system = _system_tables()
        if table.name not in system:
            raise _no_system_table(table)
        columns: Sequence[Column] = system[table.name].definitions()
    else:
        columns = session.server.catalog.definition(database, table.name).columns
    described = [
        (
            column.name,
            column.type,
            column.default_kind,
            column.default,
            column.comment,
            column.codec,
            column.ttl,
        )
        for column in columns
    ]
    return rows_of(DESCRIBED, described, statement.answer.format)


def exists_table(session: SessionContext, statement: ExistsTable) -> Rows:
    """EXISTS TABLE: 1 or 0. A table that is detached does not exist."""
    table = statement.table
    database = session.database_of(table)
    if database == SYSTEM_DATABASE:
        exists = table.name in _system_tables()
    else:
        exists = session.server.catalog.has(database, table.name)
    return rows_of([("result", "UInt8")], [(int(exists),)], statement.answer.format)


def exists_database(session: SessionContext, statement: ExistsDatabase) -> Rows:
    """EXISTS DATABASE: 1 or 0."""
    exists = statement.name in (SYSTEM_DATABASE, *session.server.catalog.databases())
    return rows_of([("result", "UInt8")], [(int(exists),)], statement.answer.format)


def _system_tables() -> "Mapping[str, SystemTable]":
    # For start-up time.
    from rmt_pipeline.sql.system.tables import SYSTEM_TABLES  # noqa: PLC0415  loads the engine

    return SYSTEM_TABLES


def _no_system_table(table: TableName) -> UnknownTable:
    known = ", ".join(_system_tables())
    return UnknownTable(f"there is no table system.{table.name}; there are: {known}")


def _matching(names: Iterable[str], pattern: Pattern | None) -> list[str]:
    if pattern is None:
        return list(names)
    flags = re.DOTALL | (re.IGNORECASE if pattern.ignore_case else 0)
    wanted = re.compile(_like(pattern.like), flags)
    return [name for name in names if (wanted.fullmatch(name) is None) == pattern.negated]


def _like(pattern: str) -> str:
    r"""LIKE as a regular expression: `%` is any text, `_` any character, and `\` escapes either."""

    def pieces() -> Iterator[str]:
        escaped = False
        for character in pattern:
            if character == "\\" and not escaped:
                escaped = True
                continue
            special = {"%": ".*", "_": "."} if not escaped else {}
            yield special.get(character) or re.escape(character)
            escaped = False

    return "".join(pieces())


def _limited(names: list[str], limit: int | None) -> list[str]:
    return names if limit is None else names[:limit]
