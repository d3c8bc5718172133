"""Plans merges: the units of a merge job, and the tasks for units."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from rmt_pipeline.compute.merge.job import MergeJob, SourcePart
from rmt_pipeline.compute.rows.computed import ttl_rules
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.compute.rows.order_values import has_own_order
from rmt_pipeline.compute.rows.source import (
    SortKey,
    key_value,
    naming_the_part,
    open_parquet,
    stretches,
)
from rmt_pipeline.compute.units import (
    COMPUTED,
    Aggregating,
    Collapsing,
    KeyPart,
    KeyPrefix,
    Plain,
    Replacing,
    Rules,
    Sample,
    Shape,
    Summing,
    Unit,
    UnitFile,
    UnitSource,
    VersionedCollapsing,
    cuts,
    cuts_by_samples,
    units_count,
)
from rmt_pipeline.protocol.alter.history import stored_as, stored_columns
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.protocol.ttl import codec_of, everything_expired, something_expired
from rmt_pipeline.store import layout
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.types.escapes import quote_name

# Small units share tasks, as starting a task costs as much as merging a few thousand rows.
TASK_UNITS_MAX = 8
TASK_BYTES_MAX = 8 << 20
JOB_TASKS_MAX = 64


def plan_merge(job: MergeJob, number: int) -> list[Unit]:
    """The units of one merge; `number` is their `merge`.

    Of large parts the footers are read and, if these do not tell enough, some keys. Raises
    BrokenSource for a file that can't be read, UserError if the engine names a column that the
    table does not have.
    """
    return units_of(job, number, shape_of(job))


def units_of(job: MergeJob, number: int, shape: Shape) -> list[Unit]:
    """The units of a merge with this shape; see `plan_merge`."""
    sources = tuple(unit_source(source, job.definition) for source in job.sources)
    count = units_count(sum(source.manifest.bytes_on_disk for source in job.sources))
    edges: list[KeyPrefix] = []
    if count > 1 and shape.key and all(_has_key(source, shape) for source in sources):
        edges = _cuts(sources, shape, count)
        if edges and not has_statistics(shape):
            reader = KeyReader(shape)
            sources = tuple(reader.with_firsts(source) for source in sources)
    files = [(source.part, file) for source in sources for file in source.files]
    bounds: list[KeyPrefix | None] = [None, *edges, None]
    return [
        Unit(
            merge=number,
            ordinal=ordinal,
            shape=shape,
            sources=sources,
            output=f"{job.staging}/{layout.data_file(ordinal)}",
            lower=bounds[ordinal],
            upper=bounds[ordinal + 1],
            verify=tuple(files[ordinal :: len(bounds) - 1]),
        )
        for ordinal in range(len(bounds) - 1)
    ]


def _has_key(source: UnitSource, shape: Shape) -> bool:
    """Whether the part has the key's columns with their current types. If not, its bounds are not
    those of the key.
    """
    if source.stored is None:
        return True
    types = {column.name: column.type for column in shape.columns}
    found = {one.column: parse_type(one.type).arrow for one in source.stored}
    return all(found.get(name) == parse_type(types[name]).arrow for name in shape.key_columns)


def _cuts(sources: Sequence[UnitSource], shape: Shape, count: int) -> list[KeyPrefix]:
    by_statistics: list[KeyPrefix] = []
    if has_statistics(shape):
        found = stretches(sources, shape.key[0].name)
        by_statistics = [(value,) for value in cuts(found, count)]
        if len(by_statistics) == count - 1 and isinstance(found[0].least, int):
            return by_statistics
    by_samples = cuts_by_samples(KeyReader(shape).samples(sources), count)
    return max(by_samples, by_statistics, key=len)


def has_statistics(shape: Shape) -> bool:
    """Whether Parquet has the bounds of the leading key's values."""
    leading = shape.key[0]
    kinds = {column.name: column.type for column in shape.columns}
    return not leading.is_computed and not parse_type(kinds[leading.name]).plain.elements


