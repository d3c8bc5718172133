"""SYSTEM SYNC REPLICA: waiting until a replica has carried out what is in the log (spec §4.13)."""

from collections.abc import Collection
from enum import StrEnum

from rmt_pipeline.protocol.errors import TableIsReadOnly, Timeout
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import kind_name
from rmt_pipeline.protocol.nodes.formats import number_of
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.wait import WAIT_SLICE_S
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.snapshot import gone


class SyncMode(StrEnum):
    """What SYSTEM SYNC REPLICA waits for: everything that is in the log now (DEFAULT); the same
    without merges and mutations (LIGHTWEIGHT); an empty queue (STRICT); or only that the log is
    copied to the queue (PULL).
    """

    DEFAULT = "DEFAULT"
    STRICT = "STRICT"
    LIGHTWEIGHT = "LIGHTWEIGHT"
    PULL = "PULL"


LIGHTWEIGHT_KINDS = frozenset(
    {"GET_PART", "ATTACH_PART", "DROP_RANGE", "DROP_PART", "REPLACE_RANGE"}
)


def sync_replica(
    replica: Replica,
    mode: SyncMode,
    timeout_s: float,
    waker: Waker,
    from_replicas: Collection[str] = (),
) -> None:
    """Wait until this replica has carried out what is in the log now. With `from_replicas`, only
    the entries of these replicas, and entries that name no replica or one that no longer exists,
    which may be theirs. Raises Timeout, PullingIsStopped.

    A clone that begins meanwhile replaces the queue by another one, and then that one is waited
    for: the end of a clone changes `is_lost`. So does giving up a part, which is then to be
    fetched. A clone may also move the log pointer back, to that of a source that is behind: then
    the log is copied once more. A replica that was dropped and created again has another log, and
    is not the one that was to be waited for: ReplicaDropped is raised.
    """
    end = pull_log(replica, afresh=True).pointer
    if mode is SyncMode.PULL:
        return
    deadline = replica.clock.monotonic_s() + timeout_s
    keeper, paths, made = replica.keeper, replica.paths, 0
    while True:
        is_lost, pointer = keeper.get_many([paths.is_lost, paths.log_pointer])
        if is_lost is None or pointer is None or made not in (0, is_lost[1].created_zxid):
            raise gone(paths)
        made = is_lost[1].created_zxid
        is_copied = is_lost[0] != b"1" and number_of(pointer[0]) >= end
        if is_copied:
            _await_queue(
                replica,
                mode,
                waker,
                from_replicas,
                timeout_s=timeout_s,
                deadline=deadline,
            )
            now = keeper.get(paths.is_lost)[1]
            if (now.created_zxid, now.version) == (made, is_lost[1].version):
                return
        left = deadline - replica.clock.monotonic_s()
        if left <= 0:
            raise Timeout(
                f"{replica} was cloned, or gave a part up, meanwhile: what it fetches was not here "
                f"within {timeout_s:g} s"
            )
        if not is_copied and not _copies_again(replica):
            waker.wait_s(min(left, WAIT_SLICE_S))


def _copies_again(replica: Replica) -> bool:
    """Copy the log once more; False if the replica is still being cloned, or is not active yet."""
    try:
        pull_log(replica, afresh=True)
    except TableIsReadOnly:
        return False
    return True


def _await_queue(
    replica: Replica,
    mode: SyncMode,
    waker: Waker,
    from_replicas: Collection[str],
    *,
    timeout_s: float,
    deadline: float,
) -> None:
    """Wait until the entries that are in the queue now have left it, carried out or replaced by a
    clone. Raises Timeout.
    """
    keeper, paths = replica.keeper, replica.paths
    waiting = set(keeper.children(paths.queue))
    if mode is SyncMode.LIGHTWEIGHT or from_replicas:
        waiting = _waited_for(replica, waiting, mode, from_replicas)
    while waiting:
        left = deadline - replica.clock.monotonic_s()
        if left <= 0:
            raise Timeout(_why_waiting(replica, waiting, timeout_s))
        queue = keeper.children(paths.queue, waker.wake)
        waiting = set(queue) if mode is SyncMode.STRICT else waiting & set(queue)
        if mode is SyncMode.STRICT and from_replicas:
            waiting = _waited_for(replica, waiting, mode, from_replicas)
        if waiting:
            waker.wait_s(min(left, WAIT_SLICE_S))


def _waited_for(
    replica: Replica, nodes: Collection[str], mode: SyncMode, from_replicas: Collection[str]
) -> set[str]:
    """Those of these queue nodes that are to be waited for, by mode and replica."""
    keeper, paths = replica.keeper, replica.paths
    others = set(keeper.children(replica.table.replicas)) - set(from_replicas)
    listed = sorted(nodes)
    reads = keeper.get_many([paths.queue_entry(node) for node in listed])
    found = set[str]()
    for node, read in zip(listed, reads, strict=True):
        if read is None:
            continue
        entry = decode(read[0])
        light = kind_name(entry) in LIGHTWEIGHT_KINDS or mode is not SyncMode.LIGHTWEIGHT
        if light and (not from_replicas or entry.source_replica not in others):
            found.add(node)
    return found


def _why_waiting(replica: Replica, waiting: set[str], timeout_s: float) -> str:
    executing = set(replica.keeper.children(replica.paths.executing))
    running = len(waiting & executing)
    hint = (
        "they are running"
        if running == len(waiting)
        else f"{running} are running; does anything work on the queue (`rmt serve --work`, "
        "`rmt worker` or Dagster)? system.replication_queue says why each one waits"
    )
    return (
        f"{replica}: {len(waiting)} queue entries were not done within {timeout_s:g} s: {hint}"
    )
