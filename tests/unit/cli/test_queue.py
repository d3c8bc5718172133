"""`rmt queue` and `rmt explain entry`."""

import pytest
from urllib3.exceptions import NewConnectionError, ProtocolError, SSLError

from rmt_pipeline.cli import queue
from rmt_pipeline.cli.status import _table_lines
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import Unavailable, UserError
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.system.replication import queue_of
from rmt_pipeline.system import account
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.local_session import commands_use, create, local_session

MADE = "CREATE TABLE t (n UInt64) ENGINE = ReplicatedMergeTree('/tables/t', 'r1') ORDER BY n"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Its table has one entry, which failed twice, in a queue whose fetches are stopped."""
    with local_session(tmp_path) as session:
        create(session, MADE)
        opened = session.context.server
        replica = opened.table("t").replica
        now_s = int(opened.clock.now_s())
        entry = GetPart(create_time=now_s, source_replica="r2", part=PartName("all", 0, 0, 0))
        [path] = replica.keeper.multi(
            [Create(replica.paths.queue_prefix, encode(entry), sequence=True)]
        )
        node = path.rpartition("/")[2]
        tried = Attempts(2, "r2 does not answer", now_s, "")
        replica.keeper.multi([Create(replica.paths.attempts_of(node), tried.encode())])
        opened.table("t").store.marks.stop(Background.FETCHES)
        commands_use(monkeypatch, opened)
        yield opened


def test_the_queue_says_of_each_entry_what_it_waits_for(server, capsys):
    assert queue.run_queue(server.config, None, None) == 0
    shown = capsys.readouterr().out
    assert "default.t on r1: 1 entry\n" in shown
    assert "queue-0000000000 GET_PART all_0_0_0" in shown
    assert "FETCHES are stopped by hand" in shown
    assert "failed 2 times, last: r2 does not answer" in shown


@pytest.mark.parametrize("wanted", ["queue-0000000000", "all_0_0_0"])
def test_one_entry_is_explained_by_its_node_or_its_part(server, capsys, wanted):
    assert queue.run_explain_entry(server.config, "r1", "t", wanted) == 0
    shown = capsys.readouterr().out
    assert "asked for by replica r2" in shown
    assert "tried 2 times, last at" in shown


def test_who_asked_for_a_command_is_named(server, capsys):
    table, replica = server.table("t"), server.table("t").replica
    table.insert([{"n": 1}])
    table.drop_partitions(["all"], settings={"alter_sync": 0})
    pull_log(replica)
    [node] = [one["node_name"] for one in queue_of(replica) if one["type"] == "DROP_RANGE"]
    queue.run_explain_entry(server.config, "r1", "t", node)
    shown = capsys.readouterr().out
    assert f"asked for by replica r1, by the account {account()}\n" in shown


def test_one_that_is_not_there_is_told_from_one_that_waits(server):
    with pytest.raises(UserError, match="no entry 'all_9_9_0': it is done, or"):
        queue.run_explain_entry(server.config, "r1", "t", "all_9_9_0")


def test_of_a_server_that_is_stopped_it_says_so_beside_what_zookeeper_has(
    server, capsys, monkeypatch
):
    nobody = Unavailable("nobody answers")
    nobody.__cause__ = NewConnectionError(None, "refused")
    monkeypatch.setattr(queue.control, "how_it_is", lambda *_: nobody)
    assert queue.run_queue(server.config, "r1", "t") == 0
    shown = capsys.readouterr().out
    assert "queue-0000000000 GET_PART all_0_0_0" in shown
    assert "Server r1 does not run: nothing answers at " in shown
    assert "rmt serve --server r1" in shown


def test_entries_of_the_log_that_are_not_copied_are_counted(server, capsys):
    server.table("t").insert([{"n": 1}])
    queue.run_queue(server.config, "r1", "t")
    assert (
        "default.t on r1: 1 entry, and 1 of the log not copied to it yet"
        in capsys.readouterr().out
    )


def test_a_table_whose_queue_is_gone_does_not_hide_the_others(server, capsys):
    create(
        Session(server), MADE.replace("TABLE t", "TABLE a").replace("/tables/t", "/tables/a")
    )
    replica = server.table("a").replica
    replica.session.multi([Delete(replica.paths.is_active)])
    drop_replica(replica.session, replica.table, "r1")
    assert queue.run_queue(server.config, "r1", None) == 1
    shown = capsys.readouterr().out
    assert (
        "default.a on r1: Code: TABLE_IS_DROPPED. /tables/a/replicas/r1 is gone from ZooKeeper"
        in shown
    )
    assert "queue-0000000000 GET_PART all_0_0_0" in shown


def test_status_says_how_an_entry_has_failed_that_could_run(server):
    server.table("t").store.marks.go_on(Background.FETCHES)
    lines = "\n".join(_table_lines(server.table("t"), Unavailable("down")))
    assert "1 can run now (1 to fetch)" in lines
    assert "\n    get all_0_0_0 failed 2 times, last: r2 does not answer" in lines
    replica = server.table("t").replica
    replica.keeper.multi([Delete(replica.paths.queue_entry("queue-0000000000"))])
    assert "failed" not in "\n".join(_table_lines(server.table("t"), Unavailable("down"))), (
        "clean-up removes the note of it later"
    )


@pytest.mark.parametrize("cause", [SSLError("wrong version"), ProtocolError("hung up")])
def test_of_a_server_that_speaks_otherwise_it_is_not_said_that_it_serves_nothing(server, cause):
    other = Unavailable("it speaks https")
    other.__cause__ = cause
    first, *_ = _table_lines(server.table("t"), other)
    assert first.startswith("default.t: not known whether it is served")
