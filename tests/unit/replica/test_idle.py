"""A table that nobody writes to: nothing is asked of ZooKeeper, and nothing is kept of a look."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import Flush, work
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.worker import (
    OWN_CHANGES_S,
    OWN_INSERTS_REST_S,
    PATIENCE_MAX_S,
    SAFETY_NET_S,
    Worker,
)
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from tests.support.local_replicas import DirectPeers, Replicas, StillClock

TURNS = 2_000
WARM_UP = 300
OBJECTS_MAX = 200
"""More than that, and something grows with the turns. What a turn leaves in caches is bounded."""

AN_HOUR_S = 3600.0
NETS = AN_HOUR_S / (0.6 * SAFETY_NET_S)
pools = pytest.mark.parametrize("pool", ["fetch", "merge"])


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as opened:
        opened.insert("r1", 1, 2, 3)
        yield opened


def tools_of(replicas: Replicas) -> Tools:
    return Tools(
        DirectPeers(replicas.stores),
        LocalMerger(replicas.clock),
        LocalMutator(replicas.clock),
        spawn=lambda run: run(),
    )


def count_requests(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """By the path's last name; a pipelined read counts once for each path."""
    asked: Counter[str] = Counter()

    def counting(right: Callable[..., Any]) -> Callable[..., Any]:
        def request(what: Any, *rest: Any, **named: Any) -> Any:
            paths = [what] if isinstance(what, str) else what
            asked.update(str(getattr(path, "path", path)).rpartition("/")[2] for path in paths)
            return right(what, *rest, **named)

        return request

    names = ("get", "exists", "children_stat", "get_many", "exists_many", "children_many")
    for name in (*names, "multi"):
        monkeypatch.setattr(replica.keeper, name, counting(getattr(replica.keeper, name)))
    return asked


class Napping:
    """A loop's waker in a world with a clock that stands still: what happens, happens while it
    waits.
    """

    def __init__(self, clock: StillClock) -> None:
        self._clock = clock
        self._is_set = False
        self.at: dict[float, Callable[[], object]] = {}
        self.woken_s: list[float] = []

    def wake(self) -> None:
        self._is_set = True

    def wait_s(self, timeout_s: float) -> bool:
        until_s = self._clock.passed_s + timeout_s
        while not self._is_set and (due := min(self.at, default=until_s)) < until_s:
            self._clock.passed_s = max(self._clock.passed_s, due)
            self.at.pop(due)()
        woken, self._is_set = self._is_set, False
        if woken:
            self.woken_s.append(self._clock.passed_s)
        else:
            self._clock.passed_s = until_s
        return woken


def live(
    replicas: Replicas,
    name: str,
    pool: Pool,
    seconds: float,
    at: dict[float, Callable[[], object]] | None = None,
) -> list[str]:
    """A pool's loop for so long; the parts it made, `at` being what happens meanwhile."""
    clock, waker = replicas.clock, Napping(replicas.clock)
    waker.at = at or {}
    made: list[str] = []

    def flushed(flush: Flush) -> None:
        made.extend(str(done.part) for done in flush.parts if not done.error)

    began_s = clock.passed_s
    work(
        lambda: replicas[name],
        tools_of(replicas),
        pool,
        waker=waker,
        linger_s=None,
        max_s=seconds - began_s,
        select=pool == "merge",
        on_flush=flushed,
        should_stop=lambda: False,
    )
    return made


@pools
def test_nothing_is_kept_of_thousands_of_idle_turns(replicas: Replicas, pool: Pool) -> None:
    replica = replicas["r1"]
    one = Worker(replica, tools_of(replicas), pool, EventWaker(), select=pool == "merge")

    def idle(turns: int) -> tuple[int, int]:
        for _ in range(turns):
            one.turn()
            replicas.clock.passed_s += SAFETY_NET_S
        gc.collect()
        return len(gc.get_objects()), sum(map(len, replica.session._watches.values()))

    objects, watches = idle(WARM_UP)
    objects_then, watches_then = idle(TURNS)
    assert watches_then == watches
    assert objects_then - objects < OBJECTS_MAX


