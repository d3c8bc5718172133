"""INSERT: rows of VALUES, of a format, of a file or of a query, given to the table at once."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from rmt_pipeline.compute.inputs.conform import conform
from rmt_pipeline.compute.rows.defaults import at_moment
from rmt_pipeline.protocol.errors import DuplicateColumn, NoSuchColumn, UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.insert.result import Outcome
from rmt_pipeline.sql.define.constants import evaluate_constants
from rmt_pipeline.sql.define.partition import partition_id_of
from rmt_pipeline.sql.formats.input_files import input_file, input_rows, input_values
from rmt_pipeline.sql.formats.rows import Done, ResultColumn
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.sql.run.values import ValuesBatch, read_values
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.statements.nodes import (
    SYSTEM_DATABASE,
    Answer,
    ColumnsChosen,
    FromFile,
    FromQuery,
    InlineRows,
    InPlaceOf,
    Insert,
    SelectStatement,
    ValuesText,
)
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.table import Table


class NoColumnsToInsert(UserError):
    """`INSERT INTO t (* EXCEPT …)` leaves no column to insert into."""

    code = "EMPTY_LIST_OF_COLUMNS_PASSED"


class WrongNumberOfColumns(UserError):
    """INSERT … SELECT whose query gives more or fewer columns than are inserted into."""

    code = "NUMBER_OF_COLUMNS_DOESNT_MATCH"


def insert(session: SessionContext, statement: Insert) -> Done:
    """Insert all rows or none. The note says if they were there already, and since when.

    Raises UnknownTable, UnknownColumn, BadValue that names row, column and value, and what
    `Table.insert` raises.
    """
    database = session.database_of(statement.table)
    if database == SYSTEM_DATABASE:
        raise UserError(f"system.{statement.table.name} takes no rows: it shows what is")
    table = session.server.table(statement.table.name, database)
    settings = session.query_settings(statement.settings)
    if settings.async_insert and not isinstance(statement.source, FromQuery):
        settings = replace(settings, insert_deduplicate=settings.async_insert_deduplicate)
    definition = table.definition
    names = _names(statement, definition)
    now_s = session.server.clock.now_s()
    data: Any
    with ExitStack() as until:
        match statement.source:
            case ValuesText() as text:
                of_now = replace(definition, columns=at_moment(definition.columns, now_s))
                values = input_values(text, session.stdin)
                data = _values(values, names, of_now, settings, session)
            case InlineRows() as rows:
                data = input_rows(rows, session.stdin, until)
            case FromFile() as file:
                data = input_file(file, names, settings)
            case FromQuery() as query:
                data = _query(session, query, statement, names, definition)
        if statement.in_place_of is not None:
            return _replaced(table, statement.in_place_of, data, names, settings)
        result = table.insert(
            data,
            columns=names,
            settings=settings,
            on_rows=session.progress.add,
            now_s=now_s,
        )
    words = result.words()
    is_plain = result.outcome is Outcome.INSERTED and not result.slowed.seconds
    return Done("" if is_plain else words, at_terminal=words)


def _replaced(
    table: Table,
    in_place_of: InPlaceOf,
    data: Any,
    names: Sequence[str],
    settings: QuerySettings,
) -> Done:
    """INSERT OVERWRITE. Raises what `Table.replace` raises."""
    ids = [partition_id_of(one, table.definition) for one in in_place_of.partitions]
    where = in_place_of.where
    result = table.replace(
        data,
        partition=ids or None,
        where="" if where is None else canonical(where),
        columns=names,
        settings=settings,
    )
    words = result.words()
    is_plain = not (result.is_duplicate or result.slowed.seconds)
    return Done("" if is_plain else words, at_terminal=words)


def _names(statement: Insert, definition: TableDefinition) -> list[str]:
    """The columns that values are given for, in their order."""
    named = statement.columns
    if named is None or isinstance(named, ColumnsChosen):
        computed = ("MATERIALIZED", "ALIAS", "EPHEMERAL")
        left_out = () if named is None else named.without
        found = [
            each.name
            for each in definition.columns
            if each.default_kind not in computed and each.name not in left_out
        ]
        named = (*found, *(name for name in left_out if definition.column(name) is None))
    if not named:
        raise NoColumnsToInsert(f"no column of {definition.full_name} is left to insert into")
    for name in named:
        if definition.column(name) is None:
            known = ", ".join(column.name for column in definition.columns)
            raise NoSuchColumn(
                f"there is no column {name} in {definition.full_name}; there are: {known}"
            )
        if named.count(name) > 1:
            raise DuplicateColumn(f"column {name} is named twice in INSERT")
    return list(named)


def _values(
    values: ValuesText,
    names: Sequence[str],
    definition: TableDefinition,
    settings: QuerySettings,
    session: SessionContext,
) -> pa.Table:
    types = {column.name: column.type for column in definition.columns}
    columns = [ResultColumn(name, parse_type(types[name])) for name in names]
    evaluate = partial(evaluate_constants, session=tuple(session.session_values().items()))
    batches = read_values(values, columns, evaluate)
    tables = [_with_defaults(batch, definition, settings) for batch in batches]
    return pa.concat_tables(tables)


def _with_defaults(
    read: ValuesBatch, definition: TableDefinition, settings: QuerySettings
) -> pa.Table:
    """The rows, with the values of the table's expressions where VALUES said DEFAULT.

    An expression may use the row's other columns, so rows that have DEFAULT in the same columns are
    computed together.
    """
    whole = pa.Table.from_batches([read.batch])
    computed = {column.name for column in definition.columns if column.default}
    missing: dict[int, frozenset[str]] = {}
    for name in sorted(computed & read.defaults.keys()):
        for row in read.defaults[name]:
            missing[row] = missing.get(row, frozenset()) | {name}
    groups: dict[frozenset[str], list[int]] = {}
    for row in range(whole.num_rows):
        groups.setdefault(missing.get(row, frozenset()), []).append(row)
    if groups.keys() == {frozenset[str]()}:
        return whole
    pieces = [
        _computed(whole.take(rows), without, definition, settings)
        for without, rows in groups.items()
    ]
    order = pa.array([row for rows in groups.values() for row in rows])
    return pa.concat_tables(pieces).take(pa.compute.sort_indices(order))


def _computed(
    rows: pa.Table,
    without: frozenset[str],
    definition: TableDefinition,
    settings: QuerySettings,
) -> pa.Table:
    """The rows with the values of the expressions of the columns `without` values. Those of an
    EPHEMERAL column, which is not stored, are kept too: the table computes other columns from them.
    """
    given = [name for name in rows.column_names if name not in without]
    columns = [
        replace(column, default_kind="DEFAULT")
        if column.default_kind == "EPHEMERAL"
        else column
        for column in definition.columns
    ]
    tables = conform(rows.select(given), columns, settings=settings, columns_given=given)
    return pa.concat_tables(tables).select(rows.column_names)


def _query(
    session: SessionContext,
    query: FromQuery,
    statement: Insert,
    names: Sequence[str],
    definition: TableDefinition,
) -> pa.RecordBatchReader:
    """The query's rows; its columns go to the named ones by position, as in the original."""
    from rmt_pipeline.sql.run.converter import Converter  # noqa: PLC0415  start-up
    from rmt_pipeline.sql.run.select import select  # noqa: PLC0415  start-up

    answer = Answer(settings=statement.settings)  # they are the query's settings too
    rows = select(session, SelectStatement(query.query, answer, query.text))
    if len(rows.columns) != len(names):
        raise WrongNumberOfColumns(
            f"INSERT INTO {statement.table} wants {len(names)} columns ({', '.join(names)}),"
            f" and the query gives {len(rows.columns)}"
        )
    types = {column.name: parse_type(column.type) for column in definition.columns}
    converters = [
        Converter(name, column.type, types[name])
        for name, column in zip(names, rows.columns, strict=True)
    ]
    schema = pa.schema([(one.name, one.type.arrow) for one in converters])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows.batches:
            pairs = zip(converters, batch.columns, strict=True)
            arrays = [converter.convert(array) for converter, array in pairs]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
