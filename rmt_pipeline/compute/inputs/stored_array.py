"""Converts Arrow arrays of any type to the stored form of a column, and checks every value.

There are two ways. The fast one uses Arrow's casts and a few vectorised checks; whenever it is not
sure that the result is right, the slow one is used instead. That is `stored_value` for each row; it
decides, and names the first row that does not fit.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.compute.inputs.stored_value import stored_value
from rmt_pipeline.types.data_type import EPOCH, DataType
from rmt_pipeline.types.time_text import (
    DATE32_MAX,
    DATE32_MIN,
    DATE_MAX,
    DATETIME64_MAX_S,
    DATETIME64_MIN_S,
    DATETIME_MAX_S,
)

_types = pa.types
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


class Misfit(Exception):
    """The value at `row` (counted from 0) does not fit; the message says why."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def stored_array(array: pa.Array | pa.ChunkedArray, kind: DataType) -> pa.Array:
    """The array in the stored form of `kind`. Raises Misfit."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    fast = _fast(array, kind)
    if fast is not None and _fits(fast, kind):
        return fast
    return _slow(array, kind)


def stored_list(values: Sequence[Any], kind: DataType, *, absent: object = ...) -> pa.Array:
    """Python values in the stored form of `kind`, with NULL for those that are `absent`.

    Raises Misfit.
    """
    stored = []
    for row, value in enumerate(values):
        try:
            stored.append(None if value is absent else stored_value(value, kind))
        except ValueError as problem:
            raise Misfit(row, str(problem)) from None
    return pa.array(stored, kind.arrow)


def _slow(array: pa.Array, kind: DataType) -> pa.Array:
    """The slow way: each distinct text is read once, other values one by one."""
    if _types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if _is_text(array.type) and not _is_valid(array):
        array = array.cast(pa.large_binary())  # not UTF-8, so not a Python text
    if not _is_text(array.type) or (array.null_count and not kind.nullable):
        return stored_list(array.to_pylist(), kind)
    encoded = array.dictionary_encode()
    try:
        distinct = stored_list(encoded.dictionary.to_pylist(), kind)
    except Misfit as misfit:
        # The dictionary has the texts in the order of their first rows.
        row = pc.index(encoded.indices, pa.scalar(misfit.row, pa.int32())).as_py()
        raise Misfit(row, str(misfit)) from None
    return distinct.take(encoded.indices)


def _fast(array: pa.Array, kind: DataType) -> pa.Array | None:
    """The array in the stored type, without checks of its values; None if Arrow can't
    convert it.
    """
    if array.type.equals(kind.arrow) and not kind.is_time:
        return array
    plain = kind.plain
    if _types.is_dictionary(array.type):
        values = _fast(array.dictionary, kind)
        return None if values is None else values.take(array.indices)
    try:
        if plain.is_time:
            return _fast_times(array, plain)
        if plain.is_date and _types.is_timestamp(array.type):
            return _days(array)
        return array.cast(kind.arrow) if _is_castable(array, plain) else None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
        return None


def _is_castable(array: pa.Array, kind: DataType) -> bool:
    """Whether Arrow's safe cast gives the same as `stored_value`, if it succeeds."""
    source = array.type
    if _is_text(source):
        return _is_readable_text(array, kind)
    if kind.wide_bytes:
        return False
    if kind.is_integer or kind.is_float:
        return bool(_types.is_integer(source) or _types.is_floating(source))
    if kind.is_decimal:
        return bool(_types.is_integer(source) or _types.is_decimal(source))
    if kind.is_date:
        return bool(_types.is_date(source))
    if kind.is_string:
        return bool(_types.is_binary(source) or _types.is_large_binary(source))
    if kind.family == "IPv4":
        return bool(_types.is_integer(source))
    # Nested values: the elements must have the same types, perhaps under other names.
    return bool(_types.is_list(source) or _types.is_large_list(source)) and (
        kind.family == "Array" and source.value_type.equals(kind.arrow.value_type)
    )


