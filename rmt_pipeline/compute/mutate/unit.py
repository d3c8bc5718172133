"""Runs one unit of a mutation: from a file of the source to a file of the result."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from rmt_pipeline.compute.merge.unit import verify_file
from rmt_pipeline.compute.mutate.commands import CompiledCommands, commands_of
from rmt_pipeline.compute.mutate.pruning import probe
from rmt_pipeline.compute.mutate.units import MutateUnit, MutateUnitDone
from rmt_pipeline.compute.rows.conform import Conform
from rmt_pipeline.compute.rows.source import PartReader
from rmt_pipeline.compute.rows.windows import batch_rows_for
from rmt_pipeline.compute.rows.write import ResultWriter
from rmt_pipeline.compute.units import Shape, WrittenFile
from rmt_pipeline.protocol.table import Column, nested_group
from rmt_pipeline.store.hashes.rows import RowHashes, hash_table
from rmt_pipeline.system import Clock


def run_mutation(unit: MutateUnit, clock: Clock) -> MutateUnitDone:
    """Make the unit's file, unless no command applies to any of its rows.

    Raises BrokenSource, DiskFull, UserError (a value that can't be computed), Conflict (the job was
    asked to stop). After any error the file is to be removed with its directory.
    """
    started_s = clock.monotonic_s()
    commands = commands_of(unit.commands, unit.shape.columns, unit.partition)
    if not unit.rewrite and not _touches(unit, commands):
        return _done(unit, clock.monotonic_s() - started_s)
    for part, file in unit.verify:
        verify_file(part, file, unit.output)
    counts = _Counts(unit.shape)
    writer = ResultWriter(replace(unit, shape=unit.written))

    def kept(table: pa.Table) -> pa.Table:
        applied = commands.apply(table)
        counts.add(table, applied.deleted)
        return applied.rows

    written = writer.write_all(_tables(unit, unit.shape), kept, counts)
    done = _done(unit, clock.monotonic_s() - started_s, written, writer)
    return replace(
        done,
        rows_in=counts.rows_read,
        rows_deleted=counts.deleted.rows,
        deleted_hashes=tuple(counts.deleted.column_hashes.items()),
        changed=commands.changed_columns,
    )


def try_rows(unit: MutateUnit) -> None:
    """Apply the commands to the first rows of the unit's file. Raises as `run_mutation` does."""
    commands = commands_of(unit.commands, unit.shape.columns, unit.partition)
    for table in _tables(unit, unit.shape):
        commands.apply(table)
        return


class _Counts:
    """Counts the rows and bytes that were read, and hashes the deleted rows."""

    def __init__(self, shape: Shape) -> None:
        self._names = [column.name for column in shape.columns]
        self.rows_read = 0
        self.bytes_read = 0
        self.deleted = RowHashes(0, 0, dict.fromkeys(self._names, 0), 0)

    def add(self, table: pa.Table, deleted: tuple[pa.Table, ...]) -> None:
        self.rows_read += table.num_rows
        self.bytes_read += table.nbytes
        for gone in deleted:
            start = self.deleted.rows
            self.deleted += hash_table(gone.select(self._names), start_position=start)


def nothing_done(unit: MutateUnit) -> MutateUnitDone:
    """The result of a unit that is known to have no row to which a command applies."""
    return _done(unit, 0.0)


def _done(
    unit: MutateUnit,
    seconds: float,
    written: WrittenFile | None = None,
    writer: ResultWriter | None = None,
) -> MutateUnitDone:
    hashes = RowHashes(0, 0, {}, 0) if writer is None else writer.hashes
    bounds = {} if writer is None else writer.bounds
    return MutateUnitDone(
        merge=unit.merge,
        ordinal=unit.ordinal,
        file=written,
        rows_in=0,
        rows=hashes.rows,
        bytes_uncompressed=0 if writer is None else writer.bytes_uncompressed,
        row_hash=hashes.row_hash,
        column_hashes=tuple(hashes.column_hashes.items()),
        content_hash=hashes.content_hash,
        key_bounds=tuple((name, *found) for name, found in bounds.items()),
        warnings=(),
        seconds=seconds,
        ttl=() if writer is None else writer.ttl,
        touched=writer is not None,
    )


def count_rows(unit: MutateUnit) -> int:
    """The number of rows of the file to which some command applies. Raises as
    `run_mutation` does.
    """
    commands = commands_of(unit.commands, unit.shape.columns, unit.partition)
    return sum(int(commands.touched(table).sum()) for table in condition_rows(unit, commands))


def _touches(unit: MutateUnit, commands: CompiledCommands) -> bool:
    """Whether any command applies to a row of the file."""
    known = probe(unit, commands)
    if known is not None:
        return known
    return any(commands.match(table) for table in condition_rows(unit, commands))


def condition_rows(unit: MutateUnit, commands: CompiledCommands) -> Iterator[pa.Table]:
    """The file's rows with the columns of conditions alone; none if there is no command. Raises
    BrokenSource.
    """
    columns = tuple(
        column for column in unit.shape.columns if column.name in commands.condition_columns
    )
    # A condition without columns still needs the number of rows.
    columns = columns or unit.shape.columns[:1]
    needed = unit.shape.columns if _has_computed(unit, columns) else columns
    if not commands.is_empty:
        for table in _tables(unit, replace(unit.shape, columns=needed, key=(), bounded=())):
            yield table.select([column.name for column in columns])


def _has_computed(unit: MutateUnit, columns: Sequence[Column]) -> bool:
    """Whether the part lacks one of these columns and its values are computed, which may use any
    other column.
    """
    [source] = unit.sources
    if source.stored is None:
        return False
    there = {one.column for one in source.stored}
    lacking = [column for column in columns if column.name not in there]
    return any(column.default or nested_group(column.name) for column in lacking)


def _tables(unit: MutateUnit, shape: Shape) -> Iterator[pa.Table]:
    """The file's rows in order, as tables of the shape's columns. Raises BrokenSource."""
    [source] = unit.sources
    reader = PartReader(source, [column.name for column in shape.columns], (), None, None)
    dictionaries = reader.dictionary_columns()
    conform = Conform(shape, dictionaries)
    rows = batch_rows_for(1, reader.bytes / max(reader.rows, 1))
    for batch in reader.batches(rows, sorted(dictionaries)):
        yield conform.table(batch, source.part, reader.types)
