"""Answers that never come, sessions that end, servers that hang: on a real ZooKeeper."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.flights.ports import free_port
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from rmt_pipeline.protocol.errors import OutcomeUnknown, ReplicaRetired, Unavailable
from rmt_pipeline.zookeeper.connect import connect
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from rmt_pipeline.zookeeper.keeper import Create, Delete
from rmt_pipeline.zookeeper.strays import Stray, seen_to
from tests.support.proxy import Proxy
from tests.support.serving import SHORT_S
from tests.support.thief import steal_session
from tests.support.waiting import BUSY, LASTING_S, freeze, until

pytestmark = pytest.mark.zookeeper

DETECTION_MAX_S = 10.0 * BUSY


@pytest.fixture
def proxy(zookeeper_server: EmbeddedZooKeeper) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", zookeeper_server.port) as opened:
        yield opened


@pytest.fixture
def far(proxy: Proxy, chroot: str) -> Iterator[KazooKeeper]:
    """A session through the proxy."""
    opened = connect(proxy.hosts, chroot=chroot, session_timeout_s=SHORT_S)
    yield opened
    opened.close()


@pytest.fixture
def lasting(proxy: Proxy, chroot: str) -> Iterator[KazooKeeper]:
    """One that does not end because the machine is busy."""
    opened = connect(proxy.hosts, chroot=chroot, session_timeout_s=LASTING_S)
    yield opened
    opened.close()


def test_a_write_whose_answer_is_lost_is_unknown_although_it_happened(
    far: KazooKeeper, real_keeper: KazooKeeper, proxy: Proxy
) -> None:
    proxy.swallow_answers()
    with pytest.raises(OutcomeUnknown, match="first on /a"):
        far.multi([Create("/a")])
    real_keeper.sync("/")
    assert real_keeper.exists("/a") is not None


def test_a_write_whose_request_is_lost_is_unknown_although_it_did_not_happen(
    far: KazooKeeper, real_keeper: KazooKeeper, proxy: Proxy
) -> None:
    proxy.drop_requests()
    with pytest.raises(OutcomeUnknown):
        far.multi([Create("/a")])
    real_keeper.sync("/")
    assert real_keeper.exists("/a") is None


def test_an_unknown_write_is_settled_by_one_that_excludes_it(
    far: KazooKeeper, real_keeper: KazooKeeper, proxy: Proxy
) -> None:
    far.multi([Create("/lock")])
    proxy.swallow_answers()
    with pytest.raises(OutcomeUnknown):
        far.multi([Create("/a"), Delete("/lock")])
    proxy.pass_everything()
    results = real_keeper.multi_many([[Delete("/lock")]])
    assert isinstance(results[0], Exception), "the first one happened, so this one cannot"


def test_a_read_whose_answer_is_lost_is_unavailable(far: KazooKeeper, proxy: Proxy) -> None:
    proxy.swallow_answers()
    with pytest.raises((Unavailable, ReplicaRetired)):
        far.exists("/")


def test_pipelined_writes_end_one_by_one(
    far: KazooKeeper, real_keeper: KazooKeeper, proxy: Proxy
) -> None:
    proxy.swallow_answers()
    results = far.multi_many([[Create(f"/{n}")] for n in range(300)])
    assert len(results) == 300
    assert isinstance(results[0], OutcomeUnknown)
    assert all(isinstance(each, (OutcomeUnknown, ReplicaRetired)) for each in results)
    real_keeper.sync("/")
    landed = [n for n in range(300) if real_keeper.exists(f"/{n}") is not None]
    for n, result in enumerate(results):
        assert not (isinstance(result, ReplicaRetired) and n in landed)


def test_a_broken_connection_is_not_the_end_of_the_session(
    lasting: KazooKeeper, proxy: Proxy
) -> None:
    lasting.multi([Create("/a"), Create("/a/e", ephemeral=True)])
    session = lasting.session_id
    proxy.cut()
    until_answered(lasting)
    assert lasting.session_id == session
    assert lasting.children("/a") == ["e"]


def until_answered(keeper: KazooKeeper) -> None:
    def is_answered() -> bool:
        try:
            keeper.sync("/")
        except Unavailable:
            return False
        return True

    until(is_answered)


def test_a_watch_fires_when_its_connection_breaks(far: KazooKeeper, proxy: Proxy) -> None:
    """The server forgets it with the connection: who waits must look again."""
    fired = threading.Event()
    far.exists("/never", fired.set)
    proxy.cut()
    assert fired.wait(DETECTION_MAX_S)


def test_a_session_without_a_server_retires_by_itself(far: KazooKeeper, proxy: Proxy) -> None:
    """kazoo would try for ever, and a server that comes back would find a zombie."""
    retired, woken = threading.Event(), threading.Event()
    far.on_retired(retired.set)
    far.exists("/never", woken.set)
    proxy.drop_requests()
    proxy.cut()
    assert retired.wait(DETECTION_MAX_S)
    assert woken.wait(DETECTION_MAX_S)
    proxy.pass_everything()
    with pytest.raises(ReplicaRetired, match="start over"):
        far.get("/")


def test_what_a_session_left_is_gone_soon_although_nobody_uses_it(
    lasting: KazooKeeper, real_keeper: KazooKeeper, proxy: Proxy
) -> None:
    """It does not end for that, and the thread that saw to it is gone afterwards."""
    lasting.multi([Create("/p")])

    def settling() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "rmt-settle"}

    before, found = settling(), []

    def cut() -> None:
        until(lambda: real_keeper.children("/p"))
        found.extend(real_keeper.children("/p"))
        proxy.cut()
        proxy.pass_everything()

    proxy.swallow_answers()
    cutting = threading.Thread(target=cut)
    cutting.start()
    with (
        pytest.raises(OutcomeUnknown),
        seen_to(lasting, [Stray("/p", "holder 7", is_parent=True)]),
    ):
        lasting.multi([Create("/p/block-", b"x\nholder 7", ephemeral=True, sequence=True)])
    cutting.join()
    assert found == ["block-0000000000"]
    until(lambda: real_keeper.children("/p") == [])
    assert not lasting.is_retired
    until(lambda: settling() <= before, lambda: "it goes on although nothing is left")


def test_a_stolen_session_is_over_for_its_owner(
    real_keeper: KazooKeeper, zookeeper_server: EmbeddedZooKeeper
) -> None:
    told: list[str] = []
    real_keeper.on_retired(lambda: told.append("once"))
    session = real_keeper.session_id
    steal_session(zookeeper_server.hosts, real_keeper)
    with pytest.raises(ReplicaRetired, match=f"{session:#x}"):
        real_keeper.multi([Create("/a")])
    real_keeper.close()
    assert told == ["once"]


def test_who_asks_late_hears_at_once_that_the_session_is_over(
    real_keeper: KazooKeeper, zookeeper_server: EmbeddedZooKeeper
) -> None:
    steal_session(zookeeper_server.hosts, real_keeper)
    told: list[str] = []
    real_keeper.on_retired(lambda: told.append("late"))
    assert told == ["late"]


def test_closing_ones_own_session_is_not_reported_as_a_loss(real_keeper: KazooKeeper) -> None:
    told: list[str] = []
    real_keeper.on_retired(lambda: told.append("lost"))
    real_keeper.close()
    real_keeper.on_retired(lambda: told.append("lost"))
    assert told == []


def test_a_retired_callback_may_close_the_keeper(
    real_keeper: KazooKeeper, zookeeper_server: EmbeddedZooKeeper
) -> None:
    closed = threading.Event()

    def close() -> None:
        real_keeper.close()
        closed.set()

    real_keeper.on_retired(close)
    steal_session(zookeeper_server.hosts, real_keeper)
    assert closed.wait(DETECTION_MAX_S)


def test_a_frozen_server_ends_in_unknown_and_closing_does_not_wait_for_it(
    tmp_path: Path,
) -> None:
    with EmbeddedZooKeeper(tmp_path, free_port(), force_sync=False) as server:
        keeper = connect(server.hosts, session_timeout_s=SHORT_S)
        keeper.multi([Create("/a")])
        assert server.pid is not None
        freeze(server.pid)
        try:
            with pytest.raises(OutcomeUnknown):
                keeper.multi([Create("/b")])
            with pytest.raises((Unavailable, ReplicaRetired)):
                keeper.get("/a")
            start = time.monotonic()
            keeper.close()
            assert time.monotonic() - start < 8 * BUSY
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_a_server_that_freezes_just_before_the_close_is_not_waited_for(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, free_port(), force_sync=False) as server:
        keeper = connect(server.hosts, session_timeout_s=60)
        assert server.pid is not None
        freeze(server.pid)
        try:
            start = time.monotonic()
            keeper.close()
            assert time.monotonic() - start < 4.5 * BUSY
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_a_session_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    port = free_port()
    with EmbeddedZooKeeper(tmp_path, port):
        keeper = connect(f"127.0.0.1:{port}", session_timeout_s=LASTING_S)
        keeper.multi([Create("/a"), Create("/e", ephemeral=True)])
    with EmbeddedZooKeeper(tmp_path, port):
        until_answered(keeper)
        assert keeper.exists("/e") is not None
        assert keeper.exists("/a") is not None
        keeper.close()


def test_nothing_is_left_running_after_a_close(zookeeper_server: EmbeddedZooKeeper) -> None:
    before = set(threading.enumerate())
    keeper = connect(zookeeper_server.hosts)
    keeper.exists("/", lambda: None)
    keeper.close()
    assert set(threading.enumerate()) - before == set()
