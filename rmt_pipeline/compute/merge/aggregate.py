"""Aggregates the rows of each key, column by column (spec §17.3, §17.4).

Rows are added one after the other, in their order. So a key whose rows come in several windows gets
the same floating point sum as if they came in one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.compute.merge.maps import MapColumns, add_maps, map_columns
from rmt_pipeline.compute.merge.sum import bitwise_sums, is_zero, sums
from rmt_pipeline.compute.rows.groups import Groups, first_of_equal
from rmt_pipeline.compute.rows.order import Flags, RowIndexes, nested_ranks, ranks
from rmt_pipeline.compute.rows.order_values import order_values
from rmt_pipeline.compute.rows.windows import Sorted, one_array
from rmt_pipeline.compute.units import Shape, Summing
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.aggregate_state import merge_rule
from rmt_pipeline.types.data_type import DataType

ColumnRule = Callable[[pa.Array, Groups], pa.Array]
"""A function that makes one value per group from a column's values and their groups."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The rule for each aggregated column. Other columns keep the value of the first row.

    Rows in which all columns of `zeros` are zero are dropped; None: no row is dropped.
    """

    rules: Mapping[str, ColumnRule]
    maps: tuple[MapColumns, ...] = ()
    zeros: tuple[tuple[str, DataType], ...] | None = None

    def apply(self, rows: Sorted, groups: Groups, first: pa.Table) -> pa.Table:
        """One row per group: `first`, which has each group's first row, with the aggregated
        columns.
        """
        table = first
        for name, rule in self.rules.items():
            table = _with_column(table, name, rule(rows.column(name), groups))
        for columns in self.maps:
            arrays = [rows.column(name) for name in columns.names]
            for name, array in zip(
                columns.names, add_maps(columns, arrays, groups), strict=True
            ):
                table = _with_column(table, name, array)
        return table

    def without_zeros(self, table: pa.Table) -> pa.Table:
        """The rows that are not dropped, for groups that are complete."""
        if self.zeros is None:
            return table
        zero = np.ones(table.num_rows, dtype=np.bool_)
        for name, kind in self.zeros:
            zero &= is_zero(one_array(table.column(name)), kind)
        return table.filter(pa.array(~zero)) if zero.any() else table


def _with_column(table: pa.Table, name: str, array: pa.Array) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), array)


def aggregation_of(shape: Shape) -> Aggregation:
    """AggregatingMergeTree: the aggregate functions that the columns' types name."""
    return Aggregation(_functions(shape, frozenset(shape.key_columns)))


def summing_of(shape: Shape, rules: Summing) -> Aggregation:
    """SummingMergeTree: which columns are summed (spec §17.3), and which zeros drop a row."""
    kept = frozenset((*shape.key_columns, *rules.kept))
    functions = _functions(shape, kept)
    maps = map_columns(shape.columns, kept)
    not_summed = kept.union(functions, *(each.names for each in maps))
    summed = {
        column.name: kind
        for column in shape.columns
        if (kind := parse_type(column.type)).is_numeric
        and column.name not in not_summed
        and (not rules.columns or column.name in rules.columns)
    }
    never_zero = bool(functions or maps)
    return Aggregation(
        rules=functions | {name: _sum(kind) for name, kind in summed.items()},
        maps=maps,
        zeros=tuple(summed.items()) if summed and not never_zero else None,
    )


def _functions(shape: Shape, kept: frozenset[str]) -> dict[str, ColumnRule]:
    """The rule for each SimpleAggregateFunction and AggregateFunction column."""
    found = {}
    for column in shape.columns:
        kind = parse_type(column.type)
        if column.name in kept:
            continue
        if kind.family == "SimpleAggregateFunction":
            found[column.name] = _function(kind.names[0], kind.elements[0])
        elif kind.family == "AggregateFunction":
            found[column.name] = _state(merge_rule(kind.names[0]), kind.elements[-1])
    return found


def _function(name: str, kind: DataType) -> ColumnRule:
    match name:
        case "any":
            return lambda array, groups: _taken(array, groups.first_where(_present(array)))
        case "anyLast":
            return lambda array, groups: _taken(array, groups.last_where(_present(array)))
        case "min":
            return _extreme(np.minimum, kind)
        case "max":
            return _extreme(np.maximum, kind)
        case "sum" | "sumWithOverflow":
            return _sum(kind)
        case "groupBitAnd" | "groupBitOr" | "groupBitXor":
            return lambda array, groups: bitwise_sums(_BITWISE[name], array, kind, groups)
        case "groupArrayArray":
            return concatenated
        case "groupUniqArrayArray":
            return lambda array, groups: distinct_elements(concatenated(array, groups))
        case _:
            raise UserError(f"SimpleAggregateFunction({name}, …): a merge knows no {name}")


