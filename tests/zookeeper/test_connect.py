import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import UnimplementedError

from examples.flights.ports import free_port
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from rmt_pipeline.protocol.errors import (
    BadConfiguration,
    OutcomeUnknown,
    Unavailable,
    ZooKeeperUnreachable,
)
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.connect import connect
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.lasting import lasting
from tests.support.time_limit import time_limit
from tests.support.waiting import BUSY, LIMIT_S, until

pytestmark = pytest.mark.zookeeper


def test_an_unreachable_zookeeper_says_where_how_long_and_what_to_do() -> None:
    hosts = f"127.0.0.1:{free_port()}"
    start = time.monotonic()
    with pytest.raises(ZooKeeperUnreachable) as caught:
        connect(hosts, connect_timeout_s=0.5)
    assert str(caught.value) == (
        f"no ZooKeeper answered at {hosts} within 0.5 s; start one with `rmt zookeeper`, "
        "or correct [zookeeper] hosts in rmt.toml"
    )
    assert time.monotonic() - start < 5 * BUSY


def test_a_server_that_takes_the_connection_and_says_nothing_is_not_waited_for() -> None:
    """As a frozen one does; a session would last for an hour."""
    with socket.create_server(("127.0.0.1", 0)) as silent, time_limit("giving up", LIMIT_S):
        port = silent.getsockname()[1]
        with pytest.raises(ZooKeeperUnreachable, match=r"within 0\.5 s"):
            connect(f"127.0.0.1:{port}", session_timeout_s=3600, connect_timeout_s=0.5)


@pytest.mark.parametrize(
    "hosts",
    ["", " , ", "/a", "a:1/b//c", "a:1/b,c:1/b", "a:1/../b", "a:1/b/.", "localhost:port"],
)
def test_hosts_that_are_none_are_refused(hosts: str) -> None:
    with pytest.raises(BadConfiguration, match=r"rmt\.toml"):
        connect(hosts, connect_timeout_s=0.5)


def test_a_chroot_is_created_and_hides_the_rest(
    zookeeper_server: EmbeddedZooKeeper, chroot: str
) -> None:
    inner = lasting(zookeeper_server.hosts, chroot=f"{chroot}/deep/down")
    outer = lasting(zookeeper_server.hosts)
    try:
        assert inner.multi([Create("/a"), Create("/a/n-", sequence=True)]) == [
            "/a",
            "/a/n-0000000000",
        ]
        outer.sync("/")
        assert outer.children(f"{chroot}/deep/down") == ["a"]
        assert inner.children("/") == ["a"]
    finally:
        inner.close()
        outer.close()


def test_a_chroot_stands_behind_the_hosts(
    zookeeper_server: EmbeddedZooKeeper, chroot: str
) -> None:
    inner = lasting(f"{zookeeper_server.hosts}{chroot}/from/hosts/", chroot="/more")
    outer = lasting(zookeeper_server.hosts, chroot=chroot)
    inner.multi([Create("/a")])
    outer.sync("/")
    assert outer.children("/from/hosts/more") == ["a"]
    inner.close()
    outer.close()


def test_one_of_several_hosts_is_enough(zookeeper_server: EmbeddedZooKeeper) -> None:
    keeper = lasting(f"127.0.0.1:{free_port()},{zookeeper_server.hosts}")
    assert keeper.exists("/") is not None
    keeper.close()


def test_a_session_that_looks_a_thousand_times_keeps_what_one_look_keeps(
    real_keeper: KazooKeeper,
) -> None:
    """An idle table is looked at for months. kazoo itself keeps a watch for each time."""
    real_keeper.multi([Create("/log"), Create("/pointer")])
    waker = EventWaker()
    for _ in range(1_000):
        real_keeper.children("/log", waker.wake)
        real_keeper.get("/pointer", waker.wake)
        real_keeper.exists("/pointer", EventWaker().wake)
    client = real_keeper._client
    assert len(real_keeper._life.watches) == 2
    assert [len(each) for each in client._child_watchers.values()] == [1]
    assert [len(each) for each in client._data_watchers.values()] == [1]
    real_keeper.multi([Create("/log/a")])
    assert waker.wait_s(LIMIT_S)
    assert len(real_keeper._life.watches) == 1


