"""Groups of Nested: columns `n.a` and `n.b` are arrays of one length in every row.

Of a column that a row has no values for, and that has no default of its own, the row gets as many
of the type's defaults as a sibling that is there has elements.
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
    """The first column of its group that is one of those that are `there`; None for a column that
    is in no group, or the only one of it.
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
    """The names, and those of the other columns of their groups, whose lengths they may need."""
    groups = {group for name in names if (group := nested_group(name))}
    others = (one.name for one in columns if nested_group(one.name) in groups)
    return frozenset((*names, *others))


def of_equal_length(sibling: pa.Array | pa.ChunkedArray, kind: DataType) -> pa.Array:
    """Arrays of this type with the sibling's lengths, of nothing but defaults."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(sibling), 0))
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int32)
    element = kind.plain.elements[0]
    values = pa.repeat(pa.scalar(element.default, element.arrow), int(offsets[-1]))
    found = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
    return found.cast(kind.arrow)


def unequal(
    table: pa.Table, columns: Sequence[Column], names: Collection[str] | None = None
) -> tuple[str, str, int] | None:
    """Two columns of one group whose arrays have different lengths, and the first such row; only
    of the groups of these `names`, if they are given.
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
