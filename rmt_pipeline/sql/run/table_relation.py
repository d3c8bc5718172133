"""A query's table as a DuckDB relation over the files of its parts, with exactly the table's
columns.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from pathlib import PurePath
from typing import NamedTuple

from rmt_pipeline.compute.rows.defaults import DefaultExpressions
from rmt_pipeline.compute.rows.nested import sibling_of
from rmt_pipeline.protocol.alter.history import StoredColumn, stored_as
from rmt_pipeline.protocol.errors import SampleOutOfBound, SamplingNotSupported
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.replica.reading import ActivePart, Snapshot
from rmt_pipeline.store.manifest import PartColumn
from rmt_pipeline.store.parquet import may_hide_nan
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.nodes import Name, Query, SampleClause, names_in
from rmt_pipeline.syntax.special_forms import cast_node
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.table import Table
from rmt_pipeline.translate.base.typed import ELEMENT
from rmt_pipeline.translate.expression import compile_node
from rmt_pipeline.translate.functions.array import stored_default
from rmt_pipeline.translate.select.sources import Relation
from rmt_pipeline.types.data_type import INTEGER_BITS
from rmt_pipeline.types.escapes import duckdb_column, duckdb_name, duckdb_text

_FILE = "\u00b7file"
_VIRTUAL = {
    "_part": f"regexp_extract(\"{_FILE}\", '([^/]+)/[^/]+$', 1)",
    "_partition_id": f"regexp_extract(\"{_FILE}\", '([^/_]+)_[^/]+/[^/]+$', 1)",
}
"""Computed from the names of files, whose directory is the part. Not in `*`, as in the original."""


class TableFiles(NamedTuple):
    """Files with the same columns, written with the same version of the table's metadata."""

    columns: tuple[PartColumn, ...]
    files: Sequence[str]
    version: int
    hides_nan: bool = False
    """See `may_hide_nan`."""

    @classmethod
    def of_part(cls, table: Table, part: ActivePart) -> "TableFiles":
        manifest = part.manifest
        files, hides_nan = table.store.files(part.name), may_hide_nan(manifest.engine_version)
        return cls(manifest.columns, files, manifest.metadata_version, hides_nan)


def table_relation(table: Table, snapshot: Snapshot, query: Query) -> Relation:
    """Every row of the parts. `query` shows whether virtual columns are needed: without them DuckDB
    reads less.
    """
    files = [TableFiles.of_part(table, part) for part in snapshot.parts]
    return relation_over(files, table.definition, virtual=virtual_columns_in(query))


def relation_over(
    files: Sequence[TableFiles],
    definition: TableDefinition,
    *,
    virtual: Sequence[str] = (),
    unread: Collection[str] = (),
) -> Relation:
    """The rows of files that were written for the table, whichever columns it had then.

    `unread` are columns that the query does not use: they are NULL.
    """
    stored = [c for c in definition.columns if c.is_stored]
    selects = []
    for found, some in _runs(files, definition):
        paths = [path for one in some for path in one.files]
        has_nan = any(one.hides_nan for one in some) and _may_have_nan(found, definition)
        if paths:
            there = some[0].columns
            source = _files(paths, there, with_names=bool(virtual), has_nan=has_nan)
            name = duckdb_name if _are_told_apart(there) else duckdb_column
            read = {one.column: name(one.name) for one in found}
            selects.append(_select(found, read, source, stored, virtual, unread=unread))
    sql = " UNION ALL ".join(selects) if selects else _empty(stored, virtual)
    columns = [column for column in definition.columns if column.default_kind != "EPHEMERAL"]
    hidden = [Column(name, "String", default_kind="MATERIALIZED") for name in virtual]
    return Relation(f"({sql})", [*columns, *hidden])


