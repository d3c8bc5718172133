"""Times from and to numbers and text, time zones, and the current time.

The current time is that of DuckDB's clock, the same for a whole query. Keys and TTL can't use it,
and an insert replaces it in defaults by a constant (`compute.rows.defaults`).
"""

from rmt_pipeline.translate.base.casts import convert, nullable_like
from rmt_pipeline.translate.base.function import (
    Build,
    always,
    constant_integer,
    constant_text,
    function,
    integer,
    template,
)
from rmt_pipeline.translate.base.temporal import (
    clamp_date,
    clamp_seconds,
    digits_of,
    fraction_text,
    from_microseconds,
    instant_spelled,
    is_nanoseconds,
    local,
    microseconds,
    nanoseconds,
    seconds,
)
from rmt_pipeline.translate.base.typed import (
    DATE,
    DATETIME,
    INT64,
    STRING,
    UINT32,
    Constant,
    Typed,
    TypeProblem,
    array_of,
    attempt,
    nullable_type,
    string_sql,
)
from rmt_pipeline.translate.functions.cast import in_zone, moment, zone_argument, zone_of_call
from rmt_pipeline.types.data_type import DataType

# The patterns of formatDateTime.

# The original's letters with DuckDB's pattern for the same text.
_SAME = {
    "Y": "%Y",
    "y": "%y",
    "m": "%m",
    "d": "%d",
    "H": "%H",
    "i": "%M",
    "S": "%S",
    "s": "%S",
    "M": "%M",
    "b": "%b",
    "a": "%a",
    "W": "%A",
    "j": "%j",
    "p": "%p",
    "I": "%I",
    "h": "%I",
    "F": "%Y-%m-%d",
    "T": "%H:%M:%S",
    "D": "%m/%d/%y",
    "R": "%H:%M",
    "r": "%I:%M %p",
    "n": "\n",
    "t": "\t",
    "%": "%%",
    "G": "%G",
    "V": "%V",
    "u": "%u",
    "w": "%w",
}
_COMPUTED = {
    "e": "lpad(CAST(day({t}) AS VARCHAR), 2, ' ')",
    "Q": "CAST(quarter({t}) AS VARCHAR)",
    "C": "lpad(CAST(year({t}) // 100 AS VARCHAR), 2, '0')",
    "c": "lpad(CAST(month({t}) AS VARCHAR), 2, '0')",
    "g": "lpad(CAST(isoyear({t}) % 100 AS VARCHAR), 2, '0')",
    "k": "lpad(CAST(hour({t}) AS VARCHAR), 2, '0')",
    "l": "lpad(CAST((hour({t}) + 11) % 12 + 1 AS VARCHAR), 2, '0')",
}


def formatted(value: Typed, pattern: str, zone: str | None) -> Typed:
    """`formatDateTime`: the time in the original's pattern. `zone` overrides the type's zone.
    Raises TypeProblem for an unknown letter.
    """
    clock = local(value, zone)
    pieces: list[str] = []
    plain = ""
    place = 0
    while place < len(pattern):
        if pattern[place] != "%":
            plain += pattern[place]
            place += 1
            continue
        letter = pattern[place + 1 : place + 2]
        place += 2
        if letter in _SAME:
            plain += _SAME[letter]
            continue
        pieces += [_strftime(clock, plain), _piece(letter, value, clock, pattern)]
        plain = ""
    pieces.append(_strftime(clock, plain))
    sql = " || ".join(piece for piece in pieces if piece) or "''"
    return Typed(f"({sql})", nullable_like(STRING, value))


def _strftime(clock: str, plain: str) -> str:
    return f"strftime({clock}, {string_sql(plain)})" if plain else ""


