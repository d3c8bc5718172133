"""Dates and times in SQL: conversions between instants, local clocks and days.

An instant is a TIMESTAMP WITH TIME ZONE; the local clock in a type's zone is a plain TIMESTAMP.
DuckDB converts between the two by a calendar library (60 ns a row). In UTC, our servers' zone, both
are the same number of microseconds, and converting costs a tenth of that.
"""

from rmt_pipeline.translate.base.typed import Typed, let, nanoseconds_sql, string_sql
from rmt_pipeline.types.data_type import DataType

UTC_NAMES = frozenset({"", "UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu", "UCT", "Etc/UCT"})
DATETIME_MAX_S = 2**32 - 1


def is_nanoseconds(data_type: DataType) -> bool:
    """Whether the type keeps more than six digits of the second, for which DuckDB has
    another type.
    """
    plain = data_type.plain
    return plain.family == "DateTime64" and plain.numbers[0] > 6


def digits_of(data_type: DataType) -> int:
    """Return how many digits of the second a time type keeps."""
    plain = data_type.plain
    return plain.numbers[0] if plain.family == "DateTime64" else 0


def microseconds(value: Typed) -> str:
    """Return SQL of a DateTime or DateTime64 in microseconds since the epoch; finer digits are cut
    off.
    """
    if is_nanoseconds(value.type):
        return floor_divide(f"epoch_ns({value.sql})", 1000)
    return f"epoch_us({value.sql})"


def nanoseconds(value: Typed) -> str:
    """Return SQL of a DateTime or DateTime64 in nanoseconds since the epoch, as BIGINT."""
    if is_nanoseconds(value.type):
        return f"epoch_ns({value.sql})"
    return f"(epoch_us({value.sql}) * 1000)"


def seconds(value: Typed) -> str:
    """Return SQL of a DateTime or DateTime64 in whole seconds since the epoch, rounded down."""
    if value.plain.family == "DateTime":
        return f"(epoch_us({value.sql}) // 1000000)"
    return floor_divide(microseconds(value), 1_000_000)


def floor_divide(sql: str, divisor: int) -> str:
    """Return SQL of a division that rounds down. DuckDB's rounds towards zero."""
    return f"(({sql} - ((({sql} % {divisor}) + {divisor}) % {divisor})) // {divisor})"


def local(value: Typed, zone: str | None = None) -> str:
    """Return SQL of the local clock, a TIMESTAMP, of a date or time. `zone` overrides the type's
    zone.
    """
    if value.type.is_date:
        return f"CAST({value.sql} AS TIMESTAMP)"
    name = value.plain.zone if zone is None else zone
    if name in UTC_NAMES:
        return f"make_timestamp({microseconds(value)})"
    instant_sql = value.sql
    if is_nanoseconds(value.type):
        instant_sql = f"make_timestamptz({microseconds(value)})"
    return instant_clock(instant_sql, name)


def instant(clock: str, zone: str) -> str:
    """Return SQL of the instant at which clocks in `zone` show `clock`."""
    if zone in UTC_NAMES:
        return f"make_timestamptz(epoch_us({clock}))"
    return f"timezone({string_sql(zone)}, {clock})"


def instant_spelled(clock: str, zone: str) -> str:
    """Return SQL of the instant that the original takes a text for, whose date and time are
    `clock`: of two at which clocks show it, the first; and a time that clocks leave out, when they
    are put forward, counts from the new one backwards.
    """
    if zone in UTC_NAMES:
        return instant(clock, zone)
    day_us = 86_400_000_000
    # whose offset was that of the day before
    before = f"make_timestamptz(epoch_us(a) - {day_us})"

    def offset(moment: str) -> str:
        return f"(epoch_us({instant_clock(moment, zone)}) - epoch_us({moment}))"

    first = f"make_timestamptz(epoch_us(c) - {offset(before)})"
    body = (
        f"CASE WHEN {instant_clock('a', zone)} <> c "
        f"THEN make_timestamptz(epoch_us(c) - {offset('a')}) "
        f"WHEN {first} < a AND {instant_clock(first, zone)} = c THEN {first} ELSE a END"
    )
    return let(clock, "c", let(instant("c", zone), "a", body))


def instant_clock(moment: str, zone: str) -> str:
    """Return SQL of what clocks in `zone` show at an instant."""
    return f"timezone({string_sql(zone)}, {moment})"


def from_microseconds(sql: str, target: DataType) -> str:
    """Return SQL of a DateTime or DateTime64 from microseconds since the epoch."""
    if is_nanoseconds(target):
        return nanoseconds_sql(f"{sql} * 1000")
    return f"make_timestamptz(CAST({sql} AS BIGINT))"


def cut_microseconds(sql: str, digits: int) -> str:
    """Return SQL of microseconds rounded down to `digits` digits of the second."""
    if digits >= 6:
        return sql
    unit = 10 ** (6 - digits)
    return f"({sql} - ((({sql} % {unit}) + {unit}) % {unit}))"


def within(sql: str, least: str, most: str) -> str:
    """Return SQL of a value clamped to `least` … `most`. NULL stays NULL, which DuckDB's least()
    and greatest() would ignore.
    """
    return let(
        sql, "b", f"CASE WHEN b < {least} THEN {least} WHEN b > {most} THEN {most} ELSE b END"
    )


def at_least(sql: str, least: str) -> str:
    """Return SQL of the greater of two values. It is NULL if `sql` is NULL, which DuckDB's
    greatest() would ignore.
    """
    return f"(CASE WHEN {sql} < {least} THEN {least} ELSE {sql} END)"


def clamp_date(sql: str) -> str:
    """Return SQL of a day clamped to Date's range, as the original does."""
    return within(sql, "DATE '1970-01-01'", "DATE '2149-06-06'")


def wrap_date(sql: str) -> str:
    """Return SQL of a day wrapped around into Date's range, as its number of 16 bits does."""
    days = f"date_diff('day', DATE '1970-01-01', {sql})"
    wrapped = f"((({days} % 65536) + 65536) % 65536)"
    inside = f"({sql} BETWEEN DATE '1970-01-01' AND DATE '2149-06-06')"
    return (
        f"(CASE WHEN {inside} THEN {sql} "
        f"ELSE DATE '1970-01-01' + CAST({wrapped} AS INTEGER) END)"
    )


def wrap_microseconds(sql: str) -> str:
    """Return SQL of microseconds wrapped around into DateTime's range, as its number of 32 bits
    does.
    """
    span = 2**32 * 1_000_000
    return f"((({sql} % {span}) + {span}) % {span})"


def clamp_microseconds(sql: str) -> str:
    """Return SQL of microseconds clamped to DateTime's range."""
    return within(sql, "0", f"{DATETIME_MAX_S}000000")


def clamp_seconds(sql: str) -> str:
    """Return SQL of seconds clamped to DateTime's range."""
    return within(sql, "0", str(DATETIME_MAX_S))


def fraction_text(value: Typed, digits: int) -> str:
    """Return SQL of the first `digits` digits of the fraction of a time's second, as text."""
    exact = is_nanoseconds(value.type)
    ticks, unit = (nanoseconds(value), 10**9) if exact else (microseconds(value), 10**6)
    part = f"((({ticks} % {unit}) + {unit}) % {unit})"
    return f"left(lpad(CAST({part} AS VARCHAR), {9 if exact else 6}, '0'), {digits})"
