"""Waits on ZooKeeper for changes in a server's tables: what its sensors do, without Dagster.

A table is looked at when one of its watches has fired, when something in it waits for a change that
no watch reports, and once in a while. So tables at rest cost nothing, however many there are, as
long as the session lives. The session outlives a sensor's tick (`engine.EngineResource.standing`).
"""

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import TABLE_FAILS, RmtError, ZooKeeperUnreachable
from rmt_pipeline.replica.assign.duty import MutationDuty
from rmt_pipeline.replica.assign.merges import Assigned, select_and_assign
from rmt_pipeline.replica.finish import finish_entries
from rmt_pipeline.replica.mutations.progress import MutationProgress, mutation_progress
from rmt_pipeline.replica.pull_log import PullingIsStopped, pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.pools import POOLS, Pool
from rmt_pipeline.replica.work.queue_status import QueueStatus, Waiting, queue_status
from rmt_pipeline.system import EventWaker
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.keeper import Watch

WAIT_MAX_S = 40.0
"""How long one tick waits. Dagster gives up on a tick after 60 s and starts the next
one beside it.
"""
RECHECK_S = 2.0
"""The time between looks at what no watch reports: workers that ended, tables that were created,
and tables in which something waits.
"""
REST_S = 60.0
"""The time between looks at a table at rest: for merges that are due by time, and for missed
watches.
"""
PAUSE_S = 0.2
"""The pause after a watch has fired, so that one look covers a burst of changes."""
MERGES_PER_LOOK_MAX = 100
REASONS_SHOWN_MAX = 10

Failure = RmtError | OSError
"""Of one table: its disk, too, may be one of its own."""

Seen = TypeVar("Seen")


class TableLooks(Generic[Seen]):
    """Keeps what was last seen of each table of a server, and looks again when it may have changed.

    For one thread; only the calls of watches come from other threads.
    """

    def __init__(
        self,
        server: ServerContext,
        waker: EventWaker,
        look: Callable[[Table, Watch], tuple[Seen, float]],
        only: Collection[str] = (),
    ) -> None:
        """`look` returns what it saw, and after how many seconds to look again even if no watch
        fires. `only` limits the tables, by their full names; empty means all.
        """
        self._only = frozenset(only)
        self.server = server
        self._waker = waker
        self._look = look
        self._known: dict[str, _Known[Seen]] = {}

    def seen(self, but: Collection[str] = ()) -> dict[str, Seen | Failure]:
        """What is seen of every table, by full name, except for the tables in `but`. When a table
        can't be looked at, its error stands in its place, and the other tables are not affected.
        Raises ZooKeeperUnreachable.
        """
        tables = {
            name: table
            for table in self.server.tables()
            if (name := table.definition_then.full_name) in self._only or not self._only
        }
        for gone in self._known.keys() - tables.keys():
            del self._known[gone]
        return {
            name: self._of(name, table) for name, table in tables.items() if name not in but
        }

    def look_again(self, *names: str) -> None:
        """Look anew at these tables the next time; at all tables when none is named."""
        for name in names or list(self._known):
            self._known[name].is_changed = True

    def _of(self, name: str, table: Table) -> Seen | Failure:
        now_s = self.server.clock.monotonic_s()
        known = self._known.get(name)
        try:
            replica = table.replica
        except ZooKeeperUnreachable:
            raise
        except TABLE_FAILS as error:
            return error
        if known is None or known.replica is not replica:
            known = self._known[name] = _Known(replica, self._waker)
        if not known.is_changed and now_s < known.next_s and known.seen is not None:
            return known.seen
        known.is_changed = False  # cleared first: a watch that fires from here on counts
        try:
            known.seen, again_s = self._look(table, known.changed)
        except ZooKeeperUnreachable:
            raise
        except TABLE_FAILS as error:
            known.seen, again_s = error, RECHECK_S
        known.next_s = now_s + again_s
        return known.seen


class _Known(Generic[Seen]):
    """What was seen of one table in one session."""

    def __init__(self, replica: Replica, waker: EventWaker) -> None:
        self.replica = replica
        self.seen: Seen | Failure | None = None
        self.next_s = 0.0
        self.is_changed = True
        self._waker = waker

    def changed(self) -> None:
        """The watch. It may be called from any thread. It is the same object each time, so the
        session keeps it only once.
        """
        self.is_changed = True
        self._waker.wake()


@dataclass(frozen=True, slots=True)
class Watched:
    """The result of a wait: the pools that have work but no worker, or the reasons why there is
    none.
    """

    needed: tuple[Pool, ...]
    reasons: tuple[str, ...]

    def words(self) -> str:
        return few_of(self.reasons)


def few_of(reasons: Collection[str]) -> str:
    """The first few reasons, and how many more there are."""
    shown = list(reasons)[:REASONS_SHOWN_MAX]
    more = len(reasons) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


