"""What the part exchange may take, over all tables: bytes per second, fetches at a time; and what
ends a fetch before its part is here.
"""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from rmt_pipeline.compute.stop import ask_to_stop
from rmt_pipeline.exchange.bandwidth import LIMIT_VALID_S, Bandwidth
from rmt_pipeline.exchange.client import HttpPeers, PartClient
from rmt_pipeline.exchange.peers import FetchRequest
from rmt_pipeline.exchange.server import PAUSE_MAX_S
from rmt_pipeline.exchange.slots import FetchSlots
from rmt_pipeline.protocol.errors import Conflict, Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from tests.support.exchange import (
    ENDPOINT,
    SECRET,
    Sender,
    SlowClock,
    address,
    put,
    store_at,
)
from tests.support.waiting import LIMIT_S, until

PART = PartName("2013", 1, 4, 2)
LARGE = {"data-00000.parquet": b"a" * 3_000_000, "data-00001.parquet": b"z"}


def test_a_limit_of_bytes_per_second_is_kept(source, target):
    put(source, PART, LARGE)
    clock = SlowClock()
    limits = [1_000_000]
    client = PartClient(SECRET, bandwidth=Bandwidth(lambda: limits[0], clock), clock=clock)
    with Sender(source) as sender:
        client.fetch(address(sender.port), ENDPOINT, PART, target)
        assert clock.now == pytest.approx(3.0, rel=0.01)
        limits[0] = 0
        clock.now += LIMIT_VALID_S
        then = clock.now
        client.fetch(address(sender.port), ENDPOINT, PART, target)
    assert clock.now == pytest.approx(then, abs=0.02), "but for the first chunk"
    client.connections.close()


def test_a_limit_is_not_read_for_every_chunk():
    """It may be in a file."""
    clock, asked = SlowClock(), []

    def limit() -> int:
        asked.append(clock.now)
        return 10**9

    bandwidth = Bandwidth(limit, clock)
    for number in range(1000):
        clock.now = number / 100
        bandwidth.wait_s(1)
    assert len(asked) <= 10


def test_tables_share_what_the_process_may_move_and_each_keeps_its_own_limit():
    clock = SlowClock()
    all_of_them = Bandwidth(lambda: 100, clock)
    slow = Bandwidth(lambda: 10, clock, within=all_of_them)
    fast = Bandwidth(lambda: 0, clock, within=all_of_them)
    assert [slow.wait_s(10), fast.wait_s(100), fast.wait_s(100)] == [1.0, 1.1, 2.1]


def test_as_many_fetches_run_at_once_as_the_process_may_whatever_tables_they_are_of(tmp_path):
    slots = FetchSlots(2)
    running, most, go_on = [], [], threading.Event()

    class Client(PartClient):
        def fetch(self, address, endpoint, part, store):
            running.append(part)
            most.append(len(running))
            go_on.wait(LIMIT_S)
            running.remove(part)
            raise Unavailable("nothing is sent here")

    tables = [HttpPeers(Client(SECRET), slots=slots) for _ in range(3)]
    asked = [FetchRequest(address(1), f"{ENDPOINT}{n}", PART) for n in range(4)]
    store = store_at(tmp_path / "target")
    with ThreadPoolExecutor(3) as threads:
        fetches = [threads.submit(list, peers.fetch(asked, store)) for peers in tables]
        until(lambda: len(running) == 2, lambda: running)
        go_on.set()
        fetched = [one for done in fetches for some in done.result() for one in some]
    assert len(fetched) == 12
    assert max(most) == 2
    for peers in tables:
        peers.close()


def fetching_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("fetch")]


def test_a_table_that_fetches_nothing_has_no_threads(tmp_path):
    """A server may have hundreds of tables."""

    class Client(PartClient):
        def fetch(self, address, endpoint, part, store):
            raise Unavailable("nothing is sent here")

    peers = HttpPeers(Client(SECRET))
    asked = [FetchRequest(address(1), f"{ENDPOINT}{n}", PART) for n in range(4)]
    assert len(list(peers.fetch(asked, store_at(tmp_path / "target")))) >= 1
    assert fetching_threads() == []
    peers.close()


def test_who_gives_up_leaves_no_threads_either_once_it_is_closed(tmp_path):
    running, go_on = [], threading.Event()

    class Client(PartClient):
        def fetch(self, address, endpoint, part, store):
            running.append(part)
            if len(running) > 1:
                go_on.wait(LIMIT_S)
            raise Unavailable("nothing is sent here")

    peers = HttpPeers(Client(SECRET), at_once_max=2)
    asked = [FetchRequest(address(1), f"{ENDPOINT}{n}", PART) for n in range(9)]
    some = peers.fetch(asked, store_at(tmp_path / "target"))
    next(some)
    some.close()
    go_on.set()
    peers.close()
    until(lambda: not fetching_threads())
    assert len(running) <= 3, "what had not begun was given up"


