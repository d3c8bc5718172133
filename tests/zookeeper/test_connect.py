import time

import pytest

from rmt_pipeline.processes.server import free_port
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from rmt_pipeline.protocol.errors import BadConfiguration, ZooKeeperUnreachable
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.connect import connect
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.waiting import BUSY

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


@pytest.mark.parametrize("hosts", ["", " , ", "localhost:2181/chroot", "localhost:port"])
def test_hosts_that_are_none_are_refused(hosts: str) -> None:
    with pytest.raises(BadConfiguration, match=r"rmt\.toml"):
        connect(hosts, connect_timeout_s=0.5)


def test_a_chroot_is_created_and_hides_the_rest(
    zookeeper_server: EmbeddedZooKeeper, chroot: str
) -> None:
    inner = connect(zookeeper_server.hosts, chroot=f"{chroot}/deep/down")
    outer = connect(zookeeper_server.hosts)
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


def test_one_of_several_hosts_is_enough(zookeeper_server: EmbeddedZooKeeper) -> None:
    keeper = connect(f"127.0.0.1:{free_port()},{zookeeper_server.hosts}")
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
    assert waker.wait_s(60)
    assert len(real_keeper._life.watches) == 1
