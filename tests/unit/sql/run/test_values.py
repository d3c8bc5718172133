"""INSERT … VALUES: rows as SQL tuples."""

import datetime as dt
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import BadValue, RmtError, SyntaxProblem, UserError
from rmt_pipeline.sql.formats.rows import ResultColumn, rows_of
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run import values as values_module
from rmt_pipeline.sql.run.values import read_values
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.nodes import Node
from rmt_pipeline.syntax.statements.nodes import ValuesText
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.data_type import DataType


def sums(nodes: Sequence[Node], data_type: DataType) -> list[object]:
    """An evaluator that knows `a+b`."""
    if not all(re.fullmatch(r"[0-9]+ \+ [0-9]+", canonical(node)) for node in nodes):
        raise UserError("this evaluator only adds")
    return [sum(map(int, canonical(node).split("+"))) for node in nodes]


def read(text: str, *columns: str, evaluate=sums) -> pa.Table:
    """`columns` are types; names are x0, x1, …"""
    result = [ResultColumn(f"x{i}", parse_type(each)) for i, each in enumerate(columns)]
    batches = read_values(ValuesText(text, 0, len(text)), result, evaluate)
    return pa.Table.from_batches([each.batch for each in batches])


def column(text: str, data_type: str) -> list[object]:
    return read(text, data_type).column(0).to_pylist()


