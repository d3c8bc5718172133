"""The statements that run: who sees them, and who ends them."""

import json
import threading
from pathlib import Path

import pytest

from rmt_pipeline.catalog import running as running_module
from rmt_pipeline.catalog.running import (
    ABANDONED_S,
    QUERY_CHARACTERS_MAX,
    RunningStatement,
    StatementNote,
    ask_to_end,
    running_directory,
    running_statements,
)
from rmt_pipeline.protocol.errors import CannotKill, QueryInterrupted, RmtError, UnknownColumn
from rmt_pipeline.sql.run import alter
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


def test_what_was_to_be_killed_of_a_dead_process_is_removed_with_it(tmp_path):
    file = left_behind(tmp_path, "dead")
    file.with_suffix(".kill").touch()
    assert list(running_statements(tmp_path, file.stat().st_mtime + ABANDONED_S + 1)) == []
    assert list(file.parent.iterdir()) == []


def test_nobody_waits_for_the_end_of_a_statement_whose_process_died(tmp_path):
    file = left_behind(tmp_path, "dead")
    assert not ask_to_end(tmp_path, "dead")
    assert list(file.parent.iterdir()) == [file]


def noted(data: Path, killed: list[str], query: str = "SELECT 1") -> StatementNote:
    statement = RunningStatement("one", query, "someone", "default", 0.0, 1)
    return StatementNote(running_directory(data), statement, lambda: killed.append("one"))


def test_a_kill_that_comes_just_after_the_end_interrupts_no_other_statement(tmp_path):
    killed: list[str] = []
    note = noted(tmp_path, killed)
    note.end()
    (running_directory(tmp_path) / "one.kill").touch()
    note.look()  # the thread has seen it before the end
    assert killed == []


def test_a_kill_that_comes_just_after_the_end_leaves_no_file(tmp_path, monkeypatch):
    note = noted(tmp_path, [])
    touch = Path.touch

    def late(path):
        note.end()
        touch(path)

    monkeypatch.setattr(Path, "touch", late)
    assert not ask_to_end(tmp_path, "one")
    assert list(running_directory(tmp_path).iterdir()) == []


def test_a_statement_of_another_account_is_not_killed(session, other, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    answer = session.execute("SELECT number FROM numbers(3)")
    monkeypatch.setattr(Path, "touch", refused)
    with pytest.raises(CannotKill, match="The account that runs it can do that"):
        other.execute("KILL QUERY WHERE query LIKE 'SELECT number%'")
    assert len(list(answer.batches)) == 1


def test_one_that_may_not_be_ended_keeps_no_other_from_it(session, other, monkeypatch):
    first = session.execute("SELECT number FROM numbers(3)")
    second = Session(session.context.server).execute("SELECT number FROM numbers(4)")
    asked = []

    def asked_to_end(_data, query_id):
        asked.append(query_id)
        if len(asked) == 1:
            raise CannotKill("it is another account's")
        return True

    monkeypatch.setattr(alter, "ask_to_end", asked_to_end)
    with pytest.raises(CannotKill):
        other.execute("KILL QUERY WHERE query LIKE 'SELECT number%'")
    assert len(asked) == 2
    del first, second


def test_a_statement_may_end_while_another_one_of_its_thread_begins(tmp_path):
    """Whenever the garbage collector finds the rows that nobody wants."""
    note = noted(tmp_path, [])

    def collect() -> None:
        with running_module._WATCH._lock:
            note.end()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    until(lambda: not thread.is_alive())
    assert list(running_statements(tmp_path, 0)) == []


def test_a_statement_runs_where_no_thread_can_be_started(session, monkeypatch):
    def refused(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(running_module, "_WATCH", running_module._Watch())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        answer = session.execute("SHOW DATABASES")
    assert not running_module._WATCH._runs  # the next one tries it again
    assert list(answer.batches)


def test_not_all_rows_of_an_insert_are_shown(tmp_path):
    note = noted(tmp_path, [], "INSERT INTO t VALUES " + "(1)," * QUERY_CHARACTERS_MAX)
    [(shown, _)] = running_statements(tmp_path, 0)
    assert len(shown.query) == QUERY_CHARACTERS_MAX
    note.end()
