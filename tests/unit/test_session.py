"""The end of a ZooKeeper session, which may come from two sides at once."""

import threading

import pytest

from rmt_pipeline.protocol.errors import ReplicaRetired
from rmt_pipeline.zookeeper.session import SessionLife
from rmt_pipeline.zookeeper.watches import Key

KEY: Key = ("children", "/a")


def test_who_closes_a_session_that_ended_by_itself_waits_until_it_has_let_go() -> None:
    """Also when it is let go on another thread: what is closed holds nothing any more."""
    letting_go, may_end = threading.Event(), threading.Event()

    def hang_up() -> None:
        letting_go.set()
        assert may_end.wait(60)

    session = SessionLife(hang_up)
    session.retire("the network is gone")
    assert letting_go.wait(60)
    closing = threading.Thread(target=session.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    may_end.set()
    closing.join(60)
    assert not closing.is_alive()


def test_who_hears_of_the_end_may_close_the_session() -> None:
    ended = threading.Event()
    session = SessionLife(ended.set)
    session.on_retired(session.close)
    session.retire("it expired")
    assert ended.wait(60)
    assert session.is_over


def test_who_waits_as_the_session_ends_is_told_so_and_called() -> None:
    """It ends after the caller has looked whether it lives, and has called all who waited then."""
    calls: list[str] = []
    session = SessionLife(lambda: None)
    session.close()
    session.watches.lasts(KEY)
    with pytest.raises(ReplicaRetired):
        session.wait(KEY, lambda: calls.append("called"))
    assert calls == ["called"]
    assert len(session.watches) == 0


def test_who_asks_as_the_session_ends_is_told_so_and_waits_for_nothing() -> None:
    session = SessionLife(lambda: None)
    session.close()
    with pytest.raises(ReplicaRetired):
        session.ask("data", "/a", lambda: None)
    assert len(session.watches) == 0


def test_a_session_ends_once_and_for_one_reason() -> None:
    ended: list[str] = []
    hung_up = threading.Event()

    def hang_up() -> None:
        ended.append("hung up")
        hung_up.set()

    session = SessionLife(hang_up)
    session.session_id = 0x17
    session.require()
    session.on_retired(lambda: ended.append("told"))
    session.watches.lasts(KEY)
    session.wait(KEY, lambda: ended.append("woken"))
    session.retire("it expired")
    session.retire("another one took its place")
    assert hung_up.wait(60)
    session.close()
    session.close()
    assert ended == ["told", "woken", "hung up"]
    with pytest.raises(ReplicaRetired, match=r"session 0x17 is over \(it expired\)"):
        session.require()
    session.on_retired(lambda: ended.append("told late, and at once"))
    assert ended[3:] == ["told late, and at once"]


def test_who_closes_a_session_hears_nothing_of_its_end() -> None:
    ended: list[str] = []
    session = SessionLife(lambda: ended.append("hung up"))
    session.on_retired(lambda: ended.append("told"))
    session.watches.lasts(KEY)
    session.wait(KEY, lambda: ended.append("woken"))
    session.close()
    session.close()
    session.retire("it expired")
    session.on_retired(lambda: ended.append("told"))
    assert ended == ["woken", "hung up"]
    with pytest.raises(ReplicaRetired, match=r"is over \(closed\)"):
        session.require()
