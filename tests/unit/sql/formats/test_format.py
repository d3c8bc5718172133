"""Answers as text. Expected texts are what ClickHouse 26.9 printed for the same rows."""

import io
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.sql.formats import rows
from rmt_pipeline.sql.formats.rows import OutputOptions, Rows, rows_of
from rmt_pipeline.sql.formats.write import canonical_format, write_rows

COLUMNS = [
    ("a", "UInt8"),
    ("b", "Nullable(String)"),
    ("d", "DateTime"),
    ("arr", "Array(UInt8)"),
    ("t", "Tuple(UInt8, String)"),
    ("big", "UInt64"),
]
ROWS: list[tuple[object, ...]] = [
    (1, 'it\'s\t"x"', 1577836800 * 10**6, [1, 2], {"1": 1, "2": "q"}, 2**63),
    (20, None, 1577836800 * 10**6, [], {"1": 2, "2": "z"}, 0),
]


def text(answer: Rows, name: str) -> str:
    out = io.BytesIO()
    write_rows(answer, name, out)
    return out.getvalue().decode()


def answer() -> Rows:
    return rows_of(COLUMNS, ROWS)


def test_tsv_escapes_and_writes_null_as_the_original():
    assert text(answer(), "TSV") == (
        "1\tit\\'s\\t\"x\"\t2020-01-01 00:00:00\t[1,2]\t(1,'q')\t9223372036854775808\n"
        "20\t\\N\t2020-01-01 00:00:00\t[]\t(2,'z')\t0\n"
    )


def test_tsv_can_have_names_and_types():
    lines = text(answer(), "TSVWithNamesAndTypes").splitlines()
    assert lines[0] == "a\tb\td\tarr\tt\tbig"
    assert lines[1] == (
        "UInt8\tNullable(String)\tDateTime\tArray(UInt8)\tTuple(UInt8, String)\tUInt64"
    )
    assert text(answer(), "TabSeparatedWithNames").splitlines()[1:] == lines[2:]


def test_raw_tsv_leaves_strings_alone():
    assert text(rows_of([("s", "String")], [("a\n'b'",)]), "TSVRaw") == "a\n'b'\n"


def test_csv_quotes_what_is_no_number_and_spreads_tuples():
    assert text(answer(), "CSVWithNames") == (
        '"a","b","d","arr","t.1","t.2","big"\n'
        '1,"it\'s\t""x""","2020-01-01 00:00:00","[1,2]",1,"q",9223372036854775808\n'
        '20,\\N,"2020-01-01 00:00:00","[]",2,"z",0\n'
    )


def test_json_lines_can_be_read_by_anybody():
    lines = text(answer(), "JSONEachRow").splitlines()
    assert lines[1] == (
        '{"a":20,"b":null,"d":"2020-01-01 00:00:00","arr":[],"t":[2,"z"],"big":0}'
    )
    assert json.loads(lines[0])["b"] == 'it\'s\t"x"'


def test_json_has_the_columns_the_rows_and_their_number():
    document = json.loads(text(answer(), "JSON"))
    assert document["meta"][1] == {"name": "b", "type": "Nullable(String)"}
    assert [row["a"] for row in document["data"]] == [1, 20]
    assert document["rows"] == 2
    compact = json.loads(text(answer(), "JSONCompact"))
    assert compact["data"][1] == [20, None, "2020-01-01 00:00:00", [], [2, "z"], 0]


def test_json_is_laid_out_as_the_original_does():
    assert text(rows_of([("n", "UInt8")], [(1,), (2,)]), "JSON") == (
        '{\n\t"meta":\n\t[\n\t\t{\n\t\t\t"name": "n",\n\t\t\t"type": "UInt8"\n\t\t}\n\t],\n\n'
        '\t"data":\n\t[\n\t\t{\n\t\t\t"n": 1\n\t\t},\n\t\t{\n\t\t\t"n": 2\n\t\t}\n\t],\n\n'
        '\t"rows": 2\n}\n'
    )
    assert json.loads(text(rows_of([("n", "UInt8")], []), "JSON"))["data"] == []


def test_settings_say_how_null_and_large_integers_are_written():
    columns = [("n", "Nullable(UInt64)"), ("a", "Array(Int64)")]
    made = rows_of(columns, [(1, [2]), (None, [])])
    options = OutputOptions(
        csv_delimiter=";", csv_null="NULL", tsv_null="-", quote_64bit_integers=True
    )
    chosen = replace(made, options=options)
    assert text(chosen, "CSVWithNames") == '"n";"a"\n1;"[2]"\nNULL;"[]"\n'
    assert text(chosen, "TSV") == "1\t[2]\n-\t[]\n"
    assert text(chosen, "JSONEachRow") == '{"n":"1","a":["2"]}\n{"n":null,"a":[]}\n'
    assert text(made, "JSONEachRow") == '{"n":1,"a":[2]}\n{"n":null,"a":[]}\n'


def test_values_can_be_inserted_again():
    assert text(
        rows_of([("a", "UInt8"), ("s", "String")], [(1, "x'"), (2, "y")]), "Values"
    ) == ("(1,'x\\''),(2,'y')")


