"""DEFAULT, MATERIALIZED and EPHEMERAL columns: what is computed, and from what."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rmt_pipeline.compute.inputs.conform import JsonLinesFile, conform
from rmt_pipeline.protocol.errors import UnknownColumn, UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import parse_type

ID = Column("id", "UInt8")


def rows_of(data: Any, *columns: Column) -> list[dict]:
    tables = conform(data, columns, settings=QuerySettings())
    return [row for table in tables for row in table.to_pylist()]


def default(name: str, kind: str, text: str) -> Column:
    return Column(name, kind, "DEFAULT", text)


def test_a_default_is_computed_from_the_other_columns() -> None:
    columns = (ID, default("twice", "UInt16", "id * 2"))
    assert rows_of([{"id": 200}], *columns) == [{"id": 200, "twice": 400}]
    assert rows_of(pa.table({"id": [3], "twice": [7]}), *columns) == [{"id": 3, "twice": 7}]


def test_a_default_stands_only_where_no_value_was_given() -> None:
    columns = (ID, default("twice", "Nullable(UInt16)", "id * 2"))
    given = [{"id": 1, "twice": 9}, {"id": 2}, {"id": 3, "twice": None}]
    assert [row["twice"] for row in rows_of(given, *columns)] == [9, 4, None]


def test_json_tells_null_from_a_missing_key(tmp_path) -> None:
    columns = (ID, default("twice", "Nullable(UInt16)", "id * 2"))
    file = tmp_path / "in.jsonl"
    file.write_text('{"id":1,"twice":9}\n{"id":2}\n{"id":3,"twice":null}\n')
    assert [row["twice"] for row in rows_of(JsonLinesFile(file), *columns)] == [9, 4, None]


def test_defaults_may_use_each_other_in_any_order() -> None:
    columns = (
        default("c", "UInt32", "b + 1"),
        default("b", "UInt32", "a + 1"),
        default("a", "UInt32", "id + 1"),
        ID,
    )
    assert rows_of([{"id": 1}], *columns) == [{"c": 4, "b": 3, "a": 2, "id": 1}]
    assert rows_of([{"id": 1, "b": 10}], *columns) == [{"c": 11, "b": 10, "a": 2, "id": 1}]


def test_defaults_that_wait_for_each_other_need_a_value() -> None:
    columns = (ID, default("a", "UInt32", "b + 1"), default("b", "UInt32", "a + 1"))
    with pytest.raises(UserError, match="defaults of a, b use each other"):
        rows_of([{"id": 1}], *columns)
    assert rows_of([{"id": 1, "a": 5}], *columns)[0]["b"] == 6


def test_a_materialized_column_is_always_computed() -> None:
    columns = (ID, Column("twice", "UInt16", "MATERIALIZED", "id * 2"))
    assert rows_of([{"id": 4}, {"id": 5}], *columns) == [
        {"id": 4, "twice": 8},
        {"id": 5, "twice": 10},
    ]


def test_an_ephemeral_column_feeds_defaults_and_is_not_stored() -> None:
    columns = (
        Column("raw", "String", "EPHEMERAL"),
        default("size", "UInt64", "length(raw)"),
    )
    assert rows_of([{"raw": "abc"}, {}], *columns) == [{"size": 3}, {"size": 0}]


def test_an_alias_is_no_input_of_a_default() -> None:
    columns = (ID, Column("same", "UInt8", "ALIAS", "id"), default("x", "UInt8", "same"))
    with pytest.raises(UnknownColumn, match="same"):
        rows_of([{"id": 1}], *columns)


TYPES: list[tuple[str, str, Any]] = [
    ("UInt8", "7", 7),
    ("Int64", "-1", -1),
    ("Float64", "1", 1.0),
    ("Decimal(9, 2)", "1.5", Decimal("1.50")),
    ("Nullable(Int8)", "5", 5),
    ("LowCardinality(String)", "'x'", "x"),
    ("FixedString(3)", "'ab'", b"ab\0"),
    ("Date", "'2013-07-01'", dt.date(2013, 7, 1)),
    ("DateTime", "'2013-07-01 05:00:00'", dt.datetime(2013, 7, 1, 5, tzinfo=dt.UTC)),
    ("Enum8('a' = 1, 'b' = 2)", "'b'", "b"),
    ("Array(UInt8)", "[1, 2]", [1, 2]),
    ("Array(String)", "[]", []),
    ("Int128", "12", parse_type("Int128").wide_to_bytes(12)),
    ("Bool", "true", True),
    ("UUID", "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
    ("Map(String, UInt8)", "map('a', 1)", [("a", 1)]),
    ("Tuple(UInt8, String)", "(1, 'a')", {"1": 1, "2": "a"}),
]


@pytest.mark.parametrize(("kind", "text", "expected"), TYPES)
def test_a_default_has_the_type_of_its_column(kind: str, text: str, expected: Any) -> None:
    assert rows_of([{"id": 1}], ID, default("x", kind, text)) == [{"id": 1, "x": expected}]
    both = rows_of([{"id": 1}, {"id": 2, "x": expected}], ID, default("x", kind, text))
    assert [row["x"] for row in both] == [expected, expected]
