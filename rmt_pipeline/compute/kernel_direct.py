"""Conditions so common that DuckDB's fixed cost, some milliseconds, is worth avoiding: a mutation
asks thousands of small parts whether it is for any of their rows.

Comparisons of integer and String columns with a literal, joined by AND and OR. All else is None
here, and DuckDB's; tests compare the two.
"""

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.expressions.nodes import Call, Literal, Name, Node

Condition = Callable[[pa.Table], pa.ChunkedArray]
"""True, false or NULL for each row."""

_COMPARISONS: Mapping[str, Callable[[pa.ChunkedArray, pa.Scalar], pa.ChunkedArray]] = {
    "equals": pc.equal,
    "notEquals": pc.not_equal,
    "less": pc.less,
    "lessOrEquals": pc.less_equal,
    "greater": pc.greater,
    "greaterOrEquals": pc.greater_equal,
}
_JOINS = {"and": pc.and_kleene, "or": pc.or_kleene}


def direct_condition(node: Node, types: Mapping[str, pa.DataType]) -> Condition | None:
    """How to compute the condition without DuckDB; None when that is not possible. `types` are
    the stored forms of plain integer and String columns.
    """
    if not isinstance(node, Call) or node.over is not None:
        return None
    if node.name in _JOINS and len(node.arguments) > 1:
        found = [direct_condition(each, types) for each in node.arguments]
        parts = [each for each in found if each is not None]
        return _joined(node.name, parts) if len(parts) == len(found) else None
    if node.name not in _COMPARISONS or len(node.arguments) != 2:
        return None
    left, right = node.arguments
    if not isinstance(left, Name) or not isinstance(right, Literal) or len(left.parts) != 1:
        return None
    [name] = left.parts
    value = _scalar(right, types.get(name))
    return None if value is None else _compared(node.name, name, value)


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
        return None  # no value of the column can be equal, but one may be less


def _compared(function: str, name: str, value: pa.Scalar) -> Condition:
    compare = _COMPARISONS[function]
    return lambda rows: compare(rows.column(name), value)


def _joined(function: str, parts: list[Condition]) -> Condition:
    join = _JOINS[function]

    def condition(rows: pa.Table) -> pa.ChunkedArray:
        result = parts[0](rows)
        for part in parts[1:]:
            result = join(result, part(rows))
        return result

    return condition