def _piece(letter: str, value: Typed, clock: str, pattern: str) -> str:
    if letter in _COMPUTED:
        return _COMPUTED[letter].format(t=clock)
    if letter == "f":
        digits = digits_of(value.type) if value.type.is_time else 0
        return f"rpad({fraction_text(value, digits)}, 6, '0')" if digits else "'000000'"
    if letter == "z" and value.type.is_time:
        minutes = f"(date_diff('minute', {local(value, '')}, {clock}))"
        sign = f"(CASE WHEN {minutes} < 0 THEN '-' ELSE '+' END)"
        hours = f"lpad(CAST(abs({minutes}) // 60 AS VARCHAR), 2, '0')"
        rest = f"lpad(CAST(abs({minutes}) % 60 AS VARCHAR), 2, '0')"
        return f"({sign} || {hours} || {rest})"
    raise TypeProblem(f"formatDateTime has no %{letter} (in {pattern!r})")


def _to_unix(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    zone = zone_argument(arguments[1]) if len(arguments) > 1 else ""
    if value.plain.family == "String":
        value = convert(value, DataType("DateTime", zone=zone))
    if moment(value, "toUnixTimestamp").type.is_date:
        value = convert(value, DataType("DateTime", zone=zone))
    if value.plain.family == "DateTime64":
        return convert(value, UINT32)
    low = f"((({seconds(value)} % {2**32}) + {2**32}) % {2**32})"
    return Typed(f"CAST({low} AS UINTEGER)", nullable_like(UINT32, value))


def _from_unix(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    if not value.type.is_integer:
        raise TypeProblem(f"fromUnixTimestamp takes an integer, not {value.type.text}")
    held = f"CAST({clamp_seconds(value.sql)} AS BIGINT)"
    sql = from_microseconds(f"{held} * 1000000", DATETIME)
    return Typed(sql, nullable_like(DATETIME, value))


def _to_unix_64(divisor: int) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        value = arguments[0]
        if value.plain.family != "DateTime64":
            raise TypeProblem(f"expected a DateTime64, not {value.type.text}")
        ticks = nanoseconds(value) if divisor == 1 or is_nanoseconds(value.type) else None
        sql = f"({ticks} // {divisor})" if ticks else _scaled(microseconds(value), divisor)
        return Typed(f"CAST({sql} AS BIGINT)", nullable_like(INT64, value))

    return build


def _scaled(micros: str, divisor: int) -> str:
    return f"({micros} // {divisor // 1000})" if divisor > 1000 else micros


def _from_unix_64(digits: int) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        zone = zone_argument(arguments[1]) if len(arguments) > 1 else ""
        result = DataType("DateTime64", (digits,), zone)
        count = integer(arguments[0])
        if digits == 9:
            sql = f"CAST(make_timestamp_ns({count}) AS TIMESTAMPTZ_NS)"
        else:
            sql = f"make_timestamptz({count} * {10 ** (6 - digits)})"
        return Typed(sql, nullable_like(result, arguments[0]))

    return build


def _to_zone(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    if not value.type.is_time:
        raise TypeProblem(f"toTimeZone takes a DateTime, not {value.type.text}")
    return in_zone(value, arguments[1])


def _zone_name(arguments: list[Typed]) -> Typed:
    name = (arguments[0].plain.zone if arguments else "") or "UTC"
    return Typed(string_sql(name), STRING, Constant(name))


_DATE = "CAST((make_date({0}, {1}, 1) + to_days(CAST({2} - 1 AS INTEGER))) AS DATE)"


def _make_time(arguments: list[Typed]) -> Typed:
    zone = zone_argument(arguments[6]) if len(arguments) > 6 else ""
    parts = [integer(each) for each in arguments[:6]]
    clock = f"make_timestamp({', '.join(parts[:5])}, CAST({parts[5]} AS DOUBLE))"
    return Typed(
        instant_spelled(clock, zone), nullable_like(DataType("DateTime", zone=zone), *arguments)
    )


def _format(arguments: list[Typed]) -> Typed:
    value = moment(arguments[0], "formatDateTime")
    pattern = constant_text(arguments[1], "the format")
    return formatted(value, pattern, zone_of_call(arguments, 2))


def _month_name(arguments: list[Typed]) -> Typed:
    value = moment(arguments[0], "monthName")
    return Typed(f"strftime({local(value)}, '%B')", nullable_like(STRING, value))


def _best_effort(mode: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        value = arguments[0]
        if value.plain.family != "String":
            raise TypeProblem(f"expected a String, not {value.type.text}")
        read = f"CAST({'v' if mode else value.sql} AS TIMESTAMP WITH TIME ZONE)"
        whole = f"make_timestamptz(epoch_us(date_trunc('second', {read})))"
        if mode == "OrNull":
            return Typed(attempt(value.sql, "v", whole), nullable_type(DATETIME))
        if mode == "OrZero":
            found = attempt(value.sql, "v", whole)
            return Typed(f"coalesce({found}, make_timestamptz(0))", DATETIME)
        return Typed(whole, nullable_like(DATETIME, value))

    return build


def _now(arguments: list[Typed]) -> Typed:
    zone = zone_argument(arguments[0]) if arguments else ""
    sql = "make_timestamptz(epoch_us(now()) // 1000000 * 1000000)"
    return Typed(sql, DataType("DateTime", zone=zone))


def _now_64(arguments: list[Typed]) -> Typed:
    known = arguments[0].constant.value if arguments and arguments[0].constant else 3
    digits = known if isinstance(known, int) and 0 <= known <= 6 else 3
    unit = 10 ** (6 - digits)
    sql = f"make_timestamptz(epoch_us(now()) // {unit} * {unit})"
    return Typed(sql, DataType("DateTime64", (digits,)))


def _today(days_ago: int) -> Build:
    return always(f"(CAST(make_timestamp(epoch_us(now())) AS DATE) - {days_ago})", DATE)


_SLOT_S = 1800


def _time_slots(arguments: list[Typed]) -> Typed:
    """`timeSlots(t, seconds[, size])`: the starts of the half hours, or of slots of another size in
    seconds, that the time from t on touches. Raises TypeProblem.
    """
    value, length = arguments[0], integer(arguments[1])
    if value.plain.family != "DateTime":
        raise TypeProblem(f"timeSlots takes a DateTime, not {value.type.text}")
    size = _SLOT_S
    if len(arguments) > 2:
        size = constant_integer(arguments[2], "the size of a slot")
    if size < 1:
        raise TypeProblem(f"a slot has at least 1 second, not {size}")
    first, last = f"{seconds(value)} // {size}", f"({seconds(value)} + {length}) // {size}"
    start = from_microseconds(f"e * {size * 1_000_000}", value.plain)
    sql = f"list_transform(range({first}, {last} + 1), lambda e: {start})"
    return Typed(sql, array_of(value.plain))


FUNCTIONS = (
    function("timeSlots", _time_slots, 2, 3),
    function("toUnixTimestamp", _to_unix, 1, 2),
    function("fromUnixTimestamp", _from_unix, 1),
    function("FROM_UNIXTIME", _from_unix, 1),
    function("toUnixTimestamp64Milli", _to_unix_64(1_000_000), 1),
    function("toUnixTimestamp64Micro", _to_unix_64(1_000), 1),
    function("toUnixTimestamp64Nano", _to_unix_64(1), 1),
    function("fromUnixTimestamp64Milli", _from_unix_64(3), 1, 2),
    function("fromUnixTimestamp64Micro", _from_unix_64(6), 1, 2),
    function("fromUnixTimestamp64Nano", _from_unix_64(9), 1, 2),
    function("toTimeZone", _to_zone, 2),
    function("toTimezone", _to_zone, 2),
    function("timeZoneOf", _zone_name, 1),
    function("timezoneOf", _zone_name, 1),
    function("timezone", _zone_name, 0),
    function("makeDate", template(clamp_date(_DATE), DATE, integer), 3),
    function("makeDateTime", _make_time, 6, 7),
    function("formatDateTime", _format, 2, 3),
    function("monthName", _month_name, 1),
    *(
        function(
            f"parseDateTimeBestEffort{mode}",
            _best_effort(mode),
            1,
            differs="only ISO 8601, with or without an offset",
        )
        for mode in ("", "OrNull", "OrZero")
    ),
    function("now", _now, 0, 1, deterministic=False),
    function("now64", _now_64, 0, 1, deterministic=False),
    function("today", _today(0), 0, deterministic=False),
    function("yesterday", _today(1), 0, deterministic=False),
)
