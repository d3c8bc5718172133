"""Tables as a Spark data source, for reading and writing from any Spark program.

    spark.dataSource.register(RmtDataSource)
    spark.read.format("rmt").options(server="r1").load("default.orders")
    frame.write.format("rmt").options(server="r1", token=day).mode("append").save("orders")

Tasks read and write parts on the server's host, and Spark's driver commits everything that they
wrote as one insert. A micro-batch of a stream is an insert with the token `<token>/<batch id>`, so
that one that Spark repeats after a crash is known as a duplicate.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from rmt_pipeline.compute.insert.stage import StagePlan, StageResult, all_staged, stage_task
from rmt_pipeline.compute.read.parts import converted_rows, part_files, signed_schema
from rmt_pipeline.compute.units import UnitSource
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.inserts.ids import insert_id_of_parts
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.insert.result import Slowed
from rmt_pipeline.replica.insert.throttle import throttle_insert
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.table import Table

FORMAT = "rmt"
_OWN_OPTIONS = ("config", "server", "token", "path")
_SPARKS_OPTIONS = ("checkpointlocation", "queryname")
"""Options of streams, which Spark passes on to the data source."""
_BATCH_ID = "streaming.sql.batchId"
"""The property by which Spark tells a task the number of its micro-batch."""


@dataclass(frozen=True, slots=True)
class Target:
    """The table that the options name. All other options are settings of the insert."""

    config: str
    server: str
    table: str
    token: str
    settings: QuerySettings

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Target":
        """Raises UserError for a missing or unknown option."""
        given = {name.lower(): value for name, value in options.items()}
        for name, what in (("server", 'option("server", "r1")'), ("path", 'load("orders")')):
            if not given.get(name):
                raise UserError(f"format rmt needs to know the {name}: say e.g. {what}")
        ours = {*_OWN_OPTIONS, *_SPARKS_OPTIONS}
        settings = {name: value for name, value in given.items() if name not in ours}
        return cls(
            given.get("config", ""),
            given["server"],
            given["path"],
            given.get("token", ""),
            QuerySettings.of(settings),
        )

    @contextmanager
    def opened(self) -> Iterator[Table]:
        """Raises UnknownTable; BadConfiguration; ZooKeeperUnreachable."""
        database, _, name = self.table.rpartition(".")
        with ServerContext.open(self.config or None, self.server, purpose="spark") as server:
            yield server.table(name, database or "default")


class RmtDataSource(DataSource):  # type: ignore[misc]
    """The data source `rmt`. The path is the table. Options:

    server  a server of rmt.toml, which runs on this host
    config  the rmt.toml; else the one that RMT_CONFIG names, else ./rmt.toml, else the default
    token   names an insert; without it equal rows are the same insert
    (other) settings of inserts, e.g. `insert_quorum`
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> Any:
        with Target.of(self.options).opened() as table:
            return from_arrow_schema(signed_schema(stored_columns(table.definition)))

    def reader(self, schema: Any) -> "RmtReader":
        return RmtReader(Target.of(self.options), schema)

    def writer(self, schema: Any, overwrite: bool) -> "RmtWriter":
        del schema
        return RmtWriter(*_plan(self.options, overwrite=overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> "RmtStreamWriter":  # noqa: N802
        del schema
        target, plan, slowed = _plan(self.options, overwrite=overwrite)
        if not target.token:
            raise UserError(
                'a stream into format rmt needs a name for its inserts: say option("token", …), '
                "another one for each stream"
            )
        return RmtStreamWriter(target, plan, slowed)


class InsertSlowed(UserWarning):
    """An insert was slowed down because the table has too many parts. Spark's driver prints it."""


def _plan(options: Mapping[str, str], *, overwrite: bool) -> tuple[Target, StagePlan, Slowed]:
    if overwrite:
        raise UserError(
            'format rmt only appends: say mode("append"). Partitions are replaced by INSERT '
            "OVERWRITE"
        )
    target = Target.of(options)
    with target.opened() as table:
        return target, *table.stage_plan(target.token, target.settings)


@dataclass(frozen=True, slots=True)
class _Part(InputPartition):  # type: ignore[misc]
    source: UnitSource
    columns: tuple[Column, ...]


class RmtReader(DataSourceReader):  # type: ignore[misc]
    """Reads the active parts of one moment, each in a task. Their files stay for at least
    `old_parts_lifetime` after a merge replaced them.
    """

    def __init__(self, target: Target, schema: Any) -> None:
        self._target = target
        self._schema = to_arrow_schema(schema)

    def partitions(self) -> Sequence[_Part]:
        with self._target.opened() as table, table.snapshot() as snapshot:
            columns = tuple(stored_columns(table.definition))
            found = part_files(table.store, snapshot.parts, table.definition)
            return [_Part(part.source, columns) for part in found]

    def read(self, partition: _Part) -> Iterator[pa.RecordBatch]:
        pa.set_cpu_count(1)  # Spark plans one core per task; Arrow would take all of them
        wanted = [column for column in partition.columns if column.name in self._schema.names]
        for rows in converted_rows(partition.source, wanted):
            yield from rows.select(self._schema.names).cast(self._schema).to_batches()


@dataclass(frozen=True, slots=True)
class _Staged(WriterCommitMessage):  # type: ignore[misc]
    """What a task staged. A task that finds a wrong value reports it here instead of failing: Spark
    would repeat it, and end the other tasks, whose staged parts would be left behind.
    """

    results: tuple[StageResult, ...]


class _Writer:
    """What writers of batches and of streams have in common."""

    def __init__(self, target: Target, plan: StagePlan, slowed: Slowed) -> None:
        """`slowed`: for how long the insert was slowed down before it was planned."""
        self._target = target
        self._plan = plan
        self._slowed = slowed

    def _commit(self, messages: Sequence[_Staged | None], token: str) -> None:
        results = [result for message in messages if message for result in message.results]
        if staged := all_staged(results, self._plan):
            target = self._target
            with target.opened() as table:
                slowed = self._throttled(table)
                result = table.commit(staged, token=token, settings=target.settings)
            if slowed.seconds:
                words = replace(result, slowed=slowed).words()
                warnings.warn(f"{target.table}: {words}", InsertSlowed, stacklevel=2)

    def _throttled(self, table: Table) -> Slowed:
        del table
        return self._slowed

    def _abort(self, messages: Sequence[_Staged | None]) -> None:
        """Remove what tasks staged. What a task that Spark ended had staged is left to clean-up."""
        store = self._plan.store()
        for message in messages:
            for result in message.results if message else ():
                if isinstance(result, StagedPart):
                    store.discard(result)


class RmtWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a Spark job's rows: each task stages its own as parts on this host's disk, and the
    driver commits them all in one insert, or, when a task has failed, removes them.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Staged:
        return _Staged(tuple(stage_task(self._plan, iterator)))

    def commit(self, messages: Sequence[_Staged | None]) -> None:
        self._commit(messages, self._target.token)

    def abort(self, messages: Sequence[_Staged | None]) -> None:
        self._abort(messages)


class RmtStreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes each micro-batch of a stream as one insert, whose token ends with the batch's number:
    a batch that Spark repeats after a crash is a duplicate.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Staged:
        context = TaskContext.get()
        assert context is not None, "Spark runs it in a task"
        batch_id = context.getLocalProperty(_BATCH_ID)
        assert batch_id is not None, "this task is one of a micro-batch"
        plan = self._plan
        if plan.insert_id:  # else deduplication is off
            named = insert_id_of_parts(self._token(int(batch_id)), deduplicate=True)
            plan = replace(plan, insert_id=named)
        return _Staged(tuple(stage_task(plan, iterator)))

    def commit(self, messages: Sequence[_Staged | None], batchId: int) -> None:  # noqa: N803
        self._commit(messages, self._token(batchId))

    def abort(self, messages: Sequence[_Staged | None], batchId: int) -> None:  # noqa: N803
        del batchId
        self._abort(messages)

    def _throttled(self, table: Table) -> Slowed:
        """The stream is planned only once, so each batch waits here if the table has too many
        parts.
        """
        return throttle_insert(table.replica, self._target.settings)

    def _token(self, batch_id: int) -> str:
        return f"{self._target.token}/{batch_id}"
