"""Writes the result of a unit, a Parquet file, and computes the file's hash and its rows' hashes in
the same pass.
"""

import hashlib
import io
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rmt_pipeline.compute.progress import Progress, UnitProgress
from rmt_pipeline.compute.rows.ttl import RowTtl
from rmt_pipeline.compute.stop import raise_if_stopped
from rmt_pipeline.compute.units import Unit, WrittenFile, joined_bounds
from rmt_pipeline.protocol.ttl import TtlTimes, added
from rmt_pipeline.store.disk import naming_a_full_disk
from rmt_pipeline.store.hashes.rows import RowHashes, hash_table
from rmt_pipeline.store.parquet import (
    columns_with_bounds,
    compression,
    dictionary_columns,
    row_group_rows,
)


class HashingFile(io.RawIOBase):
    """A new file that computes the SHA-256 of its bytes, which are written from front to back."""

    def __init__(self, path: str) -> None:
        self.size = 0
        self._path = path
        self._digest = hashlib.sha256()
        with naming_a_full_disk(path):
            self._file = open(path, "xb", buffering=0)  # noqa: SIM115, PTH123  closed by close()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        with naming_a_full_disk(self._path, view.nbytes):
            written = 0
            while written < view.nbytes:
                written += self._file.write(view[written:])
        self._digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def close(self) -> None:
        if not self.closed:
            self._file.close()
            super().close()

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


# A row's position in its part, for the part's content hash, is the number of the file times this,
# plus the number of the row in it. So a unit need not know how many rows the units before it made.
FILE_POSITIONS = 1 << 40
PIECE_ROWS_MIN = 1024
"""On average; tables with smaller pieces are copied into one before they are written."""
COMBINED_BYTES_MAX = 16 << 20  # of tables that are copied so


class ReadSoFar(Protocol):
    """How much a unit has read of its sources. Bytes are uncompressed."""

    rows_read: int
    bytes_read: int


class ResultWriter:
    """Writes sorted tables of any size as row groups of bounded size.

    The file is made with the first row: a result without rows has no file. Columns that are
    dictionary-encoded are written so.
    """

    def __init__(self, unit: Unit) -> None:
        shape = unit.shape
        self._names = [column.name for column in shape.columns]
        self.bytes_uncompressed = 0
        self.bounds: dict[str, tuple[Any, Any]] = {}
        self.ttl: tuple[TtlTimes, ...] = ()
        self._row_ttl = RowTtl(shape.ttl, shape.columns, shape.expire_s)
        self._codec = shape.codec
        self.hashes = RowHashes(0, 0, dict.fromkeys(self._names, 0), 0)
        self._path = unit.output
        self._progress = UnitProgress(unit.output, unit.ordinal)
        self._first_position = unit.ordinal * FILE_POSITIONS
        self._bounded = shape.bounded
        plain = itertools.takewhile(lambda part: not part.is_computed, shape.key)
        self._sorted_by = tuple(part.name for part in plain)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._file: HashingFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def write_all(
        self,
        tables: Iterable[pa.Table],
        make: Callable[[pa.Table], pa.Table],
        read: ReadSoFar,
    ) -> WrittenFile | None:
        """Write `make(table)` for each table, and the unit's progress, of which `read` is a part.
        Returns None if there was no row. Raises Conflict if the job was asked to stop. After any
        error the file is closed, and the caller removes the directory.
        """
        try:
            for table in tables:
                raise_if_stopped(self._path)
                self._add(make(table))
                self._progress.tell(
                    Progress(
                        read.rows_read,
                        read.bytes_read,
                        self.hashes.rows,
                        self.bytes_uncompressed,
                    )
                )
            return self._close()
        except BaseException:
            if self._file is not None:
                self._file.close()
            raise

    def _add(self, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        size = sum(waiting.nbytes for waiting in self._waiting)
        group_rows = row_group_rows(self._waiting_rows, size)
        while self._waiting_rows >= group_rows:
            whole = self._joined()
            self._write(whole.slice(0, group_rows))
            self._waiting = [whole.slice(group_rows)]
            self._waiting_rows -= group_rows

    def _close(self) -> WrittenFile | None:
        """Write the waiting rows and close the file."""
        if self._waiting_rows:
            self._write(self._joined())
        if self._writer is None or self._file is None:
            return None
        self._writer.close()
        self._file.close()
        name = self._path.rsplit("/", 1)[-1]
        return WrittenFile(name, self._file.size, self._file.hexdigest())

    def _joined(self) -> pa.Table:
        """The waiting tables as one, in larger pieces if they are small: hashing and writing take
        one piece at a time, and in a merge of small parts each piece may be a single row.
        """
        whole = pa.concat_tables(self._waiting).unify_dictionaries()
        pieces = max((column.num_chunks for column in whole.columns), default=0)
        is_in_crumbs = pieces > 1 and whole.num_rows < pieces * PIECE_ROWS_MIN
        if is_in_crumbs and whole.nbytes <= COMBINED_BYTES_MAX:
            return whole.combine_chunks()
        return whole

    def _write(self, working: pa.Table) -> None:
        for part in self._bounded:
            self._widen(part.text, working.column(part.name))
        table = working.select(self._names)
        if self._writer is None:
            self._open(table)
        assert self._writer is not None
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.bytes_uncompressed += table.nbytes
        self.ttl = added((*self.ttl, *self._row_ttl.measure(table)))
        position = self._first_position + self.hashes.rows
        self.hashes += hash_table(table, start_position=position)

    def _open(self, first: pa.Table) -> None:
        coded = [field.name for field in first.schema if pa.types.is_dictionary(field.type)]
        repeating = dictionary_columns(first.drop_columns(coded))
        self._file = HashingFile(self._path)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._file, "w"),
            first.schema,
            **compression(self._codec),
            use_dictionary=coded + repeating,
            column_encoding=_encodings(first.schema, frozenset(coded + repeating)),
            sorting_columns=self._sorting_columns(first.schema),
            write_statistics=columns_with_bounds(first.schema, self._sorted_by),
            # Columns are read back with Parquet's own types; an Arrow schema in the file would make
            # those dictionaries that were dictionaries here.
            store_schema=False,
            write_page_checksum=True,
        )

    def _sorting_columns(self, schema: pa.Schema) -> list[pq.SortingColumn] | None:
        # Parquet counts leaf columns, so behind a nested column the numbers differ from Arrow's.
        flat = not any(pa.types.is_nested(field.type) for field in schema)
        if not flat or not self._sorted_by:
            return None
        return [pq.SortingColumn(schema.get_field_index(name)) for name in self._sorted_by]

    def _widen(self, name: str, column: pa.ChunkedArray) -> None:
        before = self.bounds.get(name, (None, None))
        self.bounds[name] = joined_bounds(before, _min_max(column))


def _encodings(schema: pa.Schema, dictionaries: frozenset[str]) -> dict[str, str]:
    """The encodings of numbers and times: as differences, which takes half the time to write and
    read, and less space, if they are sorted or near each other.
    """
    return {
        field.name: "DELTA_BINARY_PACKED"
        for field in schema
        if field.name not in dictionaries
        and (pa.types.is_integer(field.type) or pa.types.is_temporal(field.type))
    }


def _min_max(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """The least and greatest value; None and None for nested values and fixed bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        found = pc.min_max(column)
    except pa.ArrowNotImplementedError:
        return None, None
    return found["min"].as_py(), found["max"].as_py()
