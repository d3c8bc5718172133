r"""Writes values as text, as ClickHouse does in TSV, CSV and JSON.

`formatter(type, style)` returns a function from one value to its text, which is made once for a
column. Values are those that `data_type` describes, or those of Arrow's `as_py`; times may also be
integers in the unit of the stored form (`column_values` gives those, and is much faster).

* Floats have the fewest digits that read back the same, plain from 1e-6 up to 1e21; Decimals
  lose trailing zeros (`1.50` is written `1.5`); Bool is `true` or `false`.
* NULL is `\N`, and `NULL` inside arrays, tuples and maps; in JSON `null`, as are nan and inf.
* CSV quotes everything but numbers and Bool, and writes a tuple's elements as columns of
  their own.
* JSON quotes integers of 64 bits and more, as the original did by default before 25.8: most
  JSON readers would lose digits. `/` is escaped.

Bytes of a FixedString that are not UTF-8 become surrogates: encode the text with "surrogateescape"
to write the original bytes.
"""

import datetime as dt
import ipaddress
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from rmt_pipeline.protocol.text import escape
from rmt_pipeline.types.data_type import EPOCH, DataType
from rmt_pipeline.types.time_text import zone_of

Style = Literal["TSV", "CSV", "JSON", "nested"]
Formatter = Callable[[Any], str]

_JSON_ESCAPES = str.maketrans({"/": "\\/", "\u2028": "\\u2028", "\u2029": "\\u2029"})
_NULLS: dict[Style, str] = {"TSV": "\\N", "CSV": "\\N", "JSON": "null", "nested": "NULL"}
_SMALL_ESCAPE = re.compile(r"\\u00([0-9a-f]{2})")
_FLOAT_PARTS = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:e([+-]?[0-9]+))?")
_SECOND = dt.timedelta(seconds=1)
_MICROSECOND = dt.timedelta(microseconds=1)


def tsv(value: object, data_type: DataType) -> str:
    r"""Return a value as TSV has it; NULL is `\N`."""
    return formatter(data_type, "TSV")(value)


def column_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the Python values of a column, with times as integers in the array's unit."""
    if pa.types.is_timestamp(array.type):
        return list(array.cast(pa.int64()).to_pylist())
    return list(array.to_pylist())


def plain_values(array: pa.Array) -> list[Any]:
    """Return the Python values of a column, with times and dates as integers in their units, also
    inside arrays, tuples and maps.
    """
    found: list[Any] = array.cast(_with_integers(array.type)).to_pylist()
    return found


