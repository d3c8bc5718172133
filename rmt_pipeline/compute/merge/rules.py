"""The rules by which each engine merges the rows of a key (spec §17), applied to many keys at once.

The obvious form of these, row by row, is `tests.oracle.rows`; tests compare the two.
"""

from typing import Any, Protocol, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmt_pipeline.compute.merge.aggregate import Aggregation, aggregation_of, summing_of
from rmt_pipeline.compute.rows.groups import Groups, first_of_equal
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.compute.rows.order import Flags, RowIndexes, ranks
from rmt_pipeline.compute.rows.windows import Sorted, in_order
from rmt_pipeline.compute.units import (
    Aggregating,
    Collapsing,
    Plain,
    Replacing,
    Rules,
    Shape,
    Summing,
    VersionedCollapsing,
)
from rmt_pipeline.protocol.errors import IncorrectData, UserError

CARRIED_ROWS_MAX = 64  # so many rows of a key are carried over as they are


class GroupRules(Protocol):
    """How a table's engine merges the rows of each key (spec §17)."""

    def merge(self, rows: Sorted) -> pa.Table:
        """The rows of the result for these, which are all rows of their keys. Either
        may be none.
        """
        ...

    def carry(self, rows: Sorted) -> pa.Table:
        """Rows, as few as possible, that can replace these rows of one key when more rows of that
        key follow.
        """
        ...

    def warnings(self) -> tuple[str, ...]:
        """What was wrong with the rows so far, for people."""
        ...


def rules_for(shape: Shape) -> GroupRules | None:
    """The rules for a merge; None if every row of the sources is kept. Raises UserError for rules
    that do not fit the columns.
    """
    if shape.keeps_rows:
        return None
    rules = _engine_rules(shape.rules, shape)
    return Distinct(rules, shape) if shape.deduplicate else rules


def _engine_rules(rules: Rules, shape: Shape) -> GroupRules:
    match rules:
        case Plain():
            return KeepAll()
        case Replacing():
            return KeepNewest(rules)
        case Collapsing():
            return Collapse(rules)
        case VersionedCollapsing():
            return CollapseVersions(rules.sign)
        case Summing():
            return AggregateRule(summing_of(shape, rules))
        case Aggregating():
            return AggregateRule(aggregation_of(shape))
    assert_never(rules)


class KeepAll:
    """MergeTree: every row stays."""

    def merge(self, rows: Sorted) -> pa.Table:
        return rows.all()

    def carry(self, rows: Sorted) -> pa.Table:
        return rows.all()

    def warnings(self) -> tuple[str, ...]:
        return ()


class KeepNewest:
    """ReplacingMergeTree: the last row of each key with the greatest version stays (spec §17.2).

    Without a version column, the last row. NaN is the greatest version.
    """

    def __init__(self, rules: Replacing) -> None:
        self._rules = rules

    def merge(self, rows: Sorted) -> pa.Table:
        places = self._newest(rows)
        if self._rules.is_deleted:
            deleted = self._deleted(rows)
            if self._rules.cleanup:
                places = places[~deleted[places]]
        return rows.at(places)

    def carry(self, rows: Sorted) -> pa.Table:
        if self._rules.is_deleted:
            self._deleted(rows)  # raises for wrong values, also in rows that do not stay
        return rows.at(self._newest(rows))

    def warnings(self) -> tuple[str, ...]:
        return ()

    def _newest(self, rows: Sorted) -> RowIndexes:
        if not len(rows):
            return np.zeros(0, dtype=np.intp)
        groups = Groups(rows.starts)
        if groups.single or not self._rules.version:
            return groups.last
        version = ranks(rows.column(self._rules.version))
        greatest = np.maximum.reduceat(version, groups.first)
        return groups.last_where(version == greatest[groups.number])

    def _deleted(self, rows: Sorted) -> Flags:
        name = self._rules.is_deleted
        flags = rows.column(name).to_numpy(zero_copy_only=False)
        if len(flags) and flags.max() > 1:
            raise IncorrectData(
                f"column {name} says whether a row is deleted: it may be 0 or 1, a row has "
                f"{flags.max()}"
            )
        return np.asarray(flags == 1)


class Collapse:
    """CollapsingMergeTree: rows of opposite sign cancel each other (spec §17.5). At most the first
    negative and the last positive row of each key are left.
    """

    def __init__(self, rules: Collapsing) -> None:
        self._sign = rules.sign
        self._final = rules.final
        self._unbalanced = 0

    def merge(self, rows: Sorted) -> pa.Table:
        if not len(rows):
            return rows.all()
        groups = Groups(rows.starts)
        positive = signs_of(rows, self._sign) > 0
        surplus = 2 * groups.count_where(positive) - (groups.last - groups.first + 1)
        self._unbalanced += int(np.count_nonzero(np.abs(surplus) > 1))
        something = (surplus != 0) | positive[groups.last]
        keeps_negative = something & (surplus <= 0) & (not self._final)
        negatives = groups.first_where(~positive)[keeps_negative]
        positives = groups.last_where(positive)[something & (surplus >= 0)]
        # If a key keeps both rows, its last row is positive, and so comes after the first negative.
        return rows.at(np.sort(np.concatenate([negatives, positives])))

    def carry(self, rows: Sorted) -> pa.Table:
        if len(rows) <= CARRIED_ROWS_MAX:
            return rows.all()
        positive = signs_of(rows, self._sign) > 0
        if positive.all() or not positive.any():
            return rows.all()
        # The result depends on the key's first negative row, its last positive row, the sign of its
        # last row, and how many more rows there are of one sign. Keep rows that agree in these.
        first_negative, last_positive = np.argmin(positive), np.flatnonzero(positive)[-1]
        surplus = 2 * int(np.count_nonzero(positive)) - len(rows)
        end = [] if positive[-1] else [first_negative]
        missing = surplus + len(end)
        filling = [last_positive if missing > 0 else first_negative] * abs(missing)
        return rows.at(np.array([first_negative, *filling, last_positive, *end], dtype=np.intp))

    def warnings(self) -> tuple[str, ...]:
        if not self._unbalanced:
            return ()
        text = (
            f"{self._unbalanced} keys have two or more rows of one sign left over; the data are "
            "incorrect: every -1 row must follow the +1 row that it cancels"
        )
        return (text,)


