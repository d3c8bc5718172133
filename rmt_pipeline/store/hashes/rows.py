"""Hashes of rows by their logical content, which prove that replicas, merges and retries agree.

* `row_hash`: the sum of the hashes of all rows. It does not depend on their order, sums of several
  parts add up, and a plain merge conserves it. Within a row each value is hashed together with its
  column's name.
* `column_hashes`: for each column the sum of the hashes of its values, without the name.
* `content_hash`: depends on the order of the rows; for the ids of blocks.

All are numbers of 128 bits. They detect accidents, not attacks: it is possible to construct values
with equal sums. `lanes` and `values` define exactly what is hashed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmt_pipeline.store.hashes.bytes import hash_bytes
from rmt_pipeline.store.hashes.lanes import (
    KEYS,
    MASK_128,
    Words,
    mix,
    odd,
    ramp,
    slices,
    sums_128,
)
from rmt_pipeline.store.hashes.values import HashedValues, values_of


@dataclass(frozen=True, slots=True)
class RowHashes:
    """The hashes of some rows. `a + b` are the hashes of the rows of `a` followed by those of `b`.

    For the sum's `content_hash` to be right, `b` must have been hashed with
    `start_position=a.rows`.
    """

    rows: int
    row_hash: int
    column_hashes: Mapping[str, int] = field(hash=False)
    content_hash: int

    def __add__(self, other: "RowHashes") -> "RowHashes":
        assert self.column_hashes.keys() == other.column_hashes.keys()
        return RowHashes(
            self.rows + other.rows,
            (self.row_hash + other.row_hash) & MASK_128,
            {
                name: (value + other.column_hashes[name]) & MASK_128
                for name, value in self.column_hashes.items()
            },
            (self.content_hash + other.content_hash) & MASK_128,
        )


def hash_table(table: pa.Table | pa.RecordBatch, *, start_position: int = 0) -> RowHashes:
    """The hashes of a table whose first row is row `start_position` of its part.

    It needs about 2 MB besides the table, and 16 bytes per distinct value of dictionary columns.
    Raises UnknownType for a column whose type has no hash.
    """
    return hash_groups(table, [0], start_position=start_position)[0]


def hash_groups(
    table: pa.Table | pa.RecordBatch, starts: Sequence[int], *, start_position: int = 0
) -> list[RowHashes]:
    """The hashes of consecutive groups of rows, each as if it were a table of its own.

    `starts` are the rows at which the groups begin, ascending from 0. For many small groups this is
    far faster than to call `hash_table` for each.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    names = table.column_names
    assert len(set(names)) == len(names), f"a column appears twice in {names}"
    assert starts[0] == 0, "rows in front of the first group"
    totals = _Totals(names, starts)
    offset = 0
    # `to_batches` cuts all columns at the same rows, wherever their own chunks end.
    for batch in table.to_batches():
        columns = [values_of(column) for column in batch.columns]
        for start, stop in slices(0, len(batch)):
            groups = _Groups.between(starts, offset + start, offset + stop)
            rows, sums = _rows(names, columns, (start, stop), groups.cuts)
            totals.add(totals.columns, groups, sums)
            totals.add({"": totals.rows}, groups, {"": sums_128(rows, groups.cuts)})
            rows += groups.places(start_position, KEYS["position"])
            mix(rows)
            totals.add({"": totals.content}, groups, {"": sums_128(rows, groups.cuts)})
        offset += len(batch)
    return totals.hashes(table.num_rows)


class _Totals:
    """The sums so far: one list per hash, with the sum of each group."""

    def __init__(self, names: Sequence[str], starts: Sequence[int]) -> None:
        self._starts = starts
        self.rows = [0] * len(starts)
        self.content = [0] * len(starts)
        self.columns = {name: [0] * len(starts) for name in names}

    @staticmethod
    def add(
        totals: Mapping[str, list[int]], groups: "_Groups", sums: Mapping[str, list[int]]
    ) -> None:
        for name, values in sums.items():
            total = totals[name]
            for group, value in enumerate(values, groups.first):
                total[group] = (total[group] + value) & MASK_128

    def hashes(self, rows: int) -> list[RowHashes]:
        ends = [*self._starts[1:], rows]
        return [
            RowHashes(
                end - start,
                self.rows[group],
                {name: totals[group] for name, totals in self.columns.items()},
                self.content[group],
            )
            for group, (start, end) in enumerate(zip(self._starts, ends, strict=True))
        ]


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups in the rows `row..end` of a table: the number of the first one, and in `cuts` the
    row, counted from `row`, at which each begins.
    """

    first: int
    cuts: NDArray[np.int64]
    row: int
    end: int
    first_start: int
    """The row of the table at which the first group begins, perhaps before `row`."""

    @classmethod
    def between(cls, starts: Sequence[int], row: int, end: int) -> "_Groups":
        first = bisect_right(starts, row) - 1
        inside = starts[first : bisect_left(starts, end)]
        cuts = np.maximum(np.asarray(inside, dtype=np.int64) - row, 0)
        return cls(first, cuts, row, end, starts[first])

    def places(self, start_position: int, step: Words) -> Words:
        """`(position + 1) * step` for each row, `position` being the row's place in its group."""
        count = self.end - self.row
        if len(self.cuts) == 1:
            return ramp(start_position + self.row - self.first_start + 1, count, step)
        begins = self.cuts + self.row
        begins[0] = self.first_start
        lengths = np.diff(self.cuts, append=count)
        places = np.arange(self.row, self.end) - np.repeat(begins, lengths)
        return (places + (start_position + 1)).astype(np.uint64) * step


def _rows(
    names: Sequence[str],
    columns: Sequence[HashedValues],
    bounds: tuple[int, int],
    cuts: NDArray[np.int64],
) -> tuple[Words, dict[str, list[int]]]:
    """The hashes of the rows in `bounds`, shape (2, rows), and for each column the sum of each
    group.
    """
    start, stop = bounds
    rows = np.zeros((2, stop - start), dtype=np.uint64)
    one = np.empty_like(rows)
    sums = {}
    for name, values in zip(names, columns, strict=True):
        values.fill(start, stop, one)
        sums[name] = sums_128(one, cuts)
        np.multiply(one, _name_factors(name), one)
        np.add(rows, one, rows)
    mix(rows)
    return rows, sums


@lru_cache(maxsize=10_000)
def _name_factors(name: str) -> Words:
    encoded = np.frombuffer(name.encode(), np.uint8)
    lanes = np.empty((2, 1), dtype=np.uint64)
    hash_bytes(encoded, np.array([0, len(encoded)]), lanes)
    return odd(lanes)
