"""SELECT … FINAL: writes the rows that a merge of all parts would leave (spec §17) to files.

The units of a merge are run in this process. Rows that a merge would keep for later merges are
hidden: deleted rows of ReplacingMergeTree, negative rows of CollapsingMergeTree.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby

from rmt_pipeline.compute.merge.job import MergeJob, SourcePart
from rmt_pipeline.compute.merge.plan import shape_of, units_of
from rmt_pipeline.compute.merge.unit import run_unit
from rmt_pipeline.compute.rows.conform import is_read_as_it_is
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.compute.rows.nested import with_siblings
from rmt_pipeline.compute.units import Collapsing
from rmt_pipeline.protocol.alter.history import stored_as, stored_columns
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.store import layout
from rmt_pipeline.system import Clock


@dataclass(frozen=True, slots=True)
class FinalRows:
    """`untouched` parts are read as they are; `files` (absolute paths) have the rows
    of the others.
    """

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
    """The rows that FINAL shows of the parts, which are in the order of partitions and blocks.

    Rows of equal keys are merged across partitions, unless `by_partition` (the original's
    do_not_merge_across_partitions_select_final). The files are written to `directory`, which must
    be empty; the caller removes it, also after an error. Raises BrokenSource, DiskFull,
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
    """Whether merging the part alone would change and hide nothing, because it was merged before,
    and its engine keeps no rows for later merges. Sums may have become zero since, by a mutation or
    because a column is gone.
    """
    engine, part = definition.engine, PartName.parse(source.name)
    keeps = engine.kind == "CollapsingMergeTree" or bool(engine.is_deleted_column)
    if not part.level or keeps:
        return False
    return engine.kind != "SummingMergeTree" or (
        not part.mutation and _has_its_columns(source, definition)
    )


def _has_its_columns(source: SourcePart, definition: TableDefinition) -> bool:
    """Whether the table has all columns of the part still, with the same types."""
    manifest = source.manifest
    types = {column.name: column.type for column in stored_columns(definition)}
    kept = stored_as(definition, manifest.columns, manifest.metadata_version)
    return len(kept) == len(manifest.columns) and all(
        is_read_as_it_is(one.type, types[one.column]) for one in kept
    )


def final_files(
    sources: Sequence[SourcePart],
    definition: TableDefinition,
    directory: str,
    clock: Clock,
    numbers: Iterator[int] | None = None,
) -> list[str]:
    """Merge all rows, also those of several partitions, and write them to a directory. Returns the
    absolute paths of the files in key order, none if there are no rows. `numbers` yields unused
    numbers for the files' names. Raises as `final_rows` does.
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
    """The definition without TTL: like every SELECT, FINAL shows expired rows that still exist."""
    columns = tuple(replace(column, ttl="") for column in definition.columns)
    return replace(definition, ttl="", columns=columns)


def columns_for_final(
    definition: TableDefinition, wanted: Collection[str]
) -> tuple[Column, ...]:
    """The stored columns that a merge needs to give the `wanted` ones, in the table's order.

    All columns are needed if a needed one has a default expression (a part may lack the column, and
    the expression may use any other), and for SummingMergeTree, which removes rows whose sums are
    all zero.
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
