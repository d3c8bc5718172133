"""Converts one Python value to the stored form of a column. Exact and slow; errors say what is
wrong.

A text is read as a value of the column's type. Any other value must be of the kind of the type: a
number for a number, but not a number for a String. No value is changed, except that digits beyond
those that the type keeps are cut off.
"""

import datetime as dt
import decimal
import ipaddress
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rmt_pipeline.types.data_type import EPOCH, DataType
from rmt_pipeline.types.from_text import parse_value
from rmt_pipeline.types.time_text import DATETIME_MAX_S

_SHOWN_CHARACTERS = 100
_PANDAS_NULLS = frozenset({"NAType", "NaTType"})


def is_null(value: object) -> bool:
    """Whether the value is None or a missing value of pandas (NA, NaT). A float NaN is a value."""
    return value is None or type(value).__name__ in _PANDAS_NULLS


def stored_value(value: Any, kind: DataType) -> Any:
    """The value as `pa.array([...], kind.arrow)` takes it. Raises ValueError with the reason,
    naming value and type.
    """
    if is_null(value):
        if kind.nullable:
            return None
        raise ValueError(f"NULL does not fit {kind.text}, which is not Nullable")
    plain = kind.plain
    if type(value).__module__ == "numpy":
        value = value.tolist()
    if isinstance(value, str):
        return parse_value(plain, value)
    if plain.is_integer:
        return _integer(value, plain)
    return _READERS[plain.family](value, plain)


def _wrong(value: object, kind: DataType, expected: str = "") -> ValueError:
    shown = repr(value)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "..."
    return ValueError(f"{shown} ({type(value).__name__}) does not fit {kind.text}{expected}")


def _integer(value: Any, kind: DataType) -> Any:
    if _is_stored(value, kind):
        return value
    if isinstance(value, float | decimal.Decimal):
        if not _is_finite(value) or value != int(value):
            raise _wrong(value, kind, ": it is no whole number")
        value = int(value)
    if not isinstance(value, int):
        raise _wrong(value, kind)
    if not kind.integer_min <= value <= kind.integer_max:
        raise _wrong(value, kind, f" ({kind.integer_min} to {kind.integer_max})")
    return kind.wide_to_bytes(value) if kind.wide_bytes else int(value)


def _is_stored(value: Any, kind: DataType) -> bool:
    """Whether the value already is the stored form of a wide number."""
    return bool(kind.wide_bytes) and isinstance(value, bytes) and len(value) == kind.wide_bytes


def _is_finite(value: float | decimal.Decimal) -> bool:
    return decimal.Decimal(value).is_finite()


def _float(value: Any, kind: DataType) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise _wrong(value, kind)
    try:
        return float(value)
    except OverflowError:
        raise _wrong(value, kind) from None


def _decimal(value: Any, kind: DataType) -> Any:
    if _is_stored(value, kind):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise _wrong(value, kind)
    if not _is_finite(value):
        raise _wrong(value, kind)
    return parse_value(
        kind, format(decimal.Decimal(repr(value) if isinstance(value, float) else value), "f")
    )


def _bool(value: Any, kind: DataType) -> Any:
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise _wrong(value, kind, ": it is neither true nor false")


def _string(value: Any, kind: DataType) -> Any:
    if not isinstance(value, bytes):
        raise _wrong(value, kind)
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _wrong(value, kind, ": it is not UTF-8; use FixedString for bytes") from None


def _fixed_string(value: Any, kind: DataType) -> Any:
    length = kind.numbers[0]
    if not isinstance(value, bytes):
        raise _wrong(value, kind)
    if len(value) > length:
        raise _wrong(value, kind, f": it has {len(value)} bytes")
    return value.ljust(length, b"\0")


def _date(value: Any, kind: DataType) -> Any:
    if isinstance(value, dt.datetime):
        if value.time() != dt.time():
            raise _wrong(value, kind, ": it has a time of day")
        value = value.date()
    if not isinstance(value, dt.date):
        raise _wrong(value, kind)
    return parse_value(kind, value.isoformat())


def _time(value: Any, kind: DataType) -> Any:
    if isinstance(value, dt.datetime):  # without an offset it is in the column's zone
        return parse_value(kind, value.isoformat(" "))
    if isinstance(value, dt.date):
        return parse_value(kind, value.isoformat())
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and kind.family == "DateTime":
        if not 0 <= value <= DATETIME_MAX_S:
            raise _wrong(value, kind, f" (0 to {DATETIME_MAX_S} seconds)")
        return EPOCH + dt.timedelta(seconds=value)
    raise _wrong(value, kind)


def _uuid(value: Any, kind: DataType) -> Any:
    if isinstance(value, bytes) and len(value) == 16:
        return str(uuid.UUID(bytes=value))
    if isinstance(value, uuid.UUID):
        return str(value)
    raise _wrong(value, kind)


def _enum(value: Any, kind: DataType) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return parse_value(kind, str(value))
    raise _wrong(value, kind)


def _ipv4(value: Any, kind: DataType) -> Any:
    if isinstance(value, ipaddress.IPv4Address):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32:
        return value
    raise _wrong(value, kind)


def _ipv6(value: Any, kind: DataType) -> Any:
    if isinstance(value, bytes) and len(value) == 16:
        return value
    if isinstance(value, ipaddress.IPv4Address | ipaddress.IPv6Address):
        return parse_value(kind, str(value))
    raise _wrong(value, kind)


def _array(value: Any, kind: DataType) -> Any:
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise _wrong(value, kind)
    (element,) = kind.elements
    return [stored_value(each, element) for each in value]


def _tuple(value: Any, kind: DataType) -> Any:
    names = kind.element_names
    if isinstance(value, Mapping):
        if set(value) != set(names):
            raise _wrong(value, kind, f": its elements are {', '.join(names)}")
        value = [value[name] for name in names]
    if not isinstance(value, list | tuple) or len(value) != len(names):
        raise _wrong(value, kind, f": it has {len(names)} elements")
    elements = zip(names, value, kind.elements, strict=True)
    return {name: stored_value(each, element) for name, each, element in elements}


def _map(value: Any, kind: DataType) -> Any:
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, list | tuple):
        raise _wrong(value, kind)
    key_type, value_type = kind.elements
    stored = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise _wrong(value, kind, ": it is no list of pairs")
        stored.append((stored_value(pair[0], key_type), stored_value(pair[1], value_type)))
    return stored


_READERS: dict[str, Callable[[Any, DataType], Any]] = {
    "Float32": _float,
    "Float64": _float,
    "Decimal": _decimal,
    "Bool": _bool,
    "String": _string,
    "FixedString": _fixed_string,
    "Date": _date,
    "Date32": _date,
    "DateTime": _time,
    "DateTime64": _time,
    "UUID": _uuid,
    "Enum8": _enum,
    "Enum16": _enum,
    "IPv4": _ipv4,
    "IPv6": _ipv6,
    "Array": _array,
    "Tuple": _tuple,
    "Map": _map,
}
