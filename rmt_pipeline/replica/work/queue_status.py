"""What a replica's queue has to do, without doing any of it: for processes that start workers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from rmt_pipeline.protocol.log.entry import LogEntry, describe_entry
from rmt_pipeline.protocol.queue.facts import Facts
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.alter.apply import unfinished_alters
from rmt_pipeline.replica.replica import Replica, lost_error
from rmt_pipeline.replica.work.pools import POOLS, Pool, plan_of_pool, pool_of
from rmt_pipeline.replica.work.single_merge import merges_awaited
from rmt_pipeline.zookeeper.keeper import Watch
from rmt_pipeline.zookeeper.snapshot import queue_snapshot


@dataclass(frozen=True, slots=True)
class Waiting:
    """An entry that may not run now, with the reason for people."""

    pool: Pool
    node: str
    entry: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The state of a queue. `ready`: how many entries a worker of each pool could take now. All
    others are in `waiting`.

    `done`: entries, by queue node, whose part is here already. They need no worker, only
    `finish_entries`, which any pool calls; they count as ready for the fetch pool. `oldest_s` is
    when the oldest entry was made, in seconds since the epoch; None for an empty queue.
    """

    ready: Mapping[Pool, int]
    done: Mapping[str, LogEntry]
    waiting: tuple[Waiting, ...]
    oldest_s: int | None

    def without_done(self) -> Self:
        """The status once the `done` entries are finished."""
        fetches = self.ready["fetch"] - len(self.done)
        return replace(self, ready={**self.ready, "fetch": fetches}, done={})


def queue_status(replica: Replica, watch: Watch | None = None) -> QueueStatus:
    """Look at the queue once, as it is in ZooKeeper. The watch fires when the queue changes.

    Sizes of parts and free slots are not considered; that is left to the worker that claims. Raises
    TableIsReadOnly while the replica is being cloned, ReplicaRetired when it was dropped.
    """
    snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue, watch)
    if snapshot.is_lost:
        raise lost_error(replica)
    view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts)
    facts = Facts(
        merges_elsewhere=merges_awaited(replica, view.entries.values()),
        unfinished_alters=unfinished_alters(replica, view),
        stopped=replica.store.marks.stopped(),
    )
    plans = {pool: plan_of_pool(view, facts, pool) for pool in POOLS}
    done = {node: view.entries[node] for node, _ in plans["fetch"].done}
    ready = {
        pool: sum(pool_of(entry) == pool for _, entry in plan.run)
        for pool, plan in plans.items()
    }
    ready["fetch"] += len(done)
    waiting = (
        _waiting(node, view.entries[node], reason)
        for pool, plan in plans.items()
        for node, reason in plan.wait
        if pool_of(view.entries[node]) == pool
    )
    oldest_s = min((entry.create_time for entry in view.entries.values()), default=None)
    return QueueStatus(ready, done, tuple(waiting), oldest_s)


def _waiting(node: str, entry: LogEntry, reason: str) -> Waiting:
    return Waiting(pool_of(entry), node, describe_entry(entry), reason)
