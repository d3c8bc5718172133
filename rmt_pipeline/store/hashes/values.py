"""Hashes the values of one Arrow array by what they mean, not by how they are stored.

Equal values have equal hashes, whether they are dictionary encoded or not, sliced, chunked,
nullable, `string` or `large_string` or `string_view`, int32 or int64, float32 or float64, seconds
or nanoseconds, a decimal in 4 or in 32 bytes. -0.0 equals 0.0, and all NaNs are equal. In detail:

    integer, bool, date   number x, sign extended to 64 bits; a date as its days
    float                 number: the bits of the float64; 0.0 and one quiet NaN
    timestamp, time       number: nanoseconds modulo 2^64 (instants: zones do not count)
    decimal               number x + scale * key "field" of lane 0, x the lowest 64 bits of the
                          unscaled value; for each higher word k that is not the sign extension
                          of the one below, M(excess + k * key "item") - M(k * key "item") is
                          added, excess the difference to that sign extension
    string, binary        bytes
    list, map, struct     as in `lanes`; a map is a list of (key, value) structs
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmt_pipeline.protocol.errors import UnknownType
from rmt_pipeline.store.hashes.bytes import hash_bytes
from rmt_pipeline.store.hashes.lanes import (
    KEYS,
    MASK_64,
    SLICE_ROWS,
    Words,
    add_at,
    field_factors,
    mix,
    ramp,
    slices,
)

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_MS = 86_400_000
_QUIET_NAN = np.uint64(0x7FF8_0000_0000_0000)


class HashedValues(Protocol):
    """The values of one array, ready to be hashed."""

    def fill(self, start: int, stop: int, out: Words) -> None:
        """Write the hashes of the values `start..stop` to `out`, shape (2, stop - start)."""
        ...


def values_of(array: pa.Array) -> HashedValues:
    """Prepare an array for hashing. Raises UnknownType for types without a hash (intervals,
    unions).
    """
    if array.null_count:
        return _WithNulls(array)
    return _present_values_of(array)


def _present_values_of(array: pa.Array) -> HashedValues:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return values_of(array.storage)
    return _maker(kind)(array)


@lru_cache(maxsize=1000)
def _maker(kind: pa.DataType) -> "_Make":
    for is_one, make in _MAKERS:
        if is_one(kind):
            return make
    raise UnknownType(f"values of type {kind} can't be hashed, so they can't be stored")


def lanes_of(array: pa.Array) -> Words:
    """The hashes of all values, shape (2, len(array))."""
    values = values_of(array)
    out = np.empty((2, len(array)), dtype=np.uint64)
    for start, stop in slices(0, len(array)):
        values.fill(start, stop, out[:, start:stop])
    return out


def _numpy(array: pa.Array, dtype: Any) -> NDArray[Any]:
    """The values' buffer as a numpy array, without a copy. Where a value is NULL it is
    undefined.
    """
    data = array.buffers()[1]
    if data is None:
        return np.empty(0, dtype=dtype)
    return np.frombuffer(data, dtype=dtype)[array.offset : array.offset + len(array)]


class _AllNull:
    def fill(self, start: int, stop: int, out: Words) -> None:
        del start, stop
        out[:] = KEYS["null"]


class _WithNulls:
    """Values of which some are NULL; what the buffer has at a NULL is not hashed."""

    def __init__(self, array: pa.Array) -> None:
        self._null_at = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
        self._present = _present_values_of(array)

    def fill(self, start: int, stop: int, out: Words) -> None:
        self._present.fill(start, stop, out)
        low, high = np.searchsorted(self._null_at, (start, stop))
        out[:, self._null_at[low:high] - start] = KEYS["null"]


class _Dictionary:
    """A dictionary array, of which each distinct value is hashed once."""

    def __init__(self, array: pa.DictionaryArray) -> None:
        lanes = lanes_of(array.dictionary)
        self._lanes = np.hstack([lanes, KEYS["null"]])  # for the indices of an empty dictionary
        self._indices = _numpy(array.indices, array.indices.type.to_pandas_dtype())

    def fill(self, start: int, stop: int, out: Words) -> None:
        indices = self._indices[start:stop]
        for lanes, target in zip(self._lanes, out, strict=True):
            np.take(lanes, indices, out=target, mode="clip")  # at a NULL it may be anything


class _Numbers:
    def __init__(self, numbers: NDArray[Any], factor: int = 1) -> None:
        self._numbers = numbers
        self._signed = numbers.dtype.kind == "i"
        self._factor = np.uint64(factor)

    def fill(self, start: int, stop: int, out: Words) -> None:
        target = out[0].view(np.int64) if self._signed else out[0]
        np.copyto(target, self._numbers[start:stop])
        if self._factor != 1:
            np.multiply(out[0], self._factor, out=out[0])
        _mix_numbers(out)


class _Floats:
    def __init__(self, numbers: NDArray[Any]) -> None:
        self._numbers = numbers

    def fill(self, start: int, stop: int, out: Words) -> None:
        floats = out[0].view(np.float64)
        with np.errstate(invalid="ignore"):  # signalling NaNs become the quiet one below
            np.copyto(floats, self._numbers[start:stop])
            np.add(floats, 0.0, out=floats)  # -0.0 + 0.0 is 0.0
        nan = np.isnan(floats)
        out[0][nan] = _QUIET_NAN
        _mix_numbers(out)


def _mix_numbers(out: Words) -> None:
    """Hash the numbers in `out[0]`, into both lanes of `out`."""
    np.add(out[0], KEYS["number"], out)
    mix(out)


def _times(array: pa.Array) -> HashedValues:
    kind = array.type
    if pa.types.is_date32(kind):
        return _Numbers(_numpy(array, np.dtype(np.int32)))
    if pa.types.is_date64(kind):
        return _Numbers(_numpy(array, np.dtype(np.int64)) // _DAY_MS)
    width = np.dtype(np.int32 if pa.types.is_time32(kind) else np.int64)
    return _Numbers(_numpy(array, width), _NANOSECONDS[kind.unit])


class _Decimals:
    def __init__(self, array: pa.Array) -> None:
        self._scale = array.type.scale
        width = array.type.bit_width
        word, count = ("<i4", 1) if width < 64 else ("<i8", width // 64)
        self._words = _numpy(array, np.dtype((word, (count,)))).reshape(-1, count)

    def fill(self, start: int, stop: int, out: Words) -> None:
        words = self._words[start:stop]
        np.copyto(out[0].view(np.int64), words[:, 0])
        out[0] += np.uint64((self._scale * int(KEYS["field"][0, 0])) & MASK_64)
        _mix_numbers(out)
        for place in range(1, words.shape[1]):
            excess = (words[:, place] - (words[:, place - 1] >> 63)).view(np.uint64)
            if excess.any():
                self._add_high(excess, place, out)

    @staticmethod
    def _add_high(excess: Words, place: int, out: Words) -> None:
        nothing = ramp(place, 1, KEYS["item"])
        high = excess + nothing
        mix(high)
        mix(nothing)
        out += high - nothing


class _Bytes:
    def __init__(self, array: pa.Array) -> None:
        kind = array.type
        if pa.types.is_fixed_size_binary(kind):
            first = array.offset * kind.byte_width
            self._offsets = np.arange(len(array) + 1, dtype=np.int64) * kind.byte_width + first
        else:
            if not (pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)):
                is_text = pa.types.is_string(kind) or pa.types.is_string_view(kind)
                array = array.cast(pa.large_string() if is_text else pa.large_binary())
            data = array.buffers()[1]
            offsets = np.frombuffer(data, np.int64) if data else np.zeros(1, np.int64)
            self._offsets = offsets[array.offset : array.offset + len(array) + 1]
        data = array.buffers()[-1]
        self._data = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)

    def fill(self, start: int, stop: int, out: Words) -> None:
        hash_bytes(self._data, self._offsets[start : stop + 1], out)


class _Structs:
    def __init__(self, fields: list[pa.Array]) -> None:
        self._fields = [values_of(field) for field in fields]

    def fill(self, start: int, stop: int, out: Words) -> None:
        one = np.empty_like(out)
        out[:] = KEYS["struct"]
        for index, values in enumerate(self._fields):
            values.fill(start, stop, one)
            np.multiply(one, field_factors(index), one)
            np.add(out, one, out)
        mix(out)


class _Lists:
    """Lists; list `i` has the elements `offsets[i]..offsets[i + 1]`."""

    def __init__(self, elements: HashedValues, offsets: NDArray[np.int64]) -> None:
        self._elements = elements
        self._offsets = offsets

    def fill(self, start: int, stop: int, out: Words) -> None:
        offsets = self._offsets[start : stop + 1]
        out.fill(0)
        low = 0
        while low < stop - start:  # as many lists at a time as fit a slice of elements
            limit = int(offsets[low]) + SLICE_ROWS
            high = int(np.searchsorted(offsets, limit, side="right")) - 1
            high = max(min(high, stop - start), low + 1)
            self._add_elements(offsets[low : high + 1], out[:, low:high])
            low = high
        out += np.diff(offsets).astype(np.uint64) * KEYS["size"]
        out += KEYS["list"]
        mix(out)

    def _add_elements(self, offsets: NDArray[np.int64], out: Words) -> None:
        """Add the hashes of the elements to their lists' sums in `out`. A list that is longer than
        a slice comes alone, and is hashed in pieces.
        """
        for first, last in slices(int(offsets[0]), int(offsets[-1])):
            elements = np.empty((2, last - first), dtype=np.uint64)
            self._elements.fill(first, last, elements)
            bounds = np.clip(offsets, first, last)
            not_empty = np.flatnonzero(bounds[1:] > bounds[:-1])
            starts = bounds[not_empty] - first
            in_list = np.repeat(offsets[not_empty], (bounds[1:] - bounds[:-1])[not_empty])
            places = (np.arange(first, last) - in_list + 1).astype(np.uint64)
            elements += places * KEYS["item"]
            mix(elements)
            add_at(out, not_empty, np.add.reduceat(elements, starts, axis=1))


def _fields(array: pa.StructArray) -> list[pa.Array]:
    return [array.field(index) for index in range(array.type.num_fields)]


def _lists(array: pa.Array) -> HashedValues:
    # `flatten` leaves out elements that the buffer has at a NULL.
    lengths = pc.list_value_length(array).fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return _Lists(values_of(array.flatten()), offsets)


def _maps(array: pa.Array) -> HashedValues:
    offsets = array.offsets.to_numpy().astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    pairs = _Structs([array.keys[first:last], array.items[first:last]])
    return _Lists(pairs, offsets - first)


_TYPES = pa.types
_IsOne = Callable[[pa.DataType], bool]
_Make = Callable[[pa.Array], HashedValues]
_MAKERS: tuple[tuple[_IsOne, _Make], ...] = (
    (_TYPES.is_integer, lambda array: _Numbers(_numpy(array, array.type.to_pandas_dtype()))),
    (_TYPES.is_floating, lambda array: _Floats(_numpy(array, array.type.to_pandas_dtype()))),
    (_TYPES.is_date, _times),
    (_TYPES.is_timestamp, _times),
    (_TYPES.is_time, _times),
    (_TYPES.is_duration, _times),
    (_TYPES.is_boolean, lambda array: _Numbers(_numpy(array.cast(pa.uint8()), np.uint8))),
    (_TYPES.is_decimal, _Decimals),
    (_TYPES.is_string, _Bytes),
    (_TYPES.is_large_string, _Bytes),
    (_TYPES.is_string_view, _Bytes),
    (_TYPES.is_binary, _Bytes),
    (_TYPES.is_large_binary, _Bytes),
    (_TYPES.is_binary_view, _Bytes),
    (_TYPES.is_fixed_size_binary, _Bytes),
    (_TYPES.is_dictionary, _Dictionary),
    (_TYPES.is_run_end_encoded, lambda array: values_of(pc.run_end_decode(array))),
    (_TYPES.is_struct, lambda array: _Structs(_fields(array))),
    (_TYPES.is_map, _maps),
    (_TYPES.is_list, _lists),
    (_TYPES.is_large_list, _lists),
    (_TYPES.is_fixed_size_list, _lists),
    (_TYPES.is_list_view, _lists),
    (_TYPES.is_large_list_view, _lists),
    (_TYPES.is_null, lambda _: _AllNull()),
)