def sampled(
    relation: Relation, definition: TableDefinition, sample: SampleClause, rows: int
) -> Relation:
    """The rows whose sampling key is in a range of the values that its type can hold, as in the
    original: the same rows each time, and on each replica. `rows` is the number of rows of the
    table, for a sample that is a number of rows. `_sample_factor` is what to multiply a sum by.

    Raises SamplingNotSupported, SampleOutOfBound.
    """
    if not definition.sample_by:
        raise SamplingNotSupported(
            f"{definition.full_name} has no SAMPLE BY: SAMPLE needs one in CREATE TABLE"
        )
    key = compile_node(parse_expression(definition.sample_by), definition.columns)
    size = _share(sample.size, rows)
    if size in (0, 1):  # all rows, as in the original
        if sample.offset:
            raise SampleOutOfBound(
                f"SAMPLE {sample.size} is all rows: there is nothing for OFFSET {sample.offset}"
            )
        return _with_factor(relation, relation.sql, 1.0)
    offset = _share(sample.offset, rows)
    end = 2 ** INTEGER_BITS[key.type.plain.family]
    first, last = int(offset * end), int((offset + size) * end)
    within = [f"{key.duckdb_sql} >= {first}"] if first else []
    within += [f"{key.duckdb_sql} < {last}"] if last < end else []
    where = f" WHERE {' AND '.join(within)}" if within else ""
    return _with_factor(relation, f"{relation.sql}{where}", float(1 / size))


def _with_factor(relation: Relation, source: str, factor: float) -> Relation:
    column = Column("_sample_factor", "Float64", default_kind="MATERIALIZED")
    sql = f"(SELECT *, CAST({factor!r} AS DOUBLE) AS _sample_factor FROM {source})"  # noqa: S608
    return replace(relation, sql=sql, columns=(*relation.columns, column))


def _share(given: Fraction, rows: int) -> Fraction:
    """A share as it is; a number of rows as the share of all rows."""
    if given <= 1:
        return given
    return min(Fraction(1), given / rows) if rows else Fraction(1)


def virtual_columns_in(query: Query) -> list[str]:
    """The virtual columns that a query may use."""
    names = names_in(query)
    return [name for name in _VIRTUAL if name in names]


def _runs(
    files: Sequence[TableFiles], definition: TableDefinition
) -> Iterator[tuple[tuple[StoredColumn, ...], list[TableFiles]]]:
    """Neighbouring files that store the table's columns in the same way, and have names that DuckDB
    takes for one in the same order, grouped: how they store them, and the files.
    """
    known: dict[
        tuple[tuple[PartColumn, ...], int],
        tuple[tuple[StoredColumn, ...], tuple[PartColumn, ...]],
    ] = {}
    for one in files:
        if (one.columns, one.version) not in known:
            found = stored_as(definition, one.columns, one.version)
            in_order = () if _are_told_apart(one.columns) else one.columns
            known[one.columns, one.version] = found, in_order
    for (stored, _), same in groupby(files, lambda one: known[one.columns, one.version]):
        yield stored, list(same)


def _are_told_apart(columns: Sequence[PartColumn]) -> bool:
    """Whether DuckDB tells the names of a file's columns from each other."""
    return len({name.lower() for name, _ in columns}) == len(columns)


def _files(
    paths: Sequence[str], columns: Sequence[PartColumn], *, with_names: bool, has_nan: bool
) -> str:
    """Files with these columns, in DuckDB's FROM, each column under its own name, in the form of
    `told_apart`. What directories above them are called (`/site=eu/`) says nothing about columns.
    """
    listed = ", ".join(duckdb_text(str(PurePath(path))) for path in paths)
    options = ", hive_partitioning = false"
    options += f", filename = {duckdb_text(_FILE)}" * with_names
    options += ", can_have_nan = true" * has_nan
    by_place = ""
    if not _are_told_apart(columns):
        by_place = f" AS files({', '.join(duckdb_column(name) for name, _ in columns)})"
    return f"read_parquet([{listed}]{options}){by_place}"


def _may_have_nan(columns: Sequence[StoredColumn], definition: TableDefinition) -> bool:
    """Whether a NaN may be in one of the columns: those of a key have none."""
    return any("Float" in one.type and one.column not in definition.order_by for one in columns)


