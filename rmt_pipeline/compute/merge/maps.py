"""Columns `…Map.key` and `…Map.value`: maps that SummingMergeTree adds up (spec §17.3).

They are rare and small, so their keys are looked at one by one.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.compute.merge.sum import is_zero, sums
from rmt_pipeline.compute.rows.groups import Groups
from rmt_pipeline.compute.rows.order import Flags, RowIndexes, nested_key
from rmt_pipeline.compute.rows.order_values import order_values
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.data_type import DataType

KEY_ENDINGS = ("ID", "Key", "Type")


@dataclass(frozen=True, slots=True)
class MapColumns:
    """The columns of one map, of which the first `keys` are its keys. `kinds` are the types of the
    arrays' elements.
    """

    names: tuple[str, ...]
    keys: int
    kinds: tuple[DataType, ...]


def map_columns(columns: Sequence[Column], kept: Collection[str]) -> tuple[MapColumns, ...]:
    """The maps among a table's columns that are added up, whether or not the engine's arguments
    name them: as in the original, these choose among the other columns.

    `kept` are the columns of the sorting and partition keys: a map with one of these is not added
    up.
    """
    tables: defaultdict[str, list[tuple[str, DataType]]] = defaultdict(list)
    for column in columns:
        table, dot, _ = column.name.partition(".")
        kind = parse_type(column.type)
        if dot and table.endswith("Map") and kind.family == "Array":
            tables[table].append((column.name, kind.elements[0]))
    found = [
        _map_of(members)
        for members in tables.values()
        if not any(name in kept for name, _ in members)
    ]
    return tuple(each for each in found if each is not None)


def _map_of(columns: Sequence[tuple[str, DataType]]) -> MapColumns | None:
    if len(columns) < 2:
        return None
    keys, values = [], []
    for at, (name, kind) in enumerate(columns):
        if at == 0 or name.endswith(KEY_ENDINGS):
            if kind.nullable or not _is_of_keys(kind):
                return None
            keys.append((name, kind))
        else:
            if not kind.is_numeric:
                return None
            values.append((name, kind))
    if not values:
        return None
    both = [*keys, *values]
    return MapColumns(
        tuple(name for name, _ in both), len(keys), tuple(kind for _, kind in both)
    )


def _is_of_keys(kind: DataType) -> bool:
    """Whether keys are of this type: numbers of any name, as in the original, and strings."""
    if kind.is_integer or kind.is_string or kind.is_enum or kind.is_date:
        return True
    return kind.plain.family in {"DateTime", "Bool", "UUID", "IPv4", "IPv6"}


def add_maps(columns: MapColumns, arrays: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
    """Add up the maps of each group. Returns for each of the map's columns its arrays, one per
    group: sorted by key, without the keys all of whose values are zero, or for Nullable ones NULL,
    beside which 0 is a value. With several keys a
    group of one row keeps its map as it is, and so does what is there once; a key goes when one
    more element brings its values to zero, and may come again.
    """
    values = [array.flatten() for array in arrays]
    entries = _entries(columns, arrays[0], values, groups)
    firsts = values[: columns.keys]
    kept, owner = entries.as_they_are, entries.owner
    if len(entries.elements):
        elements, same = pa.array(entries.elements), Groups(entries.starts)
        firsts = [array.take(elements.take(pa.array(same.first))) for array in firsts]
        added = []
        for array, kind in zip(
            values[columns.keys :], columns.kinds[columns.keys :], strict=True
        ):
            added.append(sums(array.take(elements), kind, same))
            kept |= ~_is_nothing(added[-1], kind)
        values = [*firsts, *added]
    places, edges = pa.array(np.flatnonzero(kept)), _edges(owner[kept], len(groups))
    return [
        pa.ListArray.from_arrays(edges, value.take(places), type=array.type)
        for value, array in zip(values, arrays, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of the groups' maps: each is made of some elements of the arrays.

    `elements` are all elements, entry by entry, and in the order of rows within one; `starts` says
    where an entry begins. `owner` is the group of each entry; `as_they_are` says which entries stay
    even if all their values are zero.
    """

    elements: RowIndexes
    starts: Flags
    owner: RowIndexes
    as_they_are: Flags


def _entries(
    columns: MapColumns, lists: pa.ListArray, values: Sequence[pa.Array], groups: Groups
) -> _Entries:
    kinds = columns.kinds[: columns.keys]
    ordered = [
        order_values(array, kind).to_pylist()
        for array, kind in zip(values, kinds, strict=False)
    ]
    keys = [tuple(map(nested_key, key)) for key in zip(*ordered, strict=True)]
    several = columns.keys > 1
    amounts = _amounts(columns, values) if several else []
    ranges = [1 << kind.bits if kind.bits else 0 for kind in columns.kinds[columns.keys :]]
    ends = np.cumsum(pc.list_value_length(lists).to_numpy())
    found: list[list[int]] = []
    owner: list[int] = []
    as_they_are: list[bool] = []
    first = 0
    for group, (one, last) in enumerate(zip(groups.first, groups.last, strict=True)):
        here, first = range(first, int(ends[last])), int(ends[last])
        is_kept = bool(one == last) and several
        by_key: dict[object, list[int]] = {}
        for at in here:
            by_key.setdefault(at if is_kept else keys[at], []).append(at)
        made = [by_key[key] for key in sorted(by_key)]  # type: ignore[type-var]
        if several and not is_kept:
            made = [left for each in made if (left := _left(each, amounts, ranges))]
        found += made
        owner += [group] * len(made)
        as_they_are += [several] * len(made)
    starts = [at == 0 for entry in found for at in range(len(entry))]
    return _Entries(
        np.array([at for entry in found for at in entry], dtype=np.intp),
        np.array(starts, dtype=np.bool_),
        np.array(owner, dtype=np.intp),
        np.array(as_they_are, dtype=np.bool_),
    )


def _amounts(columns: MapColumns, values: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
    """The numbers of each element, as such that are added exactly; 0 for NULL."""
    numbers = [
        [_amount(one, kind) for one in array.to_pylist()]
        for array, kind in zip(
            values[columns.keys :], columns.kinds[columns.keys :], strict=True
        )
    ]
    return list(zip(*numbers, strict=True))


def _amount(value: Any, kind: DataType) -> Any:
    if value is None:
        return 0
    if kind.wide_bytes:
        return kind.wide_from_bytes(value)
    return Fraction(value) if kind.is_decimal else value  # Decimal itself rounds to 28 digits


def _left(
    elements: Sequence[int], amounts: Sequence[tuple[Any, ...]], ranges: Sequence[int]
) -> list[int]:
    """The elements of one key that make up its entry: those behind the last one with which all its
    sums became zero. `ranges` are those of integers, modulo which they are added; 0 for others.
    """
    left: list[int] = []
    totals: list[Any] = []
    for at in elements:
        totals = list(map(add, totals, amounts[at])) if left else list(amounts[at])
        left.append(at)
        pairs = zip(totals, ranges, strict=True)
        if len(left) > 1 and not any(one % size if size else one for one, size in pairs):
            left = []
    return left


def _is_nothing(array: pa.Array, kind: DataType) -> Flags:
    """Which sums are no reason to keep a key: 0, but in a Nullable column NULL alone."""
    if kind.nullable:
        return np.asarray(array.is_null().to_numpy(zero_copy_only=False))
    return is_zero(array, kind)


def _edges(owner: RowIndexes, groups: int) -> pa.Array:
    """The offsets of lists, one for each group, of entries that belong to these groups."""
    counts = np.bincount(owner, minlength=groups)
    return pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
