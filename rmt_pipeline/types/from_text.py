"""One value from its text: what TSV, CSV and VALUES have between their separators, unescaped.

Follows the original's text parsers, with one difference: where the original quietly changes a
value (an integer that wraps, a date that saturates, the 30th of February) the text is refused.
Digits after a Decimal's or a DateTime64's last one are cut off, as there.
"""

import decimal
import ipaddress
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmt_pipeline.types.escapes import shown_text
from rmt_pipeline.types.nested_text import read_array, read_map, read_tuple
from rmt_pipeline.types.time_text import read_date, read_time

if TYPE_CHECKING:
    from rmt_pipeline.types.data_type import DataType

DIGITS_MAX = 400  # Python refuses to read integers of thousands of digits

_WIDE = decimal.Context(prec=100, Emax=999_999, Emin=-999_999)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf(?:inity)?|nan)",
    re.ASCII | re.IGNORECASE,
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-?)(?:[0-9a-f]{4}\1){3}[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_TRUE = frozenset({"true", "1", "t", "y", "yes", "on", "enable", "enabled"})
_FALSE = frozenset({"false", "0", "f", "n", "no", "off", "disable", "disabled"})


def read(data_type: "DataType", text: str | None) -> object:
    """The value, fit for `pa.array([value], data_type.arrow)`. ValueError gives the reason."""
    if text is None or (text == "\\N" and data_type.nullable):
        if data_type.nullable:
            return None
        raise ValueError(f"NULL does not fit {data_type.text}, which is not Nullable")
    plain = data_type.plain
    if plain.is_integer:
        return _integer(plain, text)
    reader = _READERS.get(plain.family)
    if reader is None:
        raise ValueError(f"no value of type {plain.text} is written as text")
    return reader(plain, text)


def _integer(data_type: "DataType", text: str) -> object:
    if _INTEGER.fullmatch(text) is None or len(text) > DIGITS_MAX:
        raise ValueError(f"{shown_text(text)} is not an integer ({data_type.text})")
    number = int(text)
    if not data_type.integer_min <= number <= data_type.integer_max:
        limits = f"{data_type.integer_min} to {data_type.integer_max}"
        raise ValueError(f"{shown_text(text)} does not fit {data_type.text} ({limits})")
    return data_type.wide_to_bytes(number) if data_type.wide_bytes else number


def _float(data_type: "DataType", text: str) -> object:
    if _FLOAT.fullmatch(text) is None:
        raise ValueError(f"{shown_text(text)} is not a number ({data_type.text})")
    return float(text)


def _decimal(data_type: "DataType", text: str) -> object:
    if _DECIMAL.fullmatch(text) is None or len(text) > DIGITS_MAX:
        raise ValueError(f"{shown_text(text)} is not a number ({data_type.text})")
    precision, scale = data_type.numbers
    number = decimal.Decimal(text)
    if number and number.adjusted() >= precision - scale:
        raise ValueError(f"{shown_text(text)} does not fit {data_type.text}")
    if number.adjusted() < -scale - 1:
        number = decimal.Decimal(0)
    cut = number.quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_DOWN, _WIDE)
    if data_type.wide_bytes:
        return data_type.wide_to_bytes(int(cut.scaleb(scale, _WIDE)))
    return cut


def _bool(data_type: "DataType", text: str) -> object:
    del data_type
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(f"{shown_text(text)} is neither true nor false (Bool)")


def _string(data_type: "DataType", text: str) -> object:
    del data_type
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ValueError(
            f"a String holds UTF-8 text, and {shown_text(text)} is not, at character "
            f"{problem.start}; use FixedString for bytes"
        ) from None
    return text


def _fixed_string(data_type: "DataType", text: str) -> object:
    # Readers of bytes that are no UTF-8 pass them on as surrogates ("surrogateescape").
    try:
        stored = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(
            f"{shown_text(text)} has a lone surrogate ({data_type.text})"
        ) from None
    length = data_type.numbers[0]
    if len(stored) > length:
        raise ValueError(
            f"{shown_text(text)} has {len(stored)} bytes; {data_type.text} holds {length}"
        )
    return stored.ljust(length, b"\0")


def _uuid(data_type: "DataType", text: str) -> object:
    del data_type
    if _UUID.fullmatch(text) is None:
        raise ValueError(f"{shown_text(text)} is not a UUID (8-4-4-4-12 hexadecimal digits)")
    digits = text.replace("-", "").lower()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _enum(data_type: "DataType", text: str) -> object:
    if any(text == name for name, _ in data_type.values):
        return text
    for name, number in data_type.values:
        if text == str(number):
            return name
    known = ", ".join(repr(name) for name, _ in data_type.values[:10])
    more = " and more" if len(data_type.values) > 10 else ""
    raise ValueError(f"{shown_text(text)} is not an element of the enum; it has {known}{more}")


def _ipv4(data_type: "DataType", text: str) -> object:
    del data_type
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(f"{shown_text(text)} is not an IPv4 address (1.2.3.4)") from None


def _ipv6(data_type: "DataType", text: str) -> object:
    del data_type
    try:
        if ":" not in text:
            return bytes(10) + b"\xff\xff" + ipaddress.IPv4Address(text).packed
        return ipaddress.IPv6Address(text.replace("%", "no scope ids")).packed
    except ValueError:
        raise ValueError(f"{shown_text(text)} is not an IPv6 address (2001:db8::1)") from None


_READERS: dict[str, Callable[["DataType", str], object]] = {
    "Float32": _float,
    "Float64": _float,
    "Decimal": _decimal,
    "Bool": _bool,
    "String": _string,
    "FixedString": _fixed_string,
    "Date": read_date,
    "Date32": read_date,
    "DateTime": read_time,
    "DateTime64": read_time,
    "UUID": _uuid,
    "Enum8": _enum,
    "Enum16": _enum,
    "IPv4": _ipv4,
    "IPv6": _ipv6,
    "Array": read_array,
    "Tuple": read_tuple,
    "Map": read_map,
}
