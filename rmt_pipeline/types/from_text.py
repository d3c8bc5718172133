"""Parses values from their unescaped text, such as the fields of TSV, CSV and VALUES.

The rules are those of the original, with one difference: a text is refused where the original
silently changes the value (an integer that wraps, a date that is clamped, the 30th of February). As
in the original, digits after the last one of a Decimal or a DateTime64 are cut off.
"""

import decimal
import ipaddress
import itertools
import re
from collections.abc import Callable

from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.escapes import shown_text, unescape_literal
from rmt_pipeline.types.time_text import read_date, read_time

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


def parse_value(data_type: DataType, text: str | None) -> object:
    r"""Return the value of a text without escapes and quotes, in a form that `pa.array` takes.

    The text of an array, tuple or map keeps the quotes and escapes of its elements; so it is a
    field of TSV as it stands, because TSV escapes these only once. None is NULL, and for a Nullable
    type so is `\N`. Raises ValueError with only the reason, since the caller knows the row and the
    column.
    """
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


def _integer(data_type: DataType, text: str) -> object:
    if _INTEGER.fullmatch(text) is None or len(text) > DIGITS_MAX:
        raise ValueError(f"{shown_text(text)} is not an integer ({data_type.text})")
    number = int(text)
    if not data_type.integer_min <= number <= data_type.integer_max:
        limits = f"{data_type.integer_min} to {data_type.integer_max}"
        raise ValueError(f"{shown_text(text)} does not fit {data_type.text} ({limits})")
    return data_type.wide_to_bytes(number) if data_type.wide_bytes else number


def _float(data_type: DataType, text: str) -> object:
    if _FLOAT.fullmatch(text) is None:
        raise ValueError(f"{shown_text(text)} is not a number ({data_type.text})")
    return float(text)


def _decimal(data_type: DataType, text: str) -> object:
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


def _bool(data_type: DataType, text: str) -> object:
    del data_type
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(f"{shown_text(text)} is neither true nor false (Bool)")


def _string(data_type: DataType, text: str) -> object:
    del data_type
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ValueError(
            f"a String holds UTF-8 text, and {shown_text(text)} is not, at character "
            f"{problem.start}; use FixedString for bytes"
        ) from None
    return text


def _fixed_string(data_type: DataType, text: str) -> object:
    # Bytes that are not UTF-8 arrive here as surrogates ("surrogateescape").
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


def _uuid(data_type: DataType, text: str) -> object:
    del data_type
    if _UUID.fullmatch(text) is None:
        raise ValueError(f"{shown_text(text)} is not a UUID (8-4-4-4-12 hexadecimal digits)")
    digits = text.replace("-", "").lower()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _enum(data_type: DataType, text: str) -> object:
    if any(text == name for name, _ in data_type.values):
        return text
    for name, number in data_type.values:
        if text == str(number):
            return name
    known = ", ".join(repr(name) for name, _ in data_type.values[:10])
    more = " and more" if len(data_type.values) > 10 else ""
    raise ValueError(f"{shown_text(text)} is not an element of the enum; it has {known}{more}")


def _ipv4(data_type: DataType, text: str) -> object:
    del data_type
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(f"{shown_text(text)} is not an IPv4 address (1.2.3.4)") from None


def _ipv6(data_type: DataType, text: str) -> object:
    del data_type
    try:
        if ":" not in text:
            return bytes(10) + b"\xff\xff" + ipaddress.IPv4Address(text).packed
        return ipaddress.IPv6Address(text.replace("%", "no scope ids")).packed
    except ValueError:
        raise ValueError(f"{shown_text(text)} is not an IPv6 address (2001:db8::1)") from None


# Arrays, tuples and maps.


def _array(data_type: DataType, text: str) -> object:
    (element,) = data_type.elements
    return [_nested_element(element, piece) for piece in _pieces(text, "[]", data_type)]


def _tuple(data_type: DataType, text: str) -> object:
    pieces = _pieces(text, "()", data_type)
    if len(pieces) == len(data_type.elements) + 1 and pieces[-1] == "":
        pieces.pop()  # as in `(1,)`
    if len(pieces) != len(data_type.elements):
        raise ValueError(
            f"{shown_text(text)} has {len(pieces)} elements; {data_type.text} has "
            f"{len(data_type.elements)}"
        )
    fields = zip(data_type.element_names, data_type.elements, pieces, strict=True)
    return {name: _nested_element(element, piece) for name, element, piece in fields}


def _map(data_type: DataType, text: str) -> object:
    key_type, value_type = data_type.elements
    pairs = []
    for piece in _pieces(text, "{}", data_type):
        place = _top_level(piece, ":")
        if len(place) != 1:
            raise ValueError(
                f"{shown_text(piece)} is not a pair `key:value` ({data_type.text})"
            )
        key, value = piece[: place[0]].strip(), piece[place[0] + 1 :].strip()
        pairs.append((_nested_element(key_type, key), _nested_element(value_type, value)))
    return pairs


def _nested_element(data_type: DataType, piece: str) -> object:
    if piece.upper() == "NULL":
        return parse_value(data_type, None)
    if piece.startswith("'"):
        if len(piece) < 2 or not piece.endswith("'"):
            raise ValueError(f"the quote of {shown_text(piece)} is not closed")
        return parse_value(data_type.plain, unescape_literal(piece[1:-1]))
    plain = data_type.plain
    if plain.is_string or plain.is_enum or plain.family in {"UUID", "IPv4", "IPv6"}:
        raise ValueError(
            f"{shown_text(piece)} is not in single quotes ({data_type.text} in a list)"
        )
    return parse_value(plain, piece)


def _pieces(text: str, brackets: str, data_type: DataType) -> list[str]:
    text = text.strip()
    if len(text) < 2 or text[0] != brackets[0] or text[-1] != brackets[1]:
        raise ValueError(
            f"{shown_text(text)} is not written as {brackets[0]}...{brackets[1]} ({data_type.text})"
        )
    inner = text[1:-1]
    if not inner.strip():
        return []
    cuts = [-1, *_top_level(inner, ","), len(inner)]
    return [inner[a + 1 : b].strip() for a, b in itertools.pairwise(cuts)]


_CLOSING = {"[": "]", "(": ")", "{": "}"}


def _top_level(text: str, mark: str) -> list[int]:
    """Return the offsets of `mark` outside quotes and brackets. Raises ValueError if these do not
    match.
    """
    places = []
    open_brackets: list[str] = []
    place = 0
    while place < len(text):
        character = text[place]
        if character == "'":
            place = _end_of_quote(text, place)
        elif character in _CLOSING:
            open_brackets.append(_CLOSING[character])
        elif character in "])}":
            if not open_brackets or open_brackets.pop() != character:
                raise ValueError(f"the brackets of {shown_text(text)} do not match")
        elif character == mark and not open_brackets:
            places.append(place)
        place += 1
    if open_brackets:
        raise ValueError(f"the brackets of {shown_text(text)} do not match")
    return places


def _end_of_quote(text: str, start: int) -> int:
    place = start + 1
    while place < len(text):
        if text[place] == "\\":
            place += 1
        elif text[place] == "'":
            return place
        place += 1
    raise ValueError(f"the quote of {shown_text(text[start:])} is not closed")


_READERS: dict[str, Callable[[DataType, str], object]] = {
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
    "Array": _array,
    "Tuple": _tuple,
    "Map": _map,
}
