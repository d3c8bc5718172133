"""Evaluates constant expressions in statements to values of a column's type.

A literal is parsed as the type parses text, and refused where the original silently changes it: 300
for a UInt8, 1.5 for an integer. Other expressions are computed and cast.
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

_ONE_ROW = pa.table({"one": pa.nulls(1)})  # a list would make Arrow load pandas


def evaluate_constants(
    nodes: Sequence[Node], data_type: DataType, session: SessionValues = ()
) -> list[object]:
    """Return the values of the expressions, cast to `data_type`, in its stored form.

    Raises UserError if one of them is no constant, or does not fit the type.
    """
    expressions = [
        compile_node(
            cast_node(node, data_type), (), allow_nondeterministic=True, session=session
        )
        for node in nodes
    ]
    return [column_values(array)[0] for array in evaluate(expressions, _ONE_ROW)]


def constant_value(node: Node, data_type: DataType) -> object:
    """Return the value of one constant in its stored form. Raises UserError, or ValueError with
    only the reason.
    """
    if not isinstance(node, Literal):
        return evaluate_constants([node], data_type)[0]
    value, plain = node.value, data_type.plain
    if value is None:
        return parse_value(data_type, None)
    if isinstance(value, bool):
        return parse_value(plain, str(int(value)) if plain.is_numeric else str(value).lower())
    if isinstance(value, str):
        return parse_value(plain, value)
    if plain.is_date:  # the number is in days since the epoch
        return evaluate_constants([node], data_type)[0]
    return parse_value(plain, number_text(node.text, plain))


def number_text(text: str, plain: DataType) -> str:
    """Return a number's text in a form that the type parses: 1e3 becomes 1000 for an integer. 1.5
    is left, and the type will refuse it. For a time, a number is seconds since 1970: zeros in front
    keep it from being read as a year.
    """
    if plain.family in {"DateTime", "DateTime64"}:
        whole, point, fraction = text.partition(".")
        if whole.isdigit():
            return whole.zfill(10) + point + fraction
    if plain.is_integer and not text.lstrip("+-").isdigit():
        try:
            number = decimal.Decimal(text)
        except decimal.InvalidOperation:
            return str(int(text, 0))
        if number == number.to_integral_value() and number.adjusted() < 80:
            text = str(int(number))
    return text.removeprefix("+")
