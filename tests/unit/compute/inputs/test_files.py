"""Text files: every bad line is found and named, every way of reading agrees."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.compute.inputs import csv as input_csv
from rmt_pipeline.compute.inputs import json as input_json
from rmt_pipeline.compute.inputs import tsv as input_tsv
from rmt_pipeline.compute.inputs.conform import (
    INPUT_FORMATS,
    ArrowFile,
    CsvFile,
    JsonLinesFile,
    ParquetFile,
    TsvFile,
    file_of_format,
)
from rmt_pipeline.protocol.errors import (
    BadValue,
    IncorrectData,
    UnknownColumn,
    UnknownFormat,
    UserError,
)
from rmt_pipeline.protocol.table import Column
from tests.support.insert_data import CSV, JSON, ROWS, TABLE, TSV, csv_file, rows_of

BAD_CSV = {
    "id,price\n1,2\n\n3\n": "in.csv line 4: 1 values, but there are 2 columns \\(id, price\\)",
    "id,price\n1,2,3\n": "in.csv line 2: 3 values",
    'id,name\n1,"a\nb"\n300,x\n': "in.csv line 4, column id: '300' does not fit UInt8",
    'id,name\n1,"open\n2,x\n': "in.csv: a quote is not closed, in the record of line 2",
    "id,id\n1,2\n": "its header has 'id' twice",
    "": "it has no header line",
    b"id,name\n1,\xff\n": r"in.csv line 2, column name: b'\\xff' is not UTF-8",
    b"\x1f\x8b": "in.csv",
}


@pytest.mark.parametrize("text", BAD_CSV)
def test_a_bad_line_of_csv_is_named(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises((BadValue, IncorrectData, UnknownColumn), match=BAD_CSV[text]):
        rows_of(CsvFile(csv_file(tmp_path, text)))


def test_lines_are_counted_with_all_that_is_no_row(tmp_path: Path) -> None:
    text = '# made by hand\nid,name\n\n1,"two\nlines"\r\n\n300,x\n'
    with pytest.raises(BadValue, match=r"in\.csv line 7, column id: '300'"):
        rows_of(CsvFile(csv_file(tmp_path, text)), input_format_csv_skip_first_lines=1)
    with pytest.raises(BadValue, match=r"in\.csv line 2, column id: '300'"):
        rows_of(CsvFile(csv_file(tmp_path, "1\n300\n"), header=False), given=["id"])


def test_csv_settings(tmp_path: Path) -> None:
    file = CsvFile(csv_file(tmp_path, 'id;name\n1;none\n2;"none"\n'))
    found = rows_of(file, format_csv_delimiter=";", format_csv_null_representation="none")
    assert [row["name"] for row in found] == [None, "none"]


def test_an_empty_csv_without_header_has_no_rows(tmp_path: Path) -> None:
    assert rows_of(CsvFile(csv_file(tmp_path, ""), header=False)) == []


def test_a_quote_within_an_unquoted_value_is_no_error(tmp_path: Path) -> None:
    assert rows_of(CsvFile(csv_file(tmp_path, 'name\n5" disk\n')))[0]["name"] == '5" disk'


def test_bytes_may_stand_in_a_fixed_string(tmp_path: Path) -> None:
    columns = (Column("code", "FixedString(2)"),)
    found = rows_of(CsvFile(csv_file(tmp_path, b"code\n\xff\xfe\nab\n")), columns)
    assert [row["code"] for row in found] == [b"\xff\xfe", b"ab"]


BAD_JSON = {
    '{"id":1}\n\n{"id":300}\n': "in.jsonl line 3, column id: 300",
    '{"id":1}\n{"id":\n': "in.jsonl line 2 is not JSON",
    "[1]\n": "in.jsonl line 1 is not an object",
    '{"id":1} {"id":2}\n': "in.jsonl line 1 is not JSON",
    '{"id":1,"id":2}\n': "line 1 is not JSON: the key 'id' is there twice",
    '{"id":"x"}\n': "line 1, column id: 'x' is not an integer",
    '{"day":"2013-02-30"}\n': "line 1, column day: there is no day",
    b'{"name":"\xff"}\n': "line 1 is not JSON",
    "[" * 100_000 + "\n": "line 1 is not JSON",
}


@pytest.mark.parametrize("text", BAD_JSON)
def test_a_bad_line_of_json_is_named(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(BadValue, match=BAD_JSON[text]):
        rows_of(JsonLinesFile(csv_file(tmp_path, text, "in.jsonl")))


def test_json_takes_what_its_types_may_mean(tmp_path: Path) -> None:
    columns = (
        Column("n", "Int128"),
        Column("m", "Map(String, UInt8)"),
        Column("t", "Tuple(a Int8, b Array(Nullable(Int8)))"),
        Column("d", "Decimal(30, 10)"),
        Column("u", "UInt64"),
    )
    line = (
        '{"n":170141183460469231731687303715884105727,"m":{"x":1},"t":{"a":1,"b":[null]},'
        '"d":12345678901234567.0123456789,"u":"18446744073709551615"}\n'
    )
    (row,) = rows_of(JsonLinesFile(csv_file(tmp_path, line, "in.jsonl")), columns)
    assert row["m"] == [("x", 1)]
    assert row["t"] == {"a": 1, "b": [None]}
    assert str(row["d"]) == "12345678901234567.0123456789"
    assert row["u"] == 2**64 - 1


JSON_VALUES = st.one_of(
    st.none(), st.integers(-5, 300), st.floats(0, 9).map(lambda each: round(each, 2)),
    st.sampled_from(["", "1", "x", "2013-07-01", True]),
)  # fmt: skip


@settings(max_examples=150)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["id", "day", "name", "price"]), JSON_VALUES),
        max_size=5,
    ),
    st.booleans(),
)
def test_both_ways_to_read_json_agree(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], strict: bool
) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    file = JsonLinesFile(csv_file(tmp_path_factory.mktemp("json"), text, "in.jsonl"))

    def outcome() -> Any:
        try:
            return rows_of(file, input_format_null_as_default=not strict)
        except BadValue as error:
            return str(error)

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_json, "_fast", lambda *_: None)
        assert found == outcome()


def test_ordinary_json_is_read_by_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        pytest.fail("it was read by Python")

    monkeypatch.setattr(input_json, "_slow", refuse)
    assert rows_of(JsonLinesFile(csv_file(tmp_path, JSON, "in.jsonl"))) == ROWS


@pytest.mark.parametrize("block_bytes", [1, 7, 40])
def test_blocks_of_a_file_do_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(input_json, "BLOCK_BYTES", block_bytes)
    lines = csv_file(tmp_path, JSON + '{"id":300}\n', "in.jsonl")
    with pytest.raises(BadValue, match="line 4, column id"):
        rows_of(JsonLinesFile(lines))
    assert rows_of(JsonLinesFile(csv_file(tmp_path, JSON, "in.jsonl"))) == ROWS


def test_csv_is_read_in_blocks_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_csv, "BLOCK_BYTES", 64)
    text = "id\n" + "7\n" * 500 + "300\n"
    with pytest.raises(BadValue, match="line 502, column id"):
        rows_of(CsvFile(csv_file(tmp_path, text)))
    huge = CsvFile(csv_file(tmp_path, "name\n" + "x" * 1000 + "\n"))
    assert rows_of(huge, (Column("name", "String"),)) == [{"name": "x" * 1000}]


# Tab-separated


def test_tab_separated_files_give_the_same_rows(tmp_path: Path) -> None:
    assert rows_of(TsvFile(csv_file(tmp_path, TSV, "in.tsv"))) == ROWS
    with_names = csv_file(tmp_path, "id\tday\tname\tprice\n" + TSV, "named.tsv")
    assert rows_of(TsvFile(with_names, header=True)) == ROWS


ESCAPED = [
    (r"tab\there", "tab\there"),
    (r"back\\slash", "back\\slash"),
    (r"\\N", "\\N"),
    ('"quoted"', '"quoted"'),
    ("", ""),
    (r"caf\xc3\xa9", "café"),
]


@pytest.mark.parametrize(("written", "meant"), ESCAPED)
def test_tsv_escapes(tmp_path: Path, written: str, meant: str) -> None:
    columns = (Column("x", "Nullable(String)"),)
    assert rows_of(TsvFile(csv_file(tmp_path, written + "\n")), columns) == [{"x": meant}]


def test_tsv_takes_any_bytes_for_a_fixed_string_only(tmp_path: Path) -> None:
    file = TsvFile(csv_file(tmp_path, b"\xff\\n\n"))
    assert rows_of(file, (Column("x", "FixedString(2)"),)) == [{"x": b"\xff\n"}]
    with pytest.raises(BadValue, match=r"line 1, column x: .*not UTF-8"):
        rows_of(file, (Column("x", "String"),))


BAD_TSV = {
    "1\ta\n2\n": r"in\.csv line 2: 1 values, but there are 2 columns \(id, name\)",
    "1\ta\n\n2\tb\n": r"in\.csv line 2: 1 values",
    "1\ta\n2\tb\tc\n": r"in\.csv line 2: 3 values",
    "1\ta\n300\tb\n": r"in\.csv line 2, column id: '300'",
    "1\ta\n\\N\tb\n": r"in\.csv line 2, column id: NULL",
    "1\ta\n\tb\n": r"in\.csv line 2, column id: '' is not an integer",
}


@pytest.mark.parametrize("text", BAD_TSV)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_a_bad_line_of_tsv_is_named(
    tmp_path: Path, text: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_tsv, "BLOCK_BYTES", block_bytes)
    file = TsvFile(csv_file(tmp_path, text))
    with pytest.raises(BadValue, match=BAD_TSV[text]):
        rows_of(file, given=["id", "name"], keys=["id"])


def test_a_bad_header_of_tsv_is_named(tmp_path: Path) -> None:
    with pytest.raises(IncorrectData, match="no header line"):
        rows_of(TsvFile(csv_file(tmp_path, ""), header=True))
    with pytest.raises(IncorrectData, match="'id' twice"):
        rows_of(TsvFile(csv_file(tmp_path, "id\tid\n"), header=True))
    with pytest.raises(UnknownColumn, match=r"in\.csv line 2: .*'idd'"):
        rows_of(TsvFile(csv_file(tmp_path, "idd\n1\n"), header=True))
    assert rows_of(TsvFile(csv_file(tmp_path, ""))) == []


# Formats by their names, and data within a statement


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("CSV", CSV.partition("\n")[2]),
        ("CSVWithNames", CSV),
        ("TabSeparated", TSV),
        ("TSVWithNames", "id\tday\tname\tprice\n" + TSV),
        ("JSONEachRow", JSON),
    ],
)
def test_data_within_a_statement(name: str, content: str) -> None:
    file = file_of_format(name, "the rows of the statement", content=content.encode())
    assert rows_of(file) == ROWS
    broken = file_of_format(name, "the rows", content=content.encode() + b"300")
    with pytest.raises(BadValue, match=r"the rows line \d"):
        rows_of(broken)


def test_parquet_within_a_statement() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink)
    file = file_of_format("Parquet", "the rows", content=sink.getvalue().to_pybytes())
    assert rows_of(file) == ROWS


@pytest.mark.parametrize("name", ["Arrow", "ArrowStream"])
def test_arrow_within_a_statement_or_in_a_file(tmp_path: Path, name: str) -> None:
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_file if name == "Arrow" else pa.ipc.new_stream
    with new(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)
    content = sink.getvalue().to_pybytes()
    assert rows_of(file_of_format(name, "the rows", content=content)) == ROWS
    assert rows_of(ArrowFile(csv_file(tmp_path, content, "in.arrow"))) == ROWS
    broken = file_of_format(name, "the rows", content=b"no arrow at all")
    with pytest.raises(IncorrectData, match="the rows can't be read as Arrow"):
        rows_of(broken)


def test_compact_json_has_the_values_of_the_columns_in_their_order() -> None:
    lines = '[1, "2013-07-01", "a", 1.5]\n[2, "2013-07-02", null, -2]\n'
    file = file_of_format("JSONCompactEachRow", "the rows", content=lines.encode())
    assert rows_of(file) == ROWS[:2]
    some = file_of_format("JSONCompactEachRow", "the rows", content=b"[7]\n")
    assert rows_of(some, (Column("id", "UInt8"), Column("b", "String")), given=["id"]) == [
        {"id": 7, "b": ""}
    ]
    for wrong in (b"[1]\n", b'{"id":1}\n'):
        file = file_of_format("JSONCompactEachRow", "the rows", content=wrong)
        with pytest.raises(BadValue, match=r"the rows line 1 is not an array of 4 values"):
            rows_of(file)


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownFormat, match=r"XML is no format .* JSONEachRow"):
        file_of_format("XML", "x")


@pytest.mark.parametrize("name", [name for name in INPUT_FORMATS if name != "Values"])
def test_every_format_that_is_listed_can_be_read(name: str) -> None:
    assert file_of_format(name, "x").path == "x"


def test_a_compression_may_be_named(tmp_path: Path) -> None:
    packed = csv_file(tmp_path, gzip.compress(CSV.encode()), "data")
    assert rows_of(CsvFile(packed, compression="gzip")) == ROWS
    plain = csv_file(tmp_path, CSV, "odd.gz")
    assert rows_of(CsvFile(plain, compression="none")) == ROWS
    with pytest.raises(UserError, match="xz is no compression; there are gz"):
        rows_of(CsvFile(packed, compression="xz"))
    with pytest.raises(IncorrectData, match=r"odd\.gz can't be read"):
        rows_of(CsvFile(plain))


# Options of the reader


@pytest.mark.parametrize("encoding", ["latin1", "utf-16", "cp1251", "utf-8-sig"])
def test_a_text_may_have_another_encoding(tmp_path: Path, encoding: str) -> None:
    word = "Юг" if encoding == "cp1251" else "café"
    columns = (Column("name", "String"),)
    for file in (
        CsvFile(csv_file(tmp_path, f"name\n{word}\n".encode(encoding))),
        TsvFile(csv_file(tmp_path, f"{word}\n".encode(encoding), "in.tsv")),
        JsonLinesFile(csv_file(tmp_path, f'{{"name":"{word}"}}\n'.encode(encoding), "j")),
    ):
        assert rows_of(file, columns, input_format_encoding=encoding) == [{"name": word}]


def test_a_text_that_is_not_of_its_encoding_is_refused(tmp_path: Path) -> None:
    for file in (
        CsvFile(csv_file(tmp_path, "name\ncafé\n")),
        TsvFile(csv_file(tmp_path, "café\n", "in.tsv")),
        JsonLinesFile(csv_file(tmp_path, '{"name":"café"}\n', "j")),
    ):
        with pytest.raises(IncorrectData, match=r"can't be read: .* BOM"):
            rows_of(file, (Column("name", "String"),), input_format_encoding="utf-16")


def test_an_unknown_encoding_or_way_to_read_times_is_refused(tmp_path: Path) -> None:
    file = CsvFile(csv_file(tmp_path, "name\nx\n"))
    with pytest.raises(UserError, match="there is no encoding 'latin77'"):
        rows_of(file, input_format_encoding="latin77")
    with pytest.raises(UserError, match="there is no encoding 'hex'"):
        rows_of(file, input_format_encoding="hex")
    with pytest.raises(UserError, match="basic or best_effort, not 'best'"):
        rows_of(file, date_time_input_format="best")


def test_a_value_of_30_mb_is_read(tmp_path: Path) -> None:
    value = "x" * 15_000_000 + '""\n' + "y" * 15_000_000
    file = CsvFile(csv_file(tmp_path, f'name,id\nsmall,1\n"{value}",2\nlast,3\n'))
    found = rows_of(file, (Column("name", "String"), Column("id", "UInt8")))
    assert [row["id"] for row in found] == [1, 2, 3]
    assert found[1]["name"] == value.replace('""', '"')


def test_a_quote_that_nobody_closes_takes_a_bounded_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_csv, "VALUE_CHARACTERS_MAX", 100)
    monkeypatch.setattr(input_csv, "BLOCK_BYTES", 64)
    text = 'name\na\n"' + "line\n" * 1000
    with pytest.raises(BadValue, match="line 3: a value of more than 0 MiB in quotes"):
        rows_of(CsvFile(csv_file(tmp_path, text)), (Column("name", "String"),))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (CsvFile, "id,name\n1,a\nx,b\n3\n4,d\n5,e,e\n6,f\n"),
        (TsvFile, "1\ta\nx\tb\n3\n4\td\n5\te\te\n6\tf\n"),
        (
            JsonLinesFile,
            (
                '{"id":1,"name":"a"}\n{"id":"x"}\n{"id":3\n{"id":4,"name":"d"}\n[5]\n'
                '{"id":6,"name":"f"}\n'
            ),
        ),
    ],
)
def test_wrong_rows_are_left_out_up_to_a_number_or_a_part_of_all(
    tmp_path: Path, kind: type, text: str
) -> None:
    file = kind(csv_file(tmp_path, text))
    columns = (Column("id", "UInt8"), Column("name", "String"))
    wanted = [{"id": 1, "name": "a"}, {"id": 4, "name": "d"}, {"id": 6, "name": "f"}]
    assert rows_of(file, columns, input_format_allow_errors_num=3) == wanted
    with pytest.raises(BadValue, match=r"\(3 wrong rows of . are more than input_format_allow"):
        rows_of(file, columns, input_format_allow_errors_num=2)
    with pytest.raises(BadValue, match=r"Nothing was inserted$"):
        rows_of(file, columns)


def test_of_files_with_types_no_row_is_left_out(tmp_path: Path) -> None:
    data, path = pa.table({"id": [1, 300, 3]}), tmp_path / "in"
    pq.write_table(data, path)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, data.schema) as writer:
        writer.write_table(data)
    for file in (ParquetFile(path), ArrowFile("in", stream.getvalue().to_pybytes())):
        with pytest.raises(BadValue, match="in row 2, column id: 300"):
            rows_of(file, (Column("id", "UInt8"),), input_format_allow_errors_num=1)


def test_a_file_is_not_read_again_for_a_row_that_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find the place of a row that is told."""
    asked: list[int] = []
    place = input_csv._place

    def counted(text: input_csv.CsvText, first: int, row: int) -> str:
        asked.append(row)
        return place(text, first, row)

    monkeypatch.setattr(input_csv, "_place", counted)
    file = CsvFile(csv_file(tmp_path, "id\n" + "1\n" * 500 + "x\n" + "2\n" * 500 + "y\n"))
    columns = (Column("id", "UInt8"),)
    assert len(rows_of(file, columns, input_format_allow_errors_num=2)) == 1000
    assert asked == []
    with pytest.raises(BadValue, match=r"in\.csv line 1003, column id: 'y'"):
        rows_of(file, columns, input_format_allow_errors_num=1)
    assert len(asked) == 1


def test_the_row_that_is_one_too_many_is_named(tmp_path: Path) -> None:
    file = CsvFile(csv_file(tmp_path, "id\n1\nx\n3\ny\n5\n"))
    columns = (Column("id", "UInt8"),)
    with pytest.raises(BadValue, match=r"in\.csv line 5, column id: 'y'.*\(2 wrong rows of 4"):
        rows_of(file, columns, input_format_allow_errors_num=1)
    found = rows_of(file, columns, input_format_allow_errors_ratio=0.5)
    assert [row["id"] for row in found] == [1, 3, 5]


def test_any_number_of_lines_may_be_left_out(tmp_path: Path) -> None:
    file = CsvFile(csv_file(tmp_path, "id\n1\n"), header=False)
    columns = (Column("id", "UInt8"),)
    assert rows_of(file, columns, input_format_csv_skip_first_lines=2**64 - 1) == []
