"""`toInt8`, `toString`, `toDate`, ..., also with OrNull and OrZero."""

import re

from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.translate.base.casts import cast, convert, plain_condition, text_or_null
from rmt_pipeline.translate.base.function import (
    Build,
    Function,
    constant_integer,
    constant_text,
    function,
    null,
)
from rmt_pipeline.translate.base.text_form import ipv4_text, text_of
from rmt_pipeline.translate.base.typed import (
    INT64,
    STRING,
    Typed,
    TypeProblem,
    constant_sql,
    nullable_type,
)
from rmt_pipeline.types.data_type import DataType

_INTEGERS = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128)]
_SIMPLE = [*_INTEGERS, "Float32", "Float64", "Date", "Date32", "UUID", "IPv4", "Bool"]
_DECIMALS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38}
_OVERFLOW_NOTE = (
    "a value that is not a number or does not fit is an error; the original may wrap around"
)


def _conversion(target: DataType, mode: str = "") -> Build:
    def build(arguments: list[Typed]) -> Typed:
        return _converted(plain_condition(arguments[0]), target, mode)

    return build


def _converted(value: Typed, target: DataType, mode: str) -> Typed:
    if not mode:
        return convert(value, target)
    if not value.type.is_string:
        raise TypeProblem(f"the {mode} functions take a String, not {value.type.text}")
    found = text_or_null(value, target)
    if mode == "OrNull":
        return found
    default = constant_sql(target.default, target)
    sql = f"coalesce({found.sql}, {default})"
    if not value.nullable:
        return Typed(sql, target)
    return Typed(f"(CASE WHEN {value.sql} IS NOT NULL THEN {sql} END)", nullable_type(target))


def _to_decimal(name: str, mode: str) -> Build:
    digits = _DECIMALS[name]

    def build(arguments: list[Typed]) -> Typed:
        scale = constant_integer(arguments[1], "the number of decimal places")
        if not 0 <= scale <= digits:
            raise TypeProblem(f"to{name} takes 0 to {digits} decimal places, not {scale}")
        return _converted(
            plain_condition(arguments[0]), DataType("Decimal", (digits, scale)), mode
        )

    return build


