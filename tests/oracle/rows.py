"""What a merge does to rows, in lines that are obviously right (spec §17).

The oracle: the kernels that do it fast are tested against this, and nothing else uses it. A row
is a dict from column to value. Sources are in the order of their blocks; inside a part rows are
sorted. The stream that the engines see is all rows by key, and for equal keys by source, then by
position: so "last" always means the newest (spec §17, "Common frame").
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isnan
from typing import Any

from rmt_pipeline.protocol.errors import IncorrectData
from rmt_pipeline.protocol.table import EngineKind
from tests.oracle.order import order_value
from tests.oracle.sums import aggregated, summed

Row = Mapping[str, Any]

COLLAPSING_QUEUE_MAX = 8191
"""VersionedCollapsing remembers so many rows of one key; a longer run lets the oldest go."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """What of a table's definition decides what a merge does.

    `columns` are (name, type) in the table's order; `order_by` and `partition_by` name columns.
    `cleanup` also removes tombstones (OPTIMIZE … FINAL CLEANUP). `final` is a SELECT with FINAL:
    it hides tombstones and rows with a negative sign.
    """

    kind: EngineKind
    order_by: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    partition_by: tuple[str, ...] = ()
    version_column: str = ""
    is_deleted_column: str = ""
    sign_column: str = ""
    columns_to_sum: tuple[str, ...] = ()
    cleanup: bool = False
    final: bool = False

    @property
    def equality(self) -> tuple[str, ...]:
        """The columns whose values make two rows the same to the engine.

        VersionedCollapsing appends its version to the sorting key.
        """
        versioned = self.kind == "VersionedCollapsingMergeTree"
        if versioned and self.version_column not in self.order_by:
            return (*self.order_by, self.version_column)
        return self.order_by


def merge_rows(
    sources: Sequence[Sequence[Row]],
    rules: MergeRules,
    *,
    deduplicate: bool = False,
    deduplicate_by: Sequence[str] = (),
) -> list[Row]:
    """The rows of the merged part, in order.

    One source gives what an insert with `optimize_on_insert` stores. Raises IncorrectData for
    values that the engine does not allow.
    """
    types = dict(rules.columns)

    def key(row: Row) -> Any:
        return comparable(
            tuple(order_value(types.get(name, ""), row[name]) for name in rules.equality)
        )

    stream = sorted((row for source in sources for row in source), key=key)
    engine = _ENGINES[rules.kind]
    rows = [row for _, group in groupby(stream, key) for row in engine(list(group), rules)]
    if deduplicate:
        rows = _distinct(rows, deduplicate_by or [name for name, _ in rules.columns])
    return rows


def comparable(value: Any) -> Any:
    """A value that compares as ClickHouse sorts: NaN after every number, NULL after everything.

    All NaN are equal to each other, and so are all NULL, and both zeros.
    """
    if value is None:
        return (2,)
    if isinstance(value, float) and isnan(value):
        return (1,)
    if isinstance(value, tuple | list):
        return (0, tuple(comparable(item) for item in value))
    return (0, value)


def _distinct(rows: Iterable[Row], columns: Sequence[str]) -> list[Row]:
    """The first of the rows that agree in all of `columns` (OPTIMIZE … DEDUPLICATE)."""
    first: dict[Any, Row] = {}
    for row in rows:
        first.setdefault(comparable([_hashable(row[column]) for column in columns]), row)
    return list(first.values())


def _hashable(value: Any) -> Any:
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def _keep_all(group: list[Row], _rules: MergeRules) -> list[Row]:
    return group


def _replace(group: list[Row], rules: MergeRules) -> list[Row]:
    """The row with the greatest version; of those, and without versions, the last (§17.2)."""
    selected = group[0]
    for row in group:
        if rules.is_deleted_column and row[rules.is_deleted_column] not in (0, 1):
            raise IncorrectData(
                f"{rules.is_deleted_column} = {row[rules.is_deleted_column]!r} in {row}: "
                "is_deleted must be 0 or 1"
            )
        if not rules.version_column or (
            comparable(row[rules.version_column]) >= comparable(selected[rules.version_column])
        ):
            selected = row
    tombstone = bool(rules.is_deleted_column) and selected[rules.is_deleted_column] == 1
    return [] if tombstone and (rules.cleanup or rules.final) else [selected]


def _sum(group: list[Row], rules: MergeRules) -> list[Row]:
    not_summed = frozenset((*rules.order_by, *rules.partition_by))
    row = summed(group, rules.columns, not_summed, rules.columns_to_sum)
    return [] if row is None else [row]


def _aggregate(group: list[Row], rules: MergeRules) -> list[Row]:
    return [aggregated(group, rules.columns, frozenset(rules.order_by))]


def _collapse(group: list[Row], rules: MergeRules) -> list[Row]:
    """The first negative row, the last positive one, both, or none (§17.5)."""
    signs = _signs(group, rules)
    positive, negative = signs.count(1), signs.count(-1)
    if positive == negative and signs[-1] == -1:
        return []
    kept = []
    if positive <= negative and not rules.final:
        kept.append(group[signs.index(-1)])
    if positive >= negative:
        kept.append([row for row, sign in zip(group, signs, strict=True) if sign == 1][-1])
    return kept


def _collapse_versions(group: list[Row], rules: MergeRules) -> list[Row]:
    """A row takes away the most recent one of the opposite sign (§17.6)."""
    kept: list[Row] = []
    waiting: deque[tuple[int, Row]] = deque()
    for sign, row in zip(_signs(group, rules), group, strict=True):
        if waiting and waiting[-1][0] != sign:
            waiting.pop()
            continue
        if len(waiting) == COLLAPSING_QUEUE_MAX:
            kept.append(waiting.popleft()[1])
        waiting.append((sign, row))
    return kept + [row for _, row in waiting]


def _signs(group: list[Row], rules: MergeRules) -> list[int]:
    signs = [row[rules.sign_column] for row in group]
    for sign, row in zip(signs, group, strict=True):
        if sign not in (1, -1):
            raise IncorrectData(f"{rules.sign_column} = {sign!r} in {row}: must be 1 or -1")
    return signs


_ENGINES: dict[EngineKind, Callable[[list[Row], MergeRules], list[Row]]] = {
    "MergeTree": _keep_all,
    "ReplacingMergeTree": _replace,
    "SummingMergeTree": _sum,
    "AggregatingMergeTree": _aggregate,
    "CollapsingMergeTree": _collapse,
    "VersionedCollapsingMergeTree": _collapse_versions,
}


@dataclass(frozen=True, slots=True)
class ColumnTtl:
    """From `expires_s(row)` on, `column` has its default instead of its value."""

    column: str
    expires_s: Callable[[Row], int]
    default: Any


def apply_ttl(
    rows: Iterable[Row],
    now_s: int,
    row_expires_s: Callable[[Row], int] | None,
    columns: Sequence[ColumnTtl] = (),
) -> list[Row]:
    """Rows that are not expired, with expired columns emptied (spec §13).

    `now_s` is the entry's create_time, never a clock: every replica gives the same rows (§16.9
    E6). An expiry of 0 or less is none.
    """
    kept: list[Row] = []
    for row in rows:
        if row_expires_s is not None and 0 < row_expires_s(row) <= now_s:
            continue
        expired = {
            one.column: one.default for one in columns if 0 < one.expires_s(row) <= now_s
        }
        kept.append({**row, **expired})
    return kept
