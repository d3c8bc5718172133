"""Merging sorted sources in bounded memory, window by window.

Each source is read in batches. A *window* is all rows up to the smallest last key of the batches
that have been read, since no source can still have a smaller one. The rows of a window are put in
the order that `order` finds, given to the engine's rules, hashed, and written. So memory holds two
batches per source and one row group of the result, however large the parts are.

Chosen by measurement (benchmarks/merges.py): a stable sort by numpy of runs that are sorted
already, with Arrow to read, gather and write, takes less time than DuckDB's or Polars' sort.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.compute.rows.order import Flags, RowIndexes, integers, row_order
from rmt_pipeline.compute.rows.source import SortKey, key_value

WINDOW_ROWS = 1 << 18
WINDOW_BYTES = 64 << 20
BATCH_ROWS_MIN = 16
BATCH_ROWS_MAX = 1 << 16


def batch_rows_for(sources: int, row_bytes: float) -> int:
    """How many rows to read from each source at a time, so that a window has about the same size
    for any number of sources and any width of rows.
    """
    rows = min(WINDOW_ROWS, WINDOW_BYTES / max(row_bytes, 1.0)) / max(sources, 1)
    return max(BATCH_ROWS_MIN, min(BATCH_ROWS_MAX, int(rows)))


class SourceCursor:
    """The rows of one source that are not merged yet: so many `rows` in memory, and `more`, if set,
    to be read.
    """

    def __init__(self, batches: Iterator[pa.Table], key: Sequence[str], ordinal: int) -> None:
        self.ordinal = ordinal
        self.more = True
        self._batches = batches
        self._key = key
        self._tables: list[pa.Table] = []
        self._rows = 0

    @property
    def rows(self) -> int:
        return self._rows

    def fill(self, rows: int) -> None:
        """Read until at least this many rows are in memory, or all that are left."""
        while self.more and self._rows < rows:
            table = next(self._batches, None)
            if table is None:
                self.more = False
            elif table.num_rows:
                self._tables.append(table)
                self._rows += table.num_rows

    def last_key(self) -> SortKey:
        """The key of the last row in memory."""
        table = self._tables[-1]
        return _key_at(table, self._key, table.num_rows - 1)

    def take(self, bound: SortKey, *, with_equal: bool) -> list[pa.Table]:
        """Take the rows whose key is below `bound` (with `with_equal`, or equal to it)."""
        taken: list[pa.Table] = []
        while self._tables:
            table = self._tables[0]
            count = rows_before(table, self._key, bound, with_equal=with_equal)
            if count:
                taken.append(table.slice(0, count))
                self._rows -= count
            if count < table.num_rows:
                self._tables[0] = table.slice(count)
                break
            self._tables.pop(0)
        return taken

    def take_all(self) -> list[pa.Table]:
        """Take all rows in memory."""
        taken, self._tables, self._rows = self._tables, [], 0
        return taken


def _key_at(table: pa.Table, key: Sequence[str], row: int) -> SortKey:
    return tuple(key_value(table.column(name)[row]) for name in key)


def rows_before(
    table: pa.Table, key: Sequence[str], bound: SortKey, *, with_equal: bool
) -> int:
    """How many rows of a sorted table have a key below `bound` (with `with_equal`, at most
    `bound`). A bound that is shorter than the key is compared with the first columns of the key.
    """
    names = key[: len(bound)]
    low, high = 0, table.num_rows
    numbers = _numbers(table.column(names[0])) if names else None
    if numbers is not None:
        least = numbers.dtype.type(bound[0])
        low, high = (int(numbers.searchsorted(least, side)) for side in _SIDES)
        if len(names) == 1:
            return high if with_equal else low
    while low < high:
        middle = (low + high) // 2
        found = _key_at(table, names, middle)
        if found < bound or (with_equal and found == bound):
            low = middle + 1
        else:
            high = middle
    return low


_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[Any] | None:
    """The column as numpy integers, if no value need be copied for that."""
    kind = column.type
    plain = pa.types.is_integer(kind) or pa.types.is_temporal(kind)
    if not plain or column.num_chunks != 1 or column.null_count:
        return None
    return integers(column.chunk(0))


def windows(cursors: Sequence[SourceCursor], batch_rows: int) -> Iterator[list[pa.Table]]:
    """The rows of all sources, as lists of tables.

    Every row of a list has a key that is at most the keys of the lists after it, and within a
    list older sources come first. Equal keys may lie in several lists, but then in the order of
    their sources.
    """
    while True:
        for cursor in cursors:
            cursor.fill(batch_rows)
        unread = [cursor for cursor in cursors if cursor.more and cursor.rows]
        if not unread:
            last = [table for cursor in cursors for table in cursor.take_all()]
            if last:
                yield last
            return
        # The bound is the least last key, of the oldest source that has it. The last key of a still
        # older source is greater, so all its rows equal to the bound are in memory. Rows of a
        # younger source that equal the bound must wait for further rows of the deciding source.
        decides = min(unread, key=lambda cursor: (cursor.last_key(), cursor.ordinal))
        bound = decides.last_key()
        taken: list[pa.Table] = []
        for cursor in cursors:
            if cursor is decides:
                taken += cursor.take_all()
            else:
                taken += cursor.take(bound, with_equal=cursor.ordinal < decides.ordinal)
        yield taken


@dataclass(frozen=True, slots=True)
class Sorted:
    """Rows in the order of the key. Only the rows and columns that are asked for are copied.

    `table` has the rows in the order of their sources; `rows[i]` is the row at place i (`rows`
    None: the order is the same). `starts[i]` says whether place i begins another key.
    """

    table: pa.Table
    rows: RowIndexes | None
    starts: Flags

    def __len__(self) -> int:
        return len(self.starts)

    def column(self, name: str) -> pa.Array:
        """The values of a column, in the order of the rows."""
        array = one_array(self.table.column(name))
        return array if self.rows is None else array.take(pa.array(self.rows))

    def all(self) -> pa.Table:
        """All rows, in order."""
        return self.table if self.rows is None else gather(self.table, self.rows)

    def at(self, places: RowIndexes) -> pa.Table:
        """The rows at these places, in this order."""
        return gather(self.table, places if self.rows is None else self.rows[places])

    def before_last_key(self) -> tuple["Sorted", "Sorted"]:
        """All rows but those of the last key, and the rows of the last key."""
        split = int(np.flatnonzero(self.starts)[-1]) if len(self.starts) else 0
        return self._slice(0, split), self._slice(split, len(self))

    def _slice(self, first: int, end: int) -> "Sorted":
        starts = self.starts[first:end]
        if self.rows is None:
            return Sorted(self.table.slice(first, end - first), None, starts)
        return Sorted(self.table, self.rows[first:end], starts)


def in_order(tables: Sequence[pa.Table], key: Sequence[str]) -> Sorted:
    """Sort the rows of tables stably by their key columns. Without a key all rows are one group."""
    table = pa.concat_tables(tables).unify_dictionaries()
    if not key or not table.num_rows:
        starts = np.zeros(table.num_rows, dtype=np.bool_)
        starts[:1] = True
        return Sorted(table, None, starts)
    found = row_order([one_array(table.column(name)) for name in key])
    return Sorted(table, found.rows, found.new_key)


def gather(table: pa.Table, rows: RowIndexes) -> pa.Table:
    """The rows with these numbers, in this order."""
    numbers = pa.array(rows)
    arrays = [
        pc.take(one_array(column), numbers, boundscheck=False) for column in table.columns
    ]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece; it is copied only if it has several."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