def _select(
    present: Sequence[StoredColumn],
    read: Mapping[str, str],
    source: str,
    stored: Sequence[Column],
    virtual: Sequence[str],
    *,
    unread: Collection[str],
) -> str:
    """The rows of files with the table's current stored columns. It is built in steps, each around
    the one before: the files' columns under their current names (`read` says what they are called
    in `source`); with their current types; the columns that the files lack.
    """
    found = {one.column: one for one in present}
    names = [*(column.name for column in stored), *virtual]
    unread = frozenset(unread)
    have = [column for column in stored if column.name in found and column.name not in unread]
    items = [_read(read[column.name], column.name) for column in have]
    items += [f"{_VIRTUAL[name]} AS {duckdb_column(name)}" for name in virtual]
    sql = f"SELECT {', '.join(items) or '1 AS none'} FROM {source}"  # noqa: S608
    if len(have) == len(stored) and all(found[one.name].type == one.type for one in have):
        return sql
    items = [_converted(column, found[column.name]) for column in have]
    lacking = [column for column in stored if column.name not in found]
    defaults = DefaultExpressions(stored)
    computed = [one for one in lacking if one.name in defaults and one.name not in unread]
    items += [_null(column) for column in stored if column.name in unread]
    items += [
        f"{_default(column, have, found, stored)} AS {duckdb_column(column.name)}"
        for column in lacking
        if column not in computed and column.name not in unread
    ]
    items += [duckdb_column(name) for name in virtual]
    sql = f"SELECT {', '.join(items)} FROM ({sql})"  # noqa: S608
    return f"SELECT {', '.join(map(duckdb_column, names))} FROM ({_with_computed(sql, computed, stored)})"  # noqa: S608, E501


def _default(
    column: Column,
    have: Sequence[Column],
    found: Mapping[str, StoredColumn],
    stored: Sequence[Column],
) -> str:
    """The type's default, for rows without a value of the column. In a group of Nested, that is an
    array of as many defaults as a sibling has elements.
    """
    kind = parse_type(column.type)
    arrays = {
        one.name for one in have if parse_type(found[one.name].type).plain.family == "Array"
    }
    sibling = sibling_of(column.name, arrays, stored)
    if sibling is None:
        return stored_default(kind)
    default = stored_default(kind.plain.elements[0])
    return f"list_transform({duckdb_column(sibling)}, lambda {ELEMENT}: {default})"


def _read(name: str, column: str) -> str:
    return name if name == duckdb_column(column) else f"{name} AS {duckdb_column(column)}"


def _converted(column: Column, found: StoredColumn) -> str:
    """The column cast to its current type, if that was changed after the part was written."""
    name = duckdb_column(column.name)
    if found.type == column.type:
        return name
    node = cast_node(Name((column.name,)), parse_type(column.type))
    expression = compile_node(node, [Column(column.name, found.type)])
    return f"{expression.duckdb_sql} AS {name}"


def _with_computed(sql: str, computed: Sequence[Column], stored: Sequence[Column]) -> str:
    """The rows of `sql` with the columns with default expressions that they lack. Each is computed
    from columns that are there, or that were computed before it.
    """
    waiting = {column.name: column for column in computed}
    for name in DefaultExpressions(stored).in_order(list(waiting)):
        column = waiting.pop(name)
        known = [each for each in stored if each.name not in waiting and each != column]
        node = cast_node(parse_expression(column.default), parse_type(column.type))
        expression = compile_node(node, known, allow_nondeterministic=True)
        sql = f"SELECT *, {expression.duckdb_sql} AS {duckdb_column(name)} FROM ({sql})"  # noqa: S608
    return sql


def _null(column: Column) -> str:
    kind = parse_type(column.type).duckdb
    return f"CAST(NULL AS {kind}) AS {duckdb_column(column.name)}"


def _empty(stored: Sequence[Column], virtual: Sequence[str]) -> str:
    items = [_null(column) for column in stored]
    items += [f"CAST(NULL AS VARCHAR) AS {duckdb_column(name)}" for name in virtual]
    return f"SELECT {', '.join(items)} WHERE false"
