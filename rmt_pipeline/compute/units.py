"""Units: a merge is cut into pieces of bounded size, which are computed independently. Pure.

A small merge is one unit. A large one is cut at key values, so that all rows with the same key are
in one unit, whatever the engine does with them. Each unit writes one file; the files of a part, in
the order of their units, are in key order.

The cut depends on the sources alone, not on the number of cores, so every replica makes the same
files, whatever machine it runs on.
"""

import decimal
import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rmt_pipeline.protocol.alter.history import StoredColumn
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.protocol.ttl import TtlRule, TtlTimes

UNIT_BYTES = 32 << 20  # of Parquet; smaller units would spend their time on starting
UNITS_PER_MERGE_MAX = 256
MOVED_MAX = 5  # a cut is moved by at most this part of a unit

KeyPrefix = tuple[Any, ...]
"""Values of the first columns of a key."""

LeadingKey = int | float | bytes | decimal.Decimal | None
"""A value of the first key column: dates and times as stored integers, strings as bytes."""


@dataclass(frozen=True, slots=True)
class Plain:
    """MergeTree: all rows stay (spec §17.1)."""


@dataclass(frozen=True, slots=True)
class Replacing:
    """ReplacingMergeTree: the newest row of each key stays (spec §17.2). `version` and `is_deleted`
    are columns' names, "" if there is none.
    """

    version: str = ""
    is_deleted: str = ""
    cleanup: bool = False


@dataclass(frozen=True, slots=True)
class Summing:
    """SummingMergeTree: the rows of each key are summed (spec §17.3). `columns` are the columns to
    sum; if empty, all numbers outside of the keys. `kept` are the columns that the keys use, which
    are never summed.
    """

    columns: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregating:
    """AggregatingMergeTree: the SimpleAggregateFunction and AggregateFunction columns of each key
    are aggregated (spec §17.4).
    """


@dataclass(frozen=True, slots=True)
class Collapsing:
    """CollapsingMergeTree: rows cancel each other by their order (spec §17.5). If `final`, negative
    rows are hidden, as by SELECT with FINAL.
    """

    sign: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class VersionedCollapsing:
    """VersionedCollapsingMergeTree: rows cancel each other by their version (spec §17.6). `version`
    is the last column of the sorting key.
    """

    sign: str
    version: str


Rules = Plain | Replacing | Summing | Aggregating | Collapsing | VersionedCollapsing


COMPUTED = "\0"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One expression of a key.

    `text` is its canonical text. `name` is the column that has its values in working tables: a
    column of the table, or a computed one, whose name begins with `COMPUTED`. Columns whose order
    is not that of their stored values (`order_values`) are computed as well. `column` is the
    table's column if the expression is just that, else "".
    """

    text: str
    name: str
    column: str = ""

    @property
    def is_computed(self) -> bool:
        """Whether its values are in a column of their own, not in one of the table."""
        return self.name.startswith(COMPUTED)


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties that all units of one merge share."""

    columns: tuple[Column, ...]
    """The columns of the result: stored ones only."""
    key: tuple[KeyPart, ...]
    """The sorting key."""
    rules: Rules = field(default_factory=Plain)
    deduplicate: bool = False
    deduplicate_by: tuple[str, ...] = ()
    """The columns by which two rows are equal; empty for all columns."""

    bounded: tuple[KeyPart, ...] = ()
    """The expressions whose least and greatest values go into the manifest."""
    ttl: tuple[TtlRule, ...] = ()
    """The rules for which the manifest says when rows expire."""
    expire_s: int = 0
    """Rows and values that have expired by this time are dropped; 0 if none is to be dropped."""
    codec: str = ""
    """The codec of the result, as in CODEC(…); "" for the default."""

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns of working tables that have the key's values."""
        return tuple(part.name for part in self.key)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The table's columns that are expressions of the key by themselves."""
        return tuple(part.column for part in self.key if part.column)

    @property
    def conserves_rows(self) -> bool:
        """Whether every row of the sources is in the result, unchanged."""
        return self.keeps_rows and not self.expire_s

    @property
    def keeps_rows(self) -> bool:
        """Whether the engine keeps every row; TTL may still drop some."""
        return isinstance(self.rules, Plain) and not self.deduplicate


