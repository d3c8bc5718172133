"""Values of keys that are stored as texts and sorted in another order: Enum and UUID.

The original orders an Enum by its numbers, and a UUID by its last 64 bits, then by its first.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.types.data_type import DataType

_UUID_DIGITS = [*range(19, 23), *range(24, 36), *range(8), *range(9, 13), *range(14, 18)]
_UUID_CHARACTERS = 36


def has_own_order(kind: DataType) -> bool:
    """Whether `order_values` changes values of this type."""
    plain = kind.plain
    return plain.is_enum or plain.family == "UUID" or any(map(has_own_order, plain.elements))


def order_values(array: pa.Array, kind: DataType) -> pa.Array:
    """Turn values in the stored form of `kind` into values whose order is the original's.

    NULL stays NULL. An Enum's name that the type does not have (any more) is the least value.
    """
    plain = kind.plain
    if not has_own_order(plain):
        return array
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if plain.is_enum:
        return _enum_numbers(array, plain)
    if plain.family == "UUID":
        return _uuid_halves(array)
    if plain.family == "Array":
        lists = pa.ListArray.from_arrays(
            _offsets(array), order_values(array.flatten(), plain.elements[0])
        )
        return lists if not array.null_count else pc.if_else(array.is_valid(), lists, None)
    fields = [
        order_values(array.field(place), element)
        for place, element in enumerate(plain.elements)
    ]
    return pa.StructArray.from_arrays(fields, list(plain.element_names))


def _enum_numbers(array: pa.Array, plain: DataType) -> pa.Array:
    names = pa.array([name for name, _ in plain.values], pa.string())
    numbers = pa.array([number for _, number in plain.values], pa.int32())
    found = numbers.take(pc.index_in(array, value_set=names))
    unknown = pa.scalar(np.iinfo(np.int32).min, pa.int32())
    found = found.fill_null(unknown)
    return found if not array.null_count else pc.if_else(array.is_valid(), found, None)


def _uuid_halves(array: pa.Array) -> pa.Array:
    """For each UUID 16 bytes: its second half, then its first."""
    filled = array.fill_null("0" * _UUID_CHARACTERS) if array.null_count else array
    _, ends, data = filled.buffers()
    if not len(filled):
        return pa.array([], pa.binary(16))
    start = int(np.frombuffer(ends, dtype=np.int32)[filled.offset])
    text = np.frombuffer(data, dtype=np.uint8)[start : start + len(filled) * _UUID_CHARACTERS]
    digits = text.reshape(len(filled), _UUID_CHARACTERS)[:, _UUID_DIGITS]
    values = np.where(digits >= ord("a"), digits - (ord("a") - 10), digits - ord("0"))
    halves = np.ascontiguousarray((values[:, ::2] << 4 | values[:, 1::2]).astype(np.uint8))
    found = pa.Array.from_buffers(pa.binary(16), len(filled), [None, pa.py_buffer(halves)])
    return found if not array.null_count else pc.if_else(array.is_valid(), found, None)


def _offsets(array: pa.ListArray) -> pa.Array:
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
