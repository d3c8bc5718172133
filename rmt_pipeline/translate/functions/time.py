"""Functions of dates and times: parts, starts of periods, intervals, distances, formatting.

All use the local clock of the type's zone, or of the zone given as the last argument.
"""

from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from rmt_pipeline.syntax.special_forms import UNIT_SPELLINGS, UNITS, WHOLE_NUMBER
from rmt_pipeline.translate.base.casts import convert, nullable_like
from rmt_pipeline.translate.base.function import (
    Build,
    Function,
    constant_text,
    function,
    integer,
)
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
    within,
)
from rmt_pipeline.translate.base.typed import (
    DATE,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Constant,
    Typed,
    TypeProblem,
    nanoseconds_sql,
)
from rmt_pipeline.translate.functions.cast import moment, zone_argument, zone_of_call
from rmt_pipeline.translate.functions.date_arithmetic import (
    count_of_boundaries,
    interval_type,
    interval_unit,
    shift_by,
)
from rmt_pipeline.types.data_type import EPOCH, DataType

# Starts of periods.

# SQL of the day, a DATE, on which a period of the local clock {t} starts or ends.
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
    """Return the start of a period: a Date for weeks and longer, a DateTime in the zone for days
    and shorter. `zone` overrides the type's zone. Raises TypeProblem.
    """
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
        return Typed(_start_of_hour(value, clock, result), nullable_like(result, value))
    return Typed(_floor_seconds(value, _SECONDS[period], result), nullable_like(result, value))


def _zone(value: Typed) -> str:
    return value.plain.zone if value.type.is_time else ""


def _unclamped(value: Typed, period: str, clock: str) -> str:
    """Return SQL of the start of a period of a Date or DateTime. It need not be clamped to Date's
    range, except that periods of the first days of 1970 start before it.
    """
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


def _start_of_hour(value: Typed, clock: str, result: DataType) -> str:
    """Return SQL of the start of the hour, counted from the moment itself: clocks may show its hour
    twice.
    """
    past = f"(epoch_us({clock}) - epoch_us(date_trunc('hour', {clock})))"
    return from_microseconds(clamp_microseconds(f"({microseconds(value)} - {past})"), result)


def _start_of_hours(clock: str, count: int, zone: str, result: DataType) -> str:
    """Return SQL of the start of a period of `count` hours, counted from the local midnight."""
    hours = f"(hour({clock}) - hour({clock}) % {count})"
    start = f"(date_trunc('day', {clock}) + to_hours({hours}))"
    return from_microseconds(clamp_microseconds(f"epoch_us({instant(start, zone)})"), result)