def shape_without(shape: Shape, names: Collection[str]) -> Shape:
    """The shape of rows without these columns, which are in no key."""
    if not names:
        return shape
    kept = tuple(column for column in shape.columns if column.name not in names)
    return replace(shape, columns=kept)


@dataclass(frozen=True, slots=True)
class UnitFile:
    """A file of a source: its absolute path, and its size and hash by the part's manifest.

    `firsts` has the leading key value of the first row of each row group, if Parquet has no
    statistics of such keys; else it is empty.
    """

    path: str
    size: int
    hash: str
    firsts: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitSource:
    """A source part, with its files in key order.

    `stored` says under which name and type the part has each column of the result that it has; None
    if it has them under the names and types of the result.
    """

    part: str
    files: tuple[UnitFile, ...]
    stored: tuple[StoredColumn, ...] | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """One file to make, from the sources' rows whose key is in [lower, upper). A bound may be None.

    `merge` is the number of the merge that the unit belongs to, `ordinal` the number of its file in
    the result. `verify` are the files whose bytes this unit compares with their hashes: the units
    of a merge share that work.
    """

    merge: int
    ordinal: int
    shape: Shape
    sources: tuple[UnitSource, ...]
    output: str
    lower: KeyPrefix | None = None
    upper: KeyPrefix | None = None
    verify: tuple[tuple[str, UnitFile], ...] = ()
    """Pairs of a part's name and its file."""


