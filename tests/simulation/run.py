"""Runs seeds: `python -m tests.simulation --seeds 200 --first 1`.

A failing seed is shrunk (faults are dropped while it still fails), told with its last effects, and
added to `regressions.txt`, which the tests run first, for ever.
"""

import argparse
import gc
import itertools
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.replica.assign import duty, merges
from rmt_pipeline.replica.partitions import ids_left, undo
from rmt_pipeline.replica.reading import ReadWithoutZooKeeper
from rmt_pipeline.replica.tries import StillTrying
from rmt_pipeline.replica.work import execute, worker
from rmt_pipeline.zookeeper import snapshot
from rmt_pipeline.zookeeper.keeper import Stat
from rmt_pipeline.zookeeper.known import KnownQueue, Listed, Queued
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from tests.simulation import between, watchman
from tests.simulation.between import Tables
from tests.simulation.checkers import (
    CHECKERS,
    Finished,
    nobody_saw_corruption,
    nothing_is_left_behind,
    on_disk_is_promised,
    what_is_left,
    what_is_missing,
)
from tests.simulation.ledger import Ledger
from tests.simulation.size import COMMIT_BYTES_MAX, STORM_STEPS, Size
from tests.simulation.workload import Workload, check_parts, clean_up
from tests.support import kept_view
from tests.support.cluster import FORMS, Cluster
from tests.support.fast import remembering
from tests.support.kept_view import Compared
from tests.support.schedule import Schedule, Swarm
from tests.support.world import World

CALM_STEPS_MAX = 20_000
NEVER_S = 1e9
SECOND = TablePaths("/tables/u")
LATER_S = 5000.0  # old enough to be judged, even if a clock was an hour ahead
CALM_BEFORE = 0.75  # of the worlds have all replicas up before the storm
RESTARTS = 0.4  # of the worlds are started anew when the calm begins
TIDY_ROUNDS_MAX = 6
SHRINK_ROUNDS_MAX = 300
COLLECT_EVERY = 200_000  # new objects
REGRESSIONS = Path(__file__).with_name("regressions.txt")


class NotSettled(AssertionError):
    """Faults are over, everybody lives, and still something is left undone."""


@dataclass(slots=True)
class Run:
    """One world from its storm to its end."""

    world: World
    cluster: Cluster
    ledger: Ledger
    commit_bytes_max: int = COMMIT_BYTES_MAX
    restarts: bool = True
    """When the calm begins everybody starts anew; otherwise it has to come by itself."""
    tables: Tables | None = None
    """Both, when there are two."""
    storm_steps: int = STORM_STEPS

    @property
    def books(self) -> list[tuple[Cluster, Ledger]]:
        """Of each table."""
        first = [(self.cluster, self.ledger)]
        both = self.tables
        return first if both is None else [*first, (both.target, both.bought)]

    @property
    def finished(self) -> Finished:
        is_cut = self.commit_bytes_max < COMMIT_BYTES_MAX
        return Finished(self.cluster, self.ledger, is_cut)


def build(schedule: Schedule, size: Size | None = None) -> Run:
    """A world of a drawn size, with everybody at work; or an empty one of the given size."""
    is_busy = size is None
    size = size or Size.drawn(schedule.rng)
    world = World(schedule, [f"h{number + 1}" for number in range(size.hosts)])
    root = "t" if size.removals else ""  # what is dropped is a directory of its own
    cluster, ledger = Cluster(world, workers=size.workers, root=root), Ledger()
    ledger.ttls[0] = size.ttl
    cluster.ttl = "" if size.ttl is None else size.ttl.text
    ledger.value_ttl = size.value_ttl
    cluster.value_ttl = "" if size.value_ttl is None else size.value_ttl.expression
    for site in cluster.sites.values():
        site.form = schedule.rng.choice(FORMS)
    restarts = True
    watchman.Watchman(cluster, ledger)
    tables = with_another_table(cluster, ledger) if size.between else None
    if is_busy:
        cluster.boot(*list(cluster.sites)[: size.hosts - size.newcomers])
        if tables is not None:
            tables.target.boot(*list(cluster.sites)[: size.hosts - size.newcomers])
        world.work_s = schedule.rng.choice(((0.0,), (0.0, 0.0, 0.03, 0.5)))
        world.oddity = schedule.rng.choice((0.0, 0.0, 0.2))
        restarts = schedule.rng.random() < RESTARTS
        Workload(cluster, ledger, size, tables).begin()
    return Run(
        world, cluster, ledger, size.commit_bytes_max, restarts, tables, size.storm_steps
    )


