"""The id of a partition and the text of its value, byte for byte as in the original (spec §1.1).

The rules were compared with a real server, whose answers are in
`tests/unit/compute/insert/test_partition.py`.
"""

import datetime as dt
import struct
from collections.abc import Sequence
from decimal import Context
from typing import Any

from rmt_pipeline.protocol.alter.texts import split_key
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.data_type import EPOCH, DataType
from rmt_pipeline.types.to_text import formatter

NO_KEY = "all"

# The original's numbers for kinds of values, which are hashed with the values.
_NULL, _UNSIGNED, _SIGNED, _FLOAT, _UNSIGNED_128, _SIGNED_128 = 0, 1, 2, 3, 4, 5
_STRING, _ARRAY, _TUPLE = 16, 17, 18
_DECIMAL = {4: 19, 8: 20, 16: 21, 32: 23}
_UNSIGNED_256, _SIGNED_256, _MAP, _IPV4 = 24, 25, 26, 30
_WIDE = {
    (16, False): _UNSIGNED_128,
    (16, True): _SIGNED_128,
    (32, False): _UNSIGNED_256,
    (32, True): _SIGNED_256,
}
_DAY_ZERO = EPOCH.date()
_ALL_DIGITS = Context(prec=80)


def partition_id(values: Sequence[Any], types: Sequence[DataType]) -> str:
    """The id of the partition with these key values.

    Values are Python values from Arrow (`as_py`), but times are integers in their stored unit.
    """
    if not values:
        return NO_KEY
    key = list(zip(values, [kind.plain for kind in types], strict=True))
    numbers = [_integer(value, kind) for value, kind in key]
    if any(number is None for number in numbers):
        return _sip_hash_128(b"".join(_hashed(value, kind) for value, kind in key)).hex()
    return "-".join(
        f"{value:%Y%m%d}" if kind.family == "Date" else str(number)
        for number, (value, kind) in zip(numbers, key, strict=True)
    )


def partition_text(values: Sequence[Any], types: Sequence[DataType]) -> str:
    """The key's value as in `system.parts.partition`: `201905`, `tuple()`, `(1,'a')`."""
    if not values:
        return "tuple()"
    if len(values) == 1:
        (value,), (kind,) = values, types
        if kind.is_string:
            return (
                value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")
            )
        if kind.is_enum:
            return str(value)
        return formatter(kind, "TSV")(value)
    pairs = zip(values, types, strict=True)
    texts = (formatter(kind, "nested")(value) for value, kind in pairs)
    return f"({','.join(texts)})"


def shown_partition(manifest: Manifest, definition: TableDefinition) -> str:
    """The text of a part's partition, by the table's current columns: an Enum may have become a
    number since the part was written, and then is read as its number (`types.key_safe`).
    """
    bounds = {bound.column: bound.min for bound in manifest.key_bounds}
    written = {column.name: column.type for column in manifest.columns}
    types = {column.name: column.type for column in definition.columns}
    numbers: dict[int, str] = {}
    for at, name in enumerate(definition.partition_by):
        value = bounds.get(name)
        if types.get(name) not in {"Int8", "Int16"} or value is None:
            continue
        if isinstance(value, str):
            value = dict(parse_type(written[name]).values)[value]
        numbers[at] = str(value)
    if not numbers:
        return manifest.partition
    if len(definition.partition_by) == 1:
        return numbers[0]
    pieces = split_key(manifest.partition[1:-1])
    return f"({','.join(numbers.get(at, piece) for at, piece in enumerate(pieces))})"


def _integer(value: Any, kind: DataType) -> int | None:
    """The integer that the original stores for the value; None if it does not store an integer."""
    if value is None:
        return None
    if kind.is_enum:
        return next(number for name, number in kind.values if name == value)
    if kind.is_date:
        day: dt.date = value
        return (day - _DAY_ZERO).days
    if kind.family == "DateTime":
        return int(value) // 1_000_000
    if kind.family in {"Bool", "IPv4"} or (kind.is_integer and not kind.wide_bytes):
        return int(value)
    return None


