"""TSKV, lines as they are and columns in JSON: the rows that ClickHouse reads, or a refusal by
both.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.sql.run.session import Session
from tests.support.scripts import (
    Answer,
    carried_out,
    original,
    original_begins,
    original_ends,
    script_session,
)

CASES = [
    ("TSKV", "k=1\tv=a\\tb\n"),
    ("TSKV", "v=x\n"),
    ("TSKV", "k=1\tv=\n"),
    ("TSKV", "k\tv=\n"),
    ("TSKV", "k=1\tv=\\N\n"),
    ("TSKV", "k=1\tk=2\n"),
    ("TSKV", "v=a=b\tk=3\n"),
    ("TSKV", "k=1\tv=a\nk=2\tv=b\n"),
    ("TSKV", "k=x\n"),
    ("TSKV", ""),
    ("JSONColumns", '{"k": [7, 8], "v": ["q", "r"]}'),
    ("JSONColumns", '{"k": [7, 8]}'),
    ("JSONColumns", '{"v": [], "k": []}'),
    ("JSONColumns", '{"k": [7, 8], "v": ["q"]}'),
    ("JSONColumns", '{"k": ["7"]}'),
    ("JSONColumns", "[]"),
    ("JSONColumns", '{"k": 7}'),
    ("JSONColumns", '{"k": [7]'),
    ("JSONColumns", '{"k": [1], "k": [2]}'),
    ("JSONColumns", " \n"),
    ("JSONCompactColumns", ""),
    ("JSONColumnsWithMetadata", '{"meta": [{"name": "k", "type": "Int64"}], "data": {"k": [3]}}'),
    ("JSONCompactColumns", '[[8, 9], ["q", "r"]]'),
    ("JSONCompactColumns", "[[8, 9]]"),
    ("JSONCompactColumns", '[[8], ["q", "r"]]'),
    ("JSONCompactColumns", '{"k": [1]}'),
    ("JSONCompactColumns", '[[1], ["a"], [2]]'),
    ("LineAsString", "a line\n"),
]  # fmt: skip
LINES = ["a line\n\tx\\t y \n\nlast", "", "\n", "a\r\nb\r\n", "'q' \"r\"\n"]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with script_session(tmp_path_factory.mktemp("inputs")) as opened:
        original_begins("inputs")
        for statement in ("CREATE DATABASE inputs", "USE inputs"):
            opened.execute(statement)
        for columns in ("pairs (k Int64, v String DEFAULT 'dv')", "lines (s String)"):
            statement = f"CREATE TABLE {columns} ENGINE = MergeTree ORDER BY tuple()"
            assert original(statement) == carried_out(opened, statement) == Answer()
        yield opened
        original_ends("inputs")


def inserted(session: Session, table: str, statement: str) -> tuple[Answer, Answer]:
    """What is in the table afterwards, here and there; both refuse or neither."""
    truncate, query = f"TRUNCATE TABLE {table}", f"SELECT * FROM {table} ORDER BY ALL"
    assert original(truncate) == carried_out(session, truncate)
    right, ours = original(statement), carried_out(session, statement)
    assert bool(right.code) == bool(ours.code), (right, ours)
    return carried_out(session, query), original(query)


@pytest.mark.parametrize(("form", "text"), CASES)
def test_rows_are_those_that_clickhouse_reads(session, tmp_path, form, text):
    file = tmp_path / "file"
    file.write_text(text, encoding="utf-8")
    ours, right = inserted(
        session, "pairs", f"INSERT INTO pairs FROM INFILE '{file}' FORMAT {form}"
    )
    assert ours == right


def test_columns_may_be_called_as_what_is_beside_columns(session, tmp_path):
    """`meta` and `data` are keys of JSONColumnsWithMetadata."""
    file = tmp_path / "file"
    file.write_text('{"meta": ["m"], "data": ["d"]}')
    statement = (
        "CREATE TABLE named (meta String, data String) ENGINE = MergeTree ORDER BY tuple()"
    )
    assert original(statement) == carried_out(session, statement) == Answer()
    ours, right = inserted(
        session, "named", f"INSERT INTO named FROM INFILE '{file}' FORMAT JSONColumns"
    )
    assert ours == right == Answer("m\td")


@pytest.mark.parametrize("text", LINES)
def test_lines_are_those_that_clickhouse_reads(session, tmp_path, text):
    file = tmp_path / "file"
    file.write_text(text, encoding="utf-8", newline="")
    statement = f"INSERT INTO lines FROM INFILE '{file}' FORMAT LineAsString"
    ours, right = inserted(session, "lines", statement)
    assert ours == right


def test_rows_may_stand_in_the_statement(session):
    for table, statement in (
        ("pairs", "INSERT INTO pairs FORMAT TSKV\nk=5\tv=z\n"),
        ("pairs", 'INSERT INTO pairs FORMAT JSONColumns {"k": [7],\n "v": ["q"]}'),
        ("lines", "INSERT INTO lines FORMAT LineAsString\na line\nb\n"),
    ):
        ours, right = inserted(session, table, statement)
        assert ours == right
        assert ours.text


def test_what_is_wrong_is_named_with_its_line(session, tmp_path: Path):
    file = tmp_path / "f.tskv"
    file.write_text("k=1\n\nk=2\tv\n")
    answer = carried_out(session, f"INSERT INTO pairs FROM INFILE '{file}' FORMAT TSKV")
    assert answer.message == f"{file} line 3: 'v' is not key=value. Nothing was inserted"
    session.execute("TRUNCATE TABLE pairs")
    tolerant = "INSERT INTO pairs SETTINGS input_format_allow_errors_num = 1"
    session.execute(f"{tolerant} FROM INFILE '{file}' FORMAT TSKV")
    assert carried_out(session, "SELECT k FROM pairs").text == "1"
