"""Functions of strings. As in the original, lengths and places count bytes, and characters in the
functions whose names end with UTF8.

A piece of a string that cuts through a character would be no text. It is an error when the row is
computed.
"""

from rmt_pipeline.translate.base.casts import nullable_like
from rmt_pipeline.translate.base.function import (
    MANY,
    Build,
    any_text,
    constant_text,
    function,
    integer,
    null,
    predicate,
    template,
    text,
)
from rmt_pipeline.translate.base.temporal import at_least, within
from rmt_pipeline.translate.base.typed import (
    STRING,
    UINT64,
    Typed,
    attempt,
    string_sql,
)
from rmt_pipeline.translate.functions.array import concat as concat_arrays
from rmt_pipeline.types.data_type import DataType

LENGTH_MAX = 1_000_000  # the longest result of padding and repeating, as in the original
_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_INT32 = DataType("Int32")


def _ascii_case(name: str, source: str, target: str) -> str:
    """Return SQL that changes the case of ASCII letters only. `translate` alone would take twenty
    times as long.
    """
    return (
        f"(CASE WHEN strlen({{0}}) = length({{0}}) THEN {name}({{0}}) "
        f"ELSE translate({{0}}, '{source}', '{target}') END)"
    )


def _length(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    match value.plain.family:
        case "FixedString":
            sql = f"octet_length({value.sql})"
        case "Array":
            sql = f"len({value.sql})"
        case "Map":
            sql = f"cardinality({value.sql})"
        case _:
            sql = f"strlen({text(value)})"
    return Typed(f"CAST({sql} AS UBIGINT)", nullable_like(UINT64, value))


def _is_empty(sql: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        value = arguments[0]
        if value.plain.family == "FixedString":
            made = f"(regexp_full_match(hex({value.sql}), '(00)*') {sql} true)"
        elif value.plain.family == "UUID":
            made = f"({value.sql} {sql} '00000000-0000-0000-0000-000000000000')"
        else:
            made = f"({_length(arguments).sql} {sql} 0)"
        return Typed(made, nullable_like(DataType("UInt8"), value), is_condition=True)

    return build


def _concat(arguments: list[Typed]) -> Typed:
    if arguments[0].plain.family == "Array":
        return concat_arrays(arguments)
    if any(each.is_null_literal for each in arguments):
        return null()
    sql = f"({' || '.join(any_text(each) for each in arguments)})"
    return Typed(sql, nullable_like(STRING, *arguments))


def _with_separator(arguments: list[Typed]) -> Typed:
    separator = text(arguments[0])
    pieces = [any_text(each) for each in arguments[1:]]
    sql = f" || {separator} || ".join(pieces) if pieces else "''"
    return Typed(f"({sql})", nullable_like(STRING, *arguments))


# Pieces of strings. `s` is the string, `a` the place of the first unit (from 1), `n` their number.

_PIECE_OF_BYTES = (
    "(CASE WHEN strlen({s}) = length({s}) THEN substring({s}, {a}, {n}) "
    "ELSE decode(array_slice(encode({s}), {a}, {a} + {n} - 1)) END)"
)
_PIECE_OF_CHARACTERS = "substring({s}, {a}, {n})"


def _substring(*, in_bytes: bool) -> Build:
    piece = _PIECE_OF_BYTES if in_bytes else _PIECE_OF_CHARACTERS
    measure = "strlen" if in_bytes else "length"

    def build(arguments: list[Typed]) -> Typed:
        s, offset = text(arguments[0]), integer(arguments[1])
        size = f"{measure}({s})"
        known = arguments[1].constant.value if arguments[1].constant else None
        length = integer(arguments[2]) if len(arguments) > 2 else None
        if length is not None:  # so that sums stay within BIGINT, and NULL stays NULL
            length = within(length, "-2147483648", "2147483647")
            offset = within(offset, "-2147483648", "2147483647")
        known_length = arguments[2].constant.value if length and arguments[2].constant else None
        if isinstance(known, int) and known > 0 and (length is None or _is_count(known_length)):
            count = str(known_length) if length is not None else size
            sql = piece.format(s=s, a=known, n=count)
            return Typed(sql, nullable_like(STRING, *arguments))
        start = f"(CASE WHEN {offset} > 0 THEN {offset} ELSE {size} + {offset} + 1 END)"
        end = f"({size} + 1)"
        if length is not None:
            end = (
                f"(CASE WHEN {length} >= 0 THEN {start} + {length} "
                f"ELSE {size} + 1 + {length} END)"
            )
        first = at_least(start, "1")
        count = at_least(f"({end} - {first})", "0")
        nothing = f"substring({s}, 1, 0)"  # so that a NULL string gives NULL
        some = piece.format(s=s, a=first, n=f"CAST({count} AS BIGINT)")
        sql = f"(CASE WHEN {offset} = 0 THEN {nothing} ELSE {some} END)"
        return Typed(sql, nullable_like(STRING, *arguments))

    return build


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 2**31


def _left_or_right(name: str, *, in_bytes: bool) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        s, count = text(arguments[0]), integer(arguments[1])
        simple = f"{name}({s}, {count})"
        if not in_bytes:
            return Typed(simple, nullable_like(STRING, *arguments))
        size = f"strlen({s})"
        most, least = f"least({count}, {size})", f"greatest({size} + {count}, 0)"
        kept = f"(CASE WHEN {count} >= 0 THEN {most} ELSE {least} END)"
        if name == "left":
            cut = f"decode(array_slice(encode({s}), 1, {kept}))"
        else:
            cut = f"decode(array_slice(encode({s}), {size} - {kept} + 1, {size}))"
        sql = f"(CASE WHEN strlen({s}) = length({s}) THEN {simple} ELSE {cut} END)"
        return Typed(sql, nullable_like(STRING, *arguments))

    return build


def _position(*, in_bytes: bool, fold: bool = False, needle_first: bool = False) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        haystack, needle = text(arguments[0]), text(arguments[1])
        if needle_first:
            haystack, needle = needle, haystack
        if fold:
            haystack, needle = f"lower({haystack})", f"lower({needle})"
        place = f"instr({haystack}, {needle})"
        if len(arguments) > 2:
            start = f"greatest({integer(arguments[2])}, 1)"
            rest = f"substring({haystack}, {start})"
            found = f"instr({rest}, {needle})"
            place = f"(CASE WHEN {found} = 0 THEN 0 ELSE {found} + {start} - 1 END)"
        if in_bytes:
            before = f"strlen(substring({haystack}, 1, {place} - 1))"
            place = (
                f"(CASE WHEN strlen({haystack}) = length({haystack}) THEN {place} "
                f"WHEN {place} = 0 THEN 0 ELSE {before} + 1 END)"
            )
        return Typed(f"CAST({place} AS UBIGINT)", nullable_like(UINT64, *arguments))

    return build


_ONE_REPLACED = (
    "(CASE WHEN instr({0}, {1}) = 0 OR {1} = '' THEN {0} "
    "ELSE substring({0}, 1, instr({0}, {1}) - 1) || {2} || "
    "substring({0}, instr({0}, {1}) + length({1})) END)"
)


def _trim(name: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        characters = string_sql(" ")
        if len(arguments) > 1:
            characters = string_sql(constant_text(arguments[1], "the characters to trim"))
        sql = f"{name}({text(arguments[0])}, {characters})"
        return Typed(sql, nullable_like(STRING, *arguments))

    return build


def _pad(side: str, *, in_bytes: bool) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        s = text(arguments[0])
        count = integer(arguments[1])
        padding = string_sql(" ")
        if len(arguments) > 2:
            given = constant_text(arguments[2], "the padding")
            padding = string_sql(given or " ")
        count = _bounded(count, "the padded length")
        padded = f"{side}({s}, CAST({count} AS INTEGER), {padding})"
        if in_bytes:
            problem = (
                "error('padding of text beyond ASCII counts bytes; use the UTF8 function')"
            )
            is_ascii = f"strlen({s}) = length({s})"
            refused = f"WHEN {s} IS NOT NULL THEN {problem}"
            padded = f"(CASE WHEN {is_ascii} THEN {padded} {refused} END)"
        return Typed(padded, nullable_like(STRING, *arguments))

    return build


def _bounded(count: str, what: str) -> str:
    problem = f"error('{what} is more than {LENGTH_MAX}')"
    kept = f"greatest({count}, 0)"
    refused = f"WHEN {count} IS NOT NULL THEN {problem}"
    return f"(CASE WHEN {count} <= {LENGTH_MAX} THEN {kept} {refused} END)"


_REPEATED = f"repeat({{0}}, {_bounded('{1}', 'the number of repetitions')})"
_SPACES = f"repeat(' ', {_bounded('{0}', 'the number of spaces')})"
_ENDED = "(CASE WHEN {0} = '' OR ends_with({0}, {1}) THEN {0} ELSE {0} || {1} END)"
_REVERSED = "array_to_string(list_reverse(string_split({0}, '')), '')"
_REVERSED_BYTES = (
    "(CASE WHEN strlen({0}) = length({0}) THEN " + _REVERSED + " WHEN {0} IS NOT NULL "
    "THEN error('reverse of text beyond ASCII gives no text; use reverseUTF8') END)"
)


def _reverse(arguments: list[Typed]) -> Typed:
    if arguments[0].plain.family == "Array":
        return Typed(f"list_reverse({arguments[0].sql})", arguments[0].type)
    return template(_REVERSED_BYTES, STRING, text)(arguments)


_TEXT_TO_TEXT = {
    "lower": _ascii_case("lower", _UPPER, _LOWER),
    "lcase": _ascii_case("lower", _UPPER, _LOWER),
    "upper": _ascii_case("upper", _LOWER, _UPPER),
    "ucase": _ascii_case("upper", _LOWER, _UPPER),
    "lowerUTF8": "lower({0})",
    "upperUTF8": "upper({0})",
    "reverseUTF8": _REVERSED,
    "base64Decode": "decode(from_base64({0}))",
    "tryBase64Decode": f"coalesce({attempt('{0}', 'v', 'decode(from_base64(v))')}, '')",
    "encodeURLComponent": "url_encode({0})",
    "decodeURLComponent": "url_decode({0})",
}
_TRIMS = {"trimBoth": "trim", "trim": "trim", "trimLeft": "ltrim", "trimRight": "rtrim"}
_BYTES_NOTE = "cutting through a character beyond ASCII is refused; there it gives broken bytes"

FUNCTIONS = (
    *(function(name, template(sql, STRING, text), 1) for name, sql in _TEXT_TO_TEXT.items()),
    *(function(name, _trim(sql), 1, 2) for name, sql in _TRIMS.items()),
    function("ltrim", _trim("ltrim"), 1, 2),
    function("rtrim", _trim("rtrim"), 1, 2),
    function("length", _length, 1),
    function("OCTET_LENGTH", _length, 1),
    *(
        function(name, template("CAST(length({0}) AS UBIGINT)", UINT64, text), 1)
        for name in ("lengthUTF8", "char_length", "character_length", "CHAR_LENGTH")
    ),
    function("empty", _is_empty("="), 1),
    function("notEmpty", _is_empty("<>"), 1),
    function("concat", _concat, 1, MANY),
    function("concatWithSeparator", _with_separator, 1, MANY),
    function("concat_ws", _with_separator, 1, MANY),
    *(
        function(name, _substring(in_bytes=True), 2, 3, differs=_BYTES_NOTE)
        for name in ("substring", "substr", "mid")
    ),
    function("substringUTF8", _substring(in_bytes=False), 2, 3),
    function("left", _left_or_right("left", in_bytes=True), 2, differs=_BYTES_NOTE),
    function("right", _left_or_right("right", in_bytes=True), 2, differs=_BYTES_NOTE),
    function("leftUTF8", _left_or_right("left", in_bytes=False), 2),
    function("rightUTF8", _left_or_right("right", in_bytes=False), 2),
    function("position", _position(in_bytes=True), 2, 3),
    function("locate", _position(in_bytes=True, needle_first=True), 2),
    function("positionUTF8", _position(in_bytes=False), 2, 3),
    function("positionCaseInsensitive", _position(in_bytes=True, fold=True), 2, 3),
    function("positionCaseInsensitiveUTF8", _position(in_bytes=False, fold=True), 2, 3),
    function("replaceOne", template(_ONE_REPLACED, STRING, text), 3),
    *(
        function(name, template("replace({0}, {1}, {2})", STRING, text), 3)
        for name in ("replaceAll", "replace")
    ),
    *(
        function(name, predicate("starts_with({0}, {1})", text), 2)
        for name in ("startsWith", "startsWithUTF8")
    ),
    *(
        function(name, predicate("ends_with({0}, {1})", text), 2)
        for name in ("endsWith", "endsWithUTF8")
    ),
    function(
        "reverse", _reverse, 1, differs="text beyond ASCII is refused; there broken bytes"
    ),
    *(
        function(name, _pad(side, in_bytes=in_bytes), 2, 3)
        for name, side, in_bytes in (
            *(
                ("leftPad", "lpad", True),
                ("lpad", "lpad", True),
                ("leftPadUTF8", "lpad", False),
            ),
            *(("rightPad", "rpad", True), ("rpad", "rpad", True)),
            ("rightPadUTF8", "rpad", False),
        )
    ),
    function("repeat", template(_REPEATED, STRING, text, integer), 2),
    function("space", template(_SPACES, STRING, integer), 1),
    function(
        "ascii",
        template("(CASE WHEN {0} = '' THEN 0 ELSE ascii({0}) END)", _INT32, text),
        1,
        differs="of a character beyond ASCII its code point, not its first byte",
    ),
    function("appendTrailingCharIfAbsent", template(_ENDED, STRING, text), 2),
    *(
        function(name, template("CAST(levenshtein({0}, {1}) AS UBIGINT)", UINT64, text), 2)
        for name in ("editDistance", "levenshteinDistance")
    ),
)
