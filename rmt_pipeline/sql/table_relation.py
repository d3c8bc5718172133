"""A table of a query as a DuckDB relation over its parts' files, with exactly its columns."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from rmt_pipeline.expressions.functions_array import stored_default
from rmt_pipeline.expressions.sources import Relation
from rmt_pipeline.expressions.translate import compile_expression
from rmt_pipeline.expressions.typed import identifier
from rmt_pipeline.expressions.types import parse_type, quote_name
from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.sql.cursor import Cursor
from rmt_pipeline.sql.tokens import unquote
from rmt_pipeline.store.manifest import PartColumn
from rmt_pipeline.table import ActivePart, Snapshot, Table

_VIRTUAL = {
    "_part": "regexp_extract(filename, '([^/]+)/[^/]+$', 1)",
    "_partition_id": "regexp_extract(filename, '([^/_]+)_[^/]+/[^/]+$', 1)",
}
"""From the names of files: their directory is the part. Not in `*`, as in the original."""


def table_relation(table: Table, snapshot: Snapshot, query: str, *, final: bool) -> Relation:
    """`query` tells whether virtual columns are wanted: without them DuckDB reads less.

    Raises NotImplementedStatement for FINAL where rows would have to be merged.
    """
    definition = table.definition
    if final and definition.engine.kind != "MergeTree":
        raise NotImplementedStatement(
            f"FINAL of {definition.full_name} (Replicated{definition.engine.kind}) is not"
            " implemented: OPTIMIZE TABLE … FINAL merges its rows for good"
        )
    virtual = [name for name in _VIRTUAL if name in _names(query)]
    stored = [c for c in definition.columns if c.default_kind not in ("ALIAS", "EPHEMERAL")]
    selects = list(_selects(table, snapshot.parts, stored, virtual))
    sql = " UNION ALL ".join(selects) if selects else _empty(stored, virtual)
    columns = [column for column in definition.columns if column.default_kind != "EPHEMERAL"]
    hidden = [Column(name, "String", default_kind="MATERIALIZED") for name in virtual]
    return Relation(f"({sql})", [*columns, *hidden])


def _names(query: str) -> set[str]:
    cursor = Cursor(query, 0, len(query))
    found: set[str] = set()
    while not cursor.at_end:
        found.add(unquote(cursor.advance()))
    return found


def _selects(
    table: Table,
    parts: Sequence[ActivePart],
    stored: Sequence[Column],
    virtual: Sequence[str],
) -> Iterator[str]:
    """A SELECT for each run of parts with the same columns: older ones may lack some."""
    run: list[str] = []
    of: tuple[PartColumn, ...] = ()
    for part in parts:
        if run and part.manifest.columns != of:
            yield _select(run, of, table.definition, stored, virtual)
            run = []
        of = part.manifest.columns
        run += table.store.files(part.name)
    if run:
        yield _select(run, of, table.definition, stored, virtual)


def _select(
    files: Sequence[str],
    present: Sequence[PartColumn],
    definition: TableDefinition,
    stored: Sequence[Column],
    virtual: Sequence[str],
) -> str:
    types = {column.name: column.type for column in present}
    items = [_item(column, types, definition) for column in stored]
    items += [f"{_VIRTUAL[name]} AS {identifier(name)}" for name in virtual]
    paths = ", ".join("'" + str(PurePath(file)).replace("'", "''") + "'" for file in files)
    options = ", filename = true" if virtual else ""
    return f"SELECT {', '.join(items)} FROM read_parquet([{paths}]{options})"  # noqa: S608


def _item(column: Column, types: dict[str, str], definition: TableDefinition) -> str:
    name = identifier(column.name)
    found = types.get(column.name)
    if found == column.type:
        return name
    present = [each for each in definition.columns if each.name in types]
    if found is not None:  # its type was changed after the part was written
        renamed = [Column(each.name, types[each.name]) for each in present]
        text = f"CAST({quote_name(column.name)} AS {column.type})"
        return f"{compile_expression(text, renamed).duckdb_sql} AS {name}"
    if column.default:
        text = f"CAST({column.default} AS {column.type})"
        return f"{compile_expression(text, present).duckdb_sql} AS {name}"
    return f"{stored_default(parse_type(column.type))} AS {name}"


def _empty(stored: Sequence[Column], virtual: Sequence[str]) -> str:
    items = [
        f"CAST(NULL AS {parse_type(column.type).duckdb}) AS {identifier(column.name)}"
        for column in stored
    ]
    items += [f"CAST(NULL AS VARCHAR) AS {identifier(name)}" for name in virtual]
    return f"SELECT {', '.join(items)} WHERE false"