def test_two_threads_that_give_up_at_once_are_both_waited_for(tmp_path, monkeypatch):
    go_on, running, other, is_done = threading.Event(), [], [], Future.done

    class Client(PartClient):
        def fetch(self, address, endpoint, part, store):
            if endpoint.endswith("1"):
                running.append(part)
                go_on.wait(LIMIT_S)
            raise Unavailable("nothing is sent here")

    def done_while_the_other_gives_up(future: Future[object]) -> bool:
        if other:
            other.pop().close()
        return is_done(future)

    peers = HttpPeers(Client(SECRET))
    asked = [FetchRequest(address(1), f"{ENDPOINT}{n}", PART) for n in range(2)]
    two = [peers.fetch(asked, store_at(tmp_path / name)) for name in ("one", "two")]
    for some in two:
        next(some)
    until(lambda: len(running) == 2)
    monkeypatch.setattr(Future, "done", done_while_the_other_gives_up)
    other.append(two[1])
    two[0].close()
    waited_for = set(peers._given_up)
    go_on.set()
    peers.close()
    assert len(waited_for) == 2
    until(lambda: not peers._given_up)


def test_what_is_inserted_is_fetched_while_a_table_is_cloned(tmp_path):
    """However much there is to clone, of however many tables."""
    cloned, brought, go_on = [], threading.Event(), threading.Event()
    new = PartName("all", 99, 99, 0)

    class Client(PartClient):
        def fetch(self, address, endpoint, part, store):
            if part == new:
                brought.set()
            else:
                cloned.append(part)
                go_on.wait(LIMIT_S)
            raise Unavailable("nothing is sent here")

    slots = FetchSlots(4)
    tables = [HttpPeers(Client(SECRET), at_once_max=4, slots=slots) for _ in range(3)]
    lost = [FetchRequest(address(1), f"{ENDPOINT}{n}", PART, recovers=True) for n in range(20)]
    store = store_at(tmp_path / "target")
    with ThreadPoolExecutor(4) as threads:
        try:
            for peers in tables:
                threads.submit(list, peers.fetch(lost, store))
            until(lambda: len(cloned) >= 3)
            two = [FetchRequest(address(1), f"{ENDPOINT}{n}", new) for n in range(2)]
            threads.submit(list, tables[0].fetch(two, store))
            assert brought.wait(LIMIT_S / 5)
            assert len(cloned) == 3
        finally:
            go_on.set()
    for peers in tables:
        peers.close()


def test_who_waits_for_a_slot_is_cancelled_too(tmp_path):
    peers = HttpPeers(PartClient(SECRET, is_cancelled=lambda: True), slots=FetchSlots(0))
    request = FetchRequest(address(1), ENDPOINT, PART)
    [[(_, error)]] = peers.fetch([request], store_at(tmp_path / "target"))
    assert isinstance(error, Conflict)
    peers.close()


def test_a_fetch_that_waits_for_its_limit_is_cancelled_meanwhile(source, target):
    """At a byte per second it would wait for days."""
    put(source, PART, LARGE)
    clock = SlowClock()
    client = PartClient(
        SECRET,
        bandwidth=Bandwidth(lambda: 1, clock),
        is_cancelled=lambda: clock.now > 100,
        clock=clock,
    )
    with Sender(source) as sender, pytest.raises(Conflict, match="cancelled"):
        client.fetch(address(sender.port), ENDPOINT, PART, target)
    assert clock.now < 101
    assert target.staged() == []


def test_a_fetch_of_what_was_dropped_meanwhile_ends(source, target):
    put(source, PART, LARGE)

    class DroppedMeanwhile(SlowClock):
        def sleep_s(self, seconds: float) -> None:
            super().sleep_s(seconds)
            for name in target.staged():
                asked_s.append(self.now)
                ask_to_stop(target.staged_at(name)[1], "the part was dropped")

    asked_s: list[float] = []
    clock = DroppedMeanwhile()
    client = PartClient(SECRET, bandwidth=Bandwidth(lambda: 1, clock), clock=clock)
    with Sender(source) as sender, pytest.raises(Conflict, match="the part was dropped"):
        client.fetch(address(sender.port), ENDPOINT, PART, target)
    assert len(asked_s) == 1, "it looks after each nap"
    assert target.staged() == []


SMALL = {"data-00000.parquet": b"a" * 1000}


@pytest.mark.parametrize("files", [LARGE, SMALL], ids=["large", "small"])
def test_a_peer_hears_from_us_however_long_it_has_to_wait(source, target, monkeypatch, files):
    """It gives a sender up that is silent for half a minute. Were all that many peers have asked
    for sent in large pieces, each after the pause for all of them, nobody would ever get a part.
    """
    put(source, PART, files)
    clock, paused, sleep = SlowClock(), [], asyncio.sleep

    async def pause(seconds: float) -> None:
        if seconds < 0.2:  # the web server's
            return await sleep(seconds)
        paused.append(seconds)
        clock.now += seconds
        return None

    monkeypatch.setattr(asyncio, "sleep", pause)
    bandwidth = Bandwidth(lambda: 100_000, clock)
    asked_for_by_others = 4_000_000
    bandwidth.wait_s(asked_for_by_others)
    client = PartClient(SECRET)
    with Sender(source, bandwidth_of=lambda _: bandwidth) as sender:
        client.fetch(address(sender.port), ENDPOINT, PART, target)
    client.connections.close()
    assert 0 < max(paused) <= PAUSE_MAX_S
    size = asked_for_by_others + sum(map(len, files.values()))
    assert clock.now == pytest.approx(size / 100_000, rel=0.01)


def test_those_who_share_a_bandwidth_wait_for_each_other():
    clock = SlowClock()
    shared = Bandwidth(lambda: 100, clock)
    assert [shared.wait_s(50), shared.wait_s(50)] == [0.5, 1.0]
    clock.now = 10
    assert shared.wait_s(50) == 0.5
