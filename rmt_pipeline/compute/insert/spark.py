"""Stages the rows of a Spark DataFrame as parts: each task writes its own, on this host; the caller
commits them.

If Spark can compute the partition key, or an expression with the same partitions, rows are sent to
tasks by it, so that a partition's rows become few parts. Otherwise rows stay in their tasks, and a
partition may get a part from each task. In any case each task computes the partitions of its rows
itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmt_pipeline.compute.insert.scanned import scanned_files
from rmt_pipeline.compute.insert.stage import (
    FilePiece,
    StagePlan,
    all_staged,
    stage_batches,
    stage_files,
    unpack_staged,
    unreadable,
)
from rmt_pipeline.compute.jobs.spark import brief
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.nodes import Call, Name, Node

ROUTE = "__rmt_route"
TASKS_PER_INSERT = 8  # of partitioned tables; all rows of a partition are in one of these


def stage_dataframe(frame: Any, plan: StagePlan) -> list[StagedPart]:
    """Stage all rows of a DataFrame (of a classic or a Connect session). Large Parquet files that
    it reads and leaves as they are, into a table without partitions, are read as `stage_parquet`
    does.

    Either every row is staged, or nothing is left. Raises the error of the first task that failed:
    BadValue (the row's number is that within its task), UnknownColumn, TooManyPartitions, DiskFull,
    UserError. Raises Unavailable if Spark itself failed; then staged directories may be left, which
    the clean-up removes.
    """
    files = [] if plan.definition.partition_by else scanned_files(frame)
    if files:
        return stage_parquet(frame.sparkSession, files, _of_a_dataframe(plan))
    routed = _routed(frame, plan.definition)
    return _run(routed, partial(stage_batches, plan), plan)


def stage_parquet(session: Any, files: Sequence[str], plan: StagePlan) -> list[StagedPart]:
    """Stage all rows of Parquet files that the workers can open, each task reading its own.

    This is twice to three times as fast as a DataFrame that Spark has to compute, whose rows go
    through the JVM one by one. Raises as `stage_dataframe` does, and IncorrectData for a file that
    is not Parquet. The error for a wrong value names its file and row.
    """
    tasks = _tasks_of(files, plan.settings.max_insert_block_size)
    if not tasks:
        return []
    numbers = session.range(0, len(tasks), 1, len(tasks))
    return _run(numbers, partial(stage_files, plan, tasks), plan)


def _of_a_dataframe(plan: StagePlan) -> StagePlan:
    """In a file, as in any format, a NULL may stand for a column's default; not in a DataFrame."""
    settings = replace(plan.settings, input_format_null_as_default=False)
    return replace(plan, settings=settings)


def _run(
    frame: Any, stage: Callable[[Iterator[Any]], Iterator[Any]], plan: StagePlan
) -> list[StagedPart]:
    try:
        results = unpack_staged(frame.mapInArrow(stage, "result binary").toArrow())
    except Exception as error:
        raise Unavailable(f"Spark: {brief(error)}") from error
    return all_staged(results, plan)


def _tasks_of(files: Sequence[str], rows_max: int) -> list[list[FilePiece]]:
    """The row groups of the files, in order, distributed to tasks of about one block of rows."""
    tasks: list[list[FilePiece]] = []
    room = 0
    for path in files:
        for piece in _pieces_of(path, rows_max):
            if not tasks or piece.rows > room:
                tasks.append([])
                room = rows_max
            tasks[-1].append(piece)
            room -= piece.rows
    return tasks


def _pieces_of(path: str, rows_max: int) -> list[FilePiece]:
    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error
    pieces: list[FilePiece] = []
    groups: list[int] = []
    first_row, rows = 1, 0
    for group in range(metadata.num_row_groups):
        count = metadata.row_group(group).num_rows
        if groups and rows + count > rows_max:
            pieces.append(FilePiece(path, tuple(groups), first_row, rows))
            first_row += rows
            groups, rows = [], 0
        groups.append(group)
        rows += count
    if rows:
        pieces.append(FilePiece(path, tuple(groups), first_row, rows))
    return pieces


def _routed(frame: Any, definition: TableDefinition) -> Any:
    """The DataFrame with the rows of each partition in one task, if Spark can compute that."""
    kinds = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    routes = [
        route
        for text in definition.partition_by
        if (route := _route(parse_expression(text), kinds)) is not None
    ]
    if not routes:
        return frame
    hashed = f"hash({', '.join(routes)}) AS `{ROUTE}`"
    return frame.selectExpr("*", hashed).repartition(TASKS_PER_INSERT, ROUTE).drop(ROUTE)


def _route(node: Node, kinds: Mapping[str, str]) -> str | None:
    """A Spark expression that is equal for rows of one partition; None if there is none.

    It only decides to which tasks rows go. If Spark's time zone is not the column's, some rows at a
    partition's edge go to another task, which does no harm.
    """
    match node:
        case Name(parts=(name,)) if name in kinds:
            return _quoted(name)
        case Call(name=function, arguments=(Name(parts=(name,)), *_)) if name in kinds:
            form = _FORMS.get(function.lower())
            return form(_quoted(name)) if form and kinds[name] in _TIMES else None
    return None


_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
_FORMS: Mapping[str, Callable[[str], str]] = {
    "toyyyymm": lambda name: f"year({name}) * 100 + month({name})",
    "tostartofmonth": lambda name: f"year({name}) * 100 + month({name})",
    "toyear": lambda name: f"year({name})",
    "tostartofyear": lambda name: f"year({name})",
    "toyyyymmdd": lambda name: f"to_date({name})",
    "todate": lambda name: f"to_date({name})",
    "tostartofday": lambda name: f"to_date({name})",
    "tomonday": lambda name: f"date_trunc('week', {name})",
    "tostartofweek": lambda name: f"date_trunc('week', {name})",
    "tostartofhour": lambda name: f"date_trunc('hour', {name})",
}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