def with_another_table(cluster: Cluster, ledger: Ledger) -> Tables:
    """On the same hosts and disks, with workers and books of its own."""
    other = Cluster(cluster.world, cluster.workers, SECOND, SECOND.root.rpartition("/")[2])
    for name, site in other.sites.items():
        site.form = cluster.sites[name].form
    other.beside = cluster
    books = Ledger()
    watchman.Watchman(other, books)
    return Tables(cluster, other, ledger, books)


def settle(run: Run) -> None:
    """Calm: no faults, until nothing is left to do. What hangs on the life of a process or of its
    session must come to an end without their deaths, too.
    """
    run.world.calm()
    if run.restarts:
        run.cluster.restart_everything()
    until_nothing_is_left(run)
    if run.ledger.lost_parts:
        for site in run.finished.sites:
            run.cluster.spawn(site, "check", check_parts)
        until_nothing_is_left(run)


def until_nothing_is_left(run: Run) -> None:
    def left() -> str | None:
        words = (what_is_left(cluster, ledger) for cluster, ledger in run.books)
        return next(filter(None, words), None)

    if not run.world.run(CALM_STEPS_MAX, lambda: left() is None):
        raise NotSettled(f"after a long calm {left()}")


def tidy_up(run: Run) -> None:
    """Everybody cleans up, until nothing is left behind: what is forgotten first frees more, merges
    go on, and a directory that a sweep puts back under its name is judged by the next clean-up.
    """
    for rounds_left in reversed(range(TIDY_ROUNDS_MAX)):
        run.world.now_s += LATER_S
        for cluster, ledger in run.books:
            for site in Finished(cluster, ledger).sites:
                cluster.spawn(site, "clean up", clean_up)
        until_nothing_is_left(run)
        try:
            for cluster, ledger in run.books:
                nothing_is_left_behind(Finished(cluster, ledger))
                on_disk_is_promised(Finished(cluster, ledger))
        except AssertionError:
            if rounds_left == 0:
                raise
        else:
            return


def check(run: Run, checkers: Iterable[Callable[[Finished], None]]) -> None:
    for checker in checkers:
        checker(run.finished)
    if run.tables is not None:
        second = Finished(run.tables.target, run.tables.bought)
        for checker in checkers:
            if checker is not nobody_saw_corruption:  # of either: looked at above
                checker(second)


def storm_and_calm(run: Run) -> None:
    """The whole life of a world."""
    if run.world.rng.random() < CALM_BEFORE:
        with run.world.schedule.truce():
            run.world.run(CALM_STEPS_MAX, lambda: what_is_missing(run.cluster) is None)
    run.world.run(run.storm_steps)
    live_on(run)


def live_on(run: Run) -> None:
    """From whatever the storm has left to the end. What died may have left things on disk that are
    too young to be judged at once, so what is not promised is looked for after the clean-up.
    """
    settle(run)
    check(run, CHECKERS)
    tidy_up(run)
    check(run, (*CHECKERS, on_disk_is_promised))


def failure_of(schedule: Swarm) -> tuple[Exception, Run] | None:
    with remembering(watchman, between), forgetful():
        return _failure_of(schedule)


