"""Constant expressions in statements, as values of a column's type.

A literal is read as its type reads text, and refused where the original changes it quietly: 300 for
a UInt8, 1.5 for an integer. All else is computed, and cast.
"""

import decimal
from collections.abc import Sequence

import pyarrow as pa

from rmt_pipeline.syntax.nodes import Literal, Node
from rmt_pipeline.syntax.special_forms import cast_node
from rmt_pipeline.translate.evaluate import evaluate
from rmt_pipeline.translate.expression import SessionValues, compile_node
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.from_text import parse_value
from rmt_pipeline.types.to_text import column_values

_ONE_ROW = pa.table({"one": pa.nulls(1)})  # of values Arrow would make an array with pandas


def evaluate_constants(
    nodes: Sequence[Node], data_type: DataType, session: SessionValues = ()
) -> list[object]:
    """Their values in the stored form of `data_type`, to which each is cast.

    Raises UserError when one of them is no constant, or does not fit the type.
    """
    expressions = [
        compile_node(
            cast_node(node, data_type), (), allow_nondeterministic=True, session=session
        )
        for node in nodes
    ]
    return [column_values(array)[0] for array in evaluate(expressions, _ONE_ROW)]


def constant_value(node: Node, data_type: DataType) -> object:
    """One value in its stored form. Raises UserError, or ValueError with the reason alone."""
    if not isinstance(node, Literal):
        return evaluate_constants([node], data_type)[0]
    value, plain = node.value, data_type.plain
    if value is None:
        return parse_value(data_type, None)
    if isinstance(value, bool):
        return parse_value(plain, str(int(value)) if plain.is_numeric else str(value).lower())
    if isinstance(value, str):
        return parse_value(plain, value)
    if plain.is_date:  # days since the epoch
        return evaluate_constants([node], data_type)[0]
    return parse_value(plain, number_text(node.text, plain))


def number_text(text: str, plain: DataType) -> str:
    """A number as its type reads it: 1e3 is an integer, 1.5 is none."""
    if plain.is_integer and not text.lstrip("+-").isdigit():
        try:
            number = decimal.Decimal(text)
        except decimal.InvalidOperation:
            return str(int(text, 0))
        if number == number.to_integral_value() and number.adjusted() < 80:
            text = str(int(number))
    return text.removeprefix("+")
