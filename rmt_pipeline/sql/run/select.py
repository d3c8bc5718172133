"""SELECT: in DuckDB, on the part files of one replica (design §9).

A query is translated, its tables become relations over pinned parts, and its answer is streamed:
parts stay pinned and the connection open until the last batch was read or the reader is closed.

Modules for tables are imported only when a query names a table, for start-up time.
"""

import os
import re
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rmt_pipeline.protocol.errors import (
    IllegalFinal,
    QueryTooSlow,
    SamplingNotSupported,
    UnknownTable,
)
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.sql.formats.rows import ResultColumn, Rows, rows_of
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.sql.run.show import DESCRIBED
from rmt_pipeline.syntax.lexer import excerpt
from rmt_pipeline.syntax.nodes import NamedTable, Query
from rmt_pipeline.syntax.settings import Settings
from rmt_pipeline.syntax.statements.nodes import SYSTEM_DATABASE, Answer, SelectStatement
from rmt_pipeline.translate.connection import duckdb, open_connection, user_error
from rmt_pipeline.translate.evaluate import in_stored_form
from rmt_pipeline.translate.select.query import translate_query
from rmt_pipeline.translate.select.sources import Relation
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.escapes import told_apart

if TYPE_CHECKING:
    from rmt_pipeline.replica.reading import Snapshot
    from rmt_pipeline.table import Table

BATCH_ROWS = 65_536
MEMORY_BYTES = 1 << 30
INTERRUPT_AGAIN_S = 0.05

NUMBERS = Relation(
    "(SELECT CAST(range AS UBIGINT) AS number FROM range(9223372036854775807))",
    (Column("number", "UInt64"),),
)


def select(session: SessionContext, statement: SelectStatement) -> Rows:
    """The answer, whose rows are not read yet.

    Raises what is wrong with the query: SyntaxProblem, UnknownTable, UnknownColumn,
    UnknownFunction; MissingPart or Corruption for a part that is not fetched again in time. While
    rows are read: BadValue for a value that can't be computed, and Corruption, even after the last
    row.
    """
    settings = session.query_settings(statement.answer.settings)
    sources = _Sources(session, statement.query, statement.answer.settings)
    try:
        translated = translate_query(statement.query, sources.resolve, session.session_values())
        if statement.shows == "columns":
            with sources.pinned:
                described = [(one.name, one.type.text, *[""] * 5) for one in translated.columns]
                return rows_of(DESCRIBED, described, statement.answer.format)
        spill = _spill_directory(session)
        connection = open_connection(
            directories=sources.directories,
            memory_bytes=settings.max_memory_usage or MEMORY_BYTES,
            threads=settings.max_threads or os.cpu_count() or 1,
            spill_directory=spill,
        )
        sources.pinned.callback(connection.close)
        sources.pinned.enter_context(session.computing(connection))
        if settings.max_execution_time:
            sources.limit = _TimeLimit(settings.max_execution_time, connection)
            sources.pinned.callback(sources.limit.stop)
        session.progress.follow(partial(_share_done, connection))
        for name, table in sources.tables.items():
            connection.register(name, table)
        if statement.shows == "plan":
            with sources.pinned:
                return _plan(connection, translated.sql, statement, sources)
        totals = None
        types = [column.type for column in translated.columns]
        if translated.totals:
            reader = _run(connection, translated.totals, statement.text, sources)
            (totals,) = _read(reader, types, statement.text, sources)
        reader = _run(connection, translated.sql, statement.text, sources)
    except BaseException:
        sources.pinned.close()
        raise
    columns = tuple(ResultColumn(column.name, column.type) for column in translated.columns)
    batches = _batches(reader, types, statement.text, sources)
    return Rows(columns, batches, statement.answer.format, totals=totals)


def _share_done(connection: duckdb.DuckDBPyConnection) -> float:
    """The share of the query that is done, 0 to 1; below 0 when DuckDB does not know it, or another
    thread has closed the connection.
    """
    try:
        return float(connection.query_progress()) / 100
    except duckdb.Error:
        return -1.0