@pools
def test_an_idle_hour_asks_for_nothing_but_a_glance_every_few_minutes(
    replicas: Replicas, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(replicas, "r1", pool, 600)
    asked = count_requests(replicas["r1"], monkeypatch)
    live(replicas, "r1", pool, 600 + AN_HOUR_S)
    assert asked["queue"] <= NETS + 4
    assert asked["log"] <= NETS + 4
    # The pointer is read again, too, with what says whether the replica is lost; and four log
    # entries to come are asked for.
    assert asked.total() <= 8 * NETS + 8, asked


def test_what_a_peer_inserts_is_fetched_when_its_watch_fires(replicas: Replicas) -> None:
    live(replicas, "r2", "fetch", 100)
    seen: dict[float, list[str]] = {}

    def look() -> None:
        seen[replicas.clock.passed_s] = replicas.parts("r2")[1:]

    happens: dict[float, Callable[[], object]] = {
        500.0: lambda: replicas.insert("r1", 4),
        500.1: look,
        900.0: lambda: replicas.insert("r1", 5),
        900.1: look,
    }
    live(replicas, "r2", "fetch", 1000, happens)
    assert seen == {500.1: ["all_1_1_0"], 900.1: ["all_1_1_0", "all_2_2_0"]}


def queue_again(replica: Replica) -> None:
    """The first part, as a sensor does, or a server that misses it."""
    part = PartName.parse("all_0_0_0")
    text = encode(GetPart(create_time=0, source_replica="r1", part=part))
    replica.store.remove(part)
    replica.keeper.multi(
        [
            Delete(replica.paths.part(part)),
            Create(replica.paths.queue_prefix, text, sequence=True),
        ]
    )


def test_what_somebody_else_queues_is_found_when_its_watch_fires(replicas: Replicas) -> None:
    """The log says nothing new."""
    live(replicas, "r2", "fetch", 100)
    replica, seen = replicas["r2"], []

    happens: dict[float, Callable[[], object]] = {
        150.0: lambda: queue_again(replica),
        150.1: lambda: seen.extend(replicas.parts("r2")),
    }
    live(replicas, "r2", "fetch", 200, happens)
    assert seen == ["all_0_0_0"]


def test_an_insert_here_leads_to_a_merge_although_nothing_is_queued(
    replicas: Replicas,
) -> None:
    """1. Nothing is worth it, and it is remembered. 2. Inserts: parts, and log entries."""
    live(replicas, "r1", "fetch", 50)
    live(replicas, "r1", "merge", 600)
    inserts = {
        1000.0 + number: lambda number=number: replicas.insert("r1", number)
        for number in range(10, 20)
    }
    live(replicas, "r1", "merge", 1200, inserts)
    assert any(name.endswith("_1") for name in replicas.parts("r1"))


def test_what_is_fetched_after_the_last_look_for_merges_is_merged_too(
    replicas: Replicas,
) -> None:
    """1. The log tells of parts; they are not here, so nothing is worth it, and that is remembered.
    2. They are fetched: the queue changes, the log does not.
    """
    live(replicas, "r2", "fetch", 10)
    parts = [replicas.insert("r1", number) for number in range(10, 20)]
    happens: dict[float, Callable[[], object]] = {300.0: lambda: replicas.step("r2", "fetch")}
    live(replicas, "r2", "merge", 500, happens)
    assert set(map(str, parts)) < set(replicas.parts("r2"))
    assert any(name.endswith("_1") for name in replicas.parts("r2"))


def test_what_grows_worth_it_with_time_is_merged_without_a_request_before(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two parts are too few while they are young."""
    replicas.insert("r1", 4)
    replicas.set(min_age_to_force_merge_seconds=5000, max_cleanup_delay_period=1)
    live(replicas, "r1", "fetch", 50)
    live(replicas, "r1", "merge", 1000)
    asked = count_requests(replicas["r1"], monkeypatch)
    live(replicas, "r1", "merge", 2900)
    assert asked["executing"] <= 4, "only when the loop begins"
    live(replicas, "r1", "merge", 5200)
    assert "all_0_1_1" in replicas.parts("r1")


def test_a_number_that_is_given_back_holds_up_no_merge_for_ever(replicas: Replicas) -> None:
    """What stood between two parts goes, and no watch tells of it."""
    replica = replicas["r1"]
    replicas.set(min_age_to_force_merge_seconds=1)
    lock = f"{replica.table.partition('all')}/block-"
    [held] = replica.keeper.multi([Create(lock, sequence=True)])
    replicas.insert("r1", 4)
    live(replicas, "r1", "fetch", 50)
    before: list[str] = []
    happens: dict[float, Callable[[], object]] = {
        449.0: lambda: before.extend(replicas.parts("r1")),
        450.0: lambda: replica.keeper.multi([Delete(held)]),
    }
    live(replicas, "r1", "merge", 600, happens)
    assert before == ["all_0_0_0", "all_2_2_0"]
    assert "all_0_2_1" in replicas.parts("r1")


def test_a_watch_that_was_lost_costs_no_more_than_the_safety_net(replicas: Replicas) -> None:
    live(replicas, "r2", "fetch", 10)
    happens: dict[float, Callable[[], object]] = {
        15.0: replicas.zookeeper.forget_watches,
        20.0: lambda: replicas.insert("r1", 4),
    }
    made = live(replicas, "r2", "fetch", 20 + SAFETY_NET_S, happens)
    assert made == ["all_1_1_0"]


def test_what_another_process_had_claimed_is_taken_when_its_session_ends(
    replicas: Replicas,
) -> None:
    """Nothing of the queue changes then."""
    live(replicas, "r2", "fetch", 10)
    replica, seen = replicas["r2"], []
    replicas.insert("r1", 4)
    pull_log(replica)
    [node] = replica.keeper.children(replica.paths.queue)
    other = replicas.zookeeper.connect()
    claim = Claim("another worker", (PartName.parse("all_1_1_0"),)).encode()
    other.multi(
        [
            SetData(replica.paths.executing),
            Create(replica.paths.claim(node), claim, ephemeral=True),
        ]
    )
    happens: dict[float, Callable[[], object]] = {
        100.0: other.close,
        100.1: lambda: seen.extend(replicas.parts("r2")),
    }
    live(replicas, "r2", "fetch", 200, happens)
    assert seen == ["all_0_0_0", "all_1_1_0"]


def test_who_waits_for_others_asks_less_and_less_often(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(replicas, "r2", "fetch", 10)
    replica = replicas["r2"]
    replicas.insert("r1", 4)
    pull_log(replica)
    [node] = replica.keeper.children(replica.paths.queue)
    claim = Claim("a slow one", (PartName.parse("all_1_1_0"),)).encode()
    replica.keeper.multi(
        [SetData(replica.paths.executing), Create(replica.paths.claim(node), claim)]
    )
    asked = count_requests(replica, monkeypatch)
    live(replicas, "r2", "fetch", 10 + AN_HOUR_S)
    looks = AN_HOUR_S / PATIENCE_MAX_S
    assert 0.9 * looks < asked["is_lost"] < 1.1 * looks


def test_a_queue_that_was_emptied_here_is_listed_once_the_log_is_quiet(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fetch fires the queue's watch, and nobody else has changed it."""
    live(replicas, "r2", "fetch", 100)
    replica = replicas["r2"]
    inserts = {
        200 + number / 10: lambda number=number: replicas.insert("r1", 100 + number)
        for number in range(50)
    }
    listed, right = [], replica.keeper.children

    def children(path: str, *rest: Any) -> list[str]:
        listed.extend([path] * (path == replica.paths.queue))
        return right(path, *rest)

    monkeypatch.setattr(replica.keeper, "children", children)
    made = live(replicas, "r2", "fetch", 210, inserts)
    assert len(made) == 50
    assert len(listed) <= 50 + 3


def test_what_others_queue_while_we_empty_the_queue_waits_for_a_moment(
    replicas: Replicas,
) -> None:
    """The watch has fired already, for our own change."""
    live(replicas, "r2", "fetch", 100)
    replica, seen = replicas["r2"], []

    happens: dict[float, Callable[[], object]] = {
        150.0: lambda: replicas.insert("r1", 4),
        150.1: lambda: queue_again(replica),
        150.1 + OWN_CHANGES_S: lambda: seen.extend(replicas.parts("r2")),
    }
    live(replicas, "r2", "fetch", 200, happens)
    assert set(seen) == {"all_0_0_0", "all_1_1_0"}


def test_what_another_loop_has_pulled_is_fetched_at_once(replicas: Replicas) -> None:
    """It was faster, and the queue's watch has fired already, for our own change."""
    live(replicas, "r2", "fetch", 100)
    replica, seen = replicas["r2"], []

    def pulled_elsewhere() -> None:
        other = Replica(
            replica.definition,
            replicas.zookeeper.connect(),
            replica.store,
            replica.clock,
            replica.ids,
            replica.settings,
            "another process",
        )
        replicas.insert("r1", 5)
        pull_log(other)
        replicas.insert("r2", 6)  # we take this one from the log, which is nothing to do

    happens: dict[float, Callable[[], object]] = {
        150.0: lambda: replicas.insert("r1", 4),
        150.1: pulled_elsewhere,
        150.15: lambda: seen.extend(replicas.parts("r2")),
    }
    live(replicas, "r2", "fetch", 200, happens)
    assert "all_2_2_0" in seen


def test_what_failed_to_be_read_is_read_again(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change was taken as seen, and the answer did not come."""
    live(replicas, "r2", "fetch", 10)
    replica, lost = replicas["r2"], []
    right = replica.keeper.children_stat

    def once(path: str, *rest: Any) -> Any:
        if path == replica.paths.queue and replicas.clock.passed_s > 50 and not lost:
            lost.append(path)
            raise Unavailable("no answer")
        return right(path, *rest)

    monkeypatch.setattr(replica.keeper, "children_stat", once)
    insert: dict[float, Callable[[], object]] = {60.0: lambda: replicas.insert("r1", 4)}
    live(replicas, "r2", "fetch", 70, insert)
    assert lost
    assert "all_1_1_0" in replicas.parts("r2")


def test_the_pointer_is_behind_what_was_inserted_here_once_the_log_is_quiet(
    replicas: Replicas,
) -> None:
    """Nothing wakes the loop then but its own clock."""
    replica = replicas["r1"]
    live(replicas, "r1", "fetch", 100)
    inserts: dict[float, Callable[[], object]] = {
        150.0 + number / 100: lambda number=number: replicas.insert("r1", number)
        for number in range(10)
    }
    live(replicas, "r1", "fetch", 155, inserts)
    pointer, stat = replica.keeper.get(replica.paths.log_pointer)
    assert int(pointer) == 11
    assert stat.version <= 4


def test_one_look_at_the_log_finds_several_of_what_is_inserted_here_one_after_another(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what another replica inserts meanwhile waits for no longer than such a rest."""
    live(replicas, "r1", "fetch", 100)
    seen: list[list[str]] = []
    happens: dict[float, Callable[[], object]] = {
        150.0 + number / 200: lambda number=number: replicas.insert("r1", number)
        for number in range(20)
    }
    happens[150.052] = lambda: replicas.insert("r2", 100)
    happens[150.052 + 1.1 * OWN_INSERTS_REST_S] = lambda: seen.append(replicas.parts("r1"))
    asked = count_requests(replicas["r1"], monkeypatch)
    live(replicas, "r1", "fetch", 150.5, happens)
    by_insert = 1  # the first one's, which asks how long the log is
    looks = asked["log"] - by_insert
    assert 0.1 / OWN_INSERTS_REST_S / 2 <= looks <= 0.1 / OWN_INSERTS_REST_S + 5
    [parts] = seen
    from_peer = "all_11_11_0"
    assert from_peer in parts


def test_after_what_another_replica_inserted_there_is_no_rest(replicas: Replicas) -> None:
    live(replicas, "r1", "fetch", 100)
    seen: list[int] = []
    happens: dict[float, Callable[[], object]] = {}
    for number in range(5):
        happens[150.0 + number / 200] = lambda number=number: replicas.insert("r2", number)
        happens[150.001 + number / 200] = lambda: seen.append(len(replicas.parts("r1")))
    before = len(replicas.parts("r1"))
    live(replicas, "r1", "fetch", 150.5, happens)
    assert seen == [before + number for number in range(1, 6)]