@dataclass(frozen=True, slots=True)
class RowGroupStatistics:
    """The least and greatest leading key value of a row group, and its bytes."""

    least: LeadingKey
    greatest: LeadingKey
    size: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The key of a sampled row, which stands for `size` bytes of rows around it."""

    key: KeyPrefix
    size: float


def units_count(bytes_total: int) -> int:
    """Into how many units a merge of so many bytes of Parquet is cut, if its keys allow that."""
    count = max(1, min(UNITS_PER_MERGE_MAX, -(-bytes_total // UNIT_BYTES)))
    # With an odd number half the cores may be idle at the end.
    return count + count % 2 if count > 1 else 1


def cuts(stretches: Sequence[RowGroupStatistics], count: int) -> list[LeadingKey]:
    """At most `count` - 1 key values that divide the bytes about equally, ascending.

    Rows are assumed to be spread evenly between the least and greatest value of a row group, if
    those are numbers. For other types a cut is the least value of some row group.

    A row group that a cut goes through is decoded by the unit before it and the unit behind it. So
    a cut is moved a little where fewer bytes are read twice, as between the row groups of parts of
    one size.
    """
    if count < 2 or not stretches or any(each.least is None for each in stretches):
        return []
    total = sum(each.size for each in stretches)
    lowest = min(each.least for each in stretches)  # type: ignore[type-var]
    candidates = _candidates(stretches, count)
    before = [each.before for each in candidates]
    found: list[LeadingKey] = []
    for number in range(1, count):
        wanted, room = total * number / count, total / count / MOVED_MAX
        first = bisect_left(before, wanted - room)
        near = candidates[first : bisect_right(before, wanted + room)]
        if not near:
            near = candidates[max(first - 1, 0) : first + 1]
        cut = min(near, key=lambda each: each.twice + abs(each.before - wanted))
        if cut.value != lowest and (not found or cut.value > found[-1]):  # type: ignore[operator]
            found.append(cut.value)
    return found


def cuts_by_samples(samples: Sequence[Sample], count: int) -> list[KeyPrefix]:
    """At most `count` - 1 keys that divide the bytes about equally, ascending."""
    if count < 2 or not samples:
        return []
    ordered = sorted(samples, key=lambda sample: sample.key)
    total = sum(sample.size for sample in ordered)
    found: list[KeyPrefix] = []
    before = 0.0
    for sample in ordered:
        wanted = total * (len(found) + 1) / count
        last = found[-1] if found else ordered[0].key
        if len(found) + 1 < count and before >= wanted and sample.key > last:
            found.append(sample.key)
        before += sample.size
    return found


@dataclass(frozen=True, slots=True)
class _Cut:
    """A value at which a merge may be cut: how many bytes are `before` it, and how many of these
    the unit behind it decodes, too.
    """

    value: LeadingKey
    before: float
    twice: float


def _candidates(stretches: Sequence[RowGroupStatistics], count: int) -> list[_Cut]:
    """The values that may become a cut, ascending."""
    values = {each.least for each in stretches}
    if isinstance(stretches[0].least, int):
        values |= set(_even_shares(stretches, count))
    return _cuts_at(stretches, values)


def _even_shares(stretches: Sequence[RowGroupStatistics], count: int) -> Iterator[int]:
    """For each cut, the integer before which about the wanted share of the bytes is. Between two
    ends of row groups the bytes grow evenly.
    """
    ends = {each.least for each in stretches} | {each.greatest + 1 for each in stretches}  # type: ignore[operator]
    at = _cuts_at(stretches, ends)
    before = [each.before for each in at]
    for number in range(1, count):
        wanted = before[-1] * number / count
        right = min(max(bisect_left(before, wanted), 1), len(at) - 1)
        low, high = at[right - 1], at[right]
        share = (wanted - low.before) / ((high.before - low.before) or 1)
        value = low.value + math.ceil(share * (high.value - low.value))  # type: ignore[operator]
        yield min(value, at[-1].value - 1)  # type: ignore[operator, misc]


def _cuts_at(
    stretches: Sequence[RowGroupStatistics], values: Collection[LeadingKey]
) -> list[_Cut]:
    """A cut at each of the values, ascending."""
    waiting = deque(sorted(stretches, key=lambda each: each.least))  # type: ignore[arg-type, return-value]
    reached: list[RowGroupStatistics] = []
    passed = 0
    found = []
    for value in sorted(values):  # type: ignore[type-var]
        while waiting and waiting[0].least < value:  # type: ignore[operator]
            reached.append(waiting.popleft())
        beyond = [each for each in reached if each.greatest >= value]  # type: ignore[operator]
        passed += sum(each.size for each in reached) - sum(each.size for each in beyond)
        reached = beyond
        twice = sum(each.size * _share_before(each, value) for each in reached)
        found.append(_Cut(value, passed + twice, twice))
    return found


def _share_before(stretch: RowGroupStatistics, value: LeadingKey) -> float:
    """The share of rows below `value` in a row group whose bounds are below and not below it."""
    least, greatest = stretch.least, stretch.greatest
    if isinstance(least, int) and isinstance(greatest, int) and isinstance(value, int):
        return (value - least) / (greatest - least + 1)
    return 0.5


def joined_bounds(*pieces: tuple[Any, Any]) -> tuple[Any, Any]:
    """The least and greatest value of a column from those of its pieces. A piece with only NULL, or
    with NaN, does not count. None and None if no piece counts.
    """
    ends = [end for piece in pieces for end in piece if not _is_no_value(end)]
    return (min(ends), max(ends)) if ends else (None, None)


def _is_no_value(end: Any) -> bool:
    return end is None or (isinstance(end, float) and math.isnan(end))


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file that a unit made: its name, bytes and SHA-256."""

    name: str
    size: int
    hash: str


@dataclass(frozen=True, slots=True)
class UnitDone:
    """What a unit made. If no rows are left, `file` is None."""

    merge: int
    ordinal: int
    file: WrittenFile | None
    rows_in: int
    rows: int
    bytes_uncompressed: int
    row_hash: int
    column_hashes: tuple[tuple[str, int], ...]
    content_hash: int
    key_bounds: tuple[tuple[str, object, object], ...]
    """For each bounded expression its text, least and greatest value, as Arrow's Python values."""
    warnings: tuple[str, ...]
    seconds: float
    ttl: tuple[TtlTimes, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitFailed:
    """Why a unit failed. `part` is the name of the broken source, if one is broken."""

    merge: int
    ordinal: int
    error: str
    """The name of the class in protocol.errors; "RmtError" for any other exception."""
    message: str
    part: str = ""


UnitResult = UnitDone | UnitFailed