def _plan(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    statement: SelectStatement,
    sources: "_Sources",
) -> Rows:
    """EXPLAIN: the lines of DuckDB's plan, which is what runs."""
    with _told(statement.text, sources):
        ((_, plan),) = connection.execute(f"EXPLAIN {sql}").fetchall()
    lines = [(line.rstrip(),) for line in plan.splitlines()]
    return rows_of([("explain", "String")], lines, statement.answer.format)


_UNREADABLE = re.compile(
    r"(Invalid Input|IO) Error: (?!throwIf)[^\n]*\.parquet['\"]"
    r"|(Invalid Error: )?(TProtocolException|Out of buffer|don't know what type)"
)
"""How an error of DuckDB begins that may be due to a file whose bytes it can't make sense of. An
error of the query itself may quote a value.
"""


def _spill_directory(session: SessionContext) -> Path:
    return session.server.catalog.data / "tmp"


def _run(
    connection: duckdb.DuckDBPyConnection, sql: str, query: str, sources: "_Sources"
) -> pa.RecordBatchReader:
    with _told(query, sources):
        return connection.sql(sql).to_arrow_reader(BATCH_ROWS)


@contextmanager
def _told(query: str, sources: "_Sources") -> Iterator[None]:
    """A context for what DuckDB computes: its errors are told as those of the query."""
    try:
        yield
    except duckdb.Error as error:
        sources.require_in_time(query)
        sources.require_whole(str(error))
        raise user_error(error, query) from error


def _batches(
    reader: pa.RecordBatchReader, types: list[DataType], query: str, sources: "_Sources"
) -> Iterator[pa.RecordBatch]:
    with sources.pinned:
        yield from _read(reader, types, query, sources)


