"""A Spark DataFrame → staged parts: each task writes its own, on this host; the caller commits.

Rows go to tasks by the table's partition, as far as Spark can tell it, so that a partition's rows
become few parts. What the partition really is, each task finds out by itself: where Spark can't
tell (an expression that it does not know), rows stay in the tasks in which they are, and a
partition may get a part from each of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmt_pipeline.compute.insert.stage import (
    FilePiece,
    StagePlan,
    all_staged,
    stage_batches,
    stage_files,
    unpack_staged,
    unreadable,
)
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.nodes import Call, Name, Node

ROUTE = "__rmt_route"
TASKS_PER_INSERT = 8  # of partitioned tables: rows of a partition meet in one of them


def stage_dataframe(frame: Any, plan: StagePlan) -> list[StagedPart]:
    """Stage all rows of a DataFrame (of a classic or a Connect session).

    Either every row is staged, or nothing is left. Raises what the first failing task found:
    BadValue (the row's number is within its task), UnknownColumn, TooManyPartitions, DiskFull,
    UserError; Unavailable when Spark itself failed, and then staged directories may be left for
    the sweep.
    """
    routed = _routed(frame, plan.definition)
    return _run(routed, partial(stage_batches, plan), plan)


def stage_parquet(session: Any, files: Sequence[str], plan: StagePlan) -> list[StagedPart]:
    """Stage all rows of Parquet files that the workers can open, each task reading its own.

    Three times as fast as a DataFrame of the same files, whose rows go through the JVM one by
    one. Raises as `stage_dataframe`, and IncorrectData for what is not Parquet; a wrong value is
    named with its file and row.
    """
    tasks = _tasks_of(files, plan.settings.max_insert_block_size)
    if not tasks:
        return []
    numbers = session.range(0, len(tasks), 1, len(tasks))
    return _run(numbers, partial(stage_files, plan, tasks), plan)


def _run(
    frame: Any, stage: Callable[[Iterator[Any]], Iterator[Any]], plan: StagePlan
) -> list[StagedPart]:
    try:
        results = unpack_staged(frame.mapInArrow(stage, "result binary").toArrow())
    except Exception as error:
        raise Unavailable(f"Spark: {str(error).strip().splitlines()[0][:500]}") from error
    return all_staged(results, plan)


def _tasks_of(files: Sequence[str], rows_max: int) -> list[list[FilePiece]]:
    """The row groups of the files, in order, in tasks of about one block of rows."""
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
    """The rows, those of one partition in one task."""
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
    """A Spark expression that is equal for rows of one partition; None when there is none.

    It only says where rows go: that Spark's time zone may be another than the column's puts some
    rows of a partition's edge elsewhere, no more.
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