class QueueWatch:
    """Watches the queues of a server's tables, to see which pools need a worker."""

    def __init__(self, server: ServerContext, tables: Collection[str] = ()) -> None:
        """`tables` limits the tables, by their full names; empty means all."""
        self.server = server
        self._waker = EventWaker()
        self._pulls = True
        self._looks = TableLooks(server, self._waker, self._look, tables)

    def ready(self, pool: Pool, but: Collection[str]) -> dict[str, int]:
        """For a worker of this pool: how many entries it could work in which tables, except for the
        tables in `but`. Raises ZooKeeperUnreachable.
        """
        self._pulls = pool == "fetch"
        return _ready(self._looks.seen(but), pool)

    def wait_s(self, timeout_s: float) -> None:
        """Wait until something has changed, at most for `timeout_s` seconds."""
        if self._waker.wait_s(timeout_s):
            self.server.clock.sleep_s(PAUSE_S)

    def wait(
        self,
        active: Callable[[], Mapping[Pool, str]],
        *,
        until: Callable[[], bool] = lambda: False,
        wait_s: float = WAIT_MAX_S,
    ) -> Watched:
        """Look until a pool needs a worker, or `until` says that the tick has something else to do,
        for at most `wait_s` seconds.

        `active` returns the id of the run for each pool that has one. Raises ZooKeeperUnreachable.
        """
        clock = self.server.clock
        until_s = clock.monotonic_s() + wait_s
        while True:
            watched = self.look(active())
            left_s = until_s - clock.monotonic_s()
            if watched.needed or until() or left_s <= 0:
                return watched
            if self._waker.wait_s(min(left_s, RECHECK_S)):
                clock.sleep_s(PAUSE_S)

    def look(self, active: Mapping[Pool, str]) -> Watched:
        pulls = "fetch" not in active  # else that worker pulls the log, sooner than we could
        if pulls and not self._pulls:
            self._looks.look_again()  # the last looks did not pull the log
        self._pulls = pulls
        statuses = self._looks.seen()
        idle = [pool for pool in POOLS if pool not in active]
        needed = tuple(pool for pool in idle if _ready(statuses, pool))
        return Watched(needed, tuple(self._reasons(statuses, active)))

    def _look(self, table: Table, watch: Watch) -> tuple[QueueStatus, float]:
        replica = table.replica
        if self._pulls:
            with suppress(PullingIsStopped):  # the check `stopped_by_hand` reports it
                pull_log(replica, watch)
        status = queue_status(replica, watch)
        if self._pulls and status.ready["fetch"] == len(status.done):
            # A server's own inserts need no worker: starting one takes longer than this.
            finish_entries(replica, status.done)
            status = status.without_done()
        is_at_rest = not status.waiting and not any(status.ready.values())
        return status, REST_S if is_at_rest else RECHECK_S

    def _reasons(
        self, statuses: Mapping[str, QueueStatus | Failure], active: Mapping[Pool, str]
    ) -> list[str]:
        reasons = [
            f"the {pool} worker is active, run {run[:8]}" for pool, run in active.items()
        ]
        for name, status in statuses.items():
            if isinstance(status, TABLE_FAILS):
                reasons.append(f"{name}: {status}")
            else:
                reasons += [
                    _words(name, entry) for entry in status.waiting if entry.pool not in active
                ]
        detached = [one.definition.full_name for one in self.server.catalog.detached()]
        reasons += [f"{name} is detached" for name in detached]
        if not statuses:
            reasons += [] if detached else [f"server {self.server.server.name} has no tables"]
        one = "1 table: its queue is empty"
        tables = (
            one if len(statuses) == 1 else f"{len(statuses)} tables: their queues are empty"
        )
        return reasons or [f"{tables}, nothing new in the log"]


def _ready(statuses: Mapping[str, QueueStatus | Failure], pool: Pool) -> dict[str, int]:
    """How many entries of the pool could be worked now, by table; tables without any
    are left out.
    """
    return {
        name: status.ready[pool]
        for name, status in statuses.items()
        if isinstance(status, QueueStatus) and status.ready[pool]
    }


def _words(name: str, entry: Waiting) -> str:
    return f"{name}: {entry.entry} waits: {entry.reason}"