@contextmanager
def forgetful() -> Iterator[None]:
    """The queues of these worlds are short: what is finished is forgotten at once. Whoever looks at
    parts or queue asserts that he would find the same if he read and built it anew. And there is no
    safety net: who misses a watch waits for ever.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        kept_view.remembering(),
    ):
        warnings.simplefilter("ignore", ReadWithoutZooKeeper)  # judged as every other one
        warnings.simplefilter("ignore", StillTrying)  # what comes of it is judged
        patch.setattr(snapshot, "FINISHED_KNOWN_MAX", 0)
        patch.setattr(snapshot, "as_listed", _compared(snapshot.as_listed))
        patch.setattr(snapshot, "is_as_known", _queue_compared(snapshot.is_as_known))
        patch.setattr(snapshot, "_entries", _entries_compared(snapshot._entries))
        patch.setattr(execute, "QueueView", Compared)
        patch.setattr(merges, "QueueView", Compared)
        patch.setattr(worker, "SAFETY_NET_S", NEVER_S)
        patch.setattr(duty, "SEEN_MAX_S", NEVER_S)
        yield


def _compared(right: Callable[..., Holdings | None]) -> Callable[..., Holdings | None]:
    looked_at: WeakSet[Holdings] = WeakSet()  # they never change: once is enough

    def compared(
        keeper: Any,
        replica: ReplicaPaths,
        known: KnownQueue,
        listed: Listed | None,
        stat: Stat,
    ) -> Holdings | None:
        holdings = right(keeper, replica, known, listed, stat)
        if holdings is None:
            return None
        there = getattr(keeper, "session", keeper).node_seen(replica.parts)
        if there is not None and there.stat == stat:
            assert {str(part) for part in holdings} == there.children, (
                f"{replica.parts} was listed before and is not the same any more"
            )
        if holdings not in looked_at:
            afresh = Holdings.of(holdings)
            assert holdings.of_partition == afresh.of_partition
            assert holdings.current == afresh.current
            looked_at.add(holdings)
        return holdings

    return compared


def _queue_compared(right: Callable[..., bool]) -> Callable[..., bool]:
    def compared_queue(
        keeper: Any,
        replica: ReplicaPaths,
        queued: Queued,
        node: tuple[bytes, Stat] | None,
    ) -> bool:
        is_right = right(keeper, replica, queued, node)
        there = getattr(keeper, "session", keeper).node_seen(replica.queue)
        if is_right and there is not None and (there.data, there.stat) == node:
            assert set(queued.names) == there.children, (
                f"{replica.queue} is taken for what it was and is not the same any more"
            )
        return is_right

    return compared_queue


def _entries_compared(right: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever is known already, and whatever was read before: each entry is what its node says, in
    the order of the queue, and none is left out. Of the replica that is meant: the one that a
    restore made in its place has entries of the same names.
    """

    def compared_entries(
        keeper: Any, replica: ReplicaPaths, names: Collection[str], *known: Any
    ) -> Any:
        found = right(keeper, replica, names, *known)
        session = getattr(keeper, "session", keeper)
        creation = getattr(keeper, "creation", "")
        if creation and session.node_seen(creation) is None:
            return found  # made again since: what is decided by it is refused
        for name in names:
            there = session.node_seen(replica.queue_entry(name))
            if there is not None:
                entry = snapshot.decode(there.data, ctime_s=there.stat.created_ms // 1000)
                known_as = found.get(name)
                is_same = known_as is entry or known_as == entry
                assert is_same, f"{name} is {known_as}, not {entry}"
        assert list(found) == sorted(found), f"{replica.queue} is in another order"
        return found

    return compared_entries


def _failure_of(schedule: Swarm) -> tuple[Exception, Run] | None:
    run = build(schedule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "INSERT_BYTES_MAX", run.commit_bytes_max)
        if run.commit_bytes_max < COMMIT_BYTES_MAX:  # then an undo goes partition by partition
            patch.setattr(undo, "op_bytes", lambda _: limits.MULTI_BYTES_MAX)
            no_ids_fit(run, patch)
        try:
            storm_and_calm(run)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the result
            return error, run
        else:
            return None
        finally:
            run.world.end()


def no_ids_fit(run: Run, patch: pytest.MonkeyPatch) -> None:
    """Into the multis of commands on partitions."""
    patch.setattr(ids_left, "what_to_forget_at_once", lambda *_: None)
    patch.setattr(ids_left, "fit_together", lambda _: False)
    for _, ledger in run.books:
        ledger.do_ids_fit = False


def shrink(seed: int, struck: list[int]) -> list[int]:
    """A smaller set of faults with which the seed still fails: drop ever smaller pieces."""
    kept, piece, rounds = struck, max(1, len(struck) // 2), 0
    while rounds < SHRINK_ROUNDS_MAX:
        for start in range(0, len(kept), piece):
            rounds += 1
            fewer = kept[:start] + kept[start + piece :]
            if failure_of(Swarm(seed, only=frozenset(fewer))) is not None:
                kept = fewer
                break
        else:
            if piece == 1:
                break
            piece = max(1, piece // 2)
    return kept


def report(seed: int, schedule: Swarm, failure: tuple[Exception, Run]) -> str:
    """The seed, the faults that matter, and the last effects."""
    kept = shrink(seed, [number for number, _ in schedule.struck])
    smaller = Swarm(seed, only=frozenset(kept))
    error, run = failure_of(smaller) or failure
    cause = f" from {error.__cause__!r}" if error.__cause__ else ""
    faults = ", ".join(f"{number} {fault}" for number, fault in smaller.struck)
    return (
        f"seed {seed} fails: {error}{cause}\n"
        f"faults that matter: {faults or 'none'}\n"
        f"{run.world.story(80)}\n"
        f"seed {seed} fails: {error}"
    )


def regressions() -> list[int]:
    if not REGRESSIONS.exists():
        return []
    lines = REGRESSIONS.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def remember(seed: int, error: str) -> None:
    if seed not in regressions():
        with REGRESSIONS.open("a") as file:
            file.write(f"{seed} {error.splitlines()[0][:150]}\n")


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Python's collector looks at what was imported again and again, a quarter of all time."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def run_seeds(first: int, count: int, having: Sequence[str] = ()) -> int:
    """How many seeds fail. Regressions first. `having`: only worlds that have these."""
    failures = 0
    started = time.perf_counter()
    wanted = (seed for seed in itertools.count(first) if has(seed, having))
    seeds = [*([] if having else regressions()), *itertools.islice(wanted, count)]
    for number, seed in enumerate(seeds, start=1):
        schedule = Swarm(seed)
        failure = failure_of(schedule)
        if failure is not None:
            failures += 1
            print(report(seed, schedule, failure), flush=True)
            remember(seed, str(failure[0]))
        if number % 100 == 0 or number == len(seeds):
            rate = number / (time.perf_counter() - started)
            print(
                f"{number} of {len(seeds)} seeds, {failures} failed, {rate:.1f} seeds/s",
                file=sys.stderr,
                flush=True,
            )
    return failures


def has(seed: int, having: Sequence[str]) -> bool:
    size = Size.drawn(Swarm(seed).rng)
    return all(getattr(size, name) for name in having)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument(
        "--having",
        nargs="+",
        default=[],
        metavar="FIELD",
        help="of a world's size, not 0: restores mutations; without the regressions",
    )
    parser.add_argument("--databases", action="store_true", help="of Replicated databases")
    options = parser.parse_args()
    if options.databases:
        # Servers and their statements take a while to import.
        from tests.simulation import databases  # noqa: PLC0415

        return 1 if databases.run_seeds(options.first, options.seeds) else 0
    with rarely_collected():
        return 1 if run_seeds(options.first, options.seeds, options.having) else 0