class CollapseVersions:
    """VersionedCollapsingMergeTree: each row cancels the last uncancelled row before it with the
    same key and version and the opposite sign (spec §17.6). The rows that are left of these have
    one sign.

    The original gives rows out early when a key has more than some thousands of them; here
    they wait, so that the result does not depend on the sizes of blocks.
    """

    def __init__(self, sign: str) -> None:
        self._sign = sign

    def merge(self, rows: Sorted) -> pa.Table:
        if not len(rows):
            return rows.all()
        sign = signs_of(rows, self._sign)
        return rows.at(np.flatnonzero(_uncancelled(Groups(rows.starts), sign)))

    def carry(self, rows: Sorted) -> pa.Table:
        return self.merge(rows)  # rows that have cancelled each other do not affect later rows

    def warnings(self) -> tuple[str, ...]:
        return ()


def _uncancelled(groups: Groups, sign: npt.NDArray[Any]) -> Flags:
    """Which rows remain if each row cancels the last uncancelled one of the opposite sign.

    Let the balance be the sum of the group's signs up to a row. A row of sign 1 that brings the
    balance to k > 0 remains if the balance does not fall below k again within its group; likewise
    for sign -1 and k < 0.
    """
    total = np.cumsum(sign.astype(np.int64))
    before = np.where(groups.first > 0, total[groups.first - 1], 0)
    balance = total - before[groups.number]
    # Balances of different groups are moved apart, so that one pass from the end over all rows
    # finds the extremes within each group.
    apart = groups.number.astype(np.int64) * (2 * groups.rows + 2)
    least = np.minimum.accumulate((balance + apart)[::-1])[::-1] - apart
    most = apart - np.minimum.accumulate((apart - balance)[::-1])[::-1]
    return np.asarray(
        ((sign > 0) & (balance > 0) & (least >= balance))
        | ((sign < 0) & (balance < 0) & (most <= balance))
    )


def signs_of(rows: Sorted, name: str) -> npt.NDArray[Any]:
    """The sign column. Raises IncorrectData for other values than 1 and -1."""
    signs: npt.NDArray[Any] = rows.column(name).to_numpy(zero_copy_only=False)
    wrong = signs[np.abs(signs.astype(np.int16)) != 1]
    if len(wrong):
        raise IncorrectData(
            f"column {name} is a sign: it must be 1 or -1, a row has {wrong[0]}"
        )
    return signs


class AggregateRule:
    """SummingMergeTree and AggregatingMergeTree: one row per key, with sums and other aggregates;
    other columns are those of the key's first row.
    """

    def __init__(self, aggregation: Aggregation) -> None:
        self._aggregation = aggregation

    def merge(self, rows: Sorted) -> pa.Table:
        table = self.carry(rows)
        return table if not table.num_rows else self._aggregation.without_zeros(table)

    def carry(self, rows: Sorted) -> pa.Table:
        if not len(rows):
            return rows.all()
        groups = Groups(rows.starts)
        first = rows.at(groups.first)
        return self._aggregation.apply(rows, groups, first)

    def warnings(self) -> tuple[str, ...]:
        return ()


class Distinct:
    """OPTIMIZE … DEDUPLICATE (spec §17.1): of the result's rows that are equal in all columns, or
    in those listed, the first stays. Rows are only equal if their keys are.
    """

    def __init__(self, rules: GroupRules, shape: Shape) -> None:
        used = KeyColumns([part.text for part in shape.key], shape.columns).inputs
        missing = [name for name in used if name not in shape.deduplicate_by]
        if shape.deduplicate_by and missing:
            raise UserError(
                f"DEDUPLICATE BY must list every column of the sorting key; {missing[0]} is missing"
            )
        self._rules = rules
        self._key = shape.key_names
        self._columns = list(shape.deduplicate_by) or [column.name for column in shape.columns]

    def merge(self, rows: Sorted) -> pa.Table:
        return self._distinct(self._rules.merge(rows))

    def carry(self, rows: Sorted) -> pa.Table:
        kept = self._rules.carry(rows)
        return self._distinct(kept) if isinstance(self._rules, KeepAll) else kept

    def warnings(self) -> tuple[str, ...]:
        return self._rules.warnings()

    def _distinct(self, table: pa.Table) -> pa.Table:
        if table.num_rows < 2:
            return table
        rows = in_order([table], self._key)
        if self._key and rows.starts.all():
            return table
        columns = table.select(self._columns).to_struct_array()
        places = first_of_equal(np.cumsum(rows.starts), pa.concat_arrays(columns.chunks))
        return table if len(places) == table.num_rows else rows.at(places)