def _is_readable_text(array: pa.Array, kind: DataType) -> bool:
    if kind.family in {"String", "UUID", "Enum8", "Enum16", "Bool"} or kind.is_float:
        return True
    if kind.is_date:  # Arrow accepts only YYYY-MM-DD, which `parse_text` reads in the same way
        return True
    if kind.wide_bytes or not (kind.is_integer or kind.is_decimal):
        return False
    # Arrow accepts hexadecimal integers, which the formats do not have.
    return not pc.any(pc.match_substring_regex(array, "[xX]")).as_py()


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        _types.is_string(kind) or _types.is_large_string(kind) or _types.is_string_view(kind)
    )


def _days(array: pa.Array) -> pa.Array | None:
    days = array.cast(pa.date32())
    local = array if array.type.tz is None else pc.local_timestamp(array)
    return days if local.cast(pa.date32()).cast(local.type).equals(local) else None


def _fast_times(array: pa.Array, kind: DataType) -> pa.Array | None:
    """Times in the stored type, cut to the digits that the type keeps; None if Arrow can't convert
    them.
    """
    if _is_text(array.type):
        lengths = pc.binary_length(array)
        shortest = pc.min(pc.fill_null(lengths, 19)).as_py()
        if shortest is None or shortest < 16:  # Arrow would accept "2013-01-01 05"
            return None
        array = array.cast(pa.timestamp("us"))
    if not _types.is_timestamp(array.type):
        return None
    if array.type.tz is None:
        # For a time that the zone skips this raises, and the slow way decides.
        array = pc.assume_timezone(array, kind.zone or "UTC", ambiguous="earliest")
    kept_digits = kind.numbers[0] if kind.numbers else 0
    unit_digits = _UNIT_DIGITS[kind.arrow.unit]
    found_digits = _UNIT_DIGITS[array.type.unit]
    if found_digits < unit_digits:
        array = array.cast(kind.arrow)  # safe: raises when a number would be too large
        found_digits = unit_digits
    numbers = array.cast(pa.int64()).fill_null(0).to_numpy()
    if found_digits > kept_digits:
        numbers = numbers // 10 ** (found_digits - kept_digits)
        numbers = numbers * 10 ** (unit_digits - kept_digits)
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(numbers, pa.int64(), mask=missing).cast(kind.arrow)


def _fits(array: pa.Array, kind: DataType) -> bool:
    """Whether every value of an array in the stored type is a value of `kind`."""
    if array.null_count and not kind.nullable:
        return False
    plain = kind.plain
    check = _CHECKS.get(plain.family)
    return check is None or check(array, plain)


def _fits_enum(array: pa.Array, kind: DataType) -> bool:
    names = pa.array([name for name, _ in kind.values])
    return pc.all(pc.is_in(array.drop_null(), value_set=names)).as_py() is not False


def _fits_map(array: pa.Array, kind: DataType) -> bool:
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return all(map(_fits, (array.keys[first:last], array.items[first:last]), kind.elements))


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_within(array: pa.Array, least: Any, most: Any) -> bool:
    found = pc.min_max(array).as_py()
    return found["min"] is None or least <= found["min"] <= found["max"] <= most


def _is_within_s(array: pa.Array, least: int, most: int) -> bool:
    per_second = 10 ** _UNIT_DIGITS[array.type.unit]
    found = pc.min_max(array.cast(pa.int64())).as_py()
    if found["min"] is None:
        return True
    return bool(least <= found["min"] // per_second and found["max"] // per_second <= most)


_CHECKS: dict[str, Callable[[pa.Array, DataType], bool]] = {
    "String": lambda array, _: _is_valid(array),
    "Date": lambda array, _: _is_within(array, EPOCH.date(), DATE_MAX),
    "Date32": lambda array, _: _is_within(array, DATE32_MIN, DATE32_MAX),
    "DateTime": lambda array, _: _is_within_s(array, 0, DATETIME_MAX_S),
    "DateTime64": lambda array, _: _is_within_s(array, DATETIME64_MIN_S, DATETIME64_MAX_S),
    "UUID": lambda array, _: (
        pc.all(pc.match_substring_regex(array, _UUID)).as_py() is not False
    ),
    "Enum8": _fits_enum,
    "Enum16": _fits_enum,
    "Array": lambda array, kind: _fits(array.flatten(), kind.elements[0]),
    "Tuple": lambda array, kind: all(map(_fits, array.flatten(), kind.elements)),
    "Map": _fits_map,
}
