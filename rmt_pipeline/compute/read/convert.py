"""Tries whether the values of a part can be converted to another type, before an ALTER
is logged.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.compute.rows.conform import converted
from rmt_pipeline.compute.rows.source import naming_the_part, open_parquet
from rmt_pipeline.compute.rows.ttl import are_told, far_apart, wider
from rmt_pipeline.protocol.alter.history import stored_as
from rmt_pipeline.protocol.errors import BadValue
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.to_text import column_values

BATCH_ROWS = 1 << 16


def try_conversions(
    part: str,
    manifest: Manifest,
    files: Sequence[str],
    definition: TableDefinition,
    columns: Collection[str],
) -> None:
    """Convert every value of these columns of a part, a batch at a time; nothing is written.

    `definition` is the table's with the new types. Raises BadValue that names the part, the
    column and a value; BrokenSource.
    """
    types = {column.name: column.type for column in definition.columns}
    for one in stored_as(definition, manifest.columns, manifest.metadata_version):
        kind = types[one.column]
        if one.column not in columns or _always_fits(one.type, kind):
            continue
        stored = Column(one.column, one.type)
        for path in files:
            with open_parquet(part, path) as file, naming_the_part(part, path):
                for batch in file.iter_batches(
                    BATCH_ROWS, columns=[one.name], use_threads=False
                ):
                    convert_all(batch.column(0), stored, kind, part)


def _always_fits(stored: str, kind: str) -> bool:
    """Whether every value of the stored type is one of the new type: the types are the same but for
    the encoding, or the new one also allows NULL.
    """
    before, after = parse_type(stored), parse_type(kind)
    return before.plain.text == after.plain.text and after.nullable >= before.nullable


def convert_all(array: pa.Array, stored: Column, kind: str, part: str) -> None:
    """Convert the values of a part's column. Raises BadValue that names one that can't be."""
    try:
        _converted(array, stored, kind, part)
    except BadValue as error:
        if len(array) > 1:  # find the one that fails
            convert_all(_one_bad(array, stored, kind, part), stored, kind, part)
        [value] = column_values(array)
        raise BadValue(
            f"part {part}: column {stored.name} has the value {value!r}, which can't become "
            f"{kind}: {error.__cause__ or error}. The table stays as it was; UPDATE or DELETE such "
            "rows first"
        ) from error


def _converted(array: pa.Array, stored: Column, kind: str, part: str) -> None:
    """Convert the values. Raises BadValue, also for those that would wrap around, as CAST lets
    them: 300 would become 44 as an Int8, and a day of 1960 one of 2139 as a Date.
    """
    new, values = Column(stored.name, kind), converted(array, stored, kind, part)
    before, after = parse_type(stored.type), parse_type(kind)
    wide_bytes = before.wide_bytes or after.wide_bytes
    if after.is_integer and (before.is_integer or before.is_float) and not wide_bytes:
        same = _is_in_range(array, after)
    elif (before.is_enum or before.date_like) and after.is_integer and not wide_bytes:
        same = _is_in_range(_as(array, stored, "Int64", part), after)
    elif before.is_integer and after.plain.family == "IPv4" and not wide_bytes:
        same = _is_in_range(array, parse_type("UInt32"))
    elif _may_wrap(before, after):
        wide = Column(stored.name, without_wrapping(before, after).text)
        kept = converted(array, stored, wide.type, part)
        same = _as(values, new, "String", part).equals(_as(kept, wide, "String", part))
    elif before.is_numeric and after.date_like:
        numbers = _as(array, stored, "Int64", part) if before.wide_bytes else array
        same = bool(are_told(numbers, values).all())
    elif before.is_string and after.is_integer and not after.wide_bytes:
        shown = pc.equal(_as(values, new, "String", part), _as(array, stored, "String", part))
        # what was written in another way, such as 007, is read
        written = pc.invert(shown.fill_null(True))
        some = (array.filter(written), stored), (values.filter(written), new)
        was, now = (_as(*each, "Int128", part) for each in some)
        same = now.equals(was)
    elif before.date_like and after.date_like:
        same = not far_apart(array, values).any()
    else:
        return
    if not same:
        raise BadValue(f"it would become {column_values(values)[0]}") from None


def _is_in_range(numbers: pa.Array, kind: DataType) -> bool:
    """Whether each number, without its fraction, is one of this type of integers."""
    if pa.types.is_floating(numbers.type):
        whole = np.trunc(np.asarray(numbers.fill_null(0), float))
        least, above = float(kind.integer_min), float(kind.integer_max + 1)
        return bool(((whole >= least) & (whole < above)).all())
    try:
        numbers.cast(kind.arrow)
    except pa.ArrowInvalid:
        return False
    return True


def _as(array: pa.Array, stored: Column, kind: str, part: str) -> pa.Array:
    nullable = parse_type(stored.type).nullable
    return converted(array, stored, f"Nullable({kind})" if nullable else kind, part)


def _may_wrap(before: DataType, after: DataType) -> bool:
    """Whether an integer, or anything inside of a nested type, may become another one."""
    one, other = before.plain, after.plain
    if one.elements and one.family == other.family:
        pairs = zip(one.elements, other.elements, strict=False)
        return any(_may_wrap(a, b) or _wide(a.plain, b.plain) is not None for a, b in pairs)
    if not (one.is_integer and other.is_integer):
        return False
    return one.integer_min < other.integer_min or one.integer_max > other.integer_max


def without_wrapping(before: DataType, after: DataType) -> DataType:
    """The type `after`, but for what may wrap around: that has a wider type, in which the text of
    what does not is the same.
    """
    one, other = before.plain, after.plain
    if one.elements and one.family == other.family:
        pairs = zip(one.elements, other.elements, strict=False)
        return replace(other, elements=tuple(without_wrapping(*pair) for pair in pairs))
    wide = _wide(one, other)
    if wide is None:
        return after
    is_nullable = before.nullable or after.nullable
    return DataType("Nullable", elements=(wide,)) if is_nullable else wide


def _wide(before: DataType, after: DataType) -> DataType | None:
    """The wider type; None if nothing may wrap around."""
    if before.is_integer and after.is_integer:
        return before if _may_wrap(before, after) else None
    if after.is_integer and not (after.wide_bytes or before.is_decimal):
        is_long = after.bits == 64 and (before.is_float or before.is_string)
        return parse_type("Int128" if is_long else "Int64")
    if after.date_like and (before.date_like or (before.is_integer and after.is_time)):
        return parse_type(wider(after))
    return None


def _one_bad(array: pa.Array, stored: Column, kind: str, part: str) -> pa.Array:
    """The slice with one value that can't be converted, of an array that has such a value."""
    while len(array) > 1:
        half = array.slice(0, len(array) // 2)
        try:
            _converted(half, stored, kind, part)
            array = array.slice(len(array) // 2)
        except BadValue:
            array = half
    return array
