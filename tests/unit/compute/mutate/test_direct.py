"""Conditions without DuckDB are what they are with it."""

import pyarrow as pa
import pytest

from rmt_pipeline.compute.mutate.direct import direct_condition
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.translate.evaluate import evaluate
from rmt_pipeline.translate.expression import compile_expression

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
        "a IN (1)",
        "a IN 1",
        "a IN -1",
        "n IN 7",
        "s IN 'a'",
        "s IN ''",
        "a IN (0, 7)",
        "n IN (1, 7) OR s IN ('a', 'é')",
        "a % 3 = 1",
        "a % 3 = -1",
        "a % 7 < 0",
        "n % 2 = 1",
        "modulo(a, 2147483647) = 0",
        "a BETWEEN 0 AND 7",
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
        "a IN (1, 4294967296)",
        "a NOT IN (1)",
        "a NOT IN 1",
        "a IN 4294967296",
        "a IN '1'",
        "a IN NULL",
        "a IN (1, NULL)",
        "n IN (1, 'x')",
        "a % 0 = 1",
        "a % -2 = 1",
        "a % n = 1",
        "n % 256 = 1",
        "n % 2 = -1",
        "s % 2 = 1",
        "a = 1 AND isNull(n)",
        "a = NULL",
        "q = 1",
        "a = true",
    ],
)
def test_all_else_is_left_to_duckdb(text):
    assert direct_condition(parse_expression(text), TYPES) is None


CONDITIONS = [
    f"{column} {sign} {value}"
    for column, values in (("a", (-5, 0, 7, 9)), ("s", ("''", "'b'", "'zz'")))
    for sign in ("=", "!=", "<", "<=", ">", ">=")
    for value in values
]
CONDITIONS += [
    "a = 0 AND s = 'b'",
    "a < 0 OR s > 'y'",
    "a IN (3, 4) OR s = 'q'",
    "a % 3 = 5",
    "n = 1",
]
ROWS_ALIKE = [
    pa.table({"a": pa.array(numbers, pa.int32()), "s": texts})
    for numbers, texts in (
        ([0, 0], ["b", "b"]),
        ([7, None], ["zz", None]),
        ([-5, 9], ["", "zz"]),
        ([1, 3], ["a", "c"]),
    )
]


@pytest.mark.parametrize("rows", ROWS_ALIKE)
@pytest.mark.parametrize("text", CONDITIONS)
def test_bounds_rule_out_only_what_no_row_meets(text, rows):
    def bounds(column: str):
        if column == "n":
            return None
        values = [value for value in rows.column(column).to_pylist() if value is not None]
        return min(values), max(values)

    condition = direct_condition(parse_expression(text), TYPES)
    assert condition is not None
    if condition.is_for_none(bounds):
        assert not any(condition(rows).to_pylist())


def test_bounds_rule_out_what_lies_outside():
    def bounds(_: str):
        return 10, 20

    ruled_out = [
        text
        for text in ("a = 9", "a = 10", "a < 10", "a <= 10", "a > 19", "a > 20", "a IN (1, 21)")
        if (found := direct_condition(parse_expression(text), TYPES))
        and found.is_for_none(bounds)
    ]
    assert ruled_out == ["a = 9", "a < 10", "a > 20", "a IN (1, 21)"]
