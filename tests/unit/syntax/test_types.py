"""Types: their texts, their stored forms, their refusals."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.protocol.errors import UnknownType
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.types.from_text import parse_value

CANONICAL = (
    *("Int8", "UInt64", "Int128", "UInt256", "Float32", "Bool", "String", "FixedString(3)"),
    *("Decimal(9, 2)", "Decimal(38, 3)", "Decimal(50, 2)", "Date", "Date32", "DateTime"),
    *(
        "DateTime('Asia/Tokyo')",
        "DateTime64(3)",
        "DateTime64(9, 'UTC')",
        "UUID",
        "IPv4",
        "IPv6",
    ),
    *("Enum8('a' = 1, 'b' = 5)", "Enum16('x' = 1000)", "Enum8('it\\'s' = -1)"),
    *("Nullable(Int8)", "LowCardinality(Nullable(String))", "Array(Nullable(Date))"),
    *(
        "Tuple(a Int8, `b c` Array(String))",
        "Tuple(Int8, String)",
        "Map(String, Array(UInt64))",
    ),
    "SimpleAggregateFunction(sum, Int64)",
    "AggregateFunction(argMax, String, Decimal(9, 2))",
    "AggregateFunction(count)",
)
SPELLINGS = {
    "INT": "Int32",
    "bigint unsigned": "UInt64",
    "double precision": "Float64",
    "varchar(10)": "String",
    "INT(11)": "Int32",
    "boolean": "Bool",
    "Decimal32(2)": "Decimal(9, 2)",
    "Decimal(5)": "Decimal(5, 0)",
    "DateTime64": "DateTime64(3)",
    "Enum('a','b')": "Enum8('a' = 1, 'b' = 2)",
    "Enum('x'=5,'y')": "Enum8('x' = 5, 'y' = 6)",
    "Enum8('b'=2,'a'=1)": "Enum8('a' = 1, 'b' = 2)",
    "Array( Nullable(  Int8 ) )": "Array(Nullable(Int8))",
    "Map(String,UInt8)": "Map(String, UInt8)",
}
REFUSED = {
    "Strng": "String",
    "int8": "Int8",
    "Array(Int8": "expected `,` or `)`, found the end",
    "Array(Int8, Int8)": "1 types",
    "Decimal(77, 2)": "1 to 76",
    "Decimal(3, 4)": "after the point",
    "FixedString(0)": "1 to",
    "DateTime('Asia/Tokio')": "Asia/Tokyo",
    "DateTime64(10)": "0 to 9",
    "Nullable(Array(Int8))": "inside Nullable",
    "Nullable(LowCardinality(String))": "LowCardinality(Nullable",
    "LowCardinality(Decimal(3, 2))": "LowCardinality holds",
    "Map(Nullable(String), Int8)": "key",
    "Enum8('a' = 200)": "Enum16",
    "Enum8('a' = 1, 'a' = 2)": "twice",
    "Tuple(Int8, a Int8)": "names",
    "AggregateFunction(skewPop, Int8)": "it has sum",
    "Int8 Int8": "after its end",
    "": "expected a type, found the end",
}


@pytest.mark.parametrize("text", CANONICAL)
def test_a_canonical_text_is_its_own(text: str) -> None:
    assert parse_type(text).text == text


@pytest.mark.parametrize(("written", "canonical"), SPELLINGS.items())
def test_other_spellings_have_one_canonical_text(written: str, canonical: str) -> None:
    assert parse_type(written).text == canonical


@pytest.mark.parametrize(("text", "hint"), REFUSED.items())
def test_a_refusal_names_the_type_and_what_helps(text: str, hint: str) -> None:
    with pytest.raises(UnknownType) as refusal:
        parse_type(text)
    assert hint in str(refusal.value)
    assert text in str(refusal.value)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(UnknownType):
        parse_type("Array(" * 5000)


@pytest.mark.parametrize("text", CANONICAL)
def test_the_stored_form_survives_parquet_and_is_what_duckdb_says(
    text: str, tmp_path: Path
) -> None:
    data_type = parse_type(text)
    schema = arrow_schema([Column("x", text)])
    rows = pa.Table.from_arrays([pa.array([data_type.default], data_type.arrow)], schema=schema)
    file = tmp_path / "x.parquet"
    pq.write_table(rows, file)
    assert pq.read_table(file).schema.field("x").type == data_type.arrow
    connection = duckdb.connect()
    for relation in ("rows", f"'{file}'"):
        ((found,),) = connection.execute(f"SELECT typeof(x) FROM {relation}").fetchall()
        assert found.replace('"', "") == data_type.duckdb.replace('"', "")
    connection.close()


def test_a_column_is_nullable_in_arrow_when_its_type_is() -> None:
    schema = arrow_schema(
        [Column("a", "Int8"), Column("b", "LowCardinality(Nullable(String))")]
    )
    assert [field.nullable for field in schema] == [False, True]


@pytest.mark.parametrize("text", ["Int128", "UInt128", "Int256", "UInt256", "Decimal(76, 10)"])
def test_wide_numbers_order_as_their_bytes(text: str) -> None:
    data_type = parse_type(text)
    numbers = [-(10**30), -256, -1, 0, 1, 255, 2**64, 10**30]
    numbers = numbers if not text.startswith("U") else [n for n in numbers if n >= 0]
    stored = [data_type.wide_to_bytes(number) for number in numbers]
    assert sorted(stored) == stored
    assert [data_type.wide_from_bytes(each) for each in stored] == numbers


READ = (
    ("Int8", "-128", -128),
    ("UInt8", "+5", 5),
    ("Float64", "1e5", 1e5),
    ("Decimal(9, 2)", "-1.239", Decimal("-1.23")),
    ("Decimal(9, 2)", "1e2", Decimal("100.00")),
    ("Decimal(9, 2)", "0.0000001", Decimal("0.00")),
    ("Bool", "Yes", True),
    ("String", "é", "é"),
    ("FixedString(3)", "a", b"a\0\0"),
    ("FixedString(2)", "\udcff", b"\xff\0"),
    ("Date", "2019-1-1", dt.date(2019, 1, 1)),
    ("Date", "20190101", dt.date(2019, 1, 1)),
    ("Date", "0000-00-00", dt.date(1970, 1, 1)),
    ("Date32", "1900-01-01", dt.date(1900, 1, 1)),
    ("DateTime", "2019-01-01 00:00:00.9", dt.datetime(2019, 1, 1, tzinfo=dt.UTC)),
    ("DateTime", "1546300800", dt.datetime(2019, 1, 1, tzinfo=dt.UTC)),
    ("DateTime", "20190101000000", dt.datetime(2019, 1, 1, tzinfo=dt.UTC)),
    ("DateTime", "2019-01-01T02:00:00+02:00", dt.datetime(2019, 1, 1, tzinfo=dt.UTC)),
    ("DateTime", "2019-01-01 16", dt.datetime(2019, 1, 1, 16, tzinfo=dt.UTC)),
    ("DateTime", "2019-01-01T160507", dt.datetime(2019, 1, 1, 16, 5, 7, tzinfo=dt.UTC)),
    (
        "DateTime64(3)",
        "2019-01-01 16:07.5",
        dt.datetime(2019, 1, 1, 16, 7, 0, 500_000, tzinfo=dt.UTC),
    ),
    ("DateTime('Asia/Tokyo')", "2019-01-01 09:00:00", dt.datetime(2019, 1, 1, tzinfo=dt.UTC)),
    # Clocks are put forward from 2 to 3, and back from 3 to 2: the first of two such times counts.
    (
        "DateTime('Europe/Berlin')",
        "2018-03-25 02:30:00",
        dt.datetime(2018, 3, 25, 0, 30, tzinfo=dt.UTC),
    ),
    (
        "DateTime('Europe/Berlin')",
        "2018-10-28 02:30:00",
        dt.datetime(2018, 10, 28, 0, 30, tzinfo=dt.UTC),
    ),
    ("DateTime64(9)", "1970-01-01 00:00:00.000000001", 1),
    ("UUID", "61F0C4045CB311E7907BA6006AD3DBA0", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
    ("Enum8('a' = 1)", "1", "a"),
    ("IPv4", "1.2.3.4", 0x01020304),
    ("IPv6", "1.2.3.4", bytes(10) + b"\xff\xff\x01\x02\x03\x04"),
    ("Nullable(Int8)", "\\N", None),
    ("Array(Nullable(Int8))", "[NULL, 1]", [None, 1]),
    ("Array(String)", "['a,b', 'c\\'d', 'e]']", ["a,b", "c'd", "e]"]),
    ("Tuple(Int8, String)", "(1,'x')", {"1": 1, "2": "x"}),
    ("Tuple(a Int8)", "(1,)", {"a": 1}),
    ("Map(String, Array(Int8))", "{'k':[1,2]}", [("k", [1, 2])]),
)


@pytest.mark.parametrize(("type_text", "text", "value"), READ)
def test_text_is_read(type_text: str, text: str, value: object) -> None:
    assert parse_value(parse_type(type_text), text) == value


REFUSED_TEXT = (
    ("Int8", "128", "-128 to 127"),
    ("UInt8", "-1", "0 to 255"),
    ("Int8", "1.5", "not an integer"),
    ("Int8", "", "not an integer"),
    ("Int8", "9" * 5000, "not an integer"),
    ("Float64", "1,5", "not a number"),
    ("Decimal(9, 2)", "12345678.1", "does not fit"),
    ("Bool", "2", "neither true nor false"),
    ("String", "\udcff", "FixedString"),
    ("FixedString(2)", "abc", "3 bytes"),
    ("Date", "2019-02-30", "no day"),
    ("Date", "2200-01-01", "does not fit"),
    ("Date", "17000", "not a date"),
    ("DateTime", "2200-01-01 00:00:00", "does not fit"),
    ("DateTime", "2019-01-01 25:00:00", "no time"),
    ("DateTime", "soon", "not a time"),
    ("DateTime", "2019-01-01 160", "not a time"),
    ("DateTime", "2019-01-01 1605", "not a time"),
    ("DateTime", "2019-01-0116:05", "not a time"),
    ("UUID", "x", "not a UUID"),
    ("Enum8('a' = 1)", "b", "it has 'a'"),
    ("IPv4", "1.2.3", "not an IPv4"),
    ("Array(Int8)", "[1", "[...]"),
    ("Array(Int8)", "[NULL]", "NULL does not fit"),
    ("Array(String)", "[a]", "single quotes"),
    ("Array(String)", "['a]", "not closed"),
    ("Tuple(Int8, Int8)", "(1)", "has 1 elements"),
    ("Map(String, Int8)", "{'a'}", "key:value"),
)


@pytest.mark.parametrize(("type_text", "text", "reason"), REFUSED_TEXT)
def test_text_that_is_no_value_is_refused_with_the_reason(
    type_text: str, text: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=r".*") as refusal:
        parse_value(parse_type(type_text), text)
    assert reason in str(refusal.value)


def test_null_fits_nullable_types_alone() -> None:
    assert parse_value(parse_type("Nullable(String)"), None) is None
    with pytest.raises(ValueError, match="not Nullable"):
        parse_value(parse_type("String"), None)
