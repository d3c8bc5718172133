"""Values as bytes: the original's RowBinary, which its clients write and read.

`binary_encoder(type)` returns a function that appends one value to bytes, `binary_decoder(type)`
one that takes a value from them. Values have the form in which `plain_values` returns and
`pa.array` takes them: times and dates are integers in the unit of the stored form.

    numbers, Enum      little-endian, of the type's width; a Decimal its unscaled number
    Bool               one byte
    String             length (LEB128), bytes; FixedString its bytes alone
    Date, DateTime     UInt16 of days, UInt32 of seconds; Date32, DateTime64 Int32, Int64
    UUID               two UInt64, the first half first; IPv4 UInt32, IPv6 in network order
    Nullable(T)        a byte, 1 for NULL, 0 before a value
    Array, Map         number of elements (LEB128), elements; Tuple its elements alone
    LowCardinality(T)  as T; SimpleAggregateFunction(f, T) too
"""

import decimal
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.nodes.formats import varint
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.escapes import shown_text

Encoder = Callable[[Any, bytearray], None]
_DIGITS = decimal.Context(prec=100)
_STRUCTS = {
    "Int8": "<b", "Int16": "<h", "Int32": "<i", "Int64": "<q",
    "UInt8": "<B", "UInt16": "<H", "UInt32": "<I", "UInt64": "<Q",
    "Float32": "<f", "Float64": "<d",
    "Date": "<H", "Date32": "<i", "IPv4": "<I", "Bool": "<?",
    "Enum8": "<b", "Enum16": "<h",
}  # fmt: skip


class NoBinaryForm(UserError):
    """The original's RowBinary has a form for the type that this engine can't write or read."""

    code = "NOT_IMPLEMENTED"