def unit_source(source: SourcePart, definition: TableDefinition) -> UnitSource:
    """The part as units read it, with the table's current columns."""
    manifest, directory = source.manifest, source.directory
    files = sorted(manifest.files)  # data-00000, data-00001, …: key order
    return UnitSource(
        source.name,
        tuple(UnitFile(f"{directory}/{file.name}", file.size, file.hash) for file in files),
        stored_as(definition, manifest.columns, manifest.metadata_version),
    )


def tasks_of(merges: Sequence[Sequence[Unit]]) -> list[list[list[Unit]]]:
    """Distribute units to the tasks of Spark jobs. A merge of several units is a job of its own,
    with a task for each unit; merges of one unit share jobs and tasks.
    """
    jobs = [[[unit] for unit in units] for units in merges if len(units) > 1]
    tasks: list[list[Unit]] = []
    room_bytes = 0
    for (unit,) in (units for units in merges if len(units) == 1):
        size = sum(file.size for source in unit.sources for file in source.files)
        if not tasks or len(tasks[-1]) == TASK_UNITS_MAX or size > room_bytes:
            tasks.append([])
            room_bytes = TASK_BYTES_MAX
        tasks[-1].append(unit)
        room_bytes -= size
    jobs += [tasks[at : at + JOB_TASKS_MAX] for at in range(0, len(tasks), JOB_TASKS_MAX)]
    return jobs


def shape_of(job: MergeJob) -> Shape:
    """The shape of the merge's result: its columns and keys, and the rules for its rows."""
    definition = job.definition
    columns = stored_columns(definition)
    order_by = key_parts(sorting_key(definition), columns)
    partition_by = KeyColumns(definition.partition_by, columns)
    in_keys = (*key_parts(partition_by.names, columns), *order_by)
    bounded = [KeyPart(part.text, part.column) for part in in_keys if part.column]
    bounded += [part for part in order_by if not part.column and not _own_order(part, columns)]
    bounded += [KeyPart(name, name) for name in partition_by.inputs]
    ttl, now_s = ttl_rules(definition), job.create_time_s
    known = [source.manifest.ttl for source in job.sources]
    looks = job.expires and (_adds_up(definition) or something_expired(known, ttl, now_s))
    return Shape(
        columns=columns,
        key=order_by,
        rules=engine_rules(definition, cleanup=job.cleanup),
        deduplicate=job.deduplicate,
        deduplicate_by=job.deduplicate_by,
        bounded=tuple({part.name: part for part in reversed(bounded)}.values())[::-1],
        ttl=ttl,
        expire_s=now_s if looks else 0,
        codec=codec_of(known, ttl, now_s),
    )


def _adds_up(definition: TableDefinition) -> bool:
    return definition.engine.kind in ("SummingMergeTree", "AggregatingMergeTree")


def nothing_is_left(job: MergeJob) -> bool:
    """Whether every row has expired, as the sources' manifests say; then the rows need not be
    merged.

    Never for engines that add up rows: whether a sum has expired can't be told from the rows.
    """
    ttl = ttl_rules(job.definition)
    return (
        job.expires
        and not _adds_up(job.definition)
        and all(
            everything_expired(source.manifest.ttl, ttl, job.create_time_s)
            for source in job.sources
        )
    )


def _own_order(part: KeyPart, columns: Sequence[Column]) -> bool:
    return has_own_order(KeyColumns([part.text], columns).types[0])


def key_parts(expressions: Sequence[str], columns: Sequence[Column]) -> tuple[KeyPart, ...]:
    """The expressions of a key with the columns by which rows are compared: columns of the parts,
    or computed ones.
    """
    plain = {quote_name(column.name): column for column in columns}
    found = []
    for text in expressions:
        column = plain.get(text)
        stored = column is not None and not has_own_order(parse_type(column.type))
        name = column.name if column is not None else ""
        found.append(KeyPart(text, name if stored else COMPUTED + text, name))
    return tuple(found)


def sorting_key(definition: TableDefinition) -> tuple[str, ...]:
    """The expressions by which rows are sorted and by which the engine takes them for the same key
    (spec §17).
    """
    version = quote_name(definition.engine.version_column)
    versioned = definition.engine.kind == "VersionedCollapsingMergeTree"
    if versioned and version not in definition.order_by:
        return (*definition.order_by, version)
    return definition.order_by


