"""Converts a query's values for columns of other types, as the original's INSERT … SELECT casts
them. But here numbers neither wrap around nor lose their fraction, and no date or time becomes
another one: that is an error.
"""

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.compute.read.convert import without_wrapping
from rmt_pipeline.compute.rows.ttl import are_told, far_apart
from rmt_pipeline.protocol.errors import BadValue, UserError
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.nodes import Name
from rmt_pipeline.syntax.special_forms import cast_node
from rmt_pipeline.translate.evaluate import evaluate
from rmt_pipeline.translate.expression import Expression, compile_node
from rmt_pipeline.types.data_type import DataType

_VALUE = "value"
_TEXT, _LONG = DataType("String"), DataType("Int64")


@dataclass(frozen=True)
class Converter:
    """Converts the values for one column: `given` is their type in the query, `wanted` the
    column's.
    """

    name: str
    given: DataType
    wanted: DataType

    @cached_property
    def type(self) -> DataType:
        """The type of the converted values. Those that need no cast are checked when they are
        stored.
        """
        if not _needs_cast(self.given, self.wanted):
            return self.given
        return _optional(self.wanted) if self.given.nullable else self.wanted

    def convert(self, array: pa.Array) -> pa.Array:
        """Raises BadValue for a value that the column can't have."""
        if self.type == self.given:
            return array
        try:
            [found] = evaluate([self._there], pa.table({_VALUE: array}))
            if self._back is not None:
                [again] = evaluate([self._back], pa.table({_VALUE: found}))
                _require(pc.equal(array, again).fill_null(True), "number")
            if self.wanted.date_like and self.given.date_like:
                _require(pa.array(~far_apart(array, found)), "date or time")
            elif self.wanted.date_like and self._is_number:
                _require(pa.array(are_told(array, found)), "number")
            elif self._number is not None:
                [number] = evaluate([self._number], pa.table({_VALUE: array}))
                before, after = (
                    each.cast(pa.float64(), safe=False) for each in (number, found)
                )
                _require(pc.equal(before, after).fill_null(True), "value")
            elif self._texts is not None:
                [before] = evaluate(self._texts[:1], pa.table({_VALUE: array}))
                [after] = evaluate(self._texts[1:], pa.table({_VALUE: found}))
                _require(pc.equal(before, after).fill_null(True), "value")
        except UserError as error:
            raise BadValue(
                f"column {self.name} is {self.wanted}, and the query gives {self.given}: {error}. "
                "Nothing was inserted"
            ) from error
        return found

    @cached_property
    def _there(self) -> Expression:
        return _cast(self.given, self.type)

    @cached_property
    def _back(self) -> Expression | None:
        """The cast back, for numbers: a number that comes back changed did not fit."""
        is_number = self.given.is_numeric and self.wanted.is_numeric
        is_number |= self.given.is_integer and self.wanted.is_time and not self._is_number
        return _cast(self.type, self.given) if is_number else None

    @property
    def _is_number(self) -> bool:
        return self.given.is_numeric and not self.given.wide_bytes

    @cached_property
    def _number(self) -> Expression | None:
        """What the values are as large integers, if smaller ones could be others."""
        given, wanted = self.given, self.wanted
        has_number = given.is_enum or given.date_like
        to_integer = wanted.is_integer and not wanted.wide_bytes and has_number
        to_address = wanted.plain.family == "IPv4" and given.is_integer and self._is_number
        return _cast(given, _optional(_LONG)) if to_integer or to_address else None

    @cached_property
    def _texts(self) -> list[Expression] | None:
        """The texts of the values and of the converted ones, if something inside of them may wrap
        around: equal for those in which nothing did.
        """
        wide = without_wrapping(self.given, self.type)
        if not self.type.plain.elements or wide.text == self.type.text:
            return None
        shown = cast_node(cast_node(Name((_VALUE,)), wide), _TEXT)
        return [
            compile_node(shown, [Column(_VALUE, self.given.text)]),
            _cast(self.type, _TEXT),
        ]


def _require(same: pa.Array, what: str) -> None:
    row = pc.index(same, pa.scalar(value=False)).as_py()
    if row >= 0:
        raise BadValue(f"the {what} in row {row + 1} does not fit")


def _cast(given: DataType, wanted: DataType) -> Expression:
    node = cast_node(Name((_VALUE,)), wanted)
    return compile_node(node, [Column(_VALUE, given.text)])


def _optional(kind: DataType) -> DataType:
    inside = kind.plain.family in ("Array", "Tuple", "Map")
    return kind if kind.nullable or inside else DataType("Nullable", elements=(kind.plain,))


def _needs_cast(given: DataType, wanted: DataType) -> bool:
    """Whether values have to be cast. Not if both types are stored alike, and not for texts and
    numbers, which are read and checked one by one when they are stored.
    """
    one, other = given.plain, wanted.plain
    if one.text == other.text or one.family in ("Nothing", "String"):
        return False
    if "AggregateFunction" in (given.family, wanted.family):
        return False
    if one.is_numeric and other.is_numeric:
        return one.wide_bytes == 16 and other.wide_bytes != 32
    if one.elements and one.family == other.family:
        if one.names != other.names or len(one.elements) != len(other.elements):
            return not any(map(_may_wrap, one.elements, other.elements))
        needed = any(map(_needs_cast, one.elements, other.elements))
        return needed and not any(map(_may_wrap, one.elements, other.elements))
    return not (one.is_enum and other.is_enum)


def _may_wrap(given: DataType, wanted: DataType) -> bool:
    """Whether a cast inside an array or tuple could change a number without an error."""
    one, other = given.plain, wanted.plain
    if one.elements:
        return any(map(_may_wrap, one.elements, other.elements))
    if not (one.is_numeric and other.is_numeric) or one.text == other.text:
        return False
    if not (one.is_integer and other.is_integer):
        return True
    return one.integer_min < other.integer_min or one.integer_max > other.integer_max
