"""Constant expressions in statements, evaluated."""

from collections.abc import Sequence

import pyarrow as pa

from rmt_pipeline.syntax.types import DataType
from rmt_pipeline.translate.evaluate import evaluate
from rmt_pipeline.translate.expression import compile_expression
from rmt_pipeline.types.to_text import column_values

_ONE_ROW = pa.table({"one": pa.array([0], pa.uint8())})


def evaluate_constants(texts: Sequence[str], data_type: DataType) -> list[object]:
    """Their values in the stored form of `data_type`, to which each is cast.

    Raises UserError when one of them is no constant, or does not fit the type.
    """
    expressions = [
        compile_expression(f"CAST({text} AS {data_type.text})", (), allow_nondeterministic=True)
        for text in texts
    ]
    return [column_values(array)[0] for array in evaluate(expressions, _ONE_ROW)]