def _to_time(mode: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        zone = zone_argument(arguments[1]) if len(arguments) > 1 else _zone_of(arguments[0])
        return _converted(plain_condition(arguments[0]), DataType("DateTime", zone=zone), mode)

    return build


def _to_time_64(mode: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        digits = constant_integer(arguments[1], "the number of digits of the second")
        if not 0 <= digits <= 9:
            raise TypeProblem(f"toDateTime64 takes 0 to 9 digits of the second, not {digits}")
        zone = zone_argument(arguments[2]) if len(arguments) > 2 else _zone_of(arguments[0])
        target = DataType("DateTime64", (digits,), zone)
        return _converted(plain_condition(arguments[0]), target, mode)

    return build


def zone_argument(value: Typed) -> str:
    """Return the time zone that an argument names. Raises UnknownType or TypeProblem if there is
    none of that name.
    """
    name = constant_text(value, "the time zone")
    if not re.fullmatch(r"[A-Za-z0-9_+/-]{1,64}", name):
        raise TypeProblem(f"there is no time zone {name[:60]!r}")
    return parse_type(f"DateTime('{name}')").zone


def _zone_of(value: Typed) -> str:
    return value.plain.zone if value.type.is_time else ""


def _to_date(family: str, mode: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        value = arguments[0]
        if len(arguments) > 1 and value.type.is_time:
            value = in_zone(value, arguments[1])
        return _converted(value, DataType(family), mode)

    return build


def in_zone(value: Typed, zone: Typed) -> Typed:
    """Return the same moment as a time of that zone. Raises UnknownType if there is no
    such zone.
    """
    zoned = DataType(value.plain.family, value.plain.numbers, zone_argument(zone))
    return Typed(value.sql, nullable_type(zoned, value.nullable))


def _to_string(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    if value.is_null_literal:
        return null()
    if len(arguments) > 1:
        if not value.type.is_time:
            raise TypeProblem(f"toString with a time zone takes a time, not {value.type.text}")
        value = in_zone(value, arguments[1])
    return Typed(
        text_of(value),
        nullable_type(STRING, value.nullable),
        value.constant if value.plain.family == "String" else None,
    )


def _to_fixed_string(arguments: list[Typed]) -> Typed:
    length = constant_integer(arguments[1], "the length")
    return convert(arguments[0], parse_type(f"FixedString({max(length, 0)})"))


def _cast(arguments: list[Typed]) -> Typed:
    target = parse_type(constant_text(arguments[1], "the type"))
    return cast(arguments[0], target)


def _accurate_cast_or_null(arguments: list[Typed]) -> Typed:
    target = parse_type(constant_text(arguments[1], "the type")).plain
    value = plain_condition(arguments[0])
    if value.type.is_integer and target.is_integer and not target.wide_bytes:
        limits = f"{target.integer_min}::HUGEINT AND {target.integer_max}::HUGEINT"
        inside = f"CAST({value.sql} AS HUGEINT) BETWEEN {limits}"
        sql = f"(CASE WHEN {inside} THEN CAST({value.sql} AS {target.duckdb}) END)"
        return Typed(sql, nullable_type(target))
    if value.type.is_string:
        return _converted(Typed(value.sql, value.type), target, "OrNull")
    raise TypeProblem("accurateCastOrNull takes integers and strings")


def _ipv4_number_to_text(arguments: list[Typed]) -> Typed:
    return Typed(
        ipv4_text(convert(arguments[0], INT64).sql),
        nullable_type(STRING, arguments[0].nullable),
    )


def _ipv4_network(arguments: list[Typed]) -> Typed:
    """`IPv4NumToStringClassC(n)`: the address with xxx for its last number."""
    whole = _ipv4_number_to_text(arguments)
    return Typed(f"regexp_replace({whole.sql}, '[0-9]+$', 'xxx')", whole.type)


def _ipv4_text_to_number(arguments: list[Typed]) -> Typed:
    value = convert(arguments[0], DataType("IPv4"))
    return Typed(value.sql, nullable_type(DataType("UInt32"), value.nullable))


def _family(mode: str) -> list[Function]:
    differs = _OVERFLOW_NOTE if not mode else ""
    made = [
        function(f"to{name}{mode}", _conversion(parse_type(name), mode), 1, differs=differs)
        for name in _SIMPLE
        if name not in {"Date", "Date32"} and not (mode and name == "Bool")
    ]
    return [
        *made,
        *(
            function(f"to{name}{mode}", _to_date(name, mode), 1, 2)
            for name in ("Date", "Date32")
        ),
        *(function(f"to{name}{mode}", _to_decimal(name, mode), 2) for name in _DECIMALS),
        function(f"toDateTime{mode}", _to_time(mode), 1, 2),
        function(f"toDateTime64{mode}", _to_time_64(mode), 2, 3),
    ]


FUNCTIONS = (
    *_family(""),
    *_family("OrNull"),
    *_family("OrZero"),
    function("toString", _to_string, 1, 2),
    function("toFixedString", _to_fixed_string, 2),
    function("CAST", _cast, 2),
    function("accurateCastOrNull", _accurate_cast_or_null, 2),
    function("IPv4NumToString", _ipv4_number_to_text, 1),
    function("IPv4NumToStringClassC", _ipv4_network, 1),
    function("IPv4StringToNum", _ipv4_text_to_number, 1),
)


# Dates and times as arguments.


def moment(value: Typed, name: str) -> Typed:
    """Return the value if it is a date or time. Raises TypeProblem, which names the function
    `name`.
    """
    if not value.type.date_like:
        raise TypeProblem(f"{name} takes a Date or a DateTime, not {value.type.text}")
    return value


def zone_of_call(arguments: list[Typed], place: int) -> str | None:
    """Return the time zone that is a function's argument number `place` (from 0), None if it was
    not given. Raises TypeProblem if it was given and the first argument is no time.
    """
    if len(arguments) <= place:
        return None
    if not arguments[0].type.is_time:
        raise TypeProblem("a time zone is given, but the first argument is no time")
    return zone_argument(arguments[place])
