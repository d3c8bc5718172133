"""What is written beside a replica whose table is detached, and when it is not."""

from dataclasses import replace

from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.detach import DROPPED, forget_note, note_detached
from rmt_pipeline.replica.life.drop import drop_replica
from tests.support.between_requests import BeforeRequest


def note(replicas) -> bytes | None:
    node = replicas.zookeeper.nodes.get(replicas["r1"].paths.detached)
    return None if node is None else node.data


def test_it_says_why_nobody_serves_it_and_later_another_reason(replicas):
    replicas.stop("r1")
    session, table = replicas.zookeeper.connect(), replicas["r1"].definition
    for words in ("detached", "dropped"):
        note_detached(session, table, words)
        assert note(replicas) == words.encode()
    forget_note(session, table)
    forget_note(session, table)
    assert note(replicas) is None


def test_who_is_active_again_says_it_no_more(replicas):
    replicas.stop("r1")
    note_detached(replicas.zookeeper.connect(), replicas["r1"].definition, "detached")
    assert note(replicas) == b"detached"
    replicas.come_back("r1")
    assert note(replicas) is None


def test_what_is_said_already_is_not_written_again(replicas):
    replicas.stop("r1")
    session, paths = replicas.zookeeper.connect(), replicas["r1"].paths
    note_detached(session, replicas["r1"].definition, "detached")
    note_detached(session, replicas["r1"].definition, "detached")
    assert session.get(paths.detached)[1].version == 0


def test_nothing_is_said_of_a_replica_that_is_active_or_is_not_there(replicas):
    session, paths = replicas.zookeeper.connect(), replicas["r1"].paths
    note_detached(session, replicas["r1"].definition, "detached")
    assert note(replicas) is None
    replicas.stop("r1")
    drop_replica(session, replicas["r1"].table, "r1")
    note_detached(session, replicas["r1"].definition, "detached")
    assert paths.root not in replicas.zookeeper.nodes


def test_nothing_is_said_of_one_that_was_active_or_dropped_meanwhile(replicas):
    """Also when it is not any more: it is another one's turn to say why."""

    def was_active() -> None:
        replicas.come_back("r1")
        replicas.stop("r1")

    def dropped() -> None:
        drop_replica(replicas.zookeeper.connect(), replicas["r1"].table, "r1")

    replicas.stop("r1")
    for happens in (was_active, dropped):
        session = BeforeRequest(replicas.zookeeper.connect(), 1, happens)
        note_detached(session, replicas["r1"].definition, "detached")
        assert session.has_come
        assert note(replicas) is None


def test_nothing_is_said_of_another_table_that_has_its_place(replicas):
    """1. r1's table was dropped, and can be taken back for some minutes. 2. Another server, which
    has r1's replica name, makes the table: r1's replica is removed for that. 3. Were that one noted
    as dropped, somebody who makes the table would remove it, with its rows, while its server is
    away.
    """
    replicas.stop("r1")
    dropped, table = replicas["r1"].definition, replicas["r1"].table
    other = replace(dropped, uuid="1" * 32)

    def made_anew() -> None:
        drop_replica(replicas.zookeeper.connect(), table, "r1")
        create_replica(replicas.zookeeper.connect(), other, b"other")

    for at in range(10):
        session = BeforeRequest(replicas.zookeeper.connect(), at, made_anew)
        note_detached(session, dropped, DROPPED)
        if not session.has_come:
            break
        assert note(replicas) is None, at
        note_detached(replicas.zookeeper.connect(), dropped, DROPPED)
        assert note(replicas) is None, at
        drop_replica(replicas.zookeeper.connect(), table, "r1")
        create_replica(replicas.zookeeper.connect(), dropped, b"r1")
    assert at > 1
    assert note(replicas) == DROPPED.encode(), "the dropped one is there"


def test_who_takes_his_table_back_leaves_what_is_said_of_another_one_in_its_place(replicas):
    """That one is dropped, too, or detached, and others are to know."""
    replicas.stop("r1")
    dropped, table = replicas["r1"].definition, replicas["r1"].table
    other = replace(dropped, uuid="1" * 32)

    def made_anew() -> None:
        drop_replica(replicas.zookeeper.connect(), table, "r1")
        create_replica(replicas.zookeeper.connect(), other, b"other")
        note_detached(replicas.zookeeper.connect(), other, "detached")

    for at in range(2):
        note_detached(replicas.zookeeper.connect(), dropped, DROPPED)
        session = BeforeRequest(replicas.zookeeper.connect(), at, made_anew)
        forget_note(session, dropped)
        assert session.has_come
        assert note(replicas) == b"detached"
        drop_replica(replicas.zookeeper.connect(), table, "r1")
        create_replica(replicas.zookeeper.connect(), dropped, b"r1")
