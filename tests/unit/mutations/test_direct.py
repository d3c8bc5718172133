"""Conditions without DuckDB are what they are with it."""

import pyarrow as pa
import pytest

from rmt_pipeline.compute.kernel_direct import direct_condition
from rmt_pipeline.expressions.evaluate import evaluate
from rmt_pipeline.expressions.parser import parse_expression
from rmt_pipeline.expressions.translate import compile_expression
from rmt_pipeline.protocol.table import Column

COLUMNS = [Column("a", "Int32"), Column("n", "Nullable(UInt8)"), Column("s", "String")]
ROWS = pa.table(
    {
        "a": pa.array([-(2**31), -1, 0, 1, 7, 2**31 - 1], pa.int32()),
        "n": pa.array([None, 0, 1, 255, None, 7], pa.uint8()),
        "s": pa.array(["", "a", "B", "é", "a\0", "zz"], pa.string()),
    }
)
TYPES = {field.name: field.type for field in ROWS.schema}


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"{column} {sign} {value}"
            for column in "an"
            for sign in ("=", "!=", "<", "<=", ">", ">=")
            for value in (0, 7)
        ),
        *(
            f"s {sign} {value}"
            for sign in ("=", "!=", "<", ">=")
            for value in ("''", "'a'", "'é'")
        ),
        "a = -1 OR n = 1",
        "a > 0 AND n > 0 AND s != 'zz'",
        "n = 0 OR (n = 1 AND a = 0) OR s = 'a'",
        "a = -2147483648",
    ],
)
def test_a_condition_is_what_duckdb_says(text):
    condition = direct_condition(parse_expression(text), TYPES)
    assert condition is not None
    expression = compile_expression(f"if({text}, 1, 0)", COLUMNS)
    [expected] = evaluate([expression], ROWS)
    assert [int(found or 0) for found in condition(ROWS).to_pylist()] == expected.to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        "a = 4294967296",
        "n = -1",
        "a = 1.5",
        "s = 1",
        "a = n",
        "1 = a",
        "a + 1 = 2",
        "NOT a = 1",
        "a",
        "a IN (1)",
        "a = 1 AND isNull(n)",
        "a = NULL",
        "q = 1",
        "a = true",
    ],
)
def test_all_else_is_left_to_duckdb(text):
    assert direct_condition(parse_expression(text), TYPES) is None
