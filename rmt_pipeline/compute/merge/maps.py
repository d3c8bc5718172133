"""Columns `…Map.key` and `…Map.value`: maps that SummingMergeTree adds up (spec §17.3).

They are rare and small, so this is done row by row.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rmt_pipeline.compute.merge.sum import wrapped
from rmt_pipeline.compute.rows.groups import Groups
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.data_type import DataType

KEY_ENDINGS = ("ID", "Key", "Type")

MapEntries = dict[tuple[Any, ...], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class MapColumns:
    """The columns of one map, of which the first `keys` are its keys. `kinds` are the types of the
    arrays' elements.
    """

    names: tuple[str, ...]
    keys: int
    kinds: tuple[DataType, ...]


def map_columns(
    columns: Sequence[Column], kept: Collection[str], chosen: Collection[str]
) -> tuple[MapColumns, ...]:
    """The maps among a table's columns that are added up.

    `kept` are the columns of the sorting and partition keys: a map with one of these is not added
    up. `chosen` are the columns in the engine's arguments; empty for all.
    """
    tables: defaultdict[str, list[tuple[str, DataType]]] = defaultdict(list)
    for column in columns:
        table, dot, _ = column.name.partition(".")
        kind = parse_type(column.type)
        if dot and table.endswith("Map") and kind.family == "Array":
            tables[table].append((column.name, kind.elements[0]))
    found = []
    for table, members in tables.items():
        in_keys = any(name in kept for name, _ in members)
        if not in_keys and (not chosen or table in chosen):
            found.append(_map_of(members))
    return tuple(each for each in found if each is not None)


def _map_of(columns: Sequence[tuple[str, DataType]]) -> MapColumns | None:
    if len(columns) < 2:
        return None
    keys, values = [], []
    for at, (name, kind) in enumerate(columns):
        if at == 0 or name.endswith(KEY_ENDINGS):
            if not (kind.is_integer or kind.is_string or kind.date_like or kind.is_enum):
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


def add_maps(
    columns: MapColumns, arrays: Sequence[pa.Array], groups: Groups
) -> Iterator[pa.Array]:
    """Add up the maps of each group. Yields for each of the map's columns its arrays, one per
    group.
    """
    lists = [array.to_pylist() for array in arrays]
    results: list[list[list[Any]]] = [[] for _ in arrays]
    for first, last in zip(groups.first.tolist(), groups.last.tolist(), strict=True):
        if first == last and columns.keys > 1:
            for result, values in zip(results, lists, strict=True):
                result.append(values[first])
            continue
        total: MapEntries = {}
        for row in range(first, last + 1):
            _add(total, columns, [values[row] for values in lists])
        for result, values in zip(results, _columns_of(total, columns), strict=True):
            result.append(values)
    for result, array in zip(results, arrays, strict=True):
        yield pa.array(result, array.type)


def _add(total: MapEntries, columns: MapColumns, row: Sequence[list[Any]]) -> None:
    keys = zip(*row[: columns.keys], strict=True)
    values = zip(*row[columns.keys :], strict=True)
    kinds = columns.kinds[columns.keys :]
    for key, added in zip(keys, values, strict=True):
        before = total.get(key)
        total[key] = added if before is None else _sum(before, added, kinds)


def _sum(
    left: tuple[Any, ...], right: tuple[Any, ...], kinds: Sequence[DataType]
) -> tuple[Any, ...]:
    return tuple(
        mine if theirs is None else theirs if mine is None else wrapped(mine + theirs, kind)
        for mine, theirs, kind in zip(left, right, kinds, strict=True)
    )


def _columns_of(total: MapEntries, columns: MapColumns) -> list[list[Any]]:
    """The map's columns, sorted by key, without the keys all of whose values are zero or NULL."""
    kept = sorted(
        ((key, values) for key, values in total.items() if any(values)),
        key=lambda each: each[0],
    )
    by_key = [[key[at] for key, _ in kept] for at in range(columns.keys)]
    by_value = [
        [values[at] for _, values in kept] for at in range(len(columns.names) - columns.keys)
    ]
    return by_key + by_value
