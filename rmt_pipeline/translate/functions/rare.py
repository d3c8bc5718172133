"""Functions that are computed row by row (`translate.by_row`): of bytes in memory, addresses and
pieces of URLs.
"""

from collections.abc import Callable

from rmt_pipeline.translate.base.casts import convert, enum_number, nullable_like
from rmt_pipeline.translate.base.function import (
    Build,
    blob,
    floating,
    function,
    integer,
    template,
    text,
)
from rmt_pipeline.translate.base.temporal import seconds
from rmt_pipeline.translate.base.text_form import trimmed_blob
from rmt_pipeline.translate.base.typed import (
    FLOAT64,
    STRING,
    UINT64,
    Typed,
    TypeProblem,
    array_of,
    string_sql,
)
from rmt_pipeline.translate.by_row import NUMBERS, width_of
from rmt_pipeline.translate.functions.url import DOMAIN_WITHOUT_WWW
from rmt_pipeline.translate.in_python import BY_ROW
from rmt_pipeline.types.data_type import DataType

_FIXED_16 = DataType("FixedString", (16,))
_IN_MEMORY = {"Date": "UInt16", "DateTime": "UInt32", "Enum8": "Int8", "Enum16": "Int16"}
"""The numbers that the original has in memory for other types."""


def bytes_by_row(name: str, data: str) -> str:
    """Return SQL of what a function of `by_row` gives for SQL of a BLOB: a BLOB."""
    return f"{BY_ROW}({string_sql(name)}, {data})[1]"


def number_by_row(name: str, data: str, kind: DataType) -> str:
    """Return SQL of the number that a function of `by_row` gives for SQL of a BLOB."""
    return f"CAST(decode({bytes_by_row(name, data)}) AS {kind.duckdb})"


def in_memory(value: Typed) -> str:
    """Return SQL of the bytes that the original has in memory for a value. Raises TypeProblem for
    types that have none of a fixed number.
    """
    plain = value.plain
    if plain.is_string:
        return blob(value)
    kind = _number_type(value)
    number = value.sql
    if plain.is_enum:
        number = enum_number(value)
    elif plain.is_date:
        number = f"date_diff('day', DATE '1970-01-01', {value.sql})"
    elif plain.is_time:
        number = seconds(value)
    return bytes_by_row(
        f"bytes of {kind}", _digits(f"CAST({number} AS {DataType(kind).duckdb})")
    )


def _number_type(value: Typed) -> str:
    kind = _IN_MEMORY.get(value.plain.family, value.plain.family)
    if kind not in NUMBERS:
        raise TypeProblem(
            f"the bytes of a number, date, time or text are taken, not of {value.type.text}"
        )
    return kind


def _digits(sql: str) -> str:
    return f"encode(CAST({sql} AS VARCHAR))"


def _whole(value: Typed) -> str:
    if not value.plain.is_integer or value.plain.wide_bytes:
        raise TypeProblem(f"expected an integer up to 64 bits, not {value.type.text}")
    return f"CAST({value.sql} AS HUGEINT)"


def _digits_of(read: Callable[[Typed], str]) -> Callable[[Typed], str]:
    return lambda value: _digits(read(value))


def _by_row(name: str, read: Callable[[Typed], str], result: DataType) -> Build:
    """Return the builder of a function of one argument, whose bytes `read` gives."""

    def build(arguments: list[Typed]) -> Typed:
        data = read(arguments[0])
        kind = nullable_like(result, arguments[0])
        if result.family == "FixedString":
            return Typed(bytes_by_row(name, data), kind)
        if result.family == "String":
            return Typed(f"decode({bytes_by_row(name, data)})", kind)
        return Typed(number_by_row(name, data, result), kind)

    return build


def _pieces(name: str) -> Build:
    """Return the builder of an array of pieces of a text."""

    def build(arguments: list[Typed]) -> Typed:
        listed = f"{BY_ROW}({string_sql(name)}, {blob(arguments[0])})"
        return Typed(f"list_transform({listed}, lambda e: decode(e))", array_of(STRING))

    return build


def _sixteen_bytes(value: Typed) -> str:
    if value.plain != _FIXED_16:
        raise TypeProblem(f"expected a FixedString(16), not {value.type.text}")
    return value.sql


def _reinterpret(kind: str) -> Build:
    """Return the builder of `reinterpretAs…`: a text's first bytes as a number, date or time."""
    number = DataType(_IN_MEMORY.get(kind, kind))

    def build(arguments: list[Typed]) -> Typed:
        value = arguments[0]
        sql = number_by_row(f"bytes as {number.family}", in_memory(value), number)
        found = Typed(sql, nullable_like(number, value))
        return convert(found, nullable_like(DataType(kind), value))

    return build


def _reinterpret_as_text(arguments: list[Typed]) -> Typed:
    """`reinterpretAsString(x)`: the bytes of x without the zeros at their end."""
    value = arguments[0]
    return Typed(f"decode({trimmed_blob(in_memory(value))})", nullable_like(STRING, value))


def _reinterpret_as_fixed(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    kind = DataType("FixedString", (width_of(_number_type(value)),))
    return Typed(in_memory(value), nullable_like(kind, value))


def _cut_to_zero(arguments: list[Typed]) -> Typed:
    sql = f"split_part({text(arguments[0])}, chr(0), 1)"
    return Typed(sql, nullable_like(STRING, arguments[0]))


def _domain(value: Typed) -> str:
    return f"encode({DOMAIN_WITHOUT_WWW.format(text(value))})"


FUNCTIONS = (
    *(
        function(name, _by_row(name, read, result), 1)
        for name, read, result in (
            ("SHA224", blob, DataType("FixedString", (28,))),
            ("murmurHash3_128", blob, _FIXED_16),
            ("sipHash128", blob, _FIXED_16),
            ("MACNumToString", _digits_of(_whole), STRING),
            ("MACStringToNum", blob, UINT64),
            ("MACStringToOUI", blob, UINT64),
            ("IPv6NumToString", _sixteen_bytes, STRING),
            ("IPv6StringToNum", blob, _FIXED_16),
            ("firstSignificantSubdomain", _domain, STRING),
            ("cutToFirstSignificantSubdomain", _domain, STRING),
            ("UUIDNumToString", _sixteen_bytes, STRING),
            ("UUIDStringToNum", blob, _FIXED_16),
            ("erf", _digits_of(floating), FLOAT64),
            ("erfc", _digits_of(floating), FLOAT64),
        )
    ),
    *(
        function(name, _pieces(name), 1)
        for name in (
            "URLHierarchy",
            "URLPathHierarchy",
            "extractURLParameters",
            "extractURLParameterNames",
        )
    ),
    *(
        function(f"reinterpretAs{kind}", _reinterpret(kind), 1)
        for kind in (*NUMBERS, "Date", "DateTime")
    ),
    function(
        "reinterpretAsString",
        _reinterpret_as_text,
        1,
        differs="bytes that are no UTF-8 text are refused",
    ),
    function("reinterpretAsFixedString", _reinterpret_as_fixed, 1),
    function(
        "IPv4ToIPv6",
        template(f"unhex('{'0' * 20}FFFF' || lpad(to_hex({{0}}), 8, '0'))", _FIXED_16, integer),
        1,
    ),
    function("toStringCutToZero", _cut_to_zero, 1),
)
