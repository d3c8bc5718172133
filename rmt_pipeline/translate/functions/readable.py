"""Numbers as text for people: sizes, quantities, lengths of time."""

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.translate.base.casts import nullable_like
from rmt_pipeline.translate.base.function import Build, constant_text, floating, function
from rmt_pipeline.translate.base.text_form import text_of
from rmt_pipeline.translate.base.typed import FLOAT64, STRING, Typed, let, string_sql

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
_QUANTITIES = (
    *("", "thousand", "million", "billion", "trillion", "quadrillion", "quintillion"),
    *("sextillion", "septillion", "octillion", "nonillion", "decillion", "undecillion"),
    *("duodecillion", "tredecillion", "quattuordecillion", "quindecillion", "sexdecillion"),
    *("septendecillion", "octodecillion", "novemdecillion", "vigintillion"),
)


def _scaled(factor: int, words: tuple[str, ...]) -> Build:
    """Return the builder of a number with two digits after the point in the largest unit that is
    not above it. The number is divided step by step, as in the original, where 1e33 is `1000.00
    nonillion`, too.
    """
    first, *_, last = (string_sql(f" {word}" if word else "") for word in words)
    body = f"CASE WHEN isnan(v) THEN 'nan' || {first} "
    value = "v"
    for word in words[:-1]:
        unit = string_sql(f" {word}" if word else "")
        body += f"WHEN abs({value}) < {factor} THEN printf('%.2f', {value}) || {unit} "
        value = f"({value} / {factor}.0)"
    huge = text_of(Typed(value, FLOAT64))
    body += f"WHEN abs({value}) < 1e60 THEN printf('%.2f', {value}) || {last} "
    body += f"ELSE {huge} || {last} END"

    def build(arguments: list[Typed]) -> Typed:
        sql = let(floating(arguments[0]), "v", body)
        return Typed(sql, nullable_like(STRING, arguments[0]))

    return build


_EIGHTHS = "▏▎▍▌▋▊▉"
BAR_MAX = 1000


def _bar(arguments: list[Typed]) -> Typed:
    """`bar(x, min, max[, width])`: a bar that is `width` characters long where x is `max`, and as
    long as its share where it is between `min` and `max`. Raises UserError for the width.
    """
    width = 80.0
    if len(arguments) > 3:
        known = arguments[3].constant.value if arguments[3].constant else None
        if not isinstance(known, int | float) or not 1 <= known <= BAR_MAX:
            raise UserError(
                f"the width of bar is a constant from 1 to {BAR_MAX}, not {known!r}"
            )
        width = float(known)
    x, low, high = (floating(each) for each in arguments[:3])
    share = f"({x} - {low}) / ({high} - {low}) * {width}"
    long = f"CASE WHEN isnan({x}) OR {x} <= {low} THEN 0 WHEN {x} >= {high} THEN {width} "
    eighths = f"CAST(floor(({long} ELSE {share} END) * 8) AS BIGINT)"
    last = f"substr({string_sql(_EIGHTHS)}, v % 8, CAST(v % 8 > 0 AS BIGINT))"
    drawn = let(eighths, "v", f"repeat('█', v // 8) || {last}")
    return Typed(drawn, nullable_like(STRING, *arguments[:3]))


_DAY_S = 86_400
_SECONDS = {
    "years": 365 * _DAY_S,
    "months": 61 * _DAY_S // 2,
    "days": _DAY_S,
    "hours": 3600,
    "minutes": 60,
    "seconds": 1,
}
_FRACTIONS = {"milliseconds": 10**6, "microseconds": 10**3, "nanoseconds": 1}
_UNITS = (*_SECONDS, *_FRACTIONS)


def _unit(argument: Typed, what: str) -> str:
    name = constant_text(argument, f"the {what} unit")
    if name not in _UNITS:
        raise UserError(f"the {what} unit is one of {', '.join(_UNITS)}, not {name!r}")
    return name


def _time_delta(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    largest = _unit(arguments[1], "largest") if len(arguments) > 1 else "years"
    smallest = "seconds" if largest not in _FRACTIONS else "nanoseconds"
    if len(arguments) > 2:
        smallest = _unit(arguments[2], "smallest")
    wanted = _UNITS[_UNITS.index(largest) : _UNITS.index(smallest) + 1]
    if not wanted:
        raise UserError(f"the smallest unit ({smallest}) is above the largest ({largest})")
    sql = let(floating(value), "v", _spelled(wanted))
    return Typed(sql, nullable_like(STRING, value))


def _spelled(units: tuple[str, ...]) -> str:
    """Return SQL of the text of `v` seconds. If `v` is so large that a Float64 can't tell it from
    `v + 1`, it has the largest unit only.
    """
    first = units[0]
    pieces: list[str] = []
    rest = "CAST(floor(abs(v)) AS BIGINT)"
    for unit in units:
        if unit in _SECONDS:
            pieces.append(_piece(f"({rest} // {_SECONDS[unit]})", unit))
            rest = f"({rest} % {_SECONDS[unit]})"
    rest = "(CAST(round((abs(v) - floor(abs(v))) * 1e9) AS HUGEINT) % 1000000000)"
    if first in _FRACTIONS:
        rest = f"(CAST(floor(abs(v)) AS HUGEINT) * 1000000000 + {rest})"
    for unit in units:
        if unit in _FRACTIONS:
            pieces.append(_piece(f"({rest} // {_FRACTIONS[unit]})", unit))
            rest = f"({rest} % {_FRACTIONS[unit]})"
    some = f"list_filter([{', '.join(pieces)}], lambda p: p IS NOT NULL)"
    none = f"'0 {units[-1]}'" if first in _FRACTIONS else "''"
    joined = let(
        some,
        "w",
        "CASE WHEN len(w) > 1 THEN array_to_string(w[:-2], ', ') || ' and ' || w[-1] "
        f"ELSE coalesce(w[1], {none}) END",
    )
    size = f"/ {_SECONDS[first]}" if first in _SECONDS else f"* {10**9 // _FRACTIONS[first]}"
    huge = text_of(Typed(f"floor(abs(v) {size})", FLOAT64))
    return (
        "CASE WHEN v IS NULL THEN NULL WHEN isnan(v) THEN 'nan' ELSE (if(v < 0, '-', '') || CASE "
        "WHEN isinf(v) THEN 'inf' "
        f"WHEN abs(v) + 1 = abs(v) THEN {huge} || ' {first}' "
        f"ELSE {joined} END) END"
    )


def _piece(count: str, unit: str) -> str:
    """Return SQL of `2 days` or `1 day`; NULL for 0, except `0 seconds` for less than one second in
    all.
    """
    none = "floor(abs(v)) = 0" if unit == "seconds" else "false"
    plural = f"{count} || if({count} = 1, ' {unit[:-1]}', ' {unit}')"
    return f"CASE WHEN {count} > 0 OR {none} THEN {plural} END"


FUNCTIONS = (
    function("bar", _bar, 3, 4),
    function("formatReadableSize", _scaled(1024, _SIZES), 1),
    function("formatReadableQuantity", _scaled(1000, _QUANTITIES), 1),
    function("formatReadableTimeDelta", _time_delta, 1, 3),
)
