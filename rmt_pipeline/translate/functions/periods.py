"""The start of the year, week, hour, ... that a time lies in."""

from rmt_pipeline.translate.base.casts import nullable_like
from rmt_pipeline.translate.base.temporal import (
    at_least,
    clamp_date,
    clamp_microseconds,
    cut_microseconds,
    digits_of,
    floor_divide,
    from_microseconds,
    instant,
    is_nanoseconds,
    local,
    microseconds,
)
from rmt_pipeline.translate.base.typed import DATE, Typed, TypeProblem, nanoseconds_sql
from rmt_pipeline.types.data_type import DataType

# Days, as DATE, from the local clock {t}.
_DAYS = {
    "year": "CAST(date_trunc('year', {t}) AS DATE)",
    "quarter": "CAST(date_trunc('quarter', {t}) AS DATE)",
    "month": "CAST(date_trunc('month', {t}) AS DATE)",
    "week": "CAST(date_trunc('week', {t}) AS DATE)",
    "sunday": "(CAST({t} AS DATE) - CAST(dayofweek({t}) AS INTEGER))",
    "end of month": "last_day({t})",
    "end of week": "(CAST({t} AS DATE) + CAST(6 - dayofweek({t}) AS INTEGER))",
    "iso year": "CAST(date_trunc('week', make_date(isoyear({t}), 1, 4)) AS DATE)",
}
_SECONDS = {
    "second": 1,
    "minute": 60,
    "5 minutes": 300,
    "10 minutes": 600,
    "15 minutes": 900,
    "30 minutes": 1800,
}
_UNIT_SECONDS = {"Second": 1, "Minute": 60}


def start_of_period(value: Typed, period: str, zone: str | None = None) -> Typed:
    """A Date for weeks and longer, a DateTime in the value's zone for days and shorter."""
    zone = _zone(value) if zone is None else zone
    clock = local(value, zone)
    if period in _DAYS:
        day = clamp_date(_DAYS[period].format(t=value.sql if value.type.is_date else clock))
        if value.plain.family in {"Date", "DateTime"} and not period.startswith("end"):
            day = _unclamped(value, period, clock)
        return Typed(day, nullable_like(DATE, value))
    result = DataType("DateTime", zone=zone)
    if period == "day":
        midnight = f"CAST(CAST({clock} AS DATE) AS TIMESTAMP)"
        moment = clamp_microseconds(f"epoch_us({instant(midnight, zone)})")
        return Typed(from_microseconds(moment, result), nullable_like(result, value))
    if value.type.is_date:
        raise TypeProblem(
            f"the start of the {period} is of a DateTime, not of {value.type.text}"
        )
    if period == "second":
        return _start_of_second(value)
    if period == "hour":
        return Typed(_start_of_hours(clock, 1, zone, result), nullable_like(result, value))
    return Typed(_floor_seconds(value, _SECONDS[period], result), nullable_like(result, value))


def _zone(value: Typed) -> str:
    return value.plain.zone if value.type.is_time else ""


def _unclamped(value: Typed, period: str, clock: str) -> str:
    """Only the first days of 1970 have a start before Date's range."""
    day = _DAYS[period].format(t=value.sql if value.type.is_date else clock)
    return at_least(day, "DATE '1970-01-01'")


def _start_of_second(value: Typed) -> Typed:
    if digits_of(value.type) == 0:
        return value
    sql = cut_microseconds(microseconds(value), 0)
    if is_nanoseconds(value.type):
        return Typed(nanoseconds_sql(f"{sql} * 1000"), value.type)
    return Typed(from_microseconds(sql, value.plain), value.type)


def _floor_seconds(value: Typed, step: int, result: DataType) -> str:
    unit = step * 1_000_000
    micros = microseconds(value)
    if value.plain.family == "DateTime":  # never before 1970
        return from_microseconds(f"({micros} - {micros} % {unit})", result)
    floored = f"({micros} - ((({micros} % {unit}) + {unit}) % {unit}))"
    return from_microseconds(clamp_microseconds(floored), result)


def _start_of_hours(clock: str, count: int, zone: str, result: DataType) -> str:
    """Hours are counted from the local midnight."""
    hours = f"(hour({clock}) - hour({clock}) % {count})"
    start = f"(date_trunc('day', {clock}) + to_hours({hours}))"
    return from_microseconds(clamp_microseconds(f"epoch_us({instant(start, zone)})"), result)


def start_of_interval(value: Typed, count: int, unit: str, zone: str | None) -> Typed:
    """Periods of `count` units, counted from the original's origins: 1970 for seconds to days,
    the Monday 1970-01-05 for weeks, the year 0 for months and years.
    """
    zone = _zone(value) if zone is None else zone
    clock = local(value, zone)
    days = f"date_diff('day', DATE '1970-01-01', {clock})"
    months = {"Month": count, "Quarter": 3 * count, "Year": 12 * count}.get(unit)
    if months is not None:
        total = f"(year({clock}) * 12 + month({clock}) - 1)"
        start = f"({total} - {total} % {months})"
        day = f"make_date({start} // 12, {start} % 12 + 1, 1)"
        return Typed(clamp_date(day), nullable_like(DATE, value))
    if unit == "Week":
        weeks = floor_divide(f"({days} - 4)", 7 * count)
        day = f"(DATE '1970-01-05' + CAST({weeks} * {7 * count} AS INTEGER))"
        return Typed(clamp_date(day), nullable_like(DATE, value))
    result = DataType("DateTime", zone=zone)
    if unit == "Day":
        start = (
            f"CAST(DATE '1970-01-01' + CAST({days} - {days} % {count} AS INTEGER) AS TIMESTAMP)"
        )
        moment = clamp_microseconds(f"epoch_us({instant(start, zone)})")
        return Typed(from_microseconds(moment, result), nullable_like(result, value))
    if value.type.is_date:
        raise TypeProblem(f"an interval of {unit.lower()}s is of a DateTime, not of a date")
    if unit == "Hour":
        sql = _start_of_hours(clock, count, zone, result)
    elif unit in _UNIT_SECONDS:
        sql = _floor_seconds(value, count * _UNIT_SECONDS[unit], result)
    else:
        raise TypeProblem(f"toStartOfInterval takes seconds and longer, not {unit.lower()}s")
    return Typed(sql, nullable_like(result, value))
