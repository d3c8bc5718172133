"""Adding numbers and intervals to dates and times, and the distance between two of them.

As in the original, results beyond the range of Date (1970 to 2149) and DateTime (1970 to 2106) wrap
around; those of Date32 and DateTime64 do not.
"""

from zoneinfo import ZoneInfo

from rmt_pipeline.translate.base.casts import nullable_like
from rmt_pipeline.translate.base.casts_number import unscaled_to_decimal, wrap
from rmt_pipeline.translate.base.temporal import (
    at_least,
    digits_of,
    floor_divide,
    from_microseconds,
    instant_spelled,
    is_nanoseconds,
    local,
    microseconds,
    nanoseconds,
    wrap_date,
    wrap_microseconds,
)
from rmt_pipeline.translate.base.typed import Typed, TypeProblem, nanoseconds_sql, string_sql
from rmt_pipeline.types.data_type import EPOCH, DataType

_DAYS = {"Day": 1, "Week": 7}
_MONTHS = {"Month": 1, "Quarter": 3, "Year": 12}
_MICROSECONDS = {
    "Microsecond": 1,
    "Millisecond": 1_000,
    "Second": 1_000_000,
    "Minute": 60_000_000,
    "Hour": 3_600_000_000,
}
_DIGITS_NEEDED = {"Millisecond": 3, "Microsecond": 6, "Nanosecond": 9}


def interval_type(unit: str) -> DataType:
    """Return the type of an interval of this unit: that of `INTERVAL 1 DAY` for `Day`."""
    return DataType(f"Interval{unit}")


def interval_unit(data_type: DataType) -> str:
    """Return the unit of an interval's type, such as `Day`; "" if it is no interval."""
    family = data_type.plain.family
    return family.removeprefix("Interval") if family.startswith("Interval") else ""


def is_date_arithmetic(left: Typed, right: Typed) -> bool:
    """Whether `+` or `-` of these values is an operation on dates or times, and not on numbers."""
    return left.type.date_like or right.type.date_like


def shift(value: Typed, amount: Typed, sign: int) -> Typed:
    """Return `value` moved by an interval or a number (days for a date, seconds for a time),
    backwards if `sign` is -1. Raises TypeProblem.
    """
    unit = interval_unit(amount.type)
    if unit:
        return shift_by(value, amount, unit, sign)
    if not amount.type.is_integer or amount.plain.wide_bytes:
        raise TypeProblem(f"cannot add {amount.type.text} to {value.type.text}")
    return shift_by(value, amount, "Day" if value.type.is_date else "Second", sign)


def shift_by(value: Typed, amount: Typed, unit: str, sign: int) -> Typed:
    """Return a date or time moved by `amount` units (Second, Month, …), backwards if `sign` is -1.
    A Date becomes a DateTime if the unit is smaller than a day.
    """
    count = f"CAST({amount.sql} AS BIGINT)"
    count = f"(-{count})" if sign < 0 else count
    if value.type.is_date and unit in {*_DAYS, *_MONTHS}:
        return Typed(_date(value, unit, count), nullable_like(value.plain, value, amount))
    if value.type.is_date:
        value = _midnight(value)
    result = _result_type(value.plain, unit)
    if unit in {*_DAYS, *_MONTHS}:
        sql = _on_the_clock(value, unit, count, result)
    elif unit == "Nanosecond" or is_nanoseconds(result):
        step = 1 if unit == "Nanosecond" else _MICROSECONDS[unit] * 1000
        sql = nanoseconds_sql(f"({nanoseconds(value)} + {count} * {step})")
    else:
        sql = _of_microseconds(
            f"({microseconds(value)} + {count} * {_MICROSECONDS[unit]})", result
        )
    return Typed(sql, nullable_like(result, value, amount))


def _result_type(plain: DataType, unit: str) -> DataType:
    """Return the result's type, which has enough digits of the second for the unit."""
    needed = _DIGITS_NEEDED.get(unit, 0)
    if needed <= digits_of(plain):
        return plain
    return DataType("DateTime64", (needed,), plain.zone)


def _midnight(value: Typed) -> Typed:
    family = "DateTime" if value.plain.family == "Date" else "DateTime64"
    made = DataType(family, () if family == "DateTime" else (0,))
    return Typed(f"make_timestamptz(epoch_us({local(value)}))", nullable_like(made, value))


def _interval_sql(unit: str, count: str) -> str:
    if unit in _DAYS:
        return f"to_days(CAST({count} * {_DAYS[unit]} AS INTEGER))"
    return f"to_months(CAST({count} * {_MONTHS[unit]} AS INTEGER))"