def _with_integers(kind: pa.DataType) -> pa.DataType:
    """Return the same type, with integers in place of times and dates."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_integers(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_with_integers(kind.key_type), _with_integers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_with_integers(one.type)) for one in kind])
    return kind


def json_string(text: str) -> str:
    """Return a JSON string as the original writes it: `/` is escaped, and characters beyond ASCII
    are not.
    """
    quoted = json.dumps(text, ensure_ascii=False).translate(_JSON_ESCAPES)
    return _SMALL_ESCAPE.sub(lambda found: f"\\u00{found[1].upper()}", quoted)


@lru_cache(maxsize=4096)
def formatter(data_type: DataType, style: Style) -> Formatter:
    """Return a function from one value of `data_type` to its text in `style`."""
    inner = _not_null(data_type.plain, style)
    null = _NULLS[style]
    return lambda value: null if value is None else inner(value)


def _not_null(plain: DataType, style: Style) -> Formatter:
    if plain.family in {"Array", "Tuple", "Map"}:
        return _nested(plain, style)
    if plain.family == "Bool":
        return lambda value: "true" if value else "false"
    if plain.is_numeric:
        return _number(plain, style)
    text = _text_of(plain)
    match style:
        case "TSV":
            return lambda value: escape(text(value))
        case "CSV":
            return lambda value: '"' + text(value).replace('"', '""') + '"'
        case "JSON":
            return lambda value: json_string(text(value))
        case "nested":
            return lambda value: "'" + escape(text(value)) + "'"


def _number(plain: DataType, style: Style) -> Formatter:
    text: Formatter
    if plain.is_float:
        text = float32_text if plain.family == "Float32" else float_text
        if style == "JSON":
            return lambda value: text(value) if math.isfinite(value) else "null"
        return text
    if plain.is_decimal:
        return _decimal_text(plain)
    text = str if not plain.wide_bytes else lambda value: str(_wide(plain, value))
    if style == "JSON" and plain.bits >= 64:
        return lambda value: f'"{text(value)}"'
    return text


def _wide(plain: DataType, value: bytes | int) -> int:
    return plain.wide_from_bytes(value) if isinstance(value, bytes) else int(value)


def _decimal_text(plain: DataType) -> Formatter:
    scale = plain.numbers[1]

    def text(value: Decimal | bytes | int) -> str:
        if isinstance(value, bytes):
            unscaled = plain.wide_from_bytes(value)
            digits = str(abs(unscaled)).rjust(scale + 1, "0")
            whole = digits[: len(digits) - scale]
            plain_text = f"{'-' if unscaled < 0 else ''}{whole}.{digits[len(digits) - scale :]}"
        else:
            plain_text = f"{value:f}"
        return plain_text.rstrip("0").rstrip(".") if "." in plain_text else plain_text

    return text


def float_text(value: float) -> str:
    """Return a Float64 as the original prints it: `100`, `0.1`, `1e21`, `1e-7`, `nan`, `-inf`,
    `-0`.
    """
    return _shortest(repr(float(value)))


def float32_text(value: float) -> str:
    """Return a Float32 with the fewest digits that give the same 32 bits when parsed."""
    return _shortest(str(np.float32(value)))


def _shortest(text: str) -> str:
    match = _FLOAT_PARTS.fullmatch(text)
    if match is None:
        return text  # nan, inf, -inf
    sign, whole, fraction, exponent_text = match.groups()
    digits = whole + (fraction or "")
    point = len(whole) + int(exponent_text or 0)  # digits before the decimal point
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    stripped = stripped.rstrip("0")
    if not stripped:
        return f"{sign}0"
    if -6 < point <= 21:  # 1e-6 and 123e18 are still written without exponent
        if point <= 0:
            return f"{sign}0.{'0' * -point}{stripped}"
        if point >= len(stripped):
            return f"{sign}{stripped.ljust(point, '0')}"
        return f"{sign}{stripped[:point]}.{stripped[point:]}"
    mantissa = stripped[0] + (f".{stripped[1:]}" if len(stripped) > 1 else "")
    return f"{sign}{mantissa}e{point - 1}"


def _text_of(plain: DataType) -> Formatter:
    match plain.family:
        case "Date" | "Date32":
            return lambda value: value.isoformat()
        case "DateTime" | "DateTime64":
            return _time_text(plain)
        case "FixedString":
            return lambda value: value.decode("utf-8", "surrogateescape")
        case "IPv4":
            return lambda value: str(ipaddress.IPv4Address(value))
        case "IPv6":
            return ipv6_text
        case _:
            return str


def ipv6_text(value: bytes) -> str:
    """Return an IPv6 address as text: `::1`, or `::ffff:1.2.3.4` for a mapped IPv4 address."""
    mapped = ipaddress.IPv6Address(value).ipv4_mapped
    return f"::ffff:{mapped}" if mapped is not None else str(ipaddress.IPv6Address(value))


def _time_text(plain: DataType) -> Formatter:
    zone = zone_of(plain.zone)
    digits = plain.numbers[0] if plain.numbers else 0
    units_per_second = 1_000_000 if digits <= 6 else 1_000_000_000
    utc = zone is dt.UTC

    def text(value: int | dt.datetime) -> str:
        seconds, fraction = divmod(_units(value, units_per_second), units_per_second)
        moment = EPOCH + seconds * _SECOND
        local = moment if utc else moment.astimezone(zone)
        whole = local.replace(tzinfo=None).isoformat(" ")
        if not digits:
            return whole
        return f"{whole}.{str(fraction * 1_000_000_000 // units_per_second).zfill(9)[:digits]}"

    return text


def _units(value: int | dt.datetime, units_per_second: int) -> int:
    """Return a time as an integer in the stored form's unit."""
    if isinstance(value, int):
        return value
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    nanosecond = getattr(value, "nanosecond", 0)  # a field of pandas' Timestamp
    return (value - EPOCH) // _MICROSECOND * (units_per_second // 1_000_000) + (
        nanosecond if units_per_second > 1_000_000 else 0
    )


def _nested(plain: DataType, style: Style) -> Formatter:
    if style == "JSON":
        return _nested_json(plain)
    if style == "CSV":
        if plain.family == "Tuple":
            columns = [formatter(element, "CSV") for element in plain.elements]
            names = plain.element_names
            return lambda value: ",".join(
                column(value[name]) for name, column in zip(names, columns, strict=True)
            )
        inside = _nested(plain, "nested")
        return lambda value: '"' + inside(value).replace('"', '""') + '"'
    elements = [formatter(element, "nested") for element in plain.elements]
    match plain.family:
        case "Array":
            return lambda value: f"[{','.join([elements[0](each) for each in value])}]"
        case "Tuple":
            names = plain.element_names
            return lambda value: (
                f"({','.join(e(value[name]) for name, e in zip(names, elements, strict=True))})"
            )
        case _:
            key, val = elements
            return lambda value: "{" + ",".join(f"{key(k)}:{val(v)}" for k, v in value) + "}"


def _nested_json(plain: DataType) -> Formatter:
    elements = [formatter(element, "JSON") for element in plain.elements]
    match plain.family:
        case "Array":
            return lambda value: f"[{','.join([elements[0](each) for each in value])}]"
        case "Tuple":
            names = plain.element_names
            keys = [f"{json_string(name)}:" if plain.names else "" for name in names]
            opening, closing = "{}" if plain.names else "[]"
            places = list(zip(keys, names, elements, strict=True))
            return lambda value: (
                opening + ",".join(f"{k}{e(value[name])}" for k, name, e in places) + closing
            )
        case _:
            key, val = elements
            return lambda value: (
                "{" + ",".join(f"{_json_key(key(k))}:{val(v)}" for k, v in value) + "}"
            )


def _json_key(text: str) -> str:
    return text if text.startswith('"') else f'"{text}"'
