"""Cuts the rows of an insert into blocks of one partition each, in key order, and stages them as
parts (spec §2.2).

The order is that of `rows.order`, which merges use too: numbers by value, strings by bytes, Enum
and UUID as `order_values` says.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import metadata
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmt_pipeline.compute import units
from rmt_pipeline.compute.insert.partition import partition_id, partition_text
from rmt_pipeline.compute.merge.plan import engine_rules, key_parts, sorting_key
from rmt_pipeline.compute.merge.result import json_bounds
from rmt_pipeline.compute.merge.rules import rules_for
from rmt_pipeline.compute.rows.computed import compiled, evaluated, ttl_rules
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.compute.rows.order import Flags, RowIndexes, row_order
from rmt_pipeline.compute.rows.ttl import RowTtl
from rmt_pipeline.compute.rows.windows import Sorted
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.errors import (
    BadValue,
    Conflict,
    TooManyPartitions,
    ViolatedConstraint,
)
from rmt_pipeline.protocol.table import Constraint, TableDefinition
from rmt_pipeline.protocol.ttl import PartTtl, codec_of
from rmt_pipeline.store import layout, parquet
from rmt_pipeline.store.hashes.rows import RowHashes, hash_groups
from rmt_pipeline.store.manifest import KeyBound, Manifest, PartColumn, PartFile
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import GivenRows, StagedPart
from rmt_pipeline.syntax.types import arrow_schema
from rmt_pipeline.types.escapes import shown_text
from rmt_pipeline.types.to_text import column_values

_GROUP = "\0partition"
TOGETHER_MAX = 256  # blocks that are staged several at a time
TOGETHER_ROWS_MAX = 1 << 16  # of them; they are in memory at once


class BlockSettings(Protocol):
    """The settings in `QuerySettings` that decide how blocks are formed."""

    @property
    def max_insert_block_size(self) -> int: ...
    @property
    def min_insert_block_size_rows(self) -> int: ...
    @property
    def min_insert_block_size_bytes(self) -> int: ...
    @property
    def max_partitions_per_insert_block(self) -> int: ...
    @property
    def throw_on_max_partitions_per_insert_block(self) -> bool: ...
    @property
    def optimize_on_insert(self) -> bool: ...


@dataclass(frozen=True)
class Block:
    """Sorted rows of one partition. `shape` has what all blocks of the table share.

    With optimize_on_insert these are the rows that the engine leaves of the `given` ones; there may
    be none.
    """

    partition_id: str
    partition: str
    table: pa.Table
    key_bounds: tuple[KeyBound, ...]
    hashes: RowHashes
    shape: "BlockShape"
    given: GivenRows


class BlockShape:
    """What blocks need of a table's definition, prepared once. Raises UserError for keys that can't
    be computed.
    """

    def __init__(self, definition: TableDefinition) -> None:
        columns = [each for each in definition.columns if each.is_stored]
        self.schema: pa.Schema = arrow_schema(columns)
        self.columns = tuple(PartColumn(column.name, column.type) for column in columns)
        self.order_by = KeyColumns(sorting_key(definition), columns)
        self.rules = InsertRules(definition)
        self.partition_by = KeyColumns(definition.partition_by, columns)
        self.sorted_by = self.order_by.leading_columns
        self.key_names = (*self.partition_by.names, *self.order_by.names)
        self.metadata_version = definition.metadata_version
        self.ttl_rules = ttl_rules(definition)
        self.ttl = RowTtl(self.ttl_rules, columns)
        self.checked = [
            one for one in map(Constraint.parse, definition.constraints) if one.is_checked
        ]
        self.checks = [compiled(one.expression, columns) for one in self.checked]


@lru_cache(maxsize=256)
def block_shape(definition: TableDefinition) -> BlockShape:
    """The shape of the table's blocks. Raises UserError for keys that can't be computed."""
    return BlockShape(definition)


def key_columns_of(definition: TableDefinition) -> frozenset[str]:
    """The columns that the table's keys use. In these `inputs.conform` makes no NULL a default."""
    shape = block_shape(definition)
    return frozenset((*shape.partition_by.inputs, *shape.order_by.inputs))