class Bytes(Protocol):
    """The source from which values are taken."""

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes. Raises EOFError if there are fewer."""


Decoder = Callable[[Bytes], Any]


def take_varint(data: Bytes) -> int:
    """Take a LEB128 number. Raises ValueError if it has more than 64 bits."""
    number = 0
    for shift in range(0, 64, 7):
        byte = data.take(1)[0]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
    raise ValueError("a length of more than 64 bits")


def text_bytes(text: str) -> bytes:
    """Return a String: its length and its bytes."""
    content = text.encode("utf-8", "surrogateescape")
    return varint(len(content)) + content


def take_text(data: Bytes) -> str:
    """Take a String. Raises ValueError for bytes that are not UTF-8."""
    content = data.take(take_varint(data))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        shown = shown_text(content.decode("utf-8", "backslashreplace"))
        raise ValueError(f"{shown} is not UTF-8; a FixedString takes any bytes") from None


@lru_cache(maxsize=1024)
def binary_encoder(data_type: DataType) -> Encoder:
    """Return a function that appends a value of the type to bytes. Raises NoBinaryForm."""
    _require_form(data_type)
    inner = _encoder(data_type.plain)
    if not data_type.nullable:
        return inner

    def nullable(value: Any, out: bytearray) -> None:
        out.append(value is None)
        if value is not None:
            inner(value, out)

    return nullable


def _encoder(plain: DataType) -> Encoder:
    match plain.family:
        case "String":
            return lambda value, out: out.extend(text_bytes(value))
        case "FixedString" | "IPv6":
            return lambda value, out: out.extend(value)
        case "UUID":
            return lambda value, out: out.extend(
                _swapped(bytes.fromhex(value.replace("-", "")))
            )
        case "Array":
            return _list_encoder((binary_encoder(plain.elements[0]),), lambda value: (value,))
        case "Map":
            return _list_encoder(tuple(map(binary_encoder, plain.elements)), tuple)
        case "Tuple":
            return _tuple_encoder(plain)
        case "Nothing":
            return _nothing
        case "Enum8" | "Enum16":
            numbers, pack = dict(plain.values), struct.Struct(_STRUCTS[plain.family]).pack
            return lambda value, out: out.extend(pack(numbers[value]))
        case _:
            pass
    if plain.family in _STRUCTS:
        pack = struct.Struct(_STRUCTS[plain.family]).pack
        return lambda value, out: out.extend(pack(value))
    return _number_encoder(plain)


def _nothing(_value: Any, _out: bytearray) -> None:
    """Write nothing: values of the type of NULL have no bytes."""


def _number_encoder(plain: DataType) -> Encoder:
    """Return the encoder for a number or time of another unit or width than its stored form."""
    width, signed = _width(plain), not plain.family.startswith(("U", "DateTime"))
    number: Callable[[Any], int] = int
    if plain.wide_bytes:
        number = plain.wide_from_bytes
    elif plain.is_decimal:
        scale = plain.numbers[1]
        number = lambda value: int(value.scaleb(scale, _DIGITS))  # noqa: E731
    elif plain.family == "DateTime":
        number = lambda value: value // 1_000_000  # noqa: E731
    elif plain.family == "DateTime64":
        signed, unit = True, _unit(plain)
        number = lambda value: value // unit  # noqa: E731
    return lambda value, out: out.extend(number(value).to_bytes(width, "little", signed=signed))


def _list_encoder(encoders: tuple[Encoder, ...], parts: Callable[[Any], Any]) -> Encoder:
    def encode(values: Any, out: bytearray) -> None:
        out.extend(varint(len(values)))
        for value in values:
            for one, part in zip(encoders, parts(value), strict=True):
                one(part, out)

    return encode


def _tuple_encoder(plain: DataType) -> Encoder:
    pairs = tuple(zip(plain.element_names, map(binary_encoder, plain.elements), strict=True))

    def encode(value: Any, out: bytearray) -> None:
        for name, one in pairs:
            one(value[name], out)

    return encode


@lru_cache(maxsize=1024)
def binary_decoder(data_type: DataType) -> Decoder:
    """Return a function that takes a value of the type from bytes. Raises NoBinaryForm. The
    function raises EOFError, and ValueError for bytes that are no such value.
    """
    _require_form(data_type)
    inner = _decoder(data_type.plain)
    if not data_type.nullable:
        return inner

    def nullable(data: Bytes) -> Any:
        flag = data.take(1)[0]
        if flag > 1:
            raise ValueError(f"{flag} is neither 0 (a value) nor 1 (NULL)")
        return None if flag else inner(data)

    return nullable


def _decoder(plain: DataType) -> Decoder:
    match plain.family:
        case "String":
            return take_text
        case "FixedString":
            return lambda data: data.take(plain.numbers[0])
        case "IPv6":
            return lambda data: data.take(16)
        case "UUID":
            return _take_uuid
        case "Bool":
            return lambda data: data.take(1) != b"\0"
        case "Array" | "Map" | "Tuple":
            return _nested_decoder(plain)
        case "Enum8" | "Enum16":
            return _enum_decoder(plain)
        case _:
            pass
    if plain.family in _STRUCTS:
        packed = struct.Struct(_STRUCTS[plain.family])
        return lambda data: packed.unpack(data.take(packed.size))[0]
    return _number_decoder(plain)


def _nested_decoder(plain: DataType) -> Decoder:
    decoders = [binary_decoder(each) for each in plain.elements]
    if plain.family == "Tuple":
        names = plain.element_names
        return lambda data: {name: one(data) for name, one in zip(names, decoders, strict=True)}
    if plain.family == "Array":
        (element,) = decoders
        return lambda data: [element(data) for _ in range(take_varint(data))]
    key, value = decoders
    return lambda data: [(key(data), value(data)) for _ in range(take_varint(data))]


def _number_decoder(plain: DataType) -> Decoder:
    width, signed = _width(plain), not plain.family.startswith("U")
    value: Callable[[int], Any] = int
    if plain.wide_bytes:
        value = plain.wide_to_bytes
    elif plain.is_decimal:
        scale = -plain.numbers[1]
        value = lambda number: decimal.Decimal(number).scaleb(scale, _DIGITS)  # noqa: E731
    elif plain.family == "DateTime":
        signed = False
        value = lambda number: number * 1_000_000  # noqa: E731
    elif plain.family == "DateTime64":
        unit = _unit(plain)
        value = lambda number: number * unit  # noqa: E731
    return lambda data: value(int.from_bytes(data.take(width), "little", signed=signed))


def _enum_decoder(plain: DataType) -> Decoder:
    names = {number: name for name, number in plain.values}
    packed = struct.Struct(_STRUCTS[plain.family])

    def decode(data: Bytes) -> str:
        (number,) = packed.unpack(data.take(packed.size))
        if number not in names:
            raise ValueError(f"{number} is no number of {plain.text}")
        return names[number]

    return decode


def _take_uuid(data: Bytes) -> str:
    digits = _swapped(data.take(16)).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _swapped(content: bytes) -> bytes:
    """Return the bytes of a UUID with each half reversed: RowBinary has two little-endian numbers,
    the first half first.
    """
    return content[7::-1] + content[:7:-1]


def _unit(plain: DataType) -> int:
    """Return how many units of the stored form make one unit of a DateTime64 of these digits."""
    digits = plain.numbers[0]
    return int(10 ** ((6 if digits <= 6 else 9) - digits))


def _width(plain: DataType) -> int:
    if plain.is_decimal:
        return next(size for digits, size in _DECIMALS if plain.numbers[0] <= digits)
    if plain.is_integer:
        return plain.bits // 8
    return 4 if plain.family == "DateTime" else 8  # DateTime64 and intervals


_DECIMALS = ((9, 4), (18, 8), (38, 16), (76, 32))


def _require_form(data_type: DataType) -> None:
    if data_type.family == "AggregateFunction":
        raise NoBinaryForm(
            f"{data_type.text} can't be RowBinary: the original writes a state of its own there, "
            "and here it is kept in the clear. finalizeAggregation gives its value; Parquet and "
            "Arrow the state itself"
        )
