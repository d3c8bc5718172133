"""A replica's parts and queue, read after everything in the log has been copied to its queue."""

from collections.abc import Callable, Collection
from contextlib import suppress

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, ReplicaRetired, Unavailable
from rmt_pipeline.protocol.log.entry import LogEntry, drop_range_of, partitions_about
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.replica.pull_log import Pulled, PutOff, pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot, parts_now, sweep_snapshot

LOOK_EVERY_S = 0.1  # the pause between two looks at a replica that is behind


def caught_up(replica: Replica, put_off: PutOff | None = None) -> tuple[Pulled, QueueSnapshot]:
    """Pull the log, and return how far with a snapshot of the queue and the parts. For callers that
    act on a part being neither queued nor there. `put_off` is as in `pull_log`.

    A part that is given up moves from the parts to the queue: a reader that looks at the queue
    before that, and at the parts after it, sees it nowhere. A clone empties both. Each of the two
    changes the version of `is_lost`, which is therefore read with the log pointer, and again at the
    end.

    Raises Conflict if the replica changes all the time, and what `pull_log` raises.
    """
    keeper, paths = replica.keeper, replica.paths
    for _ in range(limits.LOOK_ROUNDS_MAX):
        pulled = pull_log(replica, afresh=True, put_off=put_off)
        snapshot = sweep_snapshot(keeper, paths, replica.memory.queue, [paths.is_lost])
        is_lost = snapshot.beside.get(paths.is_lost) if snapshot.beside_is_last else None
        if is_lost is None:
            [is_lost] = keeper.get_many([paths.is_lost])
        if is_lost is not None and is_lost[1].version == pulled.is_lost_version:
            return pulled, snapshot
    raise Conflict(
        f"{replica} was cloned or gave up parts each of {limits.LOOK_ROUNDS_MAX} times while it "
        "was looked at what it has; nothing was changed, try again"
    )


def takes_some(entry: LogEntry, there: Holdings) -> bool:
    """Whether the entry has yet to drop some of these parts."""
    dropped = drop_range_of(entry)
    return dropped is not None and any(map(dropped.contains, there.names(dropped.partition)))


def require_dropped(
    living: Callable[[], Replica], partitions: Collection[str] | None, wait_s: float = 0.0
) -> None:
    """Raise Unavailable if the replica has parts of these partitions (None: of any) that a drop in
    the log takes, and has them still after `wait_s`. Whoever brings others meanwhile lets its
    readers see both (P14).
    """
    clock = living().clock
    deadline_s = clock.monotonic_s() + wait_s
    while node := _yet_to_drop(living, partitions):
        if clock.monotonic_s() >= deadline_s:
            raise Unavailable(
                f"{living()} has yet to carry out {node}, which drops what is there; nothing was "
                "changed. Try again when it has: SYSTEM SYNC REPLICA waits for it, "
                "system.replication_queue says what it waits for"
            )
        clock.sleep_s(LOOK_EVERY_S)


def _yet_to_drop(living: Callable[[], Replica], partitions: Collection[str] | None) -> str:
    """The first entry that drops parts of these partitions which are here; "" if there is none."""
    with suppress(ReplicaRetired):  # its session has just ended: the next one is asked
        return _first_drop(living(), partitions)
    return _first_drop(living(), partitions)


def _first_drop(replica: Replica, partitions: Collection[str] | None) -> str:
    there = parts_now(replica.keeper, replica.paths, replica.memory.queue)
    if partitions is not None and not any(map(there.names, partitions)):
        return ""
    put_off = None if partitions is None else PutOff(frozenset(partitions))
    _, snapshot = caught_up(replica, put_off)
    for node, entry in snapshot.entries.items():
        is_meant = partitions is None or not partitions_about(entry).isdisjoint(partitions)
        if is_meant and takes_some(entry, snapshot.parts):
            return node
    return ""