def start_of_interval(value: Typed, count: int, unit: str, zone: str | None) -> Typed:
    """Return the start of a period of `count` units. Periods are counted from the original's
    origins: 1970 for seconds to days (midnight for hours), the Monday 1970-01-05 for weeks, the
    year 0 for months and years. Raises TypeProblem.
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
    if unit == "Hour" and count == 1:
        sql = _start_of_hour(value, clock, result)
    elif unit == "Hour":
        sql = _start_of_hours(clock, count, zone, result)
    elif unit in _UNIT_SECONDS:
        sql = _floor_seconds(value, count * _UNIT_SECONDS[unit], result)
    else:
        raise TypeProblem(f"toStartOfInterval takes seconds and longer, not {unit.lower()}s")
    return Typed(sql, nullable_like(result, value))


# Parts. `{d}` is the day, `{t}` the local clock.

_ALL_DIGITS = (
    "((year({t}) * 10000 + month({t}) * 100 + day({t})) * 1000000 "
    "+ hour({t}) * 10000 + minute({t}) * 100 + second({t}))"
)
_PARTS: dict[str, tuple[str, DataType]] = {
    "toYear": ("year({t})", UINT16),
    "toQuarter": ("quarter({t})", UINT8),
    "toMonth": ("month({t})", UINT8),
    "toDayOfYear": ("dayofyear({t})", UINT16),
    "toDayOfMonth": ("day({t})", UINT8),
    "toYYYYMM": ("(year({t}) * 100 + month({t}))", UINT32),
    "toYYYYMMDD": ("(year({t}) * 10000 + month({t}) * 100 + day({t}))", UINT32),
    "toYYYYMMDDhhmmss": (_ALL_DIGITS, UINT64),
    "toISOWeek": ("weekofyear({t})", UINT8),
    "toISOYear": ("isoyear({t})", UINT16),
    "toRelativeYearNum": ("year({t})", UINT16),
    "toRelativeQuarterNum": ("(year({t}) * 4 + quarter({t}) - 1)", UINT32),
    "toRelativeMonthNum": ("(year({t}) * 12 + month({t}))", UINT32),
    "toRelativeWeekNum": (
        at_least("(date_diff('day', DATE '1969-12-29', {t}) // 7)", "0"),
        UINT32,
    ),
    "toRelativeDayNum": (
        within("date_diff('day', DATE '1970-01-01', {t})", "0", "65535"),
        UINT32,
    ),
}
_CLOCK_PARTS: dict[str, tuple[str, DataType]] = {
    "toHour": ("hour({t})", UINT8),
    "toMinute": ("minute({t})", UINT8),
    "toSecond": ("second({t})", UINT8),
    "toMillisecond": ("(millisecond({t}) % 1000)", UINT16),
}


def _part(name: str, sql: str, result: DataType, *, of_clock: bool) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        value = arguments[0]
        if of_clock and not moment(value, name).type.is_time:
            raise TypeProblem(f"{name} takes a DateTime, not {value.type.text}")
        zone = zone_of_call(arguments, 1)
        clock = value.sql if moment(value, name).type.is_date else local(value, zone)
        clock = clock if "hour" not in sql else local(value, zone)
        made = f"CAST({sql.format(t=clock)} AS {result.duckdb})"
        return Typed(made, nullable_like(result, value))

    return build


def _relative(name: str, unit_seconds: int) -> Build:
    """Return the builder of the number of hours, minutes or seconds since 1970."""

    def build(arguments: list[Typed]) -> Typed:
        value = moment(arguments[0], name)
        zone = zone_of_call(arguments, 1)
        if value.type.is_date:
            since = (
                f"date_diff('day', DATE '1970-01-01', {value.sql}) * {86_400 // unit_seconds}"
            )
        else:
            zone = value.plain.zone if zone is None else zone
            ahead_s = _hours_ahead_s(zone) if unit_seconds == 3600 else 0
            micros = microseconds(value)
            micros = f"({micros} + {ahead_s * 1_000_000})" if ahead_s else micros
            since = floor_divide(micros, unit_seconds * 1_000_000)
        sql = within(f"({since})", "0", "4294967295")
        return Typed(f"CAST({sql} AS UINTEGER)", nullable_like(UINT32, value))

    return build


@cache
def _hours_ahead_s(zone: str) -> int:
    """Return how much time is added before hours are counted, so that they begin when clocks of the
    zone showed full ones in 1970: as in the original, only where that was ever not so in UTC.
    """
    if not zone:
        return 0
    begins = [
        datetime(y, m, 1, tzinfo=ZoneInfo(zone)) for y in range(1970, 2038) for m in (1, 7)
    ]
    offsets = [one.utcoffset() or timedelta() for one in begins]
    if not any(one.total_seconds() % 3600 for one in offsets):
        return 0
    first = EPOCH.astimezone(ZoneInfo(zone)).utcoffset() or timedelta()
    return 86_400 - int(first.total_seconds())


_DAYS_OF_WEEK = {
    0: "isodow({t})",
    1: "(isodow({t}) - 1)",
    2: "dayofweek({t})",
    3: "(dayofweek({t}) + 1)",
}
_WEEKS = {0: "((dayofyear({t}) + 6 - dayofweek({t})) // 7)", 3: "weekofyear({t})"}


def _by_mode(name: str, forms: dict[int, str]) -> Build:
    """Return the builder of a function of weeks, which takes a mode before the time zone."""

    def build(arguments: list[Typed]) -> Typed:
        value, *rest = arguments
        mode = 0
        if rest and rest[0].type.is_integer:
            known = rest[0].constant.value if rest[0].constant else None
            if known not in forms:
                raise TypeProblem(f"{name} takes one of the modes {', '.join(map(str, forms))}")
            mode = int(str(known))
            rest = rest[1:]
        return _part(name, forms[mode], UINT8, of_clock=False)([value, *rest])

    return build


# Functions for starts of periods.


def _start(name: str, period: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        return start_of_period(moment(arguments[0], name), period, zone_of_call(arguments, 1))

    return build


def _start_of_week(arguments: list[Typed]) -> Typed:
    value = moment(arguments[0], "toStartOfWeek")
    mode = arguments[1].constant.value if len(arguments) > 1 and arguments[1].constant else 0
    if mode not in {0, 1}:
        raise TypeProblem("toStartOfWeek takes mode 0 (Sunday) or 1 (Monday)")
    return start_of_period(value, "week" if mode else "sunday", zone_of_call(arguments, 2))


def _start_of_interval(arguments: list[Typed]) -> Typed:
    value = moment(arguments[0], "toStartOfInterval")
    amount = arguments[1]
    count = amount.constant.value if amount.constant else None
    unit = interval_unit(amount.type)
    if not unit or not isinstance(count, int) or count < 1:
        raise TypeProblem("toStartOfInterval takes a constant interval of at least 1")
    return start_of_interval(value, count, unit, zone_of_call(arguments, 2))


def _date_trunc(arguments: list[Typed]) -> Typed:
    unit = UNIT_SPELLINGS.get(constant_text(arguments[0], "the unit").upper())
    value = moment(arguments[1], "dateTrunc")
    if unit is None or unit in {"Millisecond", "Microsecond", "Nanosecond"}:
        raise TypeProblem("dateTrunc takes a unit from second to year")
    if value.type.is_date and unit in {"Second", "Minute", "Hour"}:
        raise TypeProblem(
            f"dateTrunc to {unit.lower()} takes a DateTime, not {value.type.text}"
        )
    return start_of_period(value, unit.lower(), zone_of_call(arguments[1:], 1))


# Intervals.


def _to_interval(unit: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        value = arguments[0]
        if value.plain.family == "String" and value.constant:
            value = convert(value, INT64)
        known = arguments[0].constant
        if isinstance(known, Constant) and isinstance(known.value, str):
            known = Constant(int(known.value)) if WHOLE_NUMBER.fullmatch(known.value) else None
        return Typed(integer(value), interval_type(unit), known)

    return build


def _add(unit: str, sign: int) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        value, amount = arguments
        if value.plain.family == "String":
            value = convert(value, DataType("DateTime64", (3,)))
        moment(value, f"add{unit}s")
        return shift_by(value, Typed(integer(amount), amount.type), unit, sign)

    return build


def _date_diff(arguments: list[Typed]) -> Typed:
    unit = UNIT_SPELLINGS.get(constant_text(arguments[0], "the unit").upper())
    if unit is None:
        raise TypeProblem("dateDiff takes a unit from nanosecond to year")
    left, right = (moment(each, "dateDiff") for each in arguments[1:3])
    zone = zone_argument(arguments[3]) if len(arguments) > 3 else None
    sql = count_of_boundaries(unit.lower(), left, right, zone)
    return Typed(f"CAST({sql} AS BIGINT)", nullable_like(INT64, left, right))


_DAY_OF_TIMES = "TIMESTAMP '1970-01-02 00:00:00'"


def _time_of_day(arguments: list[Typed]) -> Typed:
    """`toTime(t[, zone])`: the same time of 1970-01-02, as ClickHouse before 25.6 has it."""
    value = moment(arguments[0], "toTime")
    if not value.type.is_time:
        raise TypeProblem(f"toTime takes a DateTime, not {value.type.text}")
    zone = zone_argument(arguments[1]) if len(arguments) > 1 else _zone(value)
    clock = local(value, zone)
    result = DataType("DateTime", zone=zone)
    past = f"(epoch_us({clock}) - epoch_us(date_trunc('day', {clock})))"
    start = f"epoch_us({instant(_DAY_OF_TIMES, zone)})"
    micros = f"(({start} + {past}) // 1000000 * 1000000)"
    return Typed(from_microseconds(micros, result), nullable_like(result, value))


_STARTS = {
    "toStartOfYear": "year",
    "toStartOfQuarter": "quarter",
    "toStartOfMonth": "month",
    "toMonday": "week",
    "toStartOfDay": "day",
    "toStartOfHour": "hour",
    "toStartOfMinute": "minute",
    "toStartOfSecond": "second",
    "timeSlot": "30 minutes",
    "toStartOfFiveMinutes": "5 minutes",
    "toStartOfFiveMinute": "5 minutes",
    "toStartOfTenMinutes": "10 minutes",
    "toStartOfFifteenMinutes": "15 minutes",
    "toLastDayOfMonth": "end of month",
    "toStartOfISOYear": "iso year",
    "toLastDayOfWeek": "end of week",
}
_WORDS = {
    "YEAR": "toYear",
    "QUARTER": "toQuarter",
    "MONTH": "toMonth",
    "DAY": "toDayOfMonth",
    "DAYOFMONTH": "toDayOfMonth",
    "DAYOFYEAR": "toDayOfYear",
}
_CLOCK_WORDS = {"HOUR": "toHour", "MINUTE": "toMinute", "SECOND": "toSecond"}


def _parts() -> list[Function]:
    made = [
        function(name, _part(name, sql, result, of_clock=False), 1, 2)
        for name, (sql, result) in _PARTS.items()
    ]
    made += [
        function(name, _part(name, sql, result, of_clock=True), 1, 2)
        for name, (sql, result) in _CLOCK_PARTS.items()
    ]
    for words, parts, of_clock in ((_WORDS, _PARTS, False), (_CLOCK_WORDS, _CLOCK_PARTS, True)):
        made += [
            function(word, _part(name, *parts[name], of_clock=of_clock), 1, 2)
            for word, name in words.items()
        ]
    return made


def _shifts() -> list[Function]:
    made = []
    for unit in UNITS:
        made.append(function(f"toInterval{unit}", _to_interval(unit), 1))
        made.append(function(f"add{unit}s", _add(unit, 1), 2))
        made.append(function(f"subtract{unit}s", _add(unit, -1), 2))
    return made


FUNCTIONS = (
    *_parts(),
    *(function(name, _start(name, period), 1, 2) for name, period in _STARTS.items()),
    *(
        function(name, _relative(name, seconds), 1, 2)
        for name, seconds in (
            ("toRelativeHourNum", 3600),
            ("toRelativeMinuteNum", 60),
            ("toRelativeSecondNum", 1),
        )
    ),
    function("toTime", _time_of_day, 1, 2),
    function("toTimeWithFixedDate", _time_of_day, 1, 2),
    function("toDayOfWeek", _by_mode("toDayOfWeek", _DAYS_OF_WEEK), 1, 3),
    function("DAYOFWEEK", _by_mode("DAYOFWEEK", _DAYS_OF_WEEK), 1, 3),
    function("toWeek", _by_mode("toWeek", _WEEKS), 1, 3),
    function("toStartOfWeek", _start_of_week, 1, 3),
    function("toStartOfInterval", _start_of_interval, 2, 3),
    function("dateTrunc", _date_trunc, 2, 3),
    function("date_trunc", _date_trunc, 2, 3),
    *_shifts(),
    function("dateDiff", _date_diff, 3, 4),
)
