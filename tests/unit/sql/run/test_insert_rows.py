"""The rows of an INSERT: DEFAULT beside EPHEMERAL columns, rows on standard input, and JSON as it
is typed.
"""

import io

import pytest

from rmt_pipeline.protocol.errors import SyntaxProblem
from rmt_pipeline.sql.run.session import Session
from tests.support.local_session import create, rows

COMPUTED = (
    "CREATE TABLE t (n UInt64, e UInt64 EPHEMERAL 7, v UInt64 DEFAULT e + 1, "
    "m UInt64 MATERIALIZED e * 2) ENGINE = ReplicatedMergeTree ORDER BY n"
)
TEXTS = "CREATE TABLE t (n UInt64, s String) ENGINE = ReplicatedMergeTree ORDER BY n"


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ("(1, 2, DEFAULT)", [(1, 3, 4)]),
        ("(1, DEFAULT, DEFAULT)", [(1, 8, 14)]),
        ("(1, DEFAULT, 5), (2, 3, DEFAULT), (3, 4, 6)", [(1, 5, 14), (2, 4, 6), (3, 6, 8)]),
    ],
)
def test_default_beside_an_ephemeral_column_is_computed_of_its_value(
    session: Session, values: str, stored: list[tuple[int, ...]]
) -> None:
    create(session, COMPUTED)
    session.execute(f"INSERT INTO t (n, e, v) VALUES {values}")
    assert rows(session, "SELECT n, v, m FROM t ORDER BY n") == stored


@pytest.mark.parametrize(
    "words", ["VALUES", "FORMAT Values", "SETTINGS insert_quorum = 0 VALUES"]
)
@pytest.mark.parametrize("text", ["(1, 'a'), (2, 'ü')", " (1, 'a')\n(2, 'ü');\n"])
def test_values_without_rows_come_from_standard_input(
    session: Session, words: str, text: str
) -> None:
    create(session, TEXTS)
    session.context.stdin = io.BytesIO(text.encode())
    session.execute(f"INSERT INTO t {words}")
    assert rows(session, "SELECT n, s FROM t ORDER BY n") == [(1, "a"), (2, "ü")]


def test_no_values_at_all_are_an_error(session: Session) -> None:
    create(session, TEXTS)
    session.context.stdin = io.BytesIO(b"")
    for _ in range(2):
        with pytest.raises(SyntaxProblem, match="has no rows"):
            session.execute("INSERT INTO t VALUES")
        session.context.stdin = None


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85"])
def test_a_text_in_json_keeps_every_character(session: Session, character: str) -> None:
    """Python takes some for ends of lines, which JSON does not."""
    create(session, TEXTS)
    session.execute(
        f'INSERT INTO t FORMAT JSONEachRow {{"n": 1,\r\n "s": "a{character}b"}}\n, {{"n": 2}}'
    )
    assert rows(session, "SELECT n, s FROM t ORDER BY n") == [(1, f"a{character}b"), (2, "")]
