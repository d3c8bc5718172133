"""INSERT … FROM INFILE: a header is found, and what can be read only once is refused."""

import gzip
import os
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.sql.run.session import Session
from tests.support.local_session import create, local_session, rows, session_with_numbers


@pytest.mark.parametrize("text", ["n\n1\n2\n", "1\n2\n"])
def test_a_first_line_of_names_is_a_header(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text)
    with session_with_numbers(tmp_path) as session:
        assert inserted(session, file) == [(1,), (2,)]


@pytest.mark.parametrize(
    ("name", "content", "more"),
    [
        ("a.csv", b"a;b\n1;2\n", "SETTINGS format_csv_delimiter = ';'"),
        (
            "a.csv",
            b"made by hand\na,b\n1,2\n",
            "SETTINGS input_format_csv_skip_first_lines = 1",
        ),
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), "SETTINGS input_format_encoding = 'utf-16'"),
        ("a.csv", b"\xef\xbb\xbfa,b\n1,2\n", ""),  # as Excel writes it
        ("a.tsv", b"\xef\xbb\xbfa\tb\n1\t2\n", ""),
        ("a.csv", b"\na,b\n1,2\n", ""),
        ("a*.csv", b"a,b\n1,2\n", ""),
        ("a.csv", gzip.compress(b"a,b\n1,2\n", mtime=0), "COMPRESSION 'gzip'"),
    ],
)
def test_a_header_is_found_however_the_file_is_written(
    tmp_path: Path, name: str, content: bytes, more: str
) -> None:
    """In columns of texts it was a row."""
    (tmp_path / name.replace("*", "1")).write_bytes(content)
    with local_session(tmp_path) as session:
        create(
            session,
            "CREATE TABLE t (a String, b String) ENGINE = ReplicatedMergeTree ORDER BY a",
        )
        session.execute(f"INSERT INTO t FROM INFILE '{tmp_path / name}' {more}")
        assert rows(session, "SELECT * FROM t") == [("1", "2")]


def test_an_empty_first_line_of_tsv_is_an_empty_value(tmp_path: Path) -> None:
    """Of what follows, a text that is called as the column is no header."""
    file = tmp_path / "a.tsv"
    file.write_bytes(b"\ns\nt\n")
    with local_session(tmp_path) as session:
        create(session, "CREATE TABLE t (s String) ENGINE = ReplicatedMergeTree ORDER BY s")
        session.execute(f"INSERT INTO t FROM INFILE '{file}'")
        assert rows(session, "SELECT s FROM t ORDER BY s") == [("",), ("s",), ("t",)]


def test_an_unknown_encoding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("n\n1\n")
    with session_with_numbers(tmp_path) as session:
        session.execute("SET input_format_encoding = 'klingon'")
        with pytest.raises(UserError, match="no encoding 'klingon'"):
            inserted(session, file)


def test_a_named_pipe_is_refused_before_anything_is_read_of_it(tmp_path: Path) -> None:
    """It was waited for until somebody wrote to it, and what came was lost."""
    pipe = tmp_path / "rows.csv"
    os.mkfifo(pipe)
    with (
        session_with_numbers(tmp_path) as session,
        pytest.raises(UserError, match="is a pipe or a device: INSERT … FORMAT takes its rows"),
    ):
        inserted(session, pipe)


def inserted(session: Session, file: Path) -> list[tuple[object, ...]]:
    session.execute(f"INSERT INTO t FROM INFILE '{file}'")
    return rows(session, "SELECT n FROM t ORDER BY n")
