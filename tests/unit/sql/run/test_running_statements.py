"""The statements that run: who sees them, and who ends them."""

import json
import threading
from pathlib import Path

import pytest

from rmt_pipeline.catalog.running import ABANDONED_S, running_directory, running_statements
from rmt_pipeline.protocol.errors import QueryInterrupted, RmtError, UnknownColumn
from rmt_pipeline.sql.run.session import Session
from tests.support.local_session import rows
from tests.support.waiting import until

LONG = "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)"
ASKED = "SELECT query, current_database, is_cancelled FROM system.processes ORDER BY query"


@pytest.fixture
def other(session):
    """Another session of the same server."""
    return Session(session.context.server)


class Running:
    """A statement in a thread of its own, and the error that it ended with."""

    def __init__(self, session, statement: str) -> None:
        self.error: RmtError | None = None
        self._session, self._statement = session, statement
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.context.interrupt()
        self._thread.join()

    def _run(self) -> None:
        try:
            rows(self._session, self._statement)
        except RmtError as error:
            self.error = error

    def join(self) -> None:
        self._thread.join()


def seen(session, statement: str = LONG) -> bool:
    return any(query == statement for query, *_ in rows(session, ASKED))


def test_a_statement_sees_itself(session):
    assert rows(session, ASKED) == [(ASKED, "default", 0)]
    assert rows(session, "SELECT pid > 0, elapsed >= 0, user != '' FROM system.processes") == [
        (1, 1, 1)
    ]


def test_show_processlist_shows_them(session):
    ((first, *_, query, _, _),) = rows(session, "SHOW PROCESSLIST")
    assert (first, query) == (1, "SHOW PROCESSLIST")


def test_a_statement_is_seen_until_its_rows_are_read(session, other):
    answer = session.execute("SELECT number FROM numbers(3)")
    assert seen(other, "SELECT number FROM numbers(3)")
    list(answer.batches)
    assert not seen(other, "SELECT number FROM numbers(3)")


def test_a_statement_whose_rows_nobody_wants_is_not_seen(session, other):
    answer = session.execute("SELECT number FROM numbers(3)")
    del answer
    assert not seen(other, "SELECT number FROM numbers(3)")


def test_one_that_failed_is_not_seen(session, other):
    with pytest.raises(UnknownColumn):
        session.execute("SELECT nosuch")
    assert rows(other, ASKED) == [(ASKED, "default", 0)]


@pytest.mark.parametrize("how", ["", " SYNC"])
def test_kill_query_ends_what_is_computed(session, other, how):
    with Running(session, LONG) as running:
        until(lambda: seen(other))
        ((status, _, _, query),) = rows(other, f"KILL QUERY WHERE query = '{LONG}'{how}")
        assert (status, query) == ("finished" if how else "waiting", LONG)
        running.join()
    assert isinstance(running.error, QueryInterrupted)
    assert rows(other, ASKED) == [(ASKED, "default", 0)]


def test_a_test_kills_nothing(session, other):
    with Running(session, LONG):
        until(lambda: seen(other))
        assert len(rows(other, f"KILL QUERY WHERE query = '{LONG}' TEST")) == 1
        assert seen(other)


def test_a_statement_does_not_kill_itself(session):
    assert rows(session, "KILL QUERY WHERE 1") == []


def left_behind(data: Path, name: str) -> Path:
    """The file of a statement whose process died."""
    file = running_directory(data) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"query_id": name}))
    return file


def test_what_a_dead_process_left_is_not_shown_and_removed(tmp_path):
    file = left_behind(tmp_path, "dead")
    written_s = file.stat().st_mtime
    assert list(running_statements(tmp_path, written_s)) == []
    assert file.exists()  # one that begins now has not locked its file yet
    assert list(running_statements(tmp_path, written_s + ABANDONED_S + 1)) == []
    assert not file.exists()