def sent(keeper: KazooKeeper, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What goes to ZooKeeper from now on."""
    requests: list[Any] = []
    call = keeper._client._call

    def counting(request: Any, pending: Any) -> Any:
        requests.append(request)
        return call(request, pending)

    monkeypatch.setattr(keeper._client, "_call", counting)
    return requests


def test_a_thousand_nodes_are_read_with_a_few_requests(
    real_keeper: KazooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"/n{number:04}" for number in range(1_000)]
    for start in range(0, 1_000, 250):
        real_keeper.multi(
            [
                Create(name, name.encode())
                for name in names[start : start + 250]
                if "7" not in name[4:]
            ]
        )
    real_keeper.multi([Create("/n0000/child"), Create("/n0000/other")])
    requests = sent(real_keeper, monkeypatch)
    reads = real_keeper.get_many(names)
    listed = real_keeper.children_many(names)
    assert len(requests) <= 20
    for name, read, children in zip(names, reads, listed, strict=True):
        if "7" in name[4:]:
            assert read is None
            assert children is None
        else:
            assert read == real_keeper.get(name)
            assert children == (["child", "other"] if name == "/n0000" else [])


def test_a_server_that_can_not_read_many_at_once_is_asked_one_by_one(
    real_keeper: KazooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ZooKeeper 3.5: it refuses the request, and hangs up."""
    real_keeper.multi([Create("/a", b"x"), Create("/b")])
    call = real_keeper._client._call

    def old(request: Any, pending: Any) -> Any:
        if request.type == 22:
            pending.set_exception(UnimplementedError())
            return False
        return call(request, pending)

    monkeypatch.setattr(real_keeper._client, "_call", old)
    with pytest.raises(Unavailable, match="try again"):
        real_keeper.get_many(["/a", "/b", "/no"])
    reads = real_keeper.get_many(["/a", "/b", "/no"])
    assert [read and read[0] for read in reads] == [b"x", b"", None]
    assert real_keeper.children_many(["/a", "/no"]) == [[], None]


def answered(ask: Callable[[], object]) -> bool:
    """Whether a server answers again, the connection being broken a moment ago."""
    try:
        ask()
    except (Unavailable, OutcomeUnknown):
        return False
    return True


def test_watches_that_stay_cost_one_request_and_fire_after_the_connection_broke_too(
    real_keeper: KazooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_keeper.multi([Create("/a")])
    requests = sent(real_keeper, monkeypatch)
    for number in range(20):
        fired = threading.Event()
        assert real_keeper.await_children("/a", fired.set)
        real_keeper.multi([Create(f"/a/{number}")])
        assert fired.wait(LIMIT_S)
    assert len(requests) == 21
    broke = threading.Event()
    assert real_keeper.await_children("/a", broke.set)
    real_keeper._handler.cut()
    assert broke.wait(LIMIT_S)
    fired = threading.Event()
    until(lambda: answered(lambda: real_keeper.sync("/a")))
    assert real_keeper.await_children("/a", fired.set)
    real_keeper.multi([Create("/a/again")])
    assert fired.wait(LIMIT_S)


def test_a_server_without_watches_that_stay_is_asked_once(
    real_keeper: KazooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_keeper.multi([Create("/a")])
    call, asked = real_keeper._client._call, []

    def old(request: Any, pending: Any) -> Any:
        if request.type == 106:
            asked.append(request)
            pending.set_exception(UnimplementedError())
            return False
        return call(request, pending)

    monkeypatch.setattr(real_keeper._client, "_call", old)
    for _ in range(3):
        assert not real_keeper.await_children("/a", lambda: None)
    assert len(asked) == 1
