"""Computes common conditions without DuckDB, whose fixed cost is some milliseconds: a mutation
checks for thousands of small parts whether it applies to any of their rows.

These are comparisons of integer and String columns, and of remainders of integers, with a literal,
joined by AND and OR; and IN with literals. DuckDB computes all other conditions; tests compare the
two. For most of these, the least and greatest value of a column often show without a look at the
rows that the condition holds for none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.syntax.nodes import Call, Literal, Name, Node

Bounds = Callable[[str], tuple[Any, Any] | None]
"""A function that returns the least and greatest value of a column, as Python values, or None if
they are not known. NULLs do not count: no comparison holds for them.
"""

_COMPARISONS: Mapping[str, Callable[[pa.ChunkedArray, pa.Scalar], pa.ChunkedArray]] = {
    "equals": pc.equal,
    "notEquals": pc.not_equal,
    "less": pc.less,
    "lessOrEquals": pc.less_equal,
    "greater": pc.greater,
    "greaterOrEquals": pc.greater_equal,
}
_NONE_BETWEEN: Mapping[str, Callable[[Any, Any, Any], bool]] = {
    "equals": lambda value, least, greatest: bool(value < least or value > greatest),
    "notEquals": lambda value, least, greatest: bool(value == least == greatest),
    "less": lambda value, least, _: bool(least >= value),
    "lessOrEquals": lambda value, least, _: bool(least > value),
    "greater": lambda value, _, greatest: bool(greatest <= value),
    "greaterOrEquals": lambda value, _, greatest: bool(greatest < value),
}
IN_MAX = 20
"""IN with more literals than this is computed by DuckDB, which looks them up."""

_JOINS = {"and": pc.and_kleene, "or": pc.or_kleene}


@dataclass(frozen=True, slots=True)
class DirectComparison:
    """`column function literal`, or with a `modulus` `column % modulus function literal`."""

    function: str
    column: str
    value: pa.Scalar
    modulus: int = 0

    def __call__(self, rows: pa.Table) -> pa.ChunkedArray:
        """True, false or NULL for each row."""
        values = rows.column(self.column)
        if self.modulus:
            values = _remainders(values, self.modulus)
        return _COMPARISONS[self.function](values, self.value)

    def is_for_none(self, bounds: Bounds) -> bool:
        """Whether it is certain that the comparison holds for no row within the bounds."""
        known = None if self.modulus else bounds(self.column)
        return known is not None and _NONE_BETWEEN[self.function](self.value.as_py(), *known)


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions of which all (`and`) or any (`or`) must hold."""

    function: str
    parts: tuple["Condition", ...]

    def __call__(self, rows: pa.Table) -> pa.ChunkedArray:
        result = self.parts[0](rows)
        for part in self.parts[1:]:
            result = _JOINS[self.function](result, part(rows))
        return result

    def is_for_none(self, bounds: Bounds) -> bool:
        found = [part.is_for_none(bounds) for part in self.parts]
        return any(found) if self.function == "and" else all(found)


Condition = DirectComparison | Joined


def direct_condition(node: Node, types: Mapping[str, pa.DataType]) -> Condition | None:
    """The condition in a form that is computed without DuckDB; None if there is none. `types` are
    the Arrow types of plain integer and String columns.
    """
    if not isinstance(node, Call) or node.over is not None:
        return None
    if node.name in _JOINS and len(node.arguments) > 1:
        found = [direct_condition(each, types) for each in node.arguments]
        parts = tuple(each for each in found if each is not None)
        return Joined(node.name, parts) if len(parts) == len(found) else None
    if len(node.arguments) != 2:
        return None
    left, right = node.arguments
    if node.name == "in" and isinstance(right, Call) and right.name == "tuple":
        equal = [_comparison("equals", left, each, types) for each in right.arguments]
        meant = tuple(each for each in equal if each is not None)
        return Joined("or", meant) if 0 < len(meant) == len(equal) <= IN_MAX else None
    # A mutation's text has `a IN 1` for `a IN (1)`.
    return _comparison("equals" if node.name == "in" else node.name, left, right, types)


def _comparison(
    function: str, left: Node, right: Node, types: Mapping[str, pa.DataType]
) -> DirectComparison | None:
    if function not in _COMPARISONS or not isinstance(right, Literal):
        return None
    modulus = 0
    if isinstance(left, Call) and left.name == "modulo" and len(left.arguments) == 2:
        left, divisor = left.arguments
        if not isinstance(divisor, Literal) or type(divisor.value) is not int:
            return None
        modulus = divisor.value
        if modulus <= 0:
            return None
    if not isinstance(left, Name) or len(left.parts) != 1:
        return None
    [name] = left.parts
    kind = types.get(name)
    value = _scalar(right, kind)
    if value is None or (modulus and _scalar(Literal(modulus), kind) is None):
        return None
    return DirectComparison(function, name, value, modulus)


def _remainders(values: pa.ChunkedArray, modulus: int) -> pa.ChunkedArray:
    """The remainders, with the sign of the dividend, as in the original."""
    chunks = []
    for chunk in values.chunks:
        nulls = None
        if chunk.null_count:
            nulls = chunk.is_null().to_numpy(zero_copy_only=False)
            chunk = chunk.fill_null(0)  # noqa: PLW2901  what follows is for both
        numbers = chunk.to_numpy()
        chunks.append(pa.array(np.fmod(numbers, numbers.dtype.type(modulus)), mask=nulls))
    return pa.chunked_array(chunks, values.type)


def _scalar(literal: Literal, kind: pa.DataType | None) -> pa.Scalar | None:
    value = literal.value
    if kind is None or isinstance(value, bool):
        return None
    fits = (isinstance(value, int) and pa.types.is_integer(kind)) or (
        isinstance(value, str) and pa.types.is_string(kind)
    )
    if not fits:
        return None
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None  # no value of the column can equal it, but values may be less
