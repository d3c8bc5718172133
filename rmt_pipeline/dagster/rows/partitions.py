"""Which rows of a table are of an asset's partitions, as conditions of SQL."""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import dagster as dg

from rmt_pipeline.compute.rows.computed import compiled
from rmt_pipeline.dagster.failures import WrongAsset
from rmt_pipeline.table import Table
from rmt_pipeline.types.escapes import quote_text

PARTITION_METADATA = "partition_expr"
"""Named as in Dagster's other IO managers for databases."""

WINDOWS_MAX = 75
"""How many windows of time one statement may have: in DuckDB's SQL these comparisons are long."""
KEYS_MAX = 5000
"""How many keys one statement may have."""
DAYS_FROM = 10
"""From so many windows on, days are named one by one, which is faster than to compare each with the
bounds of all windows.
"""


def partition_keys(context: dg.OutputContext) -> list[str]:
    """The keys of the partitions that the run is for; none for an asset without partitions."""
    return list(context.asset_partition_keys) if context.has_asset_partitions else []


def stored_rows(context: dg.OutputContext, table: Table, keys: Sequence[str]) -> list[str]:
    """`rows_of_partitions` for those that an asset stores."""
    return rows_of_partitions(context, table, keys, context.definition_metadata or {})


def requested_rows(context: dg.InputContext, table: Table) -> list[str]:
    """`rows_of_partitions` for those that an input asks for."""
    upstream = context.upstream_output
    if upstream is None or not context.has_asset_partitions:
        return []
    metadata = upstream.definition_metadata or {}
    return rows_of_partitions(context, table, context.asset_partition_keys, metadata)


class _Condition(NamedTuple):
    """A condition, and which share it takes of what one statement may have."""

    text: str
    share: float


def rows_of_partitions(
    context: dg.InputContext | dg.OutputContext,
    table: Table,
    keys: Sequence[str],
    metadata: Mapping[str, Any],
) -> list[str]:
    """Conditions for the rows of these partitions, which need not be consecutive; none when that is
    all rows. There are several of them when one would be too large for a statement, and no row
    fulfils two. Raises UserError for a `partition_expr` that is no expression of the table's
    columns, WrongAsset for one that lacks an expression for a dimension of the partitions.
    """
    expression = metadata.get(PARTITION_METADATA)
    if not keys or not expression:
        return []
    partitions = context.asset_partitions_def
    if not isinstance(partitions, dg.MultiPartitionsDefinition):
        return _together(_within(partitions, keys, str(expression), table))
    names = partitions.partition_dimension_names
    if not isinstance(expression, Mapping) or expression.keys() != set(names):
        raise WrongAsset(
            f"{PARTITION_METADATA} of partitions with the dimensions {' and '.join(names)} is "
            f"a dict with an expression for each of them, not {expression!r}"
        )
    one, other = names  # Dagster knows no more dimensions
    with_one: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        values = partitions.get_partition_key_from_str(key).keys_by_dimension
        with_one[values[one]].add(values[other])
    alike: dict[frozenset[str], list[str]] = defaultdict(list)
    for value, others in with_one.items():
        alike[frozenset(others)].append(value)

    def of_dimension(name: str, values: Iterable[str]) -> list[_Condition]:
        dimension = partitions.get_partitions_def_for_dimension(name)
        return _within(dimension, sorted(values), expression[name], table)

    return _together(
        _Condition(f"({first.text}) AND ({second.text})", first.share + second.share)
        for others, values in alike.items()
        for first in of_dimension(one, values)
        for second in of_dimension(other, others)
    )


def _together(conditions: Iterable[_Condition]) -> list[str]:
    """The conditions, as many of them in one as a statement may have."""
    found: list[list[str]] = []
    share = 1.0
    for one in conditions:
        share += one.share
        if share > 1:
            found.append([])
            share = one.share
        found[-1].append(one.text)
    return [" OR ".join(some) for some in found]


def _within(
    partitions: dg.PartitionsDefinition[Any],
    keys: Sequence[str],
    expression: str,
    table: Table,
) -> list[_Condition]:
    """Conditions for an expression whose values are in these partitions. Partitions in a time zone
    begin at its midnights: of a column of times, or of seconds since 1970, those are moments, and
    of a column of days they are the days that the calendar there shows.
    """
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        windows = windows_of([partitions.time_window_for_partition_key(key) for key in keys])
        is_moment = not compiled(expression, table.definition.columns).type.is_date
        if not is_moment and len(windows) > DAYS_FROM:
            keys = [day for window in windows for day in _days_of(window)]
            whole = _window(expression, windows[0].start, windows[-1].end, is_moment=False)
            return [
                one._replace(text=f"{whole} AND {one.text}")
                for one in _one_of(expression, keys)
            ]
        return [
            _Condition(
                _window(expression, window.start, window.end, is_moment=is_moment),
                1 / WINDOWS_MAX,
            )
            for window in windows
        ]
    return _one_of(expression, keys)


def _one_of(expression: str, keys: Sequence[str]) -> list[_Condition]:
    return [
        _Condition(
            f"toString({expression}) IN ({', '.join(map(quote_text, some))})",
            len(some) / KEYS_MAX,
        )
        for start in range(0, len(keys), KEYS_MAX)
        for some in [keys[start : start + KEYS_MAX]]
    ]


def _window(expression: str, start: dt.datetime, end: dt.datetime, *, is_moment: bool) -> str:
    return (
        f"({expression} >= {_literal(start, is_moment=is_moment)} AND "
        f"{expression} < {_literal(end, is_moment=is_moment)})"
    )


def _days_of(window: dg.TimeWindow) -> Iterator[str]:
    """The days that begin in the window, by the calendar of its zone."""
    day, end = (one.replace(tzinfo=None) for one in (window.start, window.end))
    if day.time() > dt.time():
        day = dt.datetime.combine(day.date(), dt.time()) + dt.timedelta(days=1)
    while day < end:
        yield day.date().isoformat()
        day += dt.timedelta(days=1)


def windows_of(each: Sequence[dg.TimeWindow]) -> list[dg.TimeWindow]:
    """The same windows of time, with consecutive ones joined. Moments are compared: Python compares
    two times of one zone as clocks show them, and an hour in autumn is shown twice.
    """
    found: list[dg.TimeWindow] = []
    for window in sorted(each, key=lambda window: window.start.timestamp()):
        if found and window.start.timestamp() == found[-1].end.timestamp():
            found[-1] = dg.TimeWindow(found[-1].start, window.end)
        else:
            found.append(window)
    return found


def _literal(time: dt.datetime, *, is_moment: bool) -> str:
    """A DateTime would hold no time before 1970."""
    shown = (time.astimezone(dt.UTC) if is_moment else time).replace(tzinfo=None)
    return f"toDateTime64({quote_text(shown.isoformat(' ', 'seconds'))}, 0, 'UTC')"