class MutationWatch:
    """Writes pieces of the mutations of a server's tables to their logs, while no merge worker
    does.
    """

    def __init__(self, server: ServerContext) -> None:
        self.server = server
        self._waker = EventWaker()
        self._duties: dict[str, tuple[Replica, MutationDuty]] = {}

    def wait(
        self, active: Callable[[], Mapping[Pool, str]], *, wait_s: float = WAIT_MAX_S
    ) -> str:
        """Wait until something was proposed, for at most `wait_s` seconds. Return what was
        proposed, or else what each unfinished mutation waits for. Raises ZooKeeperUnreachable.
        """
        clock = self.server.clock
        until_s = clock.monotonic_s() + wait_s
        while True:
            run = active().get("merge")
            proposed = [] if run else self._propose()
            left_s = until_s - clock.monotonic_s()
            if proposed or left_s <= 0:
                return few_of(proposed or self._unfinished(run))
            self._waker.wait_s(min(left_s, RECHECK_S))

    def _propose(self) -> list[str]:
        words = []
        tables = {table.definition_then.full_name: table for table in self.server.tables()}
        for gone in self._duties.keys() - tables.keys():
            del self._duties[gone]
        for name, table in tables.items():
            try:
                proposed = self._duty(name, table.replica).turn(self._waker.wake, progress=True)
            except ZooKeeperUnreachable:
                raise
            except TABLE_FAILS:
                continue  # `_unfinished` reports the error
            if proposed:
                parts = few_of([str(one.result) for one in proposed])
                words.append(f"{name}: {len(proposed)} parts are to be mutated, into {parts}")
        return words

    def _duty(self, name: str, replica: Replica) -> MutationDuty:
        """The table's duty, a new one in each session, since its watches end with the session."""
        known = self._duties.get(name)
        if known is None or known[0] is not replica:
            known = self._duties[name] = replica, MutationDuty(replica)
        return known[1]

    def _unfinished(self, run: str | None) -> list[str]:
        words = [f"the merge worker proposes, run {run[:8]}"] if run else []
        tables = self.server.tables()
        for table in tables:
            if not run and self._is_at_rest(table):
                continue
            try:
                progress = mutation_progress(table.replica)
            except ZooKeeperUnreachable:
                raise
            except TABLE_FAILS as error:
                words.append(f"{table.definition.full_name}: {error}")
                continue
            words += [
                f"{table.definition.full_name}: {_mutation_words(one)}"
                for one in progress
                if not one.is_done
            ]
        if not tables:
            words.append(f"server {self.server.server.name} has no tables")
        return words or ["no mutation is unfinished"]

    def _is_at_rest(self, table: Table) -> bool:
        """Whether the last turn found nothing to do in the table. Then its progress is not asked
        for, which would cost requests.
        """
        known = self._duties.get(table.definition.full_name)
        return known is not None and math.isinf(
            known[1].next_s(self.server.clock.monotonic_s())
        )


def _mutation_words(one: MutationProgress) -> str:
    status = one.report.status
    waits = one.waits_words()
    return ": ".join(
        filter(None, (status.mutation_id, waits or one.words(), one.failure_words()))
    )


class MergeWatch:
    """Assigns the merges that are worth it in a server's tables, while no merge worker does."""

    def __init__(self, server: ServerContext) -> None:
        self.server = server
        self._waker = EventWaker()
        self._looks = TableLooks(server, self._waker, _assign)

    def wait(
        self, active: Callable[[], Mapping[Pool, str]], *, wait_s: float = WAIT_MAX_S
    ) -> str:
        """Wait until merges were assigned, for at most `wait_s` seconds. Return which, or else why
        there are none. Raises ZooKeeperUnreachable.
        """
        clock = self.server.clock
        until_s = clock.monotonic_s() + wait_s
        while True:
            run = active().get("merge")
            words, assigned = ([_assigns(run)], []) if run else self._turn()
            left_s = until_s - clock.monotonic_s()
            if assigned or left_s <= 0:
                return few_of(assigned or words)
            if self._waker.wait_s(min(left_s, RECHECK_S)):
                clock.sleep_s(PAUSE_S)

    def _turn(self) -> tuple[list[str], list[str]]:
        """The reasons why nothing is assigned, by table; and the merges that were assigned."""
        seen = self._looks.seen()
        assigned: list[str] = []
        reasons: list[str] = []
        for name, found in seen.items():
            if isinstance(found, _Proposed) and found.results:
                assigned.append(f"{name}: assigned {few_of(found.results)}")
                self._looks.look_again(name)
            else:
                reasons.append(f"{name}: {found}")
        return reasons or [f"server {self.server.server.name} has no tables"], assigned


def _assigns(run: str) -> str:
    return f"the merge worker assigns them, run {run[:8]}"


@dataclass(frozen=True, slots=True)
class _Proposed:
    """The merges that were assigned, and why there are no more."""

    results: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return self.reason


def _assign(table: Table, watch: Watch) -> tuple[_Proposed, float]:
    """Assign merges until none is worth it any more."""
    replica = table.replica
    replica.keeper.children(replica.table.log, watch)  # new parts are new log entries
    results: list[str] = []
    again_s, reason = REST_S, ""
    for _ in range(MERGES_PER_LOOK_MAX):
        outcome = select_and_assign(replica, aggressive=False)
        if not isinstance(outcome, Assigned):
            reason = outcome.reason
            again_s = RECHECK_S if outcome.changed else REST_S
            break
        results.append(str(outcome.result))
    return _Proposed(tuple(results), reason), again_s
