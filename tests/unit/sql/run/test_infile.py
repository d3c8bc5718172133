"""INSERT … FROM INFILE: a header is found, and what can be read only once is refused."""

import os
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.sql.run.session import Session
from tests.support.local_session import rows, session_with_numbers


@pytest.mark.parametrize("text", ["n\n1\n2\n", "1\n2\n"])
def test_a_first_line_of_names_is_a_header(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text)
    with session_with_numbers(tmp_path) as session:
        assert inserted(session, file) == [(1,), (2,)]


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
