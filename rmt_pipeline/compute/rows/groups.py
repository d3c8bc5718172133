"""Rows of one key are a group: where groups begin and end in sorted rows."""

from functools import cached_property

import numpy as np
import pyarrow as pa

from rmt_pipeline.compute.rows.order import Flags, RowIndexes
from rmt_pipeline.store.hashes.values import lanes_of


class Groups:
    """Groups of adjacent rows, by the flags that tell where each begins.

    There is at least one row; the first row begins a group.
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
        """Whether every group is one row."""
        return len(self.first) == self.rows

    @cached_property
    def last(self) -> RowIndexes:
        return np.append(self.first[1:], self.rows) - 1

    @cached_property
    def number(self) -> RowIndexes:
        """Of each row: its group."""
        return np.cumsum(self.starts) - 1

    def first_where(self, wanted: Flags) -> RowIndexes:
        """Of each group: its first row that is wanted; `rows` when there is none."""
        places = np.where(wanted, np.arange(self.rows), self.rows)
        return np.minimum.reduceat(places, self.first)

    def last_where(self, wanted: Flags) -> RowIndexes:
        """Of each group: its last row that is wanted; -1 when there is none."""
        places = np.where(wanted, np.arange(self.rows), -1)
        return np.maximum.reduceat(places, self.first)

    def count_where(self, wanted: Flags) -> RowIndexes:
        return np.add.reduceat(wanted.astype(np.intp), self.first)


def first_of_equal(numbers: RowIndexes, values: pa.Array) -> RowIndexes:
    """Places of values that equal no earlier one of their group, ascending.

    `numbers[i]` is the group of value i. Equal is: the same 128-bit hash.
    """
    if not len(values):
        return np.zeros(0, dtype=np.intp)
    lanes = lanes_of(values)
    keys = (lanes[1], lanes[0], numbers)
    order = np.lexsort(keys)  # stable: of equal values the earliest comes first
    repeats = np.ones(len(order), dtype=np.bool_)
    repeats[0] = False
    for key in keys:
        ordered = key[order]
        repeats[1:] &= ordered[1:] == ordered[:-1]
    return np.sort(order[~repeats])
