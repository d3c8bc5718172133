"""An hour of the loop of a pool, told by what it asks: others do something at certain seconds, and
nothing else happens.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.work.loop import Flush, work
from rmt_pipeline.replica.work.net import SafetyNet
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.store.marks import Background
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.actions import NOW, Action
from tests.support.local_replicas import Replicas, StillClock

AN_HOUR_S = 3600.0
Deed = tuple[float, Callable[[Replicas], object]]


class Timetable:
    """A waker in a world in which each deed has its second; who waits is woken by its watches."""

    def __init__(self, replicas: Replicas, deeds: Sequence[Deed]) -> None:
        self._replicas = replicas
        self._clock: StillClock = replicas.clock
        began_s = self._clock.passed_s
        self._deeds = [(began_s + at_s, does) for at_s, does in deeds]
        self._is_woken = False

    def wake(self) -> None:
        self._is_woken = True

    def wait_s(self, timeout_s: float) -> bool:
        until_s = self._clock.passed_s + timeout_s
        while not self._is_woken and self._deeds and self._deeds[0][0] <= until_s:
            at_s, does = self._deeds.pop(0)
            self._clock.passed_s = max(self._clock.passed_s, at_s)
            does(self._replicas)
        woken, self._is_woken = self._is_woken, False
        if not woken:
            self._clock.passed_s = max(self._clock.passed_s, until_s)
        return woken


def inserts(name: str, *values: int) -> Callable[[Replicas], object]:
    return lambda replicas: replicas.insert(name, *values)


def merges(replicas: Replicas) -> object:
    return optimize_partition(replicas["r2"], "all", final=True, skip_merged=False)


def mutates(replicas: Replicas) -> object:
    return create_mutation(replicas["r2"], "DELETE WHERE n = 1")


def others_work(replicas: Replicas) -> object:
    return replicas.work_off("r2", "r3")


def fetches(replicas: Replicas) -> object:
    return replicas.step("r1", "fetch")


def drops(replicas: Replicas) -> object:
    return replicas.table("r2").drop_partitions(["all"], settings=NOW)


def stops(what: Background) -> Callable[[Replicas], object]:
    return lambda replicas: replicas.stores["r1"].marks.stop(what)


def goes_on(what: Background) -> Callable[[Replicas], object]:
    return lambda replicas: replicas.stores["r1"].marks.go_on(what)


def claims_one(replicas: Replicas) -> None:
    """Another process of r1, for a while."""
    session, paths = replicas["r2"].session, replicas["r1"].paths
    queue = session.children(paths.queue)
    claim = Claim("another worker", (PartName("all", 0, 3, 2),)).encode()
    session.multi([Create(paths.claim(queue[-1]), claim, ephemeral=True)])


def gives_back(replicas: Replicas) -> None:
    session, paths = replicas["r2"].session, replicas["r1"].paths
    session.multi([Delete(paths.claim(name)) for name in session.children(paths.executing)])


PULLING, MERGES = Background.PULLING_REPLICATION_LOG, Background.MERGES
OF_FETCHES: list[Deed] = [
    (5, inserts("r2", 11)),
    (6, inserts("r2", 12)),
    (60, inserts("r1", 13)),
    (60.5, inserts("r1", 14)),
    (61, inserts("r1", 15)),
    (100, stops(PULLING)),
    (110, inserts("r2", 16)),
    (150, goes_on(PULLING)),
    (900, merges),
    (901, inserts("r3", 17)),
    (2000, drops),
    (2001, inserts("r2", 18)),
]
OF_MERGES: list[Deed] = [
    (5, merges),
    (6, fetches),
    (60, inserts("r1", 13)),
    (61, inserts("r1", 14)),
    (62, fetches),
    (100, mutates),
    (120, others_work),
    (121, fetches),
    (300, stops(MERGES)),
    (310, merges),
    (311, fetches),
    (312, claims_one),
    (400, goes_on(MERGES)),
    (460, gives_back),
    (900, inserts("r2", 17)),
    (905, fetches),
    (2000, drops),
    (2001, fetches),
]


def an_hour(
    pool: Pool, deeds: Sequence[Deed], *, select: bool, has_net: bool
) -> Callable[[Replicas], object]:
    """What was done, and when."""

    def act(replicas: Replicas) -> object:
        began_s, told = replicas.clock.passed_s, list[str]()

        def flushed(flush: Flush) -> None:
            for part in flush.parts:
                at_s = replicas.clock.passed_s - began_s
                told.append(f"{at_s:.1f} s: {part.kind} {part.part} {part.error}".strip())

        summary = work(
            lambda: replicas["r1"],
            replace(replicas.tools(), spawn=lambda run: run()),
            pool,
            waker=Timetable(replicas, deeds),
            linger_s=None,
            max_s=AN_HOUR_S,
            select=select,
            net=SafetyNet(replicas.clock) if has_net else None,
            on_flush=flushed,
            should_stop=lambda: False,
        )
        return [*told, summary]

    return act


LOOPS = [
    Action("an hour of fetches", an_hour("fetch", OF_FETCHES, select=False, has_net=False)),
    Action(
        "an hour of fetches with a net",
        an_hour("fetch", OF_FETCHES, select=False, has_net=True),
    ),
    Action("an hour of merges", an_hour("merge", OF_MERGES, select=False, has_net=False)),
    Action(
        "an hour of merges that are chosen, with a net",
        an_hour("merge", OF_MERGES, select=True, has_net=True),
    ),
    Action(
        "an hour of merges that are chosen",
        an_hour("merge", OF_MERGES, select=True, has_net=False),
    ),
]
