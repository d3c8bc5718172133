"""SELECT … FINAL: the rows that a merge of all parts would leave (spec §17), in files of their own.

The same kernel as a merge's, in this process; what a merge still keeps for merges to come is
hidden: tombstones of ReplacingMergeTree, negative rows of CollapsingMergeTree.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby

from rmt_pipeline.compute.merge.job import MergeJob, SourcePart
from rmt_pipeline.compute.merge.plan import shape_of, units_of
from rmt_pipeline.compute.merge.unit import run_unit
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.compute.rows.nested import with_siblings
from rmt_pipeline.compute.units import Collapsing
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.store import layout
from rmt_pipeline.system import Clock


@dataclass(frozen=True, slots=True)
class FinalRows:
    """`untouched` parts are shown as they are; `files` (absolute paths) have the others' rows."""

    untouched: tuple[SourcePart, ...]
    files: tuple[str, ...]


def final_rows(
    sources: Sequence[SourcePart],
    definition: TableDefinition,
    directory: str,
    clock: Clock,
    *,
    by_partition: bool = False,
) -> FinalRows:
    """What FINAL shows of the parts, which come in the order of partitions and blocks.

    Rows of equal keys are merged across partitions, unless `by_partition` (the original's
    do_not_merge_across_partitions_select_final). The files are written to `directory`, an empty
    one, which is the caller's to remove, whatever is raised: BrokenSource, DiskFull,
    IncorrectData.
    """
    groups = [list(sources)] if sources else []
    if by_partition:
        parted = groupby(sources, key=lambda source: source.manifest.partition_id)
        groups = [list(group) for _, group in parted]
    untouched: list[SourcePart] = []
    files: list[str] = []
    numbers = count()
    for group in groups:
        if len(group) == 1 and _is_final(group[0], definition):
            untouched += group
        else:
            files += final_files(group, definition, directory, clock, numbers)
    return FinalRows(tuple(untouched), tuple(files))


def _is_final(source: SourcePart, definition: TableDefinition) -> bool:
    """Whether merging the part alone would change nothing and hide nothing: it was merged, and
    its engine keeps no rows for merges to come.
    """
    engine = definition.engine
    keeps = engine.kind == "CollapsingMergeTree" or bool(engine.is_deleted_column)
    return PartName.parse(source.name).level > 0 and not keeps


def final_files(
    sources: Sequence[SourcePart],
    definition: TableDefinition,
    directory: str,
    clock: Clock,
    numbers: Iterator[int] | None = None,
) -> list[str]:
    """Write the rows to a directory, merged together, also when they are of several partitions;
    the absolute paths of the files, in key order. `numbers` are free ones for their names.

    No rows: no file. See `final_rows`.
    """
    if not sources:
        return []
    job = MergeJob(
        "final", tuple(sources), directory, _without_ttl(definition), 0, cleanup=True
    )
    shape = shape_of(job)
    if isinstance(shape.rules, Collapsing):
        shape = replace(shape, rules=replace(shape.rules, final=True))
    results = [
        run_unit(
            replace(unit, verify=(), output=f"{directory}/{layout.data_file(number)}"), clock
        )
        for unit, number in zip(units_of(job, 0, shape), numbers or count(), strict=False)
    ]
    return [f"{directory}/{result.file.name}" for result in results if result.file is not None]


def _without_ttl(definition: TableDefinition) -> TableDefinition:
    """FINAL shows rows that have expired and are still there, as every SELECT does."""
    columns = tuple(replace(column, ttl="") for column in definition.columns)
    return replace(definition, ttl="", columns=columns)


def columns_for_final(
    definition: TableDefinition, wanted: Collection[str]
) -> tuple[Column, ...]:
    """The stored columns that a merge needs to show the `wanted` ones, in the table's order.

    All of them where one of them has a default expression (a part may lack it, and the
    expression use any other), and where sums of zero make rows disappear.
    """
    columns = stored_columns(definition)
    engine = definition.engine
    keys = KeyColumns((*definition.partition_by, *definition.order_by), columns)
    needed = {*wanted, *keys.inputs}
    needed |= {engine.version_column, engine.is_deleted_column, engine.sign_column}
    together = with_siblings(needed, columns)
    found = tuple(column for column in columns if column.name in together)
    if engine.kind == "SummingMergeTree" or any(column.default for column in found):
        return columns
    return found or columns[:1]  # rows without a column could not be counted
