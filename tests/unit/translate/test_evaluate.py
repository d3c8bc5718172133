"""Expressions over Arrow tables."""

import datetime as dt
import threading

import pyarrow as pa
import pytest

from rmt_pipeline.protocol.errors import BadValue
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.translate import evaluate as module
from rmt_pipeline.translate.direct_keys import DIRECT
from rmt_pipeline.translate.evaluate import evaluate
from rmt_pipeline.translate.expression import compile_expression

MOMENTS = [
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1999, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2020, 2, 29, 12, tzinfo=dt.UTC),
    dt.datetime(2106, 2, 7, 6, 28, 15, tzinfo=dt.UTC),
    None,
]
DAYS = [moment and moment.date() for moment in MOMENTS[:-1]] + [dt.date(2149, 6, 6), None]
TIME = (Column("t", "Nullable(DateTime)"),)
DAY = (Column("t", "Nullable(Date)"),)


@pytest.mark.parametrize("function", DIRECT)
@pytest.mark.parametrize(("columns", "values"), [(TIME, MOMENTS), (DAY, DAYS)])
def test_the_short_way_answers_as_duckdb_does(
    function: str, columns: tuple[Column, ...], values: list[dt.date | None]
) -> None:
    table = pa.table({"t": pa.array(values, parse_type(columns[0].type).arrow)})
    expression = compile_expression(f"{function}(t)", columns)
    direct = module._directly(expression, table)
    assert direct is not None
    assert direct == module._by_duckdb([expression], table)[0]


def test_a_time_in_another_zone_does_not_take_the_short_way() -> None:
    columns = (Column("t", "DateTime('Asia/Tokyo')"),)
    moment = dt.datetime(2020, 1, 31, 20, tzinfo=dt.UTC)
    table = pa.table({"t": pa.array([moment], pa.timestamp("us", "UTC"))})
    expression = compile_expression("toYYYYMM(t)", columns)
    assert evaluate([expression], table)[0].to_pylist() == [202002]


def test_no_rows_give_empty_arrays_of_the_types() -> None:
    columns = (Column("a", "Int64"), Column("s", "FixedString(3)"))
    table = arrow_schema(columns).empty_table()
    expressions = [compile_expression(text, columns) for text in ("a + 1", "s", "upper(s)")]
    for expression, array in zip(expressions, evaluate(expressions, table), strict=True):
        assert array.type == expression.type.arrow
        assert len(array) == 0


def test_constants_have_a_value_for_each_row() -> None:
    table = pa.table({"a": pa.array([1, 2, 3])})
    (array,) = evaluate([compile_expression("CAST(7, 'Int128')", ())], table)
    assert array.to_pylist() == [parse_type("Int128").wide_to_bytes(7)] * 3


def test_several_chunks_and_several_expressions_keep_their_order() -> None:
    columns = (Column("a", "Int64"), Column("b", "String"))
    table = pa.concat_tables(
        [pa.table({"a": [1, 2], "b": ["x", "y"]}), pa.table({"a": [3], "b": ["z"]})]
    )
    texts = ("b", "a * 10", "concat(b, toString(a))", "a")
    arrays = evaluate([compile_expression(text, columns) for text in texts], table)
    assert [array.to_pylist() for array in arrays] == [
        ["x", "y", "z"],
        [10, 20, 30],
        ["x1", "y2", "z3"],
        [1, 2, 3],
    ]


def test_what_cannot_be_computed_names_the_expression_and_the_value() -> None:
    columns = (Column("s", "String"),)
    expression = compile_expression("toInt32(s)", columns)
    with pytest.raises(BadValue) as refusal:
        evaluate([expression], pa.table({"s": ["1", "two"]}))
    assert "toInt32(s)" in str(refusal.value)
    assert "two" in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("match(s, '^[0-9]+$') AND toInt32(s) > 4 AND toInt32(s) < 9", [1, 0, 0]),
        ("NOT match(s, '^[0-9]+$') OR toInt32(s) > 4 OR toInt32(s) < 0", [1, 1, 0]),
        ("if(match(s, '^[0-9]+$'), toInt32(s) + toInt32(s), 0)", [14, 0, 4]),
        ("toInt32OrZero(s) * 2 + toInt32OrZero(s)", [21, 0, 6]),
        ("coalesce(toDateOrNull(s), toDate('2020-01-01')) = toDate('2020-01-01')", [1, 1, 1]),
    ],
)
def test_what_a_condition_excludes_is_not_computed(text: str, answers: list[int]) -> None:
    """DuckDB computes what stands twice only once, and before conditions, unless kept from it."""
    columns = (Column("s", "String"),)
    expression = compile_expression(text, columns)
    assert evaluate([expression], pa.table({"s": ["7", "x", "2"]}))[0].to_pylist() == answers


def test_a_condition_is_also_there_as_a_boolean() -> None:
    columns = (Column("a", "Nullable(Int64)"), Column("s", "String"))
    assert compile_expression("a = 1", columns).condition_sql
    assert compile_expression("a", columns).condition_sql
    assert compile_expression("s", columns).condition_sql == ""


def test_threads_do_not_meet() -> None:
    columns = (Column("a", "Int64"),)
    expression = compile_expression("a * 2", columns)
    answers: dict[int, list[int]] = {}

    def work(number: int) -> None:
        for _ in range(20):
            table = pa.table({"a": [number] * 100})
            answers[number] = evaluate([expression], table)[0].to_pylist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: [number * 2] * 100 for number in range(4)}
