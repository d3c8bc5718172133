"""Strings to digits and back: hex, bin, base64, codes of characters; and values in JSON."""

from rmt_pipeline.translate.base.casts import convert, nullable_like
from rmt_pipeline.translate.base.function import (
    MANY,
    Build,
    blob,
    function,
    integer,
    template,
    text,
)
from rmt_pipeline.translate.base.typed import STRING, Typed, TypeProblem, let
from rmt_pipeline.translate.in_python import SIMPLE_JSON
from rmt_pipeline.translate.simple_json import BY_NAME
from rmt_pipeline.types.data_type import DataType


def _hex(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    plain = value.plain
    if plain.is_string:
        return Typed(f"hex({blob(value)})", nullable_like(STRING, value))
    if plain.is_integer and not plain.wide_bytes:
        mask = (1 << plain.bits) - 1
        digits = f"to_hex(CAST((CAST({value.sql} AS HUGEINT) & {mask}::HUGEINT) AS UBIGINT))"
        sql = let(digits, "v", "CASE WHEN length(v) % 2 = 1 THEN '0' || v ELSE v END")
        return Typed(sql, nullable_like(STRING, value))
    if plain.family in {"Date", "DateTime", "IPv4"}:
        return _hex(
            [convert(value, DataType("UInt16" if plain.family == "Date" else "UInt32"))]
        )
    raise TypeProblem(f"hex takes a string or an integer up to 64 bits, not {value.type.text}")


def _bin(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    plain = value.plain
    if not plain.is_integer or plain.wide_bytes:
        raise TypeProblem(f"bin takes an integer up to 64 bits, not {value.type.text}")
    mask = (1 << plain.bits) - 1
    digits = f"bin(CAST((CAST({value.sql} AS HUGEINT) & {mask}::HUGEINT) AS UBIGINT))"
    sql = let(
        digits, "v", "lpad(v, CAST(greatest(8, ceil(length(v) / 8.0) * 8) AS INTEGER), '0')"
    )
    return Typed(sql, nullable_like(STRING, value))


def _character_codes(arguments: list[Typed]) -> Typed:
    pieces = [f"chr(CAST({integer(each)} & 127 AS INTEGER))" for each in arguments]
    return Typed(f"({' || '.join(pieces)})", nullable_like(STRING, *arguments))


def _simple_json(name: str, kind: DataType) -> Build:
    found = f"{SIMPLE_JSON}({{0}}, {{1}}, '{name}')"
    return template(f"CAST({found} AS {kind.duckdb})", kind, text)


FUNCTIONS = (
    function("hex", _hex, 1),
    function(
        "unhex",
        template("decode(unhex({0}))", STRING, text),
        1,
        differs="digits that give no UTF-8 text are refused",
    ),
    function("bin", _bin, 1),
    function("base64Encode", template("to_base64({0})", STRING, blob), 1),
    function("char", _character_codes, 1, MANY, differs="codes above 127 are cut to 7 bits"),
    *(
        function(f"{prefix}{name}", _simple_json(name, DataType(kind)), 2)
        for name, (_, kind) in BY_NAME.items()
        for prefix in ("visitParam", "simpleJSON")
    ),
)
