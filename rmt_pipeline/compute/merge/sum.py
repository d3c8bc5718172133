"""Sums of groups of values, in the type of the column and with its overflow (spec §17.3)."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.compute.rows.groups import Groups
from rmt_pipeline.compute.rows.order import Flags
from rmt_pipeline.types.data_type import DataType

Limbs = npt.NDArray[np.uint64]
"""n numbers of 128 or 256 bits, as an array of shape (n, bits / 32) with 32 bits in each element,
least significant first.
"""

LIMB_BITS = 32
LIMB_MASK = np.uint64((1 << LIMB_BITS) - 1)


def sums(array: pa.Array, kind: DataType, groups: Groups) -> pa.Array:
    """The sum of each group's values, modulo the width of the type. NULLs do not count; the sum of
    a group with only NULLs is NULL. Floats are added in the order of the rows.
    """
    present = validity(array)
    some = None if present is None else groups.count_where(present) > 0
    if kind.wide_bytes or kind.is_decimal:
        limbs = limbs_of(array, kind)
        if present is not None:
            limbs[~present] = 0
        total = np.add.reduceat(limbs, groups.first, axis=0)
        return from_limbs(_carried(total), some, array.type, kind)
    values = array if present is None else pc.fill_null(array, 0)
    numbers = values.to_numpy(zero_copy_only=False)
    if kind.is_float:
        added = np.zeros(len(groups), dtype=numbers.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(added, groups.number, numbers)
    else:
        added = np.add.reduceat(numbers, groups.first, dtype=numbers.dtype)
    return pa.array(added, array.type, mask=None if some is None else ~some)


def is_zero(array: pa.Array, kind: DataType) -> Flags:
    """Which values count as zero: NULL does, and so does 0 in a Nullable column, as in 18.16. (In
    newer versions of the original a Nullable 0 keeps its row, against its documentation.)
    """
    if kind.wide_bytes or kind.is_decimal:
        zero = np.asarray(~limbs_of(array, kind).any(axis=1))
    else:
        known = array.fill_null(0) if array.null_count else array
        zero = np.asarray(known.to_numpy(zero_copy_only=False) == 0)
    null: Flags = np.asarray(array.is_null().to_numpy(zero_copy_only=False))
    return np.logical_or(zero, null)


def bitwise_sums(
    function: np.ufunc, array: pa.Array, kind: DataType, groups: Groups
) -> pa.Array:
    """The integers of each group combined by `function` (AND, OR, XOR). NULLs do not count; a group
    with only NULLs is NULL.
    """
    present = validity(array)
    some = None if present is None else groups.count_where(present) > 0
    if kind.wide_bytes:
        limbs = limbs_of(array, kind)
        if present is not None:
            limbs[~present] = LIMB_MASK if function is np.bitwise_and else 0
        return from_limbs(
            function.reduceat(limbs, groups.first, axis=0), some, array.type, kind
        )
    neutral = -1 if kind.is_signed else kind.integer_max
    filling = neutral if function is np.bitwise_and else 0
    values = array if present is None else pc.fill_null(array, filling)
    combined = function.reduceat(values.to_numpy(zero_copy_only=False), groups.first)
    return pa.array(combined, array.type, mask=None if some is None else ~some)


def validity(array: pa.Array) -> Flags | None:
    """Which values are not NULL; None if no value is NULL."""
    if not array.null_count:
        return None
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def limbs_of(array: pa.Array, kind: DataType) -> Limbs:
    """The values as limbs in two's complement. For a NULL they are undefined."""
    width = array.type.byte_width if not kind.is_decimal or kind.wide_bytes else 16
    data = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    stored = data[array.offset * width : (array.offset + len(array)) * width]
    rows = stored.reshape(len(array), width)
    if kind.wide_bytes:
        rows = _without_offset(rows, kind)[:, ::-1]  # big-endian; see types.data_type
    return np.ascontiguousarray(rows).view("<u4").astype(np.uint64)


def from_limbs(
    limbs: Limbs, some: Flags | None, arrow: pa.DataType, kind: DataType
) -> pa.Array:
    """The inverse of `limbs_of`. `some` says which values are not NULL; None if none is NULL."""
    rows = np.ascontiguousarray(limbs.astype("<u4")).view(np.uint8)
    if kind.wide_bytes:
        rows = _without_offset(rows[:, ::-1], kind)
    elif kind.is_decimal:
        rows = _within_digits(rows, kind)
    valid = None
    if some is not None:
        valid = pa.py_buffer(np.packbits(some, bitorder="little").tobytes())
    data = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    return pa.Array.from_buffers(arrow, len(limbs), [valid, data])


def _without_offset(rows: npt.NDArray[np.uint8], kind: DataType) -> npt.NDArray[np.uint8]:
    """Flip the sign bit of signed numbers, which is flipped in the stored form. Converts either
    way.
    """
    if kind.is_integer and not kind.is_signed:
        return rows
    flipped = rows.copy()
    flipped[:, 0] ^= 0x80
    return flipped


def _carried(totals: Limbs) -> Limbs:
    """Bring limbs of up to 64 bits, as sums have them, back to 32 bits, modulo the width."""
    limbs = totals.copy()
    carry = np.zeros(len(limbs), dtype=np.uint64)
    for at in range(limbs.shape[1]):
        value = limbs[:, at] + carry
        limbs[:, at] = value & LIMB_MASK
        carry = value >> np.uint64(LIMB_BITS)
    return limbs


def _within_digits(rows: npt.NDArray[np.uint8], kind: DataType) -> npt.NDArray[np.uint8]:
    """Bring decimals that have overflowed back into their type: first modulo the width of the
    integer that holds them (32, 64 or 128 bits), as in the original. If the result has more digits
    than the type, which Arrow and Parquet can't store, only its lowest digits stay.
    """
    precision = kind.plain.numbers[0]
    bits = 32 if precision <= 9 else 64 if precision <= 18 else 128
    if bits <= 64:
        low = rows.copy().view("<i8")[:, 0]
        low = low.astype(np.int32).astype(np.int64) if bits == 32 else low
        fitting: Any = np.sign(low) * (np.abs(low) % 10**precision)
        return np.stack([fitting, fitting >> 63], axis=1).astype("<i8").view(np.uint8)
    high = rows.copy().view("<i8")[:, 1]
    limit = 10**precision
    if precision == 38 and not (np.abs(high) >= limit >> 64).any():
        return rows
    fixed = rows.copy()
    for at in np.flatnonzero(np.abs(high) >= (limit >> 64)):
        number = int.from_bytes(rows[at].tobytes(), "little", signed=True)
        kept = abs(number) % limit * (-1 if number < 0 else 1)
        fixed[at] = np.frombuffer(kept.to_bytes(16, "little", signed=True), np.uint8)
    return fixed