def _date(value: Typed, unit: str, count: str) -> str:
    moved = f"CAST(({value.sql} + {_interval_sql(unit, count)}) AS DATE)"
    if value.plain.family != "Date":
        return moved
    if unit in _MONTHS:  # as in the original, clamped below the range and wrapped above it
        moved = at_least(moved, "DATE '1970-01-01'")
    return wrap_date(moved)


def _on_the_clock(value: Typed, unit: str, count: str, result: DataType) -> str:
    """Return SQL of a time moved by days or months on the local clock, on which a day may not have
    24 hours.
    """
    clock = f"({local(value)} + {_interval_sql(unit, count)})"
    moved = f"epoch_us({instant_spelled(clock, result.zone)})"
    if is_nanoseconds(result):
        below = f"((({nanoseconds(value)} % 1000) + 1000) % 1000)"
        return nanoseconds_sql(f"({moved} * 1000 + {below})")
    if unit in _MONTHS and result.family == "DateTime":
        moved = at_least(moved, "0")
    return _of_microseconds(moved, result)


def _of_microseconds(sql: str, result: DataType) -> str:
    return from_microseconds(
        wrap_microseconds(sql) if result.family == "DateTime" else sql, result
    )


def difference(left: Typed, right: Typed) -> Typed:
    """`left - right`: days between dates, seconds between times. Raises TypeProblem."""
    a, b = left.plain, right.plain
    if a.is_date and b.is_date:
        sql = f"date_diff('day', {right.sql}, {left.sql})"
        return Typed(f"CAST({sql} AS INTEGER)", nullable_like(DataType("Int32"), left, right))
    if a.family == b.family == "DateTime":
        exact = f"((epoch_us({left.sql}) - epoch_us({right.sql})) // 1000000)"
        sql = wrap(f"CAST({exact} AS HUGEINT)", DataType("Int32"))
        return Typed(sql, nullable_like(DataType("Int32"), left, right))
    if a.is_time and b.is_time:
        digits = max(digits_of(a), digits_of(b))
        read, finest = (nanoseconds, 9) if digits > 6 else (microseconds, 6)
        ticks = f"({read(left)} - {read(right)}) // {10 ** (finest - digits)}"
        result = DataType("Decimal", (18, digits))
        sql = unscaled_to_decimal(f"CAST({ticks} AS HUGEINT)", result)
        return Typed(sql, nullable_like(result, left, right))
    raise TypeProblem(f"cannot subtract {b.text} from {a.text}; cast one of them")


def count_of_boundaries(unit: str, left: Typed, right: Typed, zone: str | None) -> str:
    """Return SQL of dateDiff: how many boundaries of `unit` lie between the two on the
    local clock.
    """
    if unit in {"millisecond", "microsecond", "nanosecond"}:
        ends = [_ticks(each, unit) for each in (left, right)]
        return f"({ends[1]} - {ends[0]})"
    zones = {each.plain.zone for each in (left, right) if each.type.is_time}
    if unit in _SHORT and len(zones) > 1 and zone is None:
        zone = ""  # clocks of two zones can't be compared, but in UTC the moments can
    clocks = [local(each, zone) for each in (left, right)]
    if unit in _SHORT and left.type.is_time and right.type.is_time:
        # Hours are counted as they pass, and not as clocks are put forward and back.
        shift = _past_the_hour(next(iter(zones), "") if zone is None else zone)
        clocks = [
            f"(make_timestamp({microseconds(each)}) + to_seconds({shift}))"
            for each in (left, right)
        ]
    if unit == "week":  # DuckDB counts whole weeks, the original Mondays
        mondays = [f"CAST(date_trunc('week', {clock}) AS DATE)" for clock in clocks]
        return f"(date_diff('day', {mondays[0]}, {mondays[1]}) // 7)"
    return f"date_diff({string_sql(unit)}, {clocks[0]}, {clocks[1]})"


_SHORT = frozenset({"second", "minute", "hour"})


def _past_the_hour(zone: str) -> int:
    """Return how many seconds after an hour of UTC clocks in the zone showed a full one in 1970."""
    offset = EPOCH.astimezone(ZoneInfo(zone)).utcoffset() if zone else None
    return int(offset.total_seconds()) % 3600 if offset is not None else 0


def _ticks(value: Typed, unit: str) -> str:
    value = _midnight(value) if value.type.is_date else value
    if unit == "nanosecond":
        return nanoseconds(value)
    micros = microseconds(value)
    return floor_divide(micros, 1000) if unit == "millisecond" else micros
