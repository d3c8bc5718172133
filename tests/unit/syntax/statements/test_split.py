"""Cutting a text into statements."""

import pytest

from rmt_pipeline.protocol.errors import SyntaxProblem
from rmt_pipeline.syntax.statements.split import split


def texts(source: str) -> list[str]:
    return [piece.text for piece in split(source)]


def test_statements_end_at_semicolons_and_empty_ones_are_left_out():
    assert texts(" SELECT 1 ;; SELECT 2\n;\n") == ["SELECT 1", "SELECT 2"]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT ';'",
        "SELECT 'it''s; so'",
        r"SELECT 'it\'s; so'",
        'SELECT `a;b`, "c;d"',
        "SELECT 1 -- a; comment\n+ 1",
        "SELECT /* ; ' */ 1",
        "SELECT 1 # one; two\n",
        "SELECT 5 - 3 / 2",
    ],
)
def test_a_semicolon_in_quotes_or_comments_ends_nothing(statement):
    assert texts(f"{statement}; SELECT 2") == [statement.rstrip(), "SELECT 2"]


def test_a_comment_alone_is_no_statement():
    assert texts("-- nothing\n/* here */ ; # at all\n") == []


def test_pieces_are_numbered_and_know_their_places():
    source = "SELECT 1;\n  SELECT 2"
    first, second = split(source)
    assert (first.number, second.number) == (1, 2)
    assert source[second.start : second.stop] == "SELECT 2"


def test_rows_of_an_insert_format_go_on_to_an_empty_line():
    source = "INSERT INTO t FORMAT CSV\n1,'a;b'\n2,c\n\nSELECT 1"
    assert texts(source) == ["INSERT INTO t FORMAT CSV\n1,'a;b'\n2,c", "SELECT 1"]
    rows = next(split(source))
    assert rows.source[rows.start : rows.stop].endswith("2,c\n")


def test_rows_of_an_insert_format_go_on_to_the_end_without_an_empty_line():
    source = 'INSERT INTO t (a, b) FORMAT JSONEachRow {"a": "; it\'s"}\n{}'
    assert texts(source) == [source]


def test_a_line_of_tabs_is_a_row_and_not_an_empty_line():
    source = "INSERT INTO t FORMAT TSV\n1\t2\n\t\n3\t4\n"
    assert texts(source) == [source.rstrip()]


def test_windows_line_ends_also_make_an_empty_line():
    assert len(texts("INSERT INTO t FORMAT CSV\r\n1\r\n\r\nSELECT 1")) == 2


def test_rows_that_go_on_after_an_empty_line_are_refused_before_anything_is_inserted():
    with pytest.raises(SyntaxProblem, match=r"line 4, column 1.*empty line.*near: 2,b"):
        texts("INSERT INTO t FORMAT CSV\n1,a\n\n2,b\n")


def test_insert_format_without_rows_leaves_the_next_statement_alone():
    assert texts("INSERT INTO t FORMAT CSV; SELECT 1") == [
        "INSERT INTO t FORMAT CSV",
        "SELECT 1",
    ]


@pytest.mark.parametrize("word", ["VALUES", "FORMAT Values"])
def test_values_end_at_the_semicolon(word):
    insert = f"INSERT INTO t {word} (1, 'a;\n\nb')"
    assert texts(f"{insert};SELECT 1") == [insert, "SELECT 1"]


def test_a_column_named_format_is_no_format():
    assert texts("INSERT INTO t (format) SELECT 1; SELECT 2")[1] == "SELECT 2"


@pytest.mark.parametrize("quote", ["'", '"', "`"])
def test_a_quote_that_is_never_closed_is_pointed_at(quote):
    pieces = split(f"SELECT 1;\nSELECT {quote}a; SELECT 2")
    assert next(pieces).text == "SELECT 1"
    with pytest.raises(SyntaxProblem, match=r"line 2, column 8: a quote .* never closed"):
        next(pieces)


def test_semicolons_in_many_rows_cut_nothing():
    rows = ",".join(f"({number}, 'text {number};')" for number in range(100_000))
    assert len(texts(f"INSERT INTO t VALUES {rows}; SELECT 1")) == 2


@pytest.mark.parametrize("format_name", ["RowBinary", "Parquet", "arrowStream"])
def test_binary_rows_go_on_to_the_end_whatever_bytes_they_have(format_name):
    rows = "\x00\n\n;SELECT 1\n\nSELECT 2;"
    (piece,) = split(f"INSERT INTO t FORMAT {format_name}\n{rows}")
    assert piece.source[: piece.stop].endswith(rows)
    (quoted, after) = split("INSERT INTO RowBinary FORMAT CSV\n1\n\nSELECT 2")
    assert (quoted.text[-1], after.text) == ("1", "SELECT 2")


@pytest.mark.parametrize("rows", ['{"a": 1};', '{"a": 1} {"a": 2} ; \t', '[1, "x"];\r', "{};"])
def test_rows_in_json_may_end_with_a_semicolon_at_the_end_of_a_line(rows):
    text = f"INSERT INTO t FORMAT JSONEachRow {rows}\nSELECT 1"
    [inserted, selected] = split(text)
    assert inserted.text.endswith(rows.partition(";")[0].rstrip())
    assert selected.text == "SELECT 1"


def test_a_semicolon_in_a_text_of_json_ends_nothing():
    rows = '{"a": "x};", "b": 1}\n{"a": ";\\n"}'
    [inserted, selected] = split(f"INSERT INTO t FORMAT JSONEachRow\n{rows};\nSELECT 1")
    assert inserted.text.endswith(rows)
    assert selected.text == "SELECT 1"


def test_a_semicolon_behind_other_rows_belongs_to_them():
    [inserted] = split("INSERT INTO t FORMAT CSV\n1,[2];\n3,[4]")
    assert inserted.text.endswith("1,[2];\n3,[4]")
