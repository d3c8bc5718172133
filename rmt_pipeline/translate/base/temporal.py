"""Dates and times in SQL: between instants, local clocks and days.

An instant is TIMESTAMP WITH TIME ZONE; its local clock in a type's zone is a plain TIMESTAMP.
DuckDB converts between the two through a calendar library (60 ns a row); in UTC, our servers'
zone, both are the same number of microseconds, which costs a tenth of that.
"""

from rmt_pipeline.translate.base.typed import Typed, let, nanoseconds_sql, string_sql
from rmt_pipeline.types.data_type import DataType

UTC_NAMES = frozenset({"", "UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu", "UCT", "Etc/UCT"})
DATETIME_MAX_S = 2**32 - 1


def is_nanoseconds(data_type: DataType) -> bool:
    """Whether the type keeps more than six digits of the second: DuckDB has another type
    for those.
    """
    plain = data_type.plain
    return plain.family == "DateTime64" and plain.numbers[0] > 6


def digits_of(data_type: DataType) -> int:
    """Digits of the second that a time type keeps."""
    plain = data_type.plain
    return plain.numbers[0] if plain.family == "DateTime64" else 0


def microseconds(value: Typed) -> str:
    """Microseconds since the epoch of a DateTime or DateTime64; finer digits are cut off."""
    if is_nanoseconds(value.type):
        return floor_divide(f"epoch_ns({value.sql})", 1000)
    return f"epoch_us({value.sql})"


def nanoseconds(value: Typed) -> str:
    """Nanoseconds since the epoch of a DateTime or DateTime64, as BIGINT."""
    if is_nanoseconds(value.type):
        return f"epoch_ns({value.sql})"
    return f"(epoch_us({value.sql}) * 1000)"


def seconds(value: Typed) -> str:
    """Whole seconds since the epoch, rounded down."""
    if value.plain.family == "DateTime":
        return f"(epoch_us({value.sql}) // 1000000)"
    return floor_divide(microseconds(value), 1_000_000)


def floor_divide(sql: str, divisor: int) -> str:
    """Division that rounds down also below zero, where DuckDB rounds towards zero."""
    return f"(({sql} - ((({sql} % {divisor}) + {divisor}) % {divisor})) // {divisor})"


def local(value: Typed, zone: str | None = None) -> str:
    """The local clock, TIMESTAMP, of a date or time. `zone` overrides the type's."""
    if value.type.is_date:
        return f"CAST({value.sql} AS TIMESTAMP)"
    name = value.plain.zone if zone is None else zone
    if name in UTC_NAMES:
        return f"make_timestamp({microseconds(value)})"
    instant_sql = value.sql
    if is_nanoseconds(value.type):
        instant_sql = f"make_timestamptz({microseconds(value)})"
    return f"timezone({string_sql(name)}, {instant_sql})"


def instant(clock: str, zone: str) -> str:
    """The instant at which `zone`'s clocks show `clock`."""
    if zone in UTC_NAMES:
        return f"make_timestamptz(epoch_us({clock}))"
    return f"timezone({string_sql(zone)}, {clock})"


def from_microseconds(sql: str, target: DataType) -> str:
    """A DateTime or DateTime64 from microseconds since the epoch."""
    if is_nanoseconds(target):
        return nanoseconds_sql(f"{sql} * 1000")
    return f"make_timestamptz(CAST({sql} AS BIGINT))"


def cut_microseconds(sql: str, digits: int) -> str:
    """Microseconds rounded down to `digits` of the second."""
    if digits >= 6:
        return sql
    unit = 10 ** (6 - digits)
    return f"({sql} - ((({sql} % {unit}) + {unit}) % {unit}))"


def within(sql: str, least: str, most: str) -> str:
    """DuckDB's own least() and greatest() leave NULL out; here it stays NULL."""
    return let(
        sql, "b", f"CASE WHEN b < {least} THEN {least} WHEN b > {most} THEN {most} ELSE b END"
    )


def at_least(sql: str, least: str) -> str:
    """The greater one of two SQL values; NULL when `sql` is NULL, which DuckDB's greatest() leaves
    out.
    """
    return f"(CASE WHEN {sql} < {least} THEN {least} ELSE {sql} END)"


def clamp_date(sql: str) -> str:
    """A Date's range; the original answers with its ends beyond it."""
    return within(sql, "DATE '1970-01-01'", "DATE '2149-06-06'")


def wrap_date(sql: str) -> str:
    """A day beyond Date's range comes in again at the other end, as its 16 bits do."""
    days = f"date_diff('day', DATE '1970-01-01', {sql})"
    wrapped = f"((({days} % 65536) + 65536) % 65536)"
    inside = f"({sql} BETWEEN DATE '1970-01-01' AND DATE '2149-06-06')"
    return (
        f"(CASE WHEN {inside} THEN {sql} "
        f"ELSE DATE '1970-01-01' + CAST({wrapped} AS INTEGER) END)"
    )


def wrap_microseconds(sql: str) -> str:
    """A moment beyond DateTime's range comes in again at the other end, as its 32 bits do."""
    span = 2**32 * 1_000_000
    return f"((({sql} % {span}) + {span}) % {span})"


def clamp_microseconds(sql: str) -> str:
    """A moment within DateTime's range."""
    return within(sql, "0", f"{DATETIME_MAX_S}000000")


def clamp_seconds(sql: str) -> str:
    """A DateTime's range in seconds."""
    return within(sql, "0", str(DATETIME_MAX_S))


def fraction_text(value: Typed, digits: int) -> str:
    """The `digits` digits after a time's point, as text."""
    exact = is_nanoseconds(value.type)
    ticks, unit = (nanoseconds(value), 10**9) if exact else (microseconds(value), 10**6)
    part = f"((({ticks} % {unit}) + {unit}) % {unit})"
    return f"left(lpad(CAST({part} AS VARCHAR), {9 if exact else 6}, '0'), {digits})"