def engine_rules(definition: TableDefinition, *, cleanup: bool) -> Rules:
    """The rules of a table's engine, with the columns that its parameters name. With `cleanup`,
    ReplacingMergeTree removes rows that are marked as deleted.
    """
    engine = definition.engine
    match engine.kind:
        case "MergeTree":
            return Plain()
        case "ReplacingMergeTree":
            return Replacing(engine.version_column, engine.is_deleted_column, cleanup)
        case "SummingMergeTree":
            columns = stored_columns(definition)
            keys = (*definition.partition_by, *definition.order_by)
            return Summing(engine.columns_to_sum, kept=KeyColumns(keys, columns).inputs)
        case "AggregatingMergeTree":
            return Aggregating()
        case "CollapsingMergeTree":
            return Collapsing(engine.sign_column)
        case "VersionedCollapsingMergeTree":
            return VersionedCollapsing(engine.sign_column, engine.version_column)


SAMPLED_ROW_GROUPS_MAX = 64
SAMPLES_PER_ROW_GROUP = 16


class KeyReader:
    """Reads the keys of some rows of large sources, to cut a merge by them.

    Parquet's statistics have the least and greatest value of a column in a row group. For numbers
    that are spread about evenly this is enough. It is not enough for strings, for computed keys,
    and if the key's first column has so few values that the merge must be cut by its second.
    """

    def __init__(self, shape: Shape) -> None:
        self._key = KeyColumns([part.text for part in shape.key], shape.columns)
        self._inputs = list(self._key.inputs)
        columns = {column.name: column for column in shape.columns}
        self._schema = arrow_schema([columns[name] for name in self._inputs])

    def samples(self, sources: Sequence[UnitSource]) -> list[Sample]:
        """Keys at even distances in row groups at even distances. Sources that lack a column of the
        key give no samples. Raises BrokenSource.
        """
        groups = [
            (source.part, file, metadata, group)
            for source in sources
            for file in source.files
            for metadata in [open_parquet(source.part, file.path).metadata]
            for group in range(metadata.num_row_groups)
        ]
        step = -(-len(groups) // SAMPLED_ROW_GROUPS_MAX)
        found: list[Sample] = []
        for part, file, metadata, group in groups[step // 2 :: step]:
            rows = metadata.row_group(group).num_rows
            count = min(SAMPLES_PER_ROW_GROUP, rows)
            places = np.linspace(0, rows, count, endpoint=False, dtype=np.int64)
            weight = metadata.row_group(group).total_byte_size / max(count, 1)
            table = self._read(part, file, group, metadata.row_group(group).num_rows)
            if table is not None:
                keys = self._keys(table.take(pa.array(places)))
                found += [Sample(key, weight) for key in keys]
        return found

    def with_firsts(self, source: UnitSource) -> UnitSource:
        """The source with the leading key value of each row group's first row
        (`UnitFile.firsts`).
        """
        files = []
        for file in source.files:
            metadata = open_parquet(source.part, file.path).metadata
            tables = [
                self._read(source.part, file, group, 1)
                for group in range(metadata.num_row_groups)
            ]
            if any(table is None for table in tables):
                return source
            firsts = [self._keys(table)[0][0] for table in tables]
            files.append(replace(file, firsts=tuple(firsts)))
        return replace(source, files=tuple(files))

    def _read(self, part: str, file: UnitFile, group: int, rows: int) -> pa.Table | None:
        """The first rows of a row group with the key's columns alone; None if it lacks one of
        these.
        """
        with open_parquet(part, file.path) as opened, naming_the_part(part, file.path):
            if not set(self._inputs) <= set(opened.schema_arrow.names):
                return None
            batches: Iterator[Any] = opened.iter_batches(
                rows, row_groups=[group], columns=self._inputs, use_threads=False
            )
            table = pa.Table.from_batches([next(batches)])
            return table.select(self._inputs).cast(self._schema)

    def _keys(self, table: pa.Table) -> list[SortKey]:
        columns = self._key.ordered(table.combine_chunks())
        return [
            tuple(key_value(column[row]) for column in columns) for row in range(len(table))
        ]
