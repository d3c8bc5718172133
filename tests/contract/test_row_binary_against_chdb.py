"""RowBinary, byte by byte as ClickHouse writes it, and read back."""

import io

import pyarrow as pa
import pytest

from rmt_pipeline.compute.inputs.conform import RowBinaryFile, conform, file_of_format
from rmt_pipeline.protocol.errors import BadValue, IncorrectData
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.sql.formats.rows import ResultColumn, Rows
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.binary import NoBinaryForm
from rmt_pipeline.types.from_text import parse_value
from tests.contract.test_formats_against_chdb import VALUES
from tests.support.clickhouse_oracle import SETTINGS, ask, connection, type_name

FORMATS = ("RowBinary", "RowBinaryWithNames", "RowBinaryWithNamesAndTypes")
MORE = (
    *("toLowCardinality('a')", "toLowCardinality(toNullable('a'))", "toInt8(-128)"),
    *(
        "toUInt256('115792089237316195423570985008687907853269984665640564039457584007913129639935')",
    ),
    *("toDate32('2299-12-31')", "toDate32('1900-01-01')", "toDate('2149-06-06')"),
    *("toDateTime('2106-02-07 06:28:15', 'UTC')", "toDateTime64('2299-12-31 23:59:59.9', 1)"),
    *("toDecimal128('-1.5', 30)", "toDecimal256('99999999999999999999.5', 20)"),
    *("toDecimal128('99999999999999999999999999999999999999', 0)", "toDecimal32('-0.001', 3)"),
    *("CAST('b', 'Enum16(\\'a\\' = -300, \\'b\\' = 300)')", "repeat('ab', 100)"),
    *("arrayMap(x -> toString(x), range(300))", "map('a', [toDateTime64(1.5, 9, 'UTC')])"),
    *(
        "[toNullable(toDate('2020-01-01')), NULL]",
        "tuple(toNullable(toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')))",
    ),
    (
        "CAST((toDate32('1950-05-05'), [toDateTime(5, 'UTC')]), "
        "'Tuple(d Date32, t Array(DateTime(\\'UTC\\')))')"
    ),
    "CAST(5, 'SimpleAggregateFunction(sum, UInt64)')",
)


def right(expression: str, output: str) -> bytes:
    answer = connection().query(f"SELECT {expression} AS `a b` {SETTINGS}", output)
    return bytes(answer.bytes())


def as_column(expression: str) -> tuple[ResultColumn, pa.Array]:
    data_type = parse_type(type_name(expression))
    raw = ask(f"SELECT {expression}", "TSVRaw")
    array = pa.array([parse_value(data_type, None if raw == "\\N" else raw)], data_type.arrow)
    return ResultColumn("a b", data_type), array


@pytest.mark.parametrize("expression", [*VALUES, *MORE])
def test_a_value_is_the_bytes_that_clickhouse_writes_and_is_read_from_them(expression) -> None:
    column, array = as_column(expression)
    for output in FORMATS:
        out = io.BytesIO()
        batch = pa.RecordBatch.from_arrays([array], names=[column.name])
        write_rows(Rows((column,), [batch]), output, out)
        content = right(expression, output)
        assert out.getvalue() == content
        given = file_of_format(output, "in", content=content)
        read = conform(given, [Column(column.name, column.type.text)], settings=QuerySettings())
        (table,) = read
        assert repr(table.column(0).to_pylist()) == repr(array.to_pylist())  # nan is not nan


def read(content: bytes, *columns: Column, head: str = "", **settings) -> list[dict]:
    file = RowBinaryFile("in", content, head=head)
    given = QuerySettings.of({name: str(value) for name, value in settings.items()})
    tables = conform(file, columns, settings=given)
    return [row for table in tables for row in table.to_pylist()]


N, S = Column("n", "UInt16"), Column("s", "String", "DEFAULT", "'none'")


def test_rows_of_a_clickhouse_query_are_inserted() -> None:
    query = "SELECT toUInt16(number) AS n, repeat('é', number % 200) AS s FROM numbers(50000)"
    content = bytes(
        connection().query(f"{query} {SETTINGS}", "RowBinaryWithNamesAndTypes").bytes()
    )
    rows = read(content, N, S, head="names and types")
    assert rows == [{"n": n, "s": "é" * (n % 200)} for n in range(50000)]


def test_a_head_may_leave_out_columns_and_order_them_otherwise() -> None:
    assert read(b"\x01\x01n\x05\x00", N, S, head="names") == [{"n": 5, "s": "none"}]
    assert read(b"\x02\x01s\x01n\x01a\x05\x00", N, S, head="names") == [{"n": 5, "s": "a"}]
    assert read(b"", N, S) == []


@pytest.mark.parametrize(
    ("content", "head", "message"),
    [
        (b"\x05", "", "in ends inside row 1, column n"),
        (b"\x05\x00\x01a\x06\x00\x09a", "", "in ends inside row 2, column s"),
        (b"", "names", "has no head"),
        (b"\x01\x01x", "names", "has a column x, whose values can't be skipped"),
        (b"\x02\x01n\x01n", "names", "its head names n, n"),
        (b"\x01\x01n\x05Int64", "names and types", "column n is Int64 there and UInt16 here"),
    ],
)
def test_what_is_cut_or_of_other_columns_is_refused(content, head, message) -> None:
    with pytest.raises(IncorrectData, match=message):
        read(content, N, S, head=head)


@pytest.mark.parametrize(
    ("content", "data_type", "message"),
    [
        (b"\x01\xff", "String", "in in row 1, column x: .* is not UTF-8"),
        (b"\x07", "Enum8('a' = 1)", "7 is no number of Enum8"),
        (b"\x02", "Nullable(UInt8)", "2 is neither 0 .a value. nor 1"),
        (b"\xff" * 10, "Array(UInt8)", "a length of more than 64 bits"),
        (b"\xff\xff\xff\x7f", "Decimal(4, 2)", "column x"),
    ],
)
def test_what_is_no_value_is_refused_with_its_row(content, data_type, message) -> None:
    with pytest.raises(BadValue, match=message):
        read(content, Column("x", data_type))


def test_a_state_has_no_form_that_the_original_would_read() -> None:
    data_type = parse_type("AggregateFunction(sum, UInt64)")
    batch = pa.RecordBatch.from_arrays([pa.array([1], data_type.arrow)], names=["x"])
    with pytest.raises(NoBinaryForm, match="finalizeAggregation"):
        write_rows(Rows((ResultColumn("x", data_type),), [batch]), "RowBinary", io.BytesIO())
