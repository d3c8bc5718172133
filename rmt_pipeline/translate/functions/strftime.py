"""`formatDateTime`: the original's patterns, put together from DuckDB's `strftime`."""

from rmt_pipeline.translate.base.casts import nullable_like
from rmt_pipeline.translate.base.temporal import digits_of, fraction_text, local
from rmt_pipeline.translate.base.typed import STRING, Typed, TypeProblem, string_sql

# The original's letter → DuckDB's pattern for the same text.
_SAME = {
    "Y": "%Y",
    "y": "%y",
    "m": "%m",
    "d": "%d",
    "H": "%H",
    "i": "%M",
    "S": "%S",
    "s": "%S",
    "M": "%B",
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
    "e": "CAST(day({t}) AS VARCHAR)",
    "Q": "CAST(quarter({t}) AS VARCHAR)",
    "C": "lpad(CAST(year({t}) // 100 AS VARCHAR), 2, '0')",
    "c": "lpad(CAST(month({t}) AS VARCHAR), 2, '0')",
    "g": "lpad(CAST(isoyear({t}) % 100 AS VARCHAR), 2, '0')",
    "k": "lpad(CAST(hour({t}) AS VARCHAR), 2, '0')",
    "l": "lpad(CAST((hour({t}) + 11) % 12 + 1 AS VARCHAR), 2, '0')",
}


def formatted(value: Typed, pattern: str, zone: str | None) -> Typed:
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
