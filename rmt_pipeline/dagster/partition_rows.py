"""Which rows of a table are of an asset's partitions, as a condition of SQL."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from rmt_pipeline.compute.rows.computed import compiled
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.table import Table
from rmt_pipeline.types.escapes import quote_text

PARTITION_METADATA = "partition_expr"
"""Named as in Dagster's other IO managers for databases."""


def rows_of_partitions(
    context: dg.InputContext | dg.OutputContext,
    table: Table,
    keys: Sequence[str],
    metadata: Mapping[str, Any],
) -> str:
    """A condition for the rows of these partitions, which need not be consecutive; empty when that
    is all rows. Raises UserError for a `partition_expr` that is no expression of the table's
    columns, or that lacks one for a dimension of the partitions.
    """
    expression = metadata.get(PARTITION_METADATA)
    if not keys or not expression:
        return ""
    partitions = context.asset_partitions_def
    if not isinstance(partitions, dg.MultiPartitionsDefinition):
        return _within(partitions, keys, str(expression), table)
    names = partitions.partition_dimension_names
    if not isinstance(expression, Mapping) or expression.keys() != set(names):
        raise UserError(
            f"{PARTITION_METADATA} of partitions with the dimensions {' and '.join(names)} is "
            f"a dict with an expression for each of them, not {expression!r}"
        )
    found = []
    for key in keys:
        values = partitions.get_partition_key_from_str(key).keys_by_dimension
        of_each = [
            _within(
                partitions.get_partitions_def_for_dimension(name),
                [values[name]],
                expression[name],
                table,
            )
            for name in names
        ]
        found.append(" AND ".join(f"({one})" for one in of_each))
    return " OR ".join(found)


def _within(
    partitions: dg.PartitionsDefinition[Any],
    keys: Sequence[str],
    expression: str,
    table: Table,
) -> str:
    """A condition for an expression whose values are in these partitions. Partitions in a time zone
    begin at its midnights: of a column of times, or of seconds since 1970, those are moments, and
    of a column of days they are the days that the calendar there shows.
    """
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        windows = windows_of([partitions.time_window_for_partition_key(key) for key in keys])
        is_moment = not compiled(expression, table.definition.columns).type.is_date
        return " OR ".join(
            f"({expression} >= {_literal(window.start, is_moment=is_moment)} AND "
            f"{expression} < {_literal(window.end, is_moment=is_moment)})"
            for window in windows
        )
    return f"toString({expression}) IN ({', '.join(map(quote_text, keys))})"


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