def _read(
    reader: pa.RecordBatchReader, types: list[DataType], query: str, sources: "_Sources"
) -> Iterator[pa.RecordBatch]:
    names = [str(place) for place in range(len(types))]
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            sources.require_whole()
            return
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            sources.require_in_time(query)
            sources.require_whole(str(error))
            raise user_error(duckdb.Error(str(error)), query) from error
        sources.require_in_time(query)
        arrays = [
            in_stored_form(array, data_type)
            for array, data_type in zip(batch.columns, types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


class _TimeLimit:
    """Interrupts what the connection computes after `seconds`, unless it is stopped, or deleted,
    before. It interrupts again and again, since DuckDB forgets an interrupt that comes before a
    computation begins.
    """

    def __init__(self, seconds: float, connection: duckdb.DuckDBPyConnection) -> None:
        self.seconds = seconds
        self._over, ended = threading.Event(), threading.Event()
        self.stop = weakref.finalize(self, ended.set)
        about = (min(seconds, threading.TIMEOUT_MAX), self._over, ended, connection)
        threading.Thread(target=_interrupt, args=about, daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()


def _interrupt(
    after_s: float,
    over: threading.Event,
    ended: threading.Event,
    connection: duckdb.DuckDBPyConnection,
) -> None:
    while not ended.wait(INTERRUPT_AGAIN_S if over.is_set() else after_s):
        over.set()
        with suppress(duckdb.Error):  # the connection is closed already
            connection.interrupt()


@dataclass(slots=True)
class _Sources:
    """The tables of one query. Each is found once, when the translation asks for it."""

    session: SessionContext
    query: Query
    settings: Settings
    pinned: ExitStack = field(default_factory=ExitStack)
    directories: list[Path] = field(default_factory=list)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    read: "list[tuple[Table, Snapshot]]" = field(default_factory=list)
    limit: _TimeLimit | None = None
    _known: dict[NamedTable, Relation] = field(default_factory=dict)

    def require_in_time(self, query: str) -> None:
        """Raises QueryTooSlow when the time limit is over."""
        if self.limit is not None and self.limit.is_over:
            raise QueryTooSlow(
                f"timeout exceeded: it takes longer than max_execution_time, "
                f"{self.limit.seconds:g} s, in {excerpt(query)}"
            )

    def require_whole(self, failure: str = "") -> None:
        """Raises Corruption when files were changed while they were read, or may be the reason of
        the `failure`, and are broken.
        """
        said, _, _ = failure.partition("\n")  # what follows may quote names of other files
        suspicion = said if _UNREADABLE.match(said) else ""
        for table, snapshot in self.read:
            table.require_whole(snapshot, suspicion)

    def resolve(self, source: NamedTable) -> Relation:
        """The relation for a table. Raises UnknownTable, UnknownDatabase, ZooKeeperUnreachable."""
        found_in, name = source.database or self.session.database, source.table
        key = replace(source, database=found_in, alias="")
        if key not in self._known:
            if found_in == SYSTEM_DATABASE or found_in.lower() == "information_schema":
                if source.sample is not None:
                    raise SamplingNotSupported(f"{found_in}.{name} has no SAMPLE BY")
                self._known[key] = self._system(found_in.lower(), name)
            else:
                self._known[key] = self._table(found_in, source)
        return self._known[key]

    def _system(self, database: str, name: str) -> Relation:
        if name in {"numbers", "numbers_mt"} and database == SYSTEM_DATABASE:
            return NUMBERS
        from rmt_pipeline.sql.system.information import (  # noqa: PLC0415  start-up
            INFORMATION_SCHEMA,
            INFORMATION_TABLES,
        )
        from rmt_pipeline.sql.system.scope import SystemScope  # noqa: PLC0415  start-up
        from rmt_pipeline.sql.system.tables import SYSTEM_TABLES  # noqa: PLC0415  start-up

        is_information = database == INFORMATION_SCHEMA
        tables = INFORMATION_TABLES if is_information else SYSTEM_TABLES
        table = tables.get(name.lower() if is_information else name)
        if table is None:
            known = ", ".join(tables)
            raise UnknownTable(f"there is no table {database}.{name}; there are: {known}")
        settings = {**self.session.settings, **dict(self.settings)}
        scope = SystemScope(self.session.server, settings, self.query, SYSTEM_TABLES, self._ask)
        rows = rows_of(table.columns, table.rows(scope))
        registered = f"{database}_{name}"
        found = pa.Table.from_batches(rows.batches)
        self.tables[registered] = found.rename_columns(
            [told_apart(column) for column, _ in table.columns]
        )
        return Relation(f'"{registered}"', table.definitions())

    def _ask(self, query: Query) -> list[tuple[object, ...]]:
        answer = select(self.session, SelectStatement(query, Answer(settings=self.settings)))
        return [
            values
            for batch in answer.batches
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        ]

    def _table(self, database: str, source: NamedTable) -> Relation:
        table = self.session.server.table(source.table, database)
        settings = self.session.query_settings(self.settings)
        if source.final and table.definition.engine.kind == "MergeTree":
            raise IllegalFinal(
                f"{table.definition.full_name} is of the engine {table.definition.engine.name}, "
                "which doesn't support FINAL: its merges leave all rows. Leave FINAL out"
            )
        snapshot = self.session.held.get(table.definition.full_name)
        if snapshot is None:
            snapshot = self.pinned.enter_context(table.snapshot(settings))
        if settings.check_parts_before_reading:
            self.read.append((table, snapshot))
        self.directories.append(self.session.server.catalog.table_directory(table.definition))
        relation = self._rows(
            table, snapshot, settings, is_final=source.final or settings.final
        )
        if source.sample is None:
            return relation
        from rmt_pipeline.sql.run.table_relation import sampled  # noqa: PLC0415  start-up

        rows = sum(part.manifest.rows for part in snapshot.parts)
        return sampled(relation, table.definition, source.sample, rows)

    def _rows(
        self, table: "Table", snapshot: "Snapshot", settings: QuerySettings, *, is_final: bool
    ) -> Relation:
        if not is_final or table.definition.engine.kind == "MergeTree":
            from rmt_pipeline.sql.run.table_relation import (  # noqa: PLC0415  start-up
                table_relation,
            )

            return table_relation(table, snapshot, self.query)
        from rmt_pipeline.sql.run.final_relation import (  # noqa: PLC0415  start-up
            final_directory,
            final_relation,
        )

        server = self.session.server
        parent = _spill_directory(self.session)
        directory = self.pinned.enter_context(final_directory(parent, server.clock))
        by_partition = settings.do_not_merge_across_partitions_select_final
        return final_relation(
            table, snapshot, self.query, directory, server.clock, by_partition=by_partition
        )
