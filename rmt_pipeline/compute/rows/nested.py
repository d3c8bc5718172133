"""Nested groups: columns `n.a` and `n.b` are arrays, of the same length in every row.

If rows have no values of such a column, and it has no default expression, they get arrays of the
element type's default, as long as those of another column of the group.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.protocol.table import Column, nested_group
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.data_type import DataType


def sibling_of(name: str, there: Collection[str], columns: Sequence[Column]) -> str | None:
    """The first other column of the same Nested group that is among `there`; None if the column is
    in no group, or none of the group's other columns is there.
    """
    group = nested_group(name)
    if not group:
        return None
    arrays = (one for one in columns if nested_group(one.name) == group and _is_array(one))
    found = [one.name for one in arrays]
    if name not in found:
        return None
    return next((other for other in found if other != name and other in there), None)


def with_siblings(names: Collection[str], columns: Sequence[Column]) -> frozenset[str]:
    """The names, and the other columns of their Nested groups, whose lengths they may need."""
    groups = {group for name in names if (group := nested_group(name))}
    others = (one.name for one in columns if nested_group(one.name) in groups)
    return frozenset((*names, *others))


def of_equal_length(sibling: pa.Array | pa.ChunkedArray, kind: DataType) -> pa.Array:
    """Arrays of this type with the lengths of the sibling's, of default elements."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(sibling), 0))
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int32)
    element = kind.plain.elements[0]
    values = pa.repeat(pa.scalar(element.default, element.arrow), int(offsets[-1]))
    found = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
    return found.cast(kind.arrow)


def unequal(
    table: pa.Table, columns: Sequence[Column], names: Collection[str] | None = None
) -> tuple[str, str, int] | None:
    """Two columns of one Nested group whose arrays have different lengths, and the first row where
    they do; None if there are none. Checks only the groups of `names`, if these are given.
    """
    groups = None if names is None else {nested_group(name) for name in names}
    for one, other in _neighbours(columns):
        if groups is not None and nested_group(one) not in groups:
            continue
        lengths = (pc.list_value_length(table.column(name)) for name in (one, other))
        same = pc.equal(*lengths)
        if not pc.all(same, skip_nulls=False).as_py():
            return one, other, pc.index(same, pa.scalar(value=False)).as_py()
    return None


def _neighbours(columns: Sequence[Column]) -> Iterator[tuple[str, str]]:
    groups: dict[str, list[str]] = {}
    for column in columns:
        if (group := nested_group(column.name)) and column.is_stored and _is_array(column):
            groups.setdefault(group, []).append(column.name)
    for names in groups.values():
        yield from pairwise(names)


def _is_array(column: Column) -> bool:
    return parse_type(column.type).plain.family == "Array"
