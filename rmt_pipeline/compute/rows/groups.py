"""Groups of rows with the same key: where they begin and end among sorted rows."""

from functools import cached_property

import numpy as np
import pyarrow as pa

from rmt_pipeline.compute.rows.order import Flags, RowIndexes
from rmt_pipeline.store.hashes.values import lanes_of


class Groups:
    """Groups of adjacent rows. `starts[i]` says whether row i begins a group.

    There must be at least one row, and the first row must begin a group.
    """

    def __init__(self, starts: Flags) -> None:
        assert len(starts)
        assert starts[0]
        self.rows = len(starts)
        self.starts = starts
        self.first: RowIndexes = np.flatnonzero(starts)

    def __len__(self) -> int:
        return len(self.first)

    @property
    def single(self) -> bool:
        """Whether every group has just one row."""
        return len(self.first) == self.rows

    @cached_property
    def last(self) -> RowIndexes:
        """The last row of each group."""
        return np.append(self.first[1:], self.rows) - 1

    @cached_property
    def number(self) -> RowIndexes:
        """The number of the group of each row."""
        return np.cumsum(self.starts) - 1

    def first_where(self, wanted: Flags) -> RowIndexes:
        """The first wanted row of each group; `rows` for a group that has none."""
        places = np.where(wanted, np.arange(self.rows), self.rows)
        return np.minimum.reduceat(places, self.first)

    def last_where(self, wanted: Flags) -> RowIndexes:
        """The last wanted row of each group; -1 for a group that has none."""
        places = np.where(wanted, np.arange(self.rows), -1)
        return np.maximum.reduceat(places, self.first)

    def count_where(self, wanted: Flags) -> RowIndexes:
        """The number of wanted rows of each group."""
        return np.add.reduceat(wanted.astype(np.intp), self.first)


def first_of_equal(numbers: RowIndexes, values: pa.Array) -> RowIndexes:
    """The places of values that do not equal an earlier value of their group, ascending.

    `numbers[i]` is the group of value i. Values with the same 128-bit hash are equal.
    """
    if not len(values):
        return np.zeros(0, dtype=np.intp)
    lanes = lanes_of(values)
    keys = (lanes[1], lanes[0], numbers)
    order = np.lexsort(keys)  # stable: the earliest of equal values comes first
    repeats = np.ones(len(order), dtype=np.bool_)
    repeats[0] = False
    for key in keys:
        ordered = key[order]
        repeats[1:] &= ordered[1:] == ordered[:-1]
    return np.sort(order[~repeats])