def blocks_of(
    tables: Iterable[pa.Table], definition: TableDefinition, settings: BlockSettings
) -> Iterator[Block]:
    """Cut rows, as `inputs.conform` yields them, into blocks of one partition each.

    At most `max_insert_block_size` rows are in memory at a time. Raises TooManyPartitions;
    BadValue for NULL and NaN in a key, naming the row (the first is 1) and the column;
    ViolatedConstraint.
    """
    shape = block_shape(definition)
    first_row = 1
    for table in _joined(tables, settings):
        yield from _split(table, shape, settings, first_row)
        first_row += table.num_rows


def stage_all(
    blocks: Iterable[Block], store: PartStore, *, insert_id: str, run_id: str, created_s: int
) -> Iterator[StagedPart]:
    """Stage the blocks, in order, small ones several at a time. Raises like `stage`; the caller
    discards the parts that it has got by then.
    """
    stage_one = partial(
        stage, store=store, insert_id=insert_id, run_id=run_id, created_s=created_s
    )
    for some in _few_rows_at_a_time(blocks):
        yield from _stage_together(some, store, stage_one)


def _few_rows_at_a_time(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Consecutive blocks that are held in memory together; a large one alone."""
    some: list[Block] = []
    rows = 0
    for block in blocks:
        if some and rows + block.table.num_rows > TOGETHER_ROWS_MAX:
            yield some
            some, rows = [], 0
        some.append(block)
        rows += block.table.num_rows
        if rows > TOGETHER_ROWS_MAX or len(some) == TOGETHER_MAX:
            yield some
            some, rows = [], 0
    if some:
        yield some


def _stage_together(
    blocks: Sequence[Block], store: PartStore, stage_one: Callable[[Block], StagedPart]
) -> list[StagedPart]:
    """Stage these blocks, all or, after an error, none of them."""
    staged: dict[int, StagedPart] = {}

    def task(number: int, block: Block) -> None:
        staged[number] = stage_one(block)

    try:
        store.disk.at_once([partial(task, *numbered) for numbered in enumerate(blocks)])
    except BaseException:
        for part in staged.values():
            store.discard(part)
        raise
    return [staged[number] for number in range(len(blocks))]


def stage(
    block: Block, store: PartStore, *, insert_id: str, run_id: str, created_s: int
) -> StagedPart:
    """Write the block as a part under a temporary name. A block without rows has no file, and is
    not to be published. Raises DiskFull, and leaves nothing behind.
    """
    table, shape, hashes = block.table, block.shape, block.hashes
    known = PartTtl(shape.ttl.measure(table))
    codec = codec_of([known], shape.ttl_rules, created_s)
    staging = store.begin("insert", block.partition_id)
    try:
        files: tuple[PartFile, ...] = ()
        if table.num_rows:
            data = parquet.to_parquet(table, sorted_by=shape.sorted_by, codec=codec)
            files = (staging.write(layout.data_file(0), parquet.chunks_of(data)),)
        return staging.seal(
            Manifest(
                columns=shape.columns,
                rows=hashes.rows,
                bytes_on_disk=sum(file.size for file in files),
                bytes_uncompressed=table.nbytes,
                partition_id=block.partition_id,
                partition=block.partition,
                key_bounds=block.key_bounds,
                files=files,
                row_hash=hashes.row_hash,
                column_hashes=hashes.column_hashes,
                content_hash=hashes.content_hash,
                created_s=created_s,
                insert_id=insert_id,
                run_id=run_id,
                engine_version=engine_version(),
                metadata_version=shape.metadata_version,
                ttl=replace(known, codec=codec) if codec else known,
            ),
            given=block.given,
        )
    except BaseException:
        staging.abandon()
        raise


def joined(
    staged: Sequence[StagedPart],
    together: int,
    store: PartStore,
    definition: TableDefinition,
    settings: BlockSettings,
) -> list[StagedPart]:
    """The staged blocks, at most `together` of each partition. If a partition has more, consecutive
    blocks are joined, as if the rows had not been cut there.

    Raises DiskFull, MissingPart; Conflict if the table was altered meanwhile. After an error the
    given blocks are still staged, and no others.
    """
    by_partition: dict[str, list[StagedPart]] = {}
    for part in staged:
        by_partition.setdefault(part.manifest.partition_id, []).append(part)
    kept: list[StagedPart] = []
    made: list[StagedPart] = []
    gone: list[StagedPart] = []
    try:
        for parts in by_partition.values():
            full = [part for part in parts if part.manifest.rows]
            if len(full) <= together:
                kept += parts
                continue
            kept += [part for part in parts if not part.manifest.rows]
            many = -(-len(full) // together)
            for start in range(0, len(full), many):
                some = full[start : start + many]
                made.append(_join(some, store, definition, settings))
                gone += some
    except BaseException:
        for part in made:
            store.discard(part)
        raise
    for part in gone:
        store.discard(part)
    return kept + made


def _join(
    parts: Sequence[StagedPart],
    store: PartStore,
    definition: TableDefinition,
    settings: BlockSettings,
) -> StagedPart:
    # Of rows that were merged within a block, the sum may violate what each row fulfilled.
    shape, first = block_shape(replace(definition, constraints=())), parts[0].manifest
    if first.columns != shape.columns:
        raise Conflict(
            f"{definition.full_name} was altered while rows were staged for it; nothing was "
            "inserted, insert them again"
        )
    tables = [
        pa.Table.from_batches(parquet.read_batches(path)).cast(shape.schema)
        for part in parts
        for path in store.staged_files(part)
    ]
    [block] = _split(pa.concat_tables(tables), shape, settings, 1)
    rows = sum(part.source.rows for part in parts)
    row_hash = sum(part.source.row_hash for part in parts) % 2**128
    return stage(
        replace(block, given=GivenRows(rows, row_hash)),
        store,
        insert_id=first.insert_id,
        run_id=first.run_id,
        created_s=first.created_s,
    )


@lru_cache(maxsize=1)
def engine_version() -> str:
    """The versions of rmt and of what writes its files, as they stand in manifests."""
    try:
        version = metadata.version("rmt-pipeline")
    except metadata.PackageNotFoundError:  # run from a checkout
        version = "checkout"
    return f"rmt_pipeline {version}, {parquet.WRITER}"


def _joined(tables: Iterable[pa.Table], settings: BlockSettings) -> Iterator[pa.Table]:
    """The rows in tables of at most `max_insert_block_size` rows. Small tables are joined until
    they have the rows or bytes of the `min_` settings.
    """
    rows_max = settings.max_insert_block_size
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        rest = table
        while rest.num_rows:
            piece = rest.slice(0, min(rest.num_rows, rows_max - rows))
            rest = rest.slice(piece.num_rows)
            waiting.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
            if rows == rows_max or _is_enough(rows, size, settings):
                yield pa.concat_tables(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def _is_enough(rows: int, size: int, settings: BlockSettings) -> bool:
    """Whether so many rows and bytes need not be joined with others. As in the original, a setting
    of 0 is no bound, and no rows are joined if both are 0.
    """
    least = settings.min_insert_block_size_rows, settings.min_insert_block_size_bytes
    return least == (0, 0) or any(
        bound and found >= bound for found, bound in zip((rows, size), least, strict=True)
    )


def _split(
    table: pa.Table, shape: BlockShape, settings: BlockSettings, first_row: int
) -> Iterator[Block]:
    """Split a table into the blocks of its partitions, with one sort and one pass of hashing."""
    if not table.num_rows:
        return
    table = table.combine_chunks()
    keys = [*shape.partition_by.arrays(table), *shape.order_by.arrays(table)]
    for name, array in zip(shape.key_names, keys, strict=True):
        _refuse_missing(name, array, first_row)
    _refuse_violations(table, shape, first_row)
    of_partition = len(shape.partition_by.names)
    codes = _partition_codes(keys[:of_partition])
    counts = [table.num_rows] if codes is None else np.bincount(codes).tolist()
    _check_count(len(counts), settings)
    partition_first = [] if codes is None else [pa.array(codes)]
    order = row_order([*partition_first, *shape.order_by.ordered(table)])
    if order.rows is not None:
        rows = pa.array(order.rows)
        table = table.take(rows)
        keys = [array.take(rows) for array in keys]
    starts = [0, *itertools.accumulate(counts[:-1])]
    hashes = hash_groups(table, starts)
    whole = [
        _block(
            table.slice(start, count),
            shape,
            [array.slice(start, count) for array in keys],
            hashed,
        )
        for start, count, hashed in zip(starts, counts, hashes, strict=True)
    ]
    if settings.optimize_on_insert and not shape.rules.keeps_rows:
        yield from _optimized(whole, table, shape, order.new_key, counts)
    else:
        yield from whole


def _optimized(
    whole: Sequence[Block],
    table: pa.Table,
    shape: BlockShape,
    new_key: NDArray[np.bool_],
    counts: Sequence[int],
) -> Iterator[Block]:
    """The blocks with the rows that the engine leaves of theirs. `table` has the rows of all
    blocks.
    """
    numbers = np.repeat(np.arange(len(counts)), counts)
    left, of_row = shape.rules.apply(table, new_key, numbers)
    ends = np.cumsum(np.bincount(of_row, minlength=len(counts)))
    for block, end, count in zip(whole, ends, np.diff(ends, prepend=0), strict=True):
        rows = left.slice(end - count, count)
        if not count:
            nothing = RowHashes(0, 0, dict.fromkeys(left.column_names, 0), 0)
            yield replace(block, table=rows, hashes=nothing, key_bounds=())
            continue
        keys = [*shape.partition_by.arrays(rows), *shape.order_by.arrays(rows)]
        [hashes] = hash_groups(rows, [0])
        yield replace(_block(rows, shape, keys, hashes), given=block.given)


def _block(
    table: pa.Table, shape: BlockShape, keys: list[pa.Array], hashes: RowHashes
) -> Block:
    types = shape.partition_by.types
    values = [column_values(array.slice(0, 1))[0] for array in keys[: len(types)]]
    bounds = {
        name: _bound(name, array, in_order=place <= len(types))
        for place, (name, array) in enumerate(zip(shape.key_names, keys, strict=True))
    }
    for name in shape.partition_by.inputs:  # the original has these bounds too ("minmax index")
        if name not in bounds:
            bounds[name] = _bound(name, table.column(name), in_order=False)
    return Block(
        partition_id=partition_id(values, types),
        partition=partition_text(values, types),
        table=table,
        key_bounds=tuple(bounds.values()),
        hashes=hashes,
        shape=shape,
        given=GivenRows(hashes.rows, hashes.row_hash),
    )


def _partition_codes(keys: Sequence[pa.Array]) -> NDArray[np.int64] | None:
    """The number of each row's partition, in the order of the partitions' first rows; None if all
    rows are of one partition.
    """
    codes: NDArray[np.int64] | None = None
    for key in keys:
        nested = pa.types.is_nested(key.type)  # Arrow has no dictionaries of nested values
        plain = pa.array(map(repr, key.to_pylist()), pa.string()) if nested else key
        encoded = plain.dictionary_encode()
        if len(encoded.dictionary) == 1:
            continue
        added = encoded.indices.to_numpy().astype(np.int64)
        if codes is None:
            codes = added
            continue
        # Renumber after each column: the product of all counts could overflow.
        both = codes * len(encoded.dictionary) + added
        _, first_rows, renumbered = np.unique(both, return_index=True, return_inverse=True)
        by_first_row = np.empty(len(first_rows), dtype=np.int64)
        by_first_row[np.argsort(first_rows)] = np.arange(len(first_rows))
        codes = by_first_row[renumbered]
    return codes


def _check_count(partitions: int, settings: BlockSettings) -> None:
    limit = settings.max_partitions_per_insert_block
    if limit and partitions > limit and settings.throw_on_max_partitions_per_insert_block:
        raise TooManyPartitions(
            f"a block of this insert has rows of {partitions} partitions; "
            f"max_partitions_per_insert_block is {limit}. Insert fewer partitions at once, choose "
            "a coarser partition key, or raise the setting (0 is no limit)"
        )


def _refuse_missing(name: str, array: pa.Array, first_row: int) -> None:
    """Raises BadValue for NULL and NaN, which have no place in the order of a key."""
    wrong = array.is_null(nan_is_null=True) if _may_be_nan(array) else None
    if wrong is None:
        if not array.null_count:
            return
        wrong = array.is_null()
    place = pc.index(wrong, pa.scalar(value=True)).as_py()
    if place < 0:
        return
    found = "NULL" if not array[place].is_valid else "NaN"
    raise BadValue(
        f"row {first_row + place}: {name} is {found}, and {name} is part of a key of the table. "
        "Give it a value; nothing was inserted"
    )


def _refuse_violations(table: pa.Table, shape: BlockShape, first_row: int) -> None:
    """Raises ViolatedConstraint for the first row for which a CHECK does not hold."""
    for check, values, one in zip(
        shape.checks, evaluated(shape.checks, table), shape.checked, strict=True
    ):
        place = pc.index(
            pc.fill_null(values.cast(pa.bool_()), fill_value=False), pa.scalar(value=False)
        ).as_py()
        if place >= 0:
            given = ", ".join(
                f"{name} = {_shown(column_values(table.column(name).slice(place, 1))[0])}"
                for name in check.columns_used
            )
            raise ViolatedConstraint(
                f"row {first_row + place}: the CONSTRAINT {one} is violated by {given}; nothing "
                "was inserted"
            )


def _shown(value: Any) -> str:
    """The value as it would stand in a statement."""
    if value is None:
        return "NULL"
    return shown_text(value) if isinstance(value, str) else str(value)


def _may_be_nan(array: pa.Array) -> bool:
    return bool(pa.types.is_floating(array.type))


def _bound(name: str, array: pa.Array | pa.ChunkedArray, *, in_order: bool) -> KeyBound:
    """The least and the greatest value. In a block the keys of its partition, which are all the
    same, and the first one of its order are `in_order`.
    """
    if in_order and (pa.types.is_integer(array.type) or pa.types.is_temporal(array.type)):
        return KeyBound(name, *json_bounds((array[0].as_py(), array[-1].as_py())))
    try:
        found = pc.min_max(array)
    except pa.ArrowNotImplementedError:  # nested values, fixed bytes
        return KeyBound(name, None, None)
    return KeyBound(name, *json_bounds((found["min"].as_py(), found["max"].as_py())))


class InsertRules:
    """optimize_on_insert (spec §2.2, §17): leaves of a block's rows those that a merge of the block
    alone would leave. Raises UserError if the engine names a column that the table does not have.
    """

    def __init__(self, definition: TableDefinition) -> None:
        columns = stored_columns(definition)
        self._shape = units.Shape(
            columns=columns,
            key=key_parts(sorting_key(definition), columns),
            rules=engine_rules(definition, cleanup=False),
        )
        self.keeps_rows = self._shape.keeps_rows

    def apply(
        self, table: pa.Table, starts: Flags, partitions: RowIndexes
    ) -> tuple[pa.Table, RowIndexes]:
        """The rows that are left of sorted ones, and the number of the partition of each.

        `starts[i]` says whether row i has another key or partition than the row before it. Raises
        IncorrectData for values that the engine refuses.
        """
        rules = rules_for(self._shape)
        if rules is None:
            return table, partitions
        numbered = table.append_column(_GROUP, pa.array(partitions))
        left = rules.merge(Sorted(numbered, None, starts))
        found = left.column(_GROUP).to_numpy()
        return left.select(table.column_names).combine_chunks(), found