def people() -> Rows:
    columns = [("a", "UInt8"), ("bb", "Nullable(String)"), ("d", "DateTime"), ("u", "String")]
    day = 1577836800 * 10**6
    return rows_of(columns, [(1, "it's \\ x", day, "漢"), (20, None, day, "漢")])


def test_a_pretty_table_is_drawn_as_the_original_draws_it():
    assert text(people(), "Pretty") == (
        "   ┏━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┳━━━━┓\n"
        "   ┃  a ┃ bb       ┃                   d ┃ u  ┃\n"
        "   ┡━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━╇━━━━┩\n"
        "1. │  1 │ it's \\ x │ 2020-01-01 00:00:00 │ 漢 │\n"
        "   ├────┼──────────┼─────────────────────┼────┤\n"
        "2. │ 20 │ ᴺᵁᴸᴸ     │ 2020-01-01 00:00:00 │ 漢 │\n"
        "   └────┴──────────┴─────────────────────┴────┘\n"
    )


def test_a_compact_table_has_its_names_in_the_border():
    assert text(people(), "PrettyCompact") == (
        "   ┌──a─┬─bb───────┬───────────────────d─┬─u──┐\n"
        "1. │  1 │ it's \\ x │ 2020-01-01 00:00:00 │ 漢 │\n"
        "2. │ 20 │ ᴺᵁᴸᴸ     │ 2020-01-01 00:00:00 │ 漢 │\n"
        "   └────┴──────────┴─────────────────────┴────┘\n"
    )


def test_vertical_has_a_line_for_each_value():
    assert text(
        rows_of([("a", "UInt8"), ("bb", "String")], [(1, "x"), (2, "y")]), "Vertical"
    ) == ("Row 1:\n──────\na:  1\nbb: x\n\nRow 2:\n──────\na:  2\nbb: y\n")


def test_a_control_character_cannot_tear_a_table_apart():
    drawn = text(rows_of([("a\n", "String")], [("x\ny\x1b[0m",)]), "Pretty")
    assert len(drawn.splitlines()) == 5
    assert "x\\ny\\x1B[0m" in drawn


@pytest.mark.parametrize("name", ["Pretty", "PrettyCompact", "Vertical", "TSV", "Null"])
def test_no_rows_draw_nothing(name):
    assert text(rows_of(COLUMNS, []), name) == ""


def test_a_pretty_table_ends_after_many_rows_and_says_so():
    three = rows_of([("a", "UInt8")], [(1,), (2,), (3,)])
    drawn = text(replace(three, options=OutputOptions(pretty_rows_max=2)), "PrettyCompact")
    assert drawn.endswith("  Showed first 2.\n")
    assert "3" not in drawn


def test_large_batches_become_text_piece_by_piece(monkeypatch):
    monkeypatch.setattr(rows, "TEXT_ROWS_MAX", 3)
    answered = rows_of([("n", "UInt32")], [(number,) for number in range(10)])
    assert text(answered, "TSV") == "".join(f"{number}\n" for number in range(10))


def test_parquet_keeps_the_stored_types():
    out = io.BytesIO()
    write_rows(answer(), "Parquet", out)
    table = pq.read_table(io.BytesIO(out.getvalue()))
    assert table.column("big").to_pylist() == [2**63, 0]
    assert table.schema.field("d").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("name", "opened"), [("Arrow", pa.ipc.open_file), ("ArrowStream", pa.ipc.open_stream)]
)
def test_arrow_keeps_the_stored_types(name, opened):
    out = io.BytesIO()
    write_rows(answer(), name, out)
    read = opened(out.getvalue()).read_all()
    assert read.to_pylist() == pa.Table.from_batches(answer().batches).to_pylist()
    assert read.schema.names == [column for column, _ in COLUMNS]
    with pytest.raises(UserError, match="Arrow needs distinct names: 'x' is there twice"):
        write_rows(rows_of([("x", "UInt8"), ("x", "UInt8")], [(1, 2)]), name, io.BytesIO())


def test_compact_json_lines_are_the_originals():
    found = text(answer(), "JSONCompactEachRow")
    assert found.splitlines()[1] == ('[20, null, "2020-01-01 00:00:00", [], [2,"z"], 0]')


def test_parquet_refuses_two_columns_of_one_name():
    twins = rows_of([("a", "UInt8"), ("a", "UInt8")], [(1, 2)])
    with pytest.raises(UserError, match="'a' is there twice"):
        write_rows(twins, "Parquet", io.BytesIO())


def test_bytes_that_are_no_text_come_out_as_they_are():
    out = io.BytesIO()
    write_rows(rows_of([("f", "FixedString(2)")], [(b"\xff\x01",)]), "TSV", out)
    assert out.getvalue() == b"\xff\x01\n"


def test_formats_have_aliases_and_any_case():
    assert canonical_format("tabseparated") == "TSV"
    assert canonical_format("prettycompact") == "PrettyCompact"


def test_an_unknown_format_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="no output format Prety; did you mean Pretty"):
        canonical_format("Prety")
