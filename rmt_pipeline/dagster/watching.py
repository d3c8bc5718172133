"""Waits on ZooKeeper for a server's tables: what its sensors do, without Dagster."""

from collections.abc import Callable
from dataclasses import dataclass

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.protocol.errors import RmtError, ZooKeeperUnreachable
from rmt_pipeline.replica.assign.duty import MutationDuty
from rmt_pipeline.replica.finish import finish_entries
from rmt_pipeline.replica.mutations.progress import MutationProgress, mutation_progress
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.work.execute import POOLS, Pool
from rmt_pipeline.replica.work.outlook import QueueStatus, Waiting, queue_status
from rmt_pipeline.system import EventWaker
from rmt_pipeline.table import Table

WAIT_MAX_S = 40.0
"""Of one tick. Dagster gives up on a tick after 60 s and starts the next beside it."""
RECHECK_S = 2.0
"""Between looks for what no watch tells: workers that ended, tables that were created."""
PAUSE_S = 0.2
"""After a watch has fired: what comes in a burst is looked at once."""
REASONS_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Needed:
    """A pool of a table's replica that has work and no worker."""

    table: str
    pool: Pool
    entries: int


@dataclass(frozen=True, slots=True)
class Watched:
    """What a wait ended with: workers that are needed, or the reasons why none is."""

    needed: tuple[Needed, ...]
    reasons: tuple[str, ...]

    def words(self) -> str:
        shown = self.reasons[:REASONS_SHOWN_MAX]
        more = len(self.reasons) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more else "")


def wait_for_work(
    server: ServerContext, active: Callable[[], set[str]], *, wait_s: float = WAIT_MAX_S
) -> Watched:
    """Look at every table of the server until one needs a worker, at most `wait_s` seconds.

    `active` gives the worker tags of the runs that are queued or running. Raises
    ZooKeeperUnreachable.
    """
    waker = EventWaker()
    until_s = server.clock.monotonic_s() + wait_s
    while True:
        workers = active()
        looks = [_look(server.server.name, table, workers, waker) for table in server.tables()]
        needed = tuple(need for look in looks for need in look.needed)
        left_s = until_s - server.clock.monotonic_s()
        if needed or left_s <= 0:
            reasons = tuple(reason for look in looks for reason in look.reasons)
            return Watched(needed, reasons or (f"server {server.server.name} has no tables",))
        waker.wait_s(min(left_s, RECHECK_S))
        server.clock.sleep_s(PAUSE_S)


def _look(server: str, table: Table, workers: set[str], waker: EventWaker) -> Watched:
    """One table. What is wrong with it is its reason, and does not concern the others."""
    name = table.definition.full_name
    idle = [pool for pool in POOLS if names.worker_tag(server, name, pool) not in workers]
    if not idle:
        return Watched((), (f"{name}: both workers are active",))
    try:
        replica = table.replica
        if "fetch" in idle:  # else the active fetch worker pulls, sooner than we could
            pull_log(replica, waker.wake)
        seen = queue_status(replica, waker.wake)
        if "fetch" in idle and seen.ready["fetch"] == len(seen.done):
            # A server's own inserts need no worker: starting one takes longer than this.
            finish_entries(replica, seen.done)
            seen = seen.without_done()
    except ZooKeeperUnreachable:
        raise
    except RmtError as error:
        return Watched((), (f"{name}: {error}",))
    needed = tuple(Needed(name, pool, seen.ready[pool]) for pool in idle if seen.ready[pool])
    return Watched(needed, _reasons(name, idle, seen))


def _reasons(name: str, idle: list[Pool], seen: QueueStatus) -> tuple[str, ...]:
    active = [f"{name}: the {pool} worker is active" for pool in POOLS if pool not in idle]
    waiting = [_words(name, entry) for entry in seen.waiting if entry.pool in idle]
    return tuple(active + waiting) or (f"{name}: the queue is empty, nothing new in the log",)


def _words(name: str, entry: Waiting) -> str:
    return f"{name}: {entry.entry} waits: {entry.reason}"


def follow_mutations(
    server: ServerContext, active: Callable[[], set[str]], *, wait_s: float = WAIT_MAX_S
) -> str:
    """Propose pieces of mutations for every table whose merge worker does not: that does it too.

    Returns when something was proposed, at most after `wait_s` seconds: what, or what each
    unfinished mutation waits for. Raises ZooKeeperUnreachable.
    """
    waker = EventWaker()
    duties: dict[str, MutationDuty] = {}
    until_s = server.clock.monotonic_s() + wait_s
    while True:
        workers = active()
        idle = [
            table
            for table in server.tables()
            if names.worker_tag(server.server.name, table.definition.full_name, "merge")
            not in workers
        ]
        turns = [_mutation_turn(table, duties, waker) for table in idle]
        left_s = until_s - server.clock.monotonic_s()
        if left_s <= 0 or any(proposed for proposed, _ in turns):
            words = [words for _, words in turns]
            return "; ".join(words) or "the merge workers are active and do it"
        waker.wait_s(min(left_s, RECHECK_S))


def _mutation_turn(
    table: Table, duties: dict[str, MutationDuty], waker: EventWaker
) -> tuple[bool, str]:
    """Whether anything was proposed, and how the table's mutations stand."""
    name = table.definition.full_name
    try:
        replica = table.replica
        duty = duties.setdefault(name, MutationDuty(replica))
        proposed = duty.turn(waker.wake, progress=True)
        if proposed:
            parts = ", ".join(str(one.result) for one in proposed[:REASONS_SHOWN_MAX])
            return True, f"{name}: {len(proposed)} parts are to be mutated, into {parts}"
        progress = mutation_progress(replica)
    except ZooKeeperUnreachable:
        raise
    except RmtError as error:
        duties.pop(name, None)  # a new session needs a new one
        return False, f"{name}: {error}"
    waiting = [_mutation_words(one) for one in progress if not one.is_done]
    return False, f"{name}: {', '.join(waiting) or 'no mutation is unfinished'}"


def _mutation_words(one: MutationProgress) -> str:
    status = one.report.status
    waits = one.waits_words()
    return ": ".join(
        filter(None, (status.mutation_id, waits or one.words(), one.failure_words()))
    )