def _hashed(value: Any, kind: DataType) -> bytes:
    """The bytes that the original hashes for one value."""
    kind = kind.plain
    if value is None:
        return bytes([_NULL])
    if kind.family == "IPv4":
        return bytes([_IPV4]) + struct.pack("<I", value)
    number = _integer(value, kind)
    if number is not None:
        signed = kind.is_signed or kind.is_enum or kind.family == "Date32"
        if signed:
            return bytes([_SIGNED]) + struct.pack("<q", number)
        return bytes([_UNSIGNED]) + struct.pack("<Q", number)
    if kind.is_float:
        return bytes([_FLOAT]) + struct.pack("<d", value)
    if kind.is_string or kind.family == "IPv6":
        text = value.encode() if isinstance(value, str) else value
        return bytes([_STRING]) + struct.pack("<Q", len(text)) + bytes(text)
    if kind.family == "UUID":
        digits = int(value.replace("-", ""), 16)
        halves = struct.pack("<QQ", digits >> 64, digits & ((1 << 64) - 1))
        return bytes([_UNSIGNED_128]) + halves
    if kind.is_integer:
        tag = _WIDE[kind.wide_bytes, kind.is_signed]
        wide: int = kind.wide_from_bytes(value)
        return bytes([tag]) + wide.to_bytes(kind.wide_bytes, "little", signed=kind.is_signed)
    if kind.is_decimal or kind.family == "DateTime64":
        return _hashed_decimal(value, kind)
    return _hashed_nested(value, kind)


def _hashed_decimal(value: Any, kind: DataType) -> bytes:
    unscaled: int
    if kind.family == "DateTime64":
        digits = kind.numbers[0]
        unit_digits = 6 if digits <= 6 else 9
        unscaled, width = int(value) // 10 ** (unit_digits - digits), 8
    elif kind.wide_bytes:
        unscaled, width = kind.wide_from_bytes(value), kind.wide_bytes
    else:
        precision, scale = kind.numbers
        unscaled = int(value.scaleb(scale, _ALL_DIGITS))
        width = 4 if precision <= 9 else 8 if precision <= 18 else 16
    return bytes([_DECIMAL[width]]) + unscaled.to_bytes(width, "little", signed=True)


def _hashed_nested(value: Any, kind: DataType) -> bytes:
    if kind.family == "Array":
        (element,) = kind.elements
        tag, pieces = _ARRAY, [_hashed(each, element) for each in value]
    elif kind.family == "Tuple":
        fields = zip(value.values(), kind.elements, strict=True)
        tag, pieces = _TUPLE, [_hashed(each, element) for each, element in fields]
    else:
        assert kind.family == "Map", f"{kind.text} can't be in a partition key"
        pair = DataType("Tuple", elements=kind.elements)
        pairs = [{"1": key, "2": item} for key, item in value]
        tag, pieces = _MAP, [_hashed(each, pair) for each in pairs]
    return bytes([tag]) + struct.pack("<Q", len(pieces)) + b"".join(pieces)


_SIP_MASK = (1 << 64) - 1
_SIP_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def _sip_hash_128(data: bytes) -> bytes:
    """SipHash-2-4 with a result of 128 bits, with the original's own last step.

    It is computed for a few short texts per insert, so it may be slow.
    """
    v0, v1, v2, v3 = _SIP_START
    whole = len(data) & ~7
    last = data[whole:].ljust(7, b"\0") + bytes([len(data) & 0xFF])
    for word in (*(data[at : at + 8] for at in range(0, whole, 8)), last):
        message = int.from_bytes(word, "little")
        v3 ^= message
        v0, v1, v2, v3 = _sip_round(*_sip_round(v0, v1, v2, v3))
        v0 ^= message
    v2 ^= 0xFF
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return (v0 ^ v1).to_bytes(8, "little") + (v2 ^ v3).to_bytes(8, "little")


def _sip_round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & _SIP_MASK
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = (v2 + v3) & _SIP_MASK
    v3 = _rotated(v3, 16) ^ v2
    v0 = (v0 + v3) & _SIP_MASK
    v3 = _rotated(v3, 21) ^ v0
    v2 = (v2 + v1) & _SIP_MASK
    v1 = _rotated(v1, 17) ^ v2
    return v0, v1, _rotated(v2, 32), v3


def _rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _SIP_MASK