_BITWISE = {
    "groupBitAnd": np.bitwise_and,
    "groupBitOr": np.bitwise_or,
    "groupBitXor": np.bitwise_xor,
}


def _sum(kind: DataType) -> ColumnRule:
    return lambda array, groups: sums(array, kind, groups)


def _present(array: pa.Array) -> Flags:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def _taken(array: pa.Array, places: RowIndexes) -> pa.Array:
    """The values at these places; NULL for -1 and for places behind the end."""
    none = (places < 0) | (places >= len(array))
    return array.take(pa.array(np.where(none, 0, places), mask=none))


def _state(name: str, state: DataType) -> ColumnRule:
    """The rule that merges states of an aggregate function, which are values of the
    type `state`.
    """
    match name:
        case "count":
            return _sum(state)
        case "groupArray":
            return concatenated
        case "uniqExact":
            return lambda array, groups: distinct_elements(concatenated(array, groups))
        case "avg" | "varPop":
            return lambda array, groups: pa.StructArray.from_arrays(
                [
                    sums(pc.struct_field(array, place), kind, groups)
                    for place, kind in enumerate(state.elements)
                ],
                list(state.names),
            )
        case "argMin" | "argMax":
            best = _best(np.minimum if name == "argMin" else np.maximum, state.elements[1])
            return lambda array, groups: array.take(
                pa.array(_or_first(best(pc.struct_field(array, 1), groups), groups))
            )
        case _:
            return _function(name, state)


def _or_first(places: RowIndexes, groups: Groups) -> RowIndexes:
    """The place of each group; for a group without one its first row, as then its rows are equally
    good.
    """
    return np.where(places < groups.rows, places, groups.first)


def _extreme(choose: np.ufunc, kind: DataType) -> ColumnRule:
    """The rule for min and max. NULL and NaN, also in arrays and tuples, count only if a group has
    nothing else; of equal values the first counts.
    """
    best = _best(choose, kind)
    return lambda array, groups: _taken(array, best(array, groups))


def _best(choose: np.ufunc, kind: DataType) -> Callable[[pa.Array, Groups], RowIndexes]:
    """A function that gives the place of the least or greatest value of each group; the number of
    rows for a group with only NULL.
    """

    def places(array: pa.Array, groups: Groups) -> RowIndexes:
        counts = _present(array)
        if pa.types.is_floating(array.type):
            number = counts & ~pc.is_nan(array).fill_null(True).to_numpy(zero_copy_only=False)
            counts = number | (counts & (groups.count_where(number) == 0)[groups.number])
        order = np.zeros(len(array), dtype=np.int64)
        present = order_values(array.filter(pa.array(counts)), kind)
        if choose is np.maximum and pa.types.is_nested(present.type):
            rank = nested_ranks(present, nothing_least=True)
        else:
            rank = ranks(present)
        # Dense ranks from 0, so that the greatest integer (for min) and -1 (for max) are free for
        # values that do not count.
        _, order[counts] = np.unique(rank, return_inverse=True)
        order[~counts] = np.iinfo(np.int64).max if choose is np.minimum else -1
        best = choose.reduceat(order, groups.first)
        return groups.first_where(counts & (order == best[groups.number]))

    return places


def concatenated(array: pa.ListArray, groups: Groups) -> pa.ListArray:
    """The lists of each group concatenated. In memory they follow each other already."""
    offsets = array.offsets.to_numpy()
    edges = np.append(offsets[groups.first], offsets[-1])
    return pa.ListArray.from_arrays(pa.array(edges, pa.int32()), array.values, type=array.type)


def distinct_elements(array: pa.ListArray) -> pa.ListArray:
    """Each list without repeated elements, in the order of their first appearance."""
    offsets = array.offsets.to_numpy()
    elements = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    lengths = np.diff(offsets)
    owner = np.repeat(np.arange(len(array)), lengths)
    kept = first_of_equal(owner, elements)
    counts = np.bincount(owner[kept], minlength=len(array))
    edges = np.concatenate([[0], np.cumsum(counts)])
    values = elements.take(pa.array(kept))
    return pa.ListArray.from_arrays(pa.array(edges, pa.int32()), values, type=array.type)
