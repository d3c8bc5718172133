"""Stages the rows of a Spark task as parts on this host's disk."""

import itertools
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from rmt_pipeline.compute.inputs.columns import InsertColumns
from rmt_pipeline.compute.inputs.conform import conform
from rmt_pipeline.compute.inputs.rows import InputRows, counted_rows
from rmt_pipeline.compute.insert.blocks import blocks_of, key_columns_of, stage
from rmt_pipeline.compute.jobs.task import RESULT_SCHEMA, begin_task
from rmt_pipeline.protocol import errors
from rmt_pipeline.protocol.errors import IncorrectData, RmtError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import RandomIds

READ_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The properties that all tasks of one insert share. `directory` is the table's, absolute."""

    definition: TableDefinition
    directory: str
    settings: QuerySettings
    insert_id: str
    run_id: str
    now_s: float
    durable: bool

    def store(self) -> PartStore:
        return PartStore(LocalDisk(self.directory), ids=RandomIds(), durable=self.durable)


@dataclass(frozen=True, slots=True)
class StageFailed:
    """Why a task staged nothing: the name of a class in protocol.errors, and the message."""

    error: str
    message: str


StageResult = StagedPart | StageFailed


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Some row groups of a Parquet file. `first_row` is the number of their first row in the file,
    counted from 1.
    """

    path: str
    row_groups: tuple[int, ...]
    first_row: int
    rows: int


def stage_batches(
    plan: StagePlan, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The body of a Spark task: stages the rows of `batches`, and yields pickled `StageResult`s.

    A task that fails discards what it has staged, and its result says why; the driver discards what
    other tasks have staged.
    """
    yield from _packed(stage_task(plan, batches))


def stage_files(
    plan: StagePlan,
    tasks: Sequence[Sequence[FilePiece]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """As `stage_batches`, for rows that the task reads from files itself, so that no row goes
    through the JVM. `batches` have the numbers of tasks in their first column.
    """
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _packed(_results(plan, _tables_of_files(plan, tasks[number])))


def stage_task(plan: StagePlan, batches: Iterator[pa.RecordBatch]) -> list[StageResult]:
    """As `stage_batches`, but returns the results themselves."""
    first = next(batches, None)
    if first is None:
        return []
    rows = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))
    return _results(plan, _tables(plan, rows))


def _results(plan: StagePlan, tables: Iterator[pa.Table]) -> list[StageResult]:
    begin_task()
    store = plan.store()
    staged: list[StagedPart] = []
    try:
        for part in _staged(plan, store, tables):
            staged.append(part)  # noqa: PERF402  after an error, those before it are discarded
    except Exception as error:  # noqa: BLE001  reported, not swallowed
        for one in staged:
            store.discard(one)
        return [_failed(error)]
    return [*staged]


def _packed(results: Sequence[StageResult]) -> Iterator[pa.RecordBatch]:
    for result in results:
        row = pickle.dumps(result)
        yield pa.record_batch([pa.array([row], pa.binary())], schema=RESULT_SCHEMA)


def all_staged(results: Sequence[StageResult], plan: StagePlan) -> list[StagedPart]:
    """The parts that all tasks of an insert have staged. If a task failed, discards all parts and
    raises the error of the first task that failed.
    """
    staged = [result for result in results if isinstance(result, StagedPart)]
    failures = [result for result in results if isinstance(result, StageFailed)]
    if not failures:
        return staged
    store = plan.store()
    for part in staged:
        store.discard(part)
    kind = getattr(errors, failures[0].error, RmtError)
    assert issubclass(kind, RmtError)
    raise kind(failures[0].message)


def unpack_staged(results: pa.Table) -> list[StageResult]:
    """The results that `stage_batches` yielded."""
    return [pickle.loads(row) for row in results.column("result").to_pylist()]  # noqa: S301


def _tables(plan: StagePlan, rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    return conform(
        rows,
        plan.definition.columns,
        settings=plan.settings,
        key_columns=key_columns_of(plan.definition),
        now_s=plan.now_s,
    )


def _tables_of_files(plan: StagePlan, pieces: Sequence[FilePiece]) -> Iterator[pa.Table]:
    columns = InsertColumns(
        plan.definition.columns,
        None,
        plan.settings,
        key_columns_of(plan.definition),
        plan.now_s,
    )
    for piece in pieces:
        for rows in _rows_of(piece):
            yield columns.table(rows, nulls_become_defaults=True)


def _rows_of(piece: FilePiece) -> Iterator[InputRows]:
    first = piece.first_row
    try:
        with pq.ParquetFile(piece.path, pre_buffer=False) as file:
            for batch in file.iter_batches(
                READ_ROWS, row_groups=list(piece.row_groups), use_threads=False
            ):
                values = dict(zip(batch.schema.names, batch.columns, strict=True))
                yield InputRows(values, batch.num_rows, counted_rows(piece.path, first))
                first += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise unreadable(piece.path, error) from error


def unreadable(path: str, error: Exception) -> IncorrectData:
    """The error for a file that Spark wrote or was to read, and that is not Parquet."""
    return IncorrectData(f"{path} can't be read as Parquet: {error}. Nothing was inserted")


def _staged(
    plan: StagePlan, store: PartStore, tables: Iterator[pa.Table]
) -> Iterator[StagedPart]:
    for block in blocks_of(tables, plan.definition, plan.settings):
        yield stage(
            block,
            store,
            insert_id=plan.insert_id,
            run_id=plan.run_id,
            created_s=int(plan.now_s),
        )


def _failed(error: Exception) -> StageFailed:
    name = type(error).__name__
    if isinstance(error, RmtError):
        return StageFailed(name, str(error))
    return StageFailed("RmtError", f"{name}: {error}")
