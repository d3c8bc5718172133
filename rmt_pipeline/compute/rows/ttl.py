"""TTL of rows (spec §13): which rows and values have expired, and the times that a part's manifest
gets.

The obvious form of this, row by row, is `tests.oracle.rows.apply_ttl`; tests compare the two.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmt_pipeline.compute.rows.computed import compiled, evaluated
from rmt_pipeline.compute.rows.defaults import DefaultExpressions
from rmt_pipeline.compute.rows.order import Flags, integers
from rmt_pipeline.compute.rows.windows import one_array
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.protocol.ttl import TtlRule, TtlTimes
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.types.data_type import DataType

if TYPE_CHECKING:
    from rmt_pipeline.translate.expression import Expression

Seconds = npt.NDArray[np.int64]

DAY_S = 86_400
_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class RowTtl:
    """Applies a table's rules to rows. Raises UserError for expressions that can't be computed.

    `columns` are the stored ones. Rows and values whose time is at most `expire_s` are removed, and
    do not count in `measure`; 0: nothing is removed.
    """

    def __init__(
        self, rules: Sequence[TtlRule], columns: Sequence[Column], expire_s: int = 0
    ) -> None:
        self._rules = tuple(rules)
        self._columns = {column.name: column for column in columns}
        self._expire_s = expire_s
        self._times = [_compiled_time(rule.expression, columns) for rule in rules]
        self._conditions: dict[int, Expression] = {
            place: compiled(rule.where, columns)
            for place, rule in enumerate(rules)
            if rule.kind == "where"
        }
        self._defaults = DefaultExpressions(columns)
        self._schema = arrow_schema(columns)

    def expire(self, table: pa.Table) -> pa.Table:
        """The rows that have not expired. Values that have expired become their column's default.

        Columns of `table` that are not the table's stay as they are. Raises BadValue for a time or
        a default that can't be computed.
        """
        if not self._expire_s or not self._rules or not table.num_rows:
            return table
        gone = np.zeros(table.num_rows, dtype=np.bool_)
        emptied: dict[str, Flags] = {}
        for rule, times, counts in self._looked_at(table):
            expired = counts & (times > 0) & (times <= self._expire_s)
            if rule.removes_rows:
                gone |= expired
            elif rule.kind == "column" and expired.any():
                emptied[rule.column] = expired
        for name in self._in_order(emptied):
            table = self._emptied(table, name, emptied[name])
        return table.filter(pa.array(~gone)) if gone.any() else table

    def measure(self, table: pa.Table) -> tuple[TtlTimes, ...]:
        """When the rows expire by each rule; see TtlTimes. Raises BadValue."""
        if not self._rules or not table.num_rows:
            return ()
        found = []
        for rule, times, counts in self._looked_at(table):
            taken = rule.kind == "column" and self._expire_s
            waits = counts & (times > 0) & (times > self._expire_s if taken else True)
            some = times[waits]
            least, greatest = (int(some.min()), int(some.max())) if len(some) else (0, 0)
            found.append(TtlTimes(rule.key, least, greatest, every=bool(waits.all())))
        return tuple(found)

    def _looked_at(self, table: pa.Table) -> Iterator[tuple[TtlRule, Seconds, Flags]]:
        """For each rule the times of the rows, and whether the rule's WHERE holds for each row."""
        plain = self._decoded(table)
        arrays = evaluated([*self._times, *self._conditions.values()], plain)
        conditions = dict(zip(self._conditions, arrays[len(self._times) :], strict=True))
        everywhere = np.ones(table.num_rows, dtype=np.bool_)
        for place, rule in enumerate(self._rules):
            holds = _true(conditions[place]) if place in conditions else everywhere
            yield rule, seconds_of(arrays[place]), holds

    def _decoded(self, table: pa.Table) -> pa.Table:
        """The table's columns without dictionaries, as expressions need them."""
        return table.select(self._schema.names).cast(self._schema)

    def _in_order(self, names: Collection[str]) -> list[str]:
        """`names` in such an order that a default is computed from the row's new values."""
        plain = [name for name in names if name not in self._defaults]
        computed = [name for name in names if name in self._defaults]
        return plain + self._defaults.in_order(computed)

    def _emptied(self, table: pa.Table, name: str, expired: Flags) -> pa.Table:
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        kind = self._schema.field(name).type
        values = one_array(table.column(at).cast(kind))
        if name in self._defaults:
            defaults = self._defaults.evaluate(name, self._decoded(table)).cast(kind)
            places = np.arange(len(values))
            places = np.where(expired, places + len(values), places)
        else:
            default = parse_type(self._columns[name].type).default
            defaults = pa.array([default], kind)
            places = np.where(expired, len(values), np.arange(len(values)))
        chosen = pa.concat_arrays([values, defaults]).take(pa.array(places))
        return table.set_column(at, field, chosen.cast(field.type))


def _compiled_time(text: str, columns: Sequence[Column]) -> "Expression":
    """The compiled expression of a rule. Date and DateTime columns are taken as the wider types
    Date32 and DateTime64, which are stored alike: "60 years from 2090" must not overflow to a time
    in the past, by which the row would expire at once.
    """
    wide = tuple(replace(column, type=wider(parse_type(column.type))) for column in columns)
    try:
        return compiled(text, wide)
    except UserError:  # some function takes only the narrow types
        return compiled(text, columns)


def wider(kind: DataType) -> str:
    """The type of days or times that holds what would overflow in this one."""
    match kind.family:
        case "Date":
            return "Date32"
        case "DateTime":
            return DataType("DateTime64", (0,), zone=kind.zone).text
        case _:
            return kind.text


def seconds_of(array: pa.Array) -> Seconds:
    """The dates or times as seconds since the epoch, rounded down."""
    numbers: npt.NDArray[Any] = integers(array)
    if pa.types.is_date32(array.type):
        return numbers.astype(np.int64) * DAY_S
    found: Seconds = numbers // _UNITS_PER_SECOND[array.type.unit]
    return found


def far_apart(before: pa.Array, after: pa.Array) -> Flags:
    """Which dates or times are not what they were before a conversion, but have wrapped around. A
    day may differ from the moment that it was made of, or is the midnight of, by as much.
    """
    distance = seconds_of(before.fill_null(0)) - seconds_of(after.fill_null(0))
    return np.asarray(np.abs(distance) >= 2 * DAY_S)


def are_told(numbers: pa.Array, found: pa.Array) -> Flags:
    """Which dates or times are those that numbers stand for: days, or seconds. The fraction of a
    number may be lost.
    """
    seconds = seconds_of(found.fill_null(0))
    told = np.asarray(numbers.cast(pa.float64(), safe=False).fill_null(0))
    same = np.abs(seconds - told) < 1
    if pa.types.is_date32(found.type):  # a large number is of seconds, too
        days = seconds // DAY_S
        same = (np.abs(days - told) < 1) | (days == told // DAY_S)
    return np.asarray(same)


def _true(array: pa.Array) -> Flags:
    """Whether a condition holds, for each row. It does not where it is NULL."""
    numbers = array.cast(pa.uint8()) if pa.types.is_boolean(array.type) else array
    flags: Flags = numbers.fill_null(0).to_numpy(zero_copy_only=False) != 0
    return flags
