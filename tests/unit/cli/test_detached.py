"""`rmt detached` and system.detached_parts: the same facts."""

import pytest

from rmt_pipeline.cli.inserts import run_inserts
from rmt_pipeline.cli.mutations import run_mutations
from rmt_pipeline.cli.parts import run_check, run_detached
from rmt_pipeline.cli.queue import run_queue
from rmt_pipeline.protocol.errors import UnknownTable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.system import SystemClock
from tests.support.local_session import (
    commands_use,
    local_session,
    rows,
    session_with_numbers,
)

PART = PartName("all", 0, 0, 0)


class SetClock(SystemClock):
    """Shows the time when it was made until somebody sets it; who waits by it waits no longer."""

    def __init__(self) -> None:
        self.shown_s = super().now_s()

    def now_s(self) -> float:
        return self.shown_s


@pytest.fixture
def session(tmp_path, monkeypatch):
    """A table of two parts; of one there is a copy aside, of the other a broken one, and somebody
    has put a directory beside them; all of it in no time.
    """
    with session_with_numbers(tmp_path) as opened:
        server = opened.context.server
        server.clock = SetClock()
        opened.execute("INSERT INTO t VALUES (1), (2)")
        opened.execute("INSERT INTO t VALUES (3)")
        store = server.table("t").store
        store.detach_copy(PART, "")
        store.detach_copy(PART, "clone")
        store.disk.make_directory("detached/mine")
        store.disk.make_directory("detached/broken_all_7_7_0")
        store.disk.write("detached/mine/notes", [b"12345"])
        commands_use(monkeypatch, server)
        yield opened


FACTS = {
    "all_0_0_0": ("", "all", 2, 1),
    "broken_all_7_7_0": ("broken", "all", None, 0),
    "clone_all_0_0_0": ("clone", "all", 2, 1),
    "mine": (None, None, None, 0),
}


def test_the_table_has_a_row_for_each_directory(session):
    query = (
        "SELECT name, reason, partition_id, rows, is_safe_to_delete FROM system.detached_parts"
    )
    assert {name: tuple(facts) for name, *facts in rows(session, query)} == FACTS
    query = "SELECT name, bytes_on_disk FROM system.detached_parts WHERE rows IS NULL"
    assert dict(rows(session, query)) == {"mine": 5, "broken_all_7_7_0": 0}
    query = "SELECT count() FROM system.detached_parts WHERE modification_time > now() - 60"
    assert rows(session, query) == [(4,)]


def test_each_directory_is_told_with_its_reason_and_what_to_do(session, capsys):
    assert run_detached(session.context.server.config, "r1", None) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "default.t on r1: 4 detached"
    assert [line.strip().partition(":")[0] for line in lines] == sorted(FACTS)
    plain, broken, clone, mine = lines
    assert "no reason, part all_0_0_0, 2 rows, " in plain
    assert "safe to delete: its rows are those of all_0_0_0, which is here" in plain
    assert (
        "broken, part all_7_7_0, rows unknown, 0 bytes, 0 s old: keep it: it is broken"
        in broken
    )
    assert "safe to delete: its rows are those of all_0_0_0, which is here" in clone
    assert "mine: another's, rows unknown, 5 bytes, 0 s old: keep it: no part can have" in mine


def test_where_nothing_is_detached_it_says_so(session, capsys):
    config = session.context.server.config
    session.execute("CREATE TABLE other (k Int64) ENGINE = MergeTree ORDER BY k")
    session.execute("DROP TABLE t SYNC")
    for name, words in ((None, ""), ("other", "default.other on r1: ")):
        assert run_detached(config, "r1", name) == 0
        assert capsys.readouterr().out == f"{words}nothing is detached\n"


def test_where_there_are_no_tables_each_command_says_so(session, capsys):
    config = session.context.server.config
    session.execute("DROP TABLE t SYNC")
    statuses = [
        run_detached(config, "r1", None),
        run_queue(config, "r1", None),
        run_inserts(config, "r1", None, "", ""),
        run_mutations(config, "r1", None, watch=False),
        run_check(config, "r1", None, "", ""),
    ]
    assert capsys.readouterr().out == 5 * "no tables\n"
    assert statuses == [0, 0, 0, 0, 0]


def test_where_no_table_has_a_queue_of_interest_it_says_so(session, capsys):
    config = session.context.server.config
    session.execute("CREATE TABLE other (k Int64) ENGINE = MergeTree ORDER BY k")
    session.execute("DROP TABLE t SYNC")
    for name, words in ((None, "no replicated tables\n"), ("other", "default.other on r1: 0")):
        assert run_queue(config, "r1", name) == 0
        assert capsys.readouterr().out.startswith(words)


def test_what_is_old_says_so(session, capsys):
    context = session.context.server
    context.clock.shown_s += 3 * 86_400
    run_detached(context.config, "r1", "t")
    assert capsys.readouterr().out.count("3 days old") == 4


def test_a_table_without_anything_aside_is_told_when_it_is_named(tmp_path, monkeypatch, capsys):
    with local_session(tmp_path) as opened:
        server = opened.context.server
        commands_use(monkeypatch, server)
        run_detached(server.config, "r1", None)
        assert capsys.readouterr().out == "no tables\n"
        with pytest.raises(UnknownTable, match=r"no table default\.nosuch on r1"):
            run_detached(server.config, "r1", "nosuch")
