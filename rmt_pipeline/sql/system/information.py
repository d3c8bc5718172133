"""The database `information_schema`: what tools ask about databases, tables and columns, in the SQL
standard's terms, as views of the tables of `system`.
"""

from collections.abc import Callable, Iterator

from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system import local
from rmt_pipeline.sql.system.scope import SystemScope, SystemTable
from rmt_pipeline.syntax.statements.nodes import SYSTEM_DATABASE

INFORMATION_SCHEMA = "information_schema"

_SCHEMATA: Columns = (
    ("catalog_name", "String"),
    ("schema_name", "String"),
    ("schema_owner", "String"),
    ("default_character_set_catalog", "Nullable(String)"),
    ("default_character_set_schema", "Nullable(String)"),
    ("default_character_set_name", "Nullable(String)"),
    ("sql_path", "Nullable(String)"),
)


def _schemata(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    for name in (*scope.server.catalog.databases(), SYSTEM_DATABASE):
        yield name, name, "default", None, None, None, None


_TABLES: Columns = (
    ("table_catalog", "String"),
    ("table_schema", "String"),
    ("table_name", "String"),
    ("table_type", "String"),
    ("table_rows", "Nullable(UInt64)"),
    ("data_length", "Nullable(UInt64)"),
    ("table_comment", "Nullable(String)"),
    ("engine", "Nullable(String)"),
)


_COUNTED = ("table_rows", "data_length", "TABLE_ROWS", "DATA_LENGTH")


def _tables(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    for row in local.tables(scope, counted=scope.mentions(*_COUNTED)):
        table = dict(zip((name for name, _ in local.TABLES), row, strict=True))
        database, is_system = table["database"], table["database"] == SYSTEM_DATABASE
        yield (
            database,
            database,
            table["name"],
            "SYSTEM VIEW" if is_system else "BASE TABLE",
            table["total_rows"],
            table["total_bytes"],
            table["comment"],
            table["engine"],
        )


_COLUMNS: Columns = (
    ("table_catalog", "String"),
    ("table_schema", "String"),
    ("table_name", "String"),
    ("column_name", "String"),
    ("ordinal_position", "UInt64"),
    ("column_default", "String"),
    ("is_nullable", "String"),
    ("data_type", "String"),
    ("column_comment", "String"),
    ("column_type", "String"),
)


def _columns(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    for row in local.columns(scope):
        column = dict(zip((name for name, _ in local.COLUMNS), row, strict=True))
        yield (
            column["database"],
            column["database"],
            column["table"],
            column["name"],
            column["position"],
            column["default_expression"],
            str(int(str(column["type"]).startswith("Nullable("))),
            column["type"],
            column["comment"],
            column["type"],
        )


_MakeRows = Callable[[SystemScope], Iterator[tuple[object, ...]]]


def _in_both_cases(columns: Columns, rows: _MakeRows) -> SystemTable:
    """A table whose columns have their names in small and in capital letters, as in
    the original.
    """
    capitals = tuple((name.upper(), data_type) for name, data_type in columns)
    return SystemTable(
        (*columns, *capitals), lambda scope: ((*row, *row) for row in rows(scope))
    )


INFORMATION_TABLES: dict[str, SystemTable] = {
    "columns": _in_both_cases(_COLUMNS, _columns),
    "schemata": _in_both_cases(_SCHEMATA, _schemata),
    "tables": _in_both_cases(_TABLES, _tables),
}
