"""SYSTEM RESTART REPLICA: the server starts the table anew, as after a crash."""

import threading
from collections.abc import Iterator

import pytest

from rmt_pipeline.protocol.errors import UnknownTable
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.sql.run import upkeep
from rmt_pipeline.sql.run.session import Session
from tests.support.local_session import rows, session_with_numbers
from tests.support.waiting import until


@pytest.fixture
def session(tmp_path) -> Iterator[Session]:
    with session_with_numbers(tmp_path) as opened:
        opened.execute("INSERT INTO t VALUES (7)")
        yield opened


def served(replica: Replica) -> threading.Thread:
    """What a server does when a table lost its `is_active`, once."""

    def run() -> None:
        until(lambda: replica.keeper.exists(replica.paths.is_active) is None)
        address = ReplicaAddress("r1", 9009, 9000, "default", "t")
        start(replica, identity="r1", incarnation="2", address=address)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("statement", ["SYSTEM RESTART REPLICA t", "SYSTEM RESTART REPLICAS"])
def test_it_is_active_again_when_the_statement_is_done(session, statement):
    replica = session.context.server.table("t").replica
    before = replica.keeper.exists(replica.paths.is_active).created_zxid
    server = served(replica)
    assert session.execute(statement) == Done()
    assert replica.keeper.exists(replica.paths.is_active).created_zxid > before
    server.join()
    session.execute("INSERT INTO t VALUES (8)")
    assert rows(session, "SELECT sum(n) FROM t") == [(15,)]


def test_without_a_server_it_says_so(session, monkeypatch):
    monkeypatch.setattr(upkeep, "ACTIVE_WAIT_S", 0.05)
    answer = session.execute("SYSTEM RESTART REPLICA t")
    assert isinstance(answer, Done)
    assert "default.t: not active yet" in answer.note


def test_a_table_that_is_not_there(session):
    with pytest.raises(UnknownTable):
        session.execute("SYSTEM RESTART REPLICA u")


@pytest.mark.parametrize(
    "what",
    [
        "FLUSH LOGS",
        "FLUSH LOGS part_log, system.query_log",
        "FLUSH ASYNC INSERT QUEUE",
        "DROP MARK CACHE",
        "CLEAR COMPILED EXPRESSION CACHE",
        "RELOAD DICTIONARIES",
        "RELOAD CONFIG",
        "SYNC REPLICA nosuch IF EXISTS",
    ],
)
def test_some_commands_have_nothing_to_do(session, what):
    assert session.execute(f"SYSTEM {what}") == Done()
