"""A replica's parts and queue, read after everything in the log has been copied to its queue."""

from collections.abc import Callable, Collection

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, ReplicaRetired, YetToDrop
from rmt_pipeline.protocol.log.entry import LogEntry, drop_range_of, parts_brought
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.index import PartIndex
from rmt_pipeline.replica.pull_log import Pulled, PutOff, pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.wait import WAIT_SLICE_S
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.keeper import Check, Op
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot, sweep_snapshot


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


def wait_until_dropped(
    living: Callable[[], Replica],
    partitions: Collection[str] | None,
    waker: Waker,
    timeout_s: float,
) -> None:
    """Wait until this replica has no part of these partitions (None: of any) that a drop in the log
    takes: readers would see it beside what comes then (P14). A drop may still be decided after
    this, so who brings parts looks again, under a version (`nothing_to_drop`). If the session ends,
    the next one is asked. Raises YetToDrop.
    """
    clock = living().clock
    deadline_s = clock.monotonic_s() + timeout_s
    while True:
        replica = living()
        try:
            try:
                return require_dropped(replica, partitions)
            except YetToDrop as error:
                left_s = deadline_s - clock.monotonic_s()
                if left_s <= 0:
                    raise
                await_node(replica, error.node, waker, left_s)
        except ReplicaRetired:
            if living().session is replica.session:
                raise  # there is no next session that could be asked


def await_node(replica: Replica, node: str, waker: Waker, timeout_s: float) -> None:
    """Wait until the node has left the replica's queue, or for a while: the caller looks again."""
    if replica.keeper.exists(replica.paths.queue_entry(node), waker.wake) is not None:
        waker.wait_s(min(timeout_s, WAIT_SLICE_S))


def nothing_to_drop(replica: Replica, partitions: Collection[str]) -> list[Op]:
    """Return an operation for the multi that brings parts of these partitions. It asserts that no
    drop was decided since this has looked for one, and found none. Raises YetToDrop.

    The version is read first: a drop that comes before that is in the log, and is seen.
    """
    path = replica.table.alter_partition_version
    version = replica.keeper.get(path)[1].version
    require_dropped(replica, partitions)
    return [Check(path, version)]


def require_dropped(replica: Replica, partitions: Collection[str] | None) -> None:
    """Raise YetToDrop if the replica has parts of these partitions that a drop in the log takes, or
    may get some before that: what is being fetched when the drop is decided still comes.
    """
    put_off = None if partitions is None else PutOff(frozenset(partitions))
    _, snapshot = caught_up(replica, put_off)
    coming = PartIndex()
    for node, entry in snapshot.entries.items():
        for part in parts_brought(entry):
            coming.add(part, node)
    for node, entry in snapshot.entries.items():
        dropped = drop_range_of(entry)
        if dropped is None or not (partitions is None or dropped.partition in partitions):
            continue
        comes = any(dropped.contains(part) for part, _ in coming.overlapping(dropped))
        if comes or takes_some(entry, snapshot.parts):
            raise YetToDrop(
                f"{replica} has yet to carry out {node}, which drops what is there; nothing was "
                "changed. Try again when it has: SYSTEM SYNC REPLICA waits for it, "
                "system.replication_queue says what it waits for",
                node=node,
            )
