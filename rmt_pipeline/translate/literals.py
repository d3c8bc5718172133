"""Literals of an expression as typed SQL."""

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.syntax.nodes import Literal
from rmt_pipeline.translate.base.typed import (
    BOOL,
    FLOAT64,
    NULL_TYPE,
    STRING,
    Constant,
    Typed,
    number_sql,
    string_sql,
)
from rmt_pipeline.types.data_type import DataType


def literal(node: Literal) -> Typed:
    value = node.value
    if value is None:
        return Typed("NULL", NULL_TYPE, Constant(None))
    if isinstance(value, bool):
        return Typed("true" if value else "false", BOOL, Constant(value))
    if isinstance(value, str):
        return Typed(literal_string(value), STRING, Constant(value))
    if isinstance(value, float):
        return Typed(number_sql(value), FLOAT64, Constant(value))
    return Typed(number_sql(value), integer_type(value), Constant(value))


def literal_string(text: str) -> str:
    """A string, also one of bytes that are no text: that fits FixedString alone."""
    try:
        return string_sql(text)
    except UserError:
        data = text.encode("utf-8", "surrogateescape").hex()
        return f"decode(from_hex('{data}'))"


def integer_type(value: int) -> DataType:
    """The narrowest type that holds a number, as the original gives to literals."""
    for bits in (8, 16, 32, 64):
        if 0 <= value < 1 << bits:
            return DataType(f"UInt{bits}")
        if value < 0 and value >= -(1 << (bits - 1)):
            return DataType(f"Int{bits}")
    raise AssertionError(f"the parser makes no integer {value}")