@pytest.mark.parametrize(
    ("literal", "data_type", "value"),
    [
        ("1", "Int64", 1),
        ("-1", "Int8", -1),
        ("+1", "UInt8", 1),
        ("'12'", "Int64", 12),
        ("1e3", "Int64", 1000),
        ("true", "UInt8", 1),
        ("false", "Bool", False),
        ("1", "Bool", True),
        ("100", "Float64", 100.0),
        ("7.5", "Float64", 7.5),
        ("-inf", "Float32", float("-inf")),
        (".5", "Decimal(9, 2)", Decimal("0.50")),
        ("2", "String", "2"),
        ("'it''s'", "String", "it's"),
        (r"'a\n\'b'", "String", "a\n'b"),
        (r"'\\N'", "Nullable(String)", "\\N"),
        ("NULL", "Nullable(Int8)", None),
        ("null", "LowCardinality(Nullable(String))", None),
        ("'2019-05-10 00:00:00'", "DateTime", dt.datetime(2019, 5, 10, tzinfo=dt.UTC)),
        ("1557446400", "DateTime", dt.datetime(2019, 5, 10, tzinfo=dt.UTC)),
        ("3600", "DateTime", dt.datetime(1970, 1, 1, 1, tzinfo=dt.UTC)),
        ("0", "DateTime('Europe/Moscow')", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        ("7.5", "DateTime64(3)", dt.datetime(1970, 1, 1, 0, 0, 7, 500000, tzinfo=dt.UTC)),
        ("'2019-05-10'", "Date", dt.date(2019, 5, 10)),
        ("2", "Enum8('a' = 1, 'b' = 2)", "b"),
        ("[1, 2]", "Array(Int8)", [1, 2]),
        ("[]", "Array(String)", []),
        ("(1, 'a')", "Tuple(Int8, String)", {"1": 1, "2": "a"}),
        ("{'a': 1}", "Map(String, Int8)", [("a", 1)]),
        ("1 + 2", "Int64", 3),
    ],
)
def test_a_literal_is_read_as_its_column_wants_it(literal, data_type, value):
    assert column(f"({literal})", data_type) == [value]


def test_rows_may_be_parted_by_commas_blanks_and_comments():
    assert column(" (1),(2) (3)\n-- a comment\n,(4),", "Int8") == [1, 2, 3, 4]


def test_every_distinct_expression_is_evaluated_once():
    asked: list[str] = []

    def evaluate(nodes: Sequence[Node], data_type: DataType) -> list[object]:
        asked.extend(map(canonical, nodes))
        return [7] * len(nodes)

    assert read(
        "(now(), 1), (now(), f(2))", "Int64", "Int64", evaluate=evaluate
    ).to_pydict() == {
        "x0": [7, 7],
        "x1": [1, 7],
    }
    assert asked == ["now()", "f(2)"]


def test_default_is_left_to_the_table_with_its_places():
    columns = [ResultColumn("a", parse_type("Int8")), ResultColumn("b", parse_type("String"))]
    text = "(DEFAULT, 'x'), (2, default), (DEFAULT, 'y')"
    (batch,) = read_values(ValuesText(text, 0, len(text)), columns, sums)
    assert batch.defaults == {"a": [0, 2], "b": [1]}
    assert batch.batch.to_pydict() == {"a": [0, 2, 0], "b": ["x", "", "y"]}


@pytest.mark.parametrize(
    ("text", "data_type", "message"),
    [
        (
            "('not a number')",
            "Int64",
            "Cannot parse 'not a number' as Int64: row 1, column x0 (",
        ),
        ("(1), (300)", "UInt8", "Cannot parse 300 as UInt8: row 2, column x0 ("),
        ("(1.5)", "Int64", "Cannot parse 1.5 as Int64: row 1"),
        ("(NULL)", "Int64", "NULL does not fit Int64, which is not Nullable"),
        ("('2019-02-30')", "Date", "there is no day '2019-02-30'"),
        ("(9223372036854775808)", "Int64", "does not fit Int64"),
        ("([300])", "Array(Int8)", r"'300' does not fit Int8"),
        ("([1, -10])", "Array(UInt32)", "Cannot parse [1, -10] as Array(UInt32): row 1"),
        ("((1, 300))", "Tuple(UInt8, UInt8)", "'300' does not fit UInt8"),
        ("([[1.5]])", "Array(Array(Int8))", "Cannot parse [[1.5]] as Array(Array(Int8))"),
        ("(1), (nosuch(1))", "Int64", "Cannot parse nosuch(1) as Int64: row 2, column x0"),
        ("(nosuch)", "Int64", "Cannot parse nosuch as Int64: row 1, column x0"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_row_and_column(text, data_type, message):
    with pytest.raises(BadValue, match=re.escape(message)):
        read(text, data_type)


@pytest.mark.parametrize("text", ["(1)", "(1, 2, 3)", "(1, 2), (1)", "(1, 2), ([1], 2, 3)"])
def test_a_row_of_another_width_is_refused_with_the_columns(text):
    with pytest.raises(BadValue, match=r"row . of VALUES has [13] values.* 2 columns: x0, x1"):
        read(text, "Int8", "Int8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows"),
        ("1, 2", r"line 1, column 1: expected `\(` of row 1"),
        ("(1), 2", r"column 6: expected `\(` of row 2"),
        ("(1) SETTINGS insert_quorum = 2", r"row 2 of VALUES; SETTINGS stand before VALUES"),
        ("(1", r"no `\)`"),
        ("(f(1)", r"no `\)`"),
        ("((1)", r"no `\)`|never closed"),
        ("()", "expected an expression"),
    ],
)
def test_what_is_no_list_of_rows_is_pointed_at(text, message):
    with pytest.raises(SyntaxProblem, match=message):
        read(text, "Int8")


def test_many_rows_come_in_bounded_batches(monkeypatch):
    monkeypatch.setattr(values_module, "BATCH_ROWS", 3)
    text = ",".join(f"({number})" for number in range(10))
    columns = [ResultColumn("x", parse_type("Int32"))]
    batches = list(read_values(ValuesText(text, 0, len(text)), columns, sums))
    assert [each.batch.num_rows for each in batches] == [3, 3, 3, 1]
    assert [v for each in batches for v in each.batch.column(0).to_pylist()] == list(range(10))


def test_an_error_in_a_later_batch_counts_rows_from_the_first(monkeypatch):
    monkeypatch.setattr(values_module, "BATCH_ROWS", 2)
    with pytest.raises(BadValue, match="row 4"):
        read("(1),(2),(3),(x)", "Int32")


TYPES = {
    "Int64": st.integers(-(2**63), 2**63 - 1),
    "UInt64": st.integers(0, 2**64 - 1),
    "String": st.text(),
    "Nullable(String)": st.none() | st.text(),
    "Float64": st.floats(allow_nan=False),
    "Date": st.dates(dt.date(1970, 1, 1), dt.date(2149, 6, 6)),
    "Bool": st.booleans(),
    "FixedString(4)": st.binary(min_size=4, max_size=4).filter(bytes.isascii),
    "Array(Nullable(Int8))": st.lists(st.none() | st.integers(-128, 127)),
    "Map(String, String)": st.lists(st.tuples(st.text("ab':,{}\\"), st.text("[]()\\,'\""))),
    "Decimal(18, 4)": st.integers(-(10**17), 10**17).map(lambda n: Decimal(n).scaleb(-4)),
}


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_what_the_values_format_writes_is_read_back(data):
    names = data.draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.tuples(*(TYPES[name] for name in names)), min_size=1))
    columns = [(f"x{i}", name) for i, name in enumerate(names)]
    out = io.BytesIO()
    write_rows(rows_of(columns, rows), "Values", out)
    table = read(out.getvalue().decode(), *names)
    assert list(zip(*(each.to_pylist() for each in table.columns), strict=True)) == rows


@given(st.text("(),'\\ab1 \n[]-"))
def test_any_text_is_rows_or_a_named_error(text):
    with suppress(RmtError):
        read(text, "Int8", "String")


def test_literals_in_an_array_are_never_cast_so_that_they_wrap():
    def cast(nodes: Sequence[Node], data_type: DataType) -> list[object]:
        return [[1]] * len(nodes)

    with pytest.raises(BadValue, match=re.escape("Cannot parse [-10] as Array(UInt32)")):
        read("([-10])", "Array(UInt32)", evaluate=cast)
    assert read("([1e2], ['3'])", "Array(Int8)", "Array(Int8)", evaluate=cast).to_pydict() == {
        "x0": [[100]],
        "x1": [[3]],
    }
