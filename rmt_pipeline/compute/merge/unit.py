"""Runs one unit of a merge: from files of the sources to a file of the result."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from rmt_pipeline.compute.merge.rules import GroupRules, rules_for
from rmt_pipeline.compute.rows.conform import Conform
from rmt_pipeline.compute.rows.source import BrokenSource, PartReader
from rmt_pipeline.compute.rows.ttl import RowTtl
from rmt_pipeline.compute.rows.windows import (
    SourceCursor,
    batch_rows_for,
    in_order,
    rows_before,
    windows,
)
from rmt_pipeline.compute.rows.write import ResultWriter
from rmt_pipeline.compute.stop import raise_if_stopped
from rmt_pipeline.compute.units import Unit, UnitDone, UnitFile
from rmt_pipeline.store.disk import CHUNK_BYTES
from rmt_pipeline.store.hashes.checksums import hash_of_chunks
from rmt_pipeline.system import Clock


def run_unit(unit: Unit, clock: Clock) -> UnitDone:
    """Make the unit's file. Raises BrokenSource, DiskFull, UserError (values that the engine
    refuses), Conflict (the job was asked to stop). After any error the file is to be removed with
    its directory.
    """
    started_s = clock.monotonic_s()
    for part, file in unit.verify:
        verify_file(part, file, unit.output)
    shape = unit.shape
    rules = rules_for(shape)
    ttl = RowTtl(shape.ttl, shape.columns, shape.expire_s)
    sources = _Sources(unit)
    writer = ResultWriter(unit)
    rows = merged_rows(sources.cursors(), sources.batch_rows, shape.key_names, rules)
    written = writer.write_all(rows, ttl.expire, sources)
    return UnitDone(
        merge=unit.merge,
        ordinal=unit.ordinal,
        file=written,
        rows_in=sources.rows_read,
        rows=writer.hashes.rows,
        bytes_uncompressed=writer.bytes_uncompressed,
        row_hash=writer.hashes.row_hash,
        column_hashes=tuple(writer.hashes.column_hashes.items()),
        content_hash=writer.hashes.content_hash,
        key_bounds=tuple((name, *bounds) for name, bounds in writer.bounds.items()),
        warnings=() if rules is None else rules.warnings(),
        seconds=clock.monotonic_s() - started_s,
        ttl=writer.ttl,
    )


def merged_rows(
    cursors: Sequence[SourceCursor],
    batch_rows: int,
    key: Sequence[str],
    rules: GroupRules | None,
) -> Iterator[pa.Table]:
    """The rows of the result, in order. Without rules these are all rows of the sources.

    More rows of a window's last key may follow in the next window. So with rules the rows of that
    key are carried over, as few as the rules can make of them.
    """
    carried: list[pa.Table] = []
    for tables in windows(cursors, batch_rows):
        rows = in_order(carried + tables, key)
        if rules is None:
            yield rows.all()
            continue
        complete, last = rows.before_last_key()
        yield rules.merge(complete)
        carried = [rules.carry(last)]
    if rules is not None and carried:
        yield rules.merge(in_order(carried, key))


class _Sources:
    """Reads the unit's sources, and counts the rows and bytes that were read."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.rows_read = 0
        self.bytes_read = 0
        names = [column.name for column in unit.shape.columns]
        self._readers = [
            PartReader(source, names, unit.shape.key_names[:1], unit.lower, unit.upper)
            for source in unit.sources
        ]
        filled = [reader for reader in self._readers if reader.rows]
        self._dictionaries = (
            frozenset.intersection(*(reader.dictionary_columns() for reader in filled))
            if filled
            else frozenset()
        )
        self._conform = Conform(unit.shape, self._dictionaries)
        rows = sum(reader.rows for reader in filled)
        size = sum(reader.bytes for reader in filled)
        self.batch_rows = batch_rows_for(len(filled), size / max(rows, 1))

    def cursors(self) -> list[SourceCursor]:
        key = self._unit.shape.key_names
        return [
            SourceCursor(self._tables(reader), key, ordinal)
            for ordinal, reader in enumerate(self._readers)
        ]

    def _tables(self, reader: PartReader) -> Iterator[pa.Table]:
        """The reader's rows within the unit's range. Raises BrokenSource."""
        unit = self._unit
        key = unit.shape.key_names
        for batch in reader.batches(self.batch_rows, sorted(self._dictionaries)):
            table = self._conform.table(batch, reader.part, reader.types)
            if unit.lower is not None:
                table = table.slice(rows_before(table, key, unit.lower, with_equal=False))
            end = table.num_rows
            if unit.upper is not None:
                end = rows_before(table, key, unit.upper, with_equal=False)
            self.rows_read += end
            rows = table.slice(0, end)
            self.bytes_read += rows.nbytes
            yield rows
            if end < table.num_rows:
                return


def verify_file(part: str, file: UnitFile, output: str) -> None:
    """Compare a file's bytes with its manifest, for the unit that makes the file `output`. Raises
    BrokenSource, Conflict (the job was asked to stop).
    """

    def chunk() -> bytes:
        raise_if_stopped(output)
        return opened.read(CHUNK_BYTES)

    try:
        with open(file.path, "rb", buffering=0) as opened:  # noqa: PTH123  a plain path
            size, found = hash_of_chunks(iter(chunk, b""))
    except FileNotFoundError as error:
        raise BrokenSource(
            part, f"part {part}: {file.path} is gone; fetch the part again"
        ) from error
    if (size, found) != (file.size, file.hash):
        raise BrokenSource(
            part,
            f"part {part}: {file.path} has {size} bytes with SHA-256 {found}; its manifest "
            f"says {file.size} bytes with {file.hash}. Fetch the part again",
        )
