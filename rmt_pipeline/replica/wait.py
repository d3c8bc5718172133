"""Waiting until replicas have carried out entries of the log (spec §4.12)."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from rmt_pipeline.protocol.errors import (
    NoNextSession,
    ReplicaDropped,
    ReplicaRetired,
    RmtError,
    Unavailable,
    Unfinished,
)
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import kind_name
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.system import Clock, Waker
from rmt_pipeline.zookeeper.keeper import Keeper, RefusalKind, Refused
from rmt_pipeline.zookeeper.paths import ReplicaPaths, last_name, sequence_number
from rmt_pipeline.zookeeper.snapshot import gone, staying_replicas

WAIT_SLICE_S = 3.0  # an event that was missed costs at most this
POLL_S = 0.1  # between two looks at what no watch tells of
NAMED_MAX = 3  # entries, in an error
ANSWER_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0)  # while ZooKeeper does not answer

T = TypeVar("T")


@dataclass(slots=True)
class Waited:
    """How long something has been waited for, and at whom, over as many sessions as it takes."""

    _began_s: float | None = None
    _asked_for: Sequence[str] | None = None

    def seconds(self, clock: Clock) -> float:
        """Since this was called first, after `begin_anew` if that was."""
        now_s = clock.monotonic_s()
        if self._began_s is None:
            self._began_s = now_s
        return now_s - self._began_s

    def begin_anew(self) -> None:
        """Some of it is done: the limits are for the rest."""
        self._began_s = None

    def replicas(self, replica: Replica, sync: int) -> Sequence[str]:
        """The replicas that `alter_sync` or `mutations_sync` asks for: 1 this one, 2 all, 3 the
        active ones, which this one is always taken for. They are those of the first look: when
        ZooKeeper answers again, who was active before it was away may still be about to be so.
        Raises ReplicaDropped.
        """
        if self._asked_for is None:
            self._asked_for = _asked_for(replica, sync)
        return self._asked_for


def after_the_commit(
    living: Callable[[], Replica], look: Callable[[Replica], T], waker: Waker, done: str
) -> T:
    """What `look` returns for a Replica with a living session; asked again, also in the next
    session, while there is no answer from ZooKeeper.

    For what follows a command that was carried out. Without this:

    1. An UPDATE adds 1 to a column. Its mutation is created, and waited for.
    2. The connection breaks. The error of a read says that nothing was changed, and to try again.
    3. It is tried again: 2 is added. (A second DROP takes what was inserted since.)

    Raises Unfinished, with `done`, if there is no answer after all of ANSWER_PAUSES_S; and what
    `look` raises for other reasons.
    """
    problem: RmtError | None = None
    for pause_s in (0.0, *ANSWER_PAUSES_S):
        if problem is not None:
            waker.wait_s(pause_s)
        try:
            return look(living())
        except (Unfinished, ReplicaDropped, NoNextSession):
            raise
        except (ReplicaRetired, Unavailable) as error:
            problem = error
    raise Unfinished(
        f"{done}; but whether that is over is not known, since there is no answer from ZooKeeper: "
        f"{problem}"
    ) from problem


def wait_as_asked_for(
    living: Callable[[], Replica],
    entries: Iterable[tuple[str, bytes]],
    query: QuerySettings,
    waker: Waker,
) -> None:
    """Wait until the replicas that `alter_sync` asks for (0 none, 1 this one, 2 all, 3 the active
    ones) have carried out these entries, given by their path in the log and their text.

    `living` returns a Replica with a living session. Raises Unfinished.
    """
    logged = dict(entries)
    if query.alter_sync == 0 or not logged:
        return
    texts, waited = frozenset(logged.values()), Waited()
    named = [last_name(path) for path in sorted(logged)]
    meant = _Meant(sequence_number(named[-1]), texts.__contains__, _named(named))

    def wait(replica: Replica) -> None:
        names = waited.replicas(replica, query.alter_sync)
        _wait_for_all(replica, names, meant, query, waited=waited, waker=waker)

    after_the_commit(
        living,
        wait,
        waker,
        f"it is in the log ({', '.join(named[:NAMED_MAX])}) and will be carried out, see "
        "system.replication_queue",
    )


def wait_for_others(
    living: Callable[[], Replica],
    is_meant: Callable[[bytes], bool],
    query: QuerySettings,
    waker: Waker,
) -> None:
    """Wait until the other replicas that `alter_sync` asks for have carried out what is done here:
    the entries in the log for whose text `is_meant` holds. Raises Unfinished.
    """
    if query.alter_sync < 2:
        return
    waited = Waited()

    def wait(replica: Replica) -> None:
        log = replica.keeper.exists(replica.table.log)
        if log is None:
            raise gone(replica.paths)
        asked = waited.replicas(replica, query.alter_sync)
        names = [one for one in asked if one != replica.name]
        meant = _Meant(log.next_sequence - 1, is_meant, "it is")
        _wait_for_all(replica, names, meant, query, waited=waited, waker=waker)

    after_the_commit(
        living,
        wait,
        waker,
        "it is done here and in the log, and the others will carry it out, see their "
        "system.replication_queue",
    )


def _asked_for(replica: Replica, sync: int) -> list[str]:
    if sync < 2:
        return [replica.name]
    try:
        found = staying_replicas(replica.keeper, replica.table)
    except Refused as refused:
        raise gone(replica.paths) from refused
    others = sorted(name for name, active in found.items() if active or sync == 2)
    return [replica.name, *(name for name in others if name != replica.name)]


def _named(names: Sequence[str]) -> str:
    more = len(names) - 1
    return f"{names[-1]} and {more} entries before it are" if more else f"{names[-1]} is"


class _Meant(NamedTuple):
    """The entries of the log up to the number `last` for whose text `is_it` holds; `words` name
    them, in errors.
    """

    last: int
    is_it: Callable[[bytes], bool]
    words: str


def _wait_for_all(
    replica: Replica,
    names: Sequence[str],
    meant: _Meant,
    query: QuerySettings,
    *,
    waited: Waited,
    waker: Waker,
) -> None:
    """Wait until the replicas `names` have carried out all these entries. They are looked for in
    each queue together: there may be thousands of both. Raises Unfinished with the replicas that
    have not done it.

    Each entry is waited for `receive_timeout`, at most, after the one before it is done; at an
    inactive replica `replication_wait_for_inactive_replica_timeout`. `waited`: what of these times
    is over already.
    """
    waited.seconds(replica.clock)
    unfinished = []
    for name in names:
        paths = replica.table.replica(name)

        def give_up(paths: ReplicaPaths = paths) -> bool:
            waited_s = waited.seconds(replica.clock)
            if waited_s >= query.receive_timeout:
                return True
            inactive = replica.keeper.exists(paths.is_active) is None
            return inactive and waited_s >= query.replication_wait_for_inactive_replica_timeout

        is_done = _wait_one(
            replica,
            paths,
            meant.last,
            meant.is_it,
            give_up=give_up,
            waker=waker,
            entry_is_done=waited.begin_anew,
        )
        if not is_done:
            unfinished.append(name)
    if unfinished:
        raise Unfinished(
            f"{meant.words} in the log of {replica.table.root} and will be carried out, but these "
            f"replicas have not done it yet: {', '.join(unfinished)}. "
            "See system.replication_queue for why; a replica works its queue only while "
            "`rmt serve --work`, `rmt worker` or Dagster runs for it"
        )


def wait_for_kinds(
    replica: Replica, kinds: Collection[str], give_up: Callable[[], bool], waker: Waker
) -> bool:
    """Wait until this replica has carried out the entries of these kinds that are in the log now.
    False if `give_up` came first.
    """
    _, log = replica.keeper.children_stat(replica.table.log)

    def is_meant(data: bytes) -> bool:
        return kind_name(decode(data)) in kinds

    last = log.next_sequence - 1
    return _wait_one(replica, replica.paths, last, is_meant, give_up=give_up, waker=waker)


def _wait_one(
    replica: Replica,
    paths: ReplicaPaths,
    number: int,
    is_meant: Callable[[bytes], bool],
    *,
    give_up: Callable[[], bool],
    waker: Waker,
    entry_is_done: Callable[[], None] = lambda: None,
) -> bool:
    """Wait until the replica at `paths` has copied the log up to the entry of this number, and the
    entries that `is_meant` accepts, of those queued by then, have left its queue. A replica whose
    drop has begun is not waited for, even if the process that drops it died. False if `give_up`
    came first.
    """
    keeper = replica.keeper
    try:
        while (left := _left(keeper, paths, number, is_meant, waker)) != []:
            for path in map(paths.queue_entry, left or ()):
                while keeper.exists(path, waker.wake) is not None:
                    if give_up():
                        return False
                    waker.wait_s(WAIT_SLICE_S)
                    keeper.get(paths.host)
                entry_is_done()
            if left is None:
                keeper.get(paths.host)
                if give_up():
                    return False
                waker.wait_s(WAIT_SLICE_S)
    except Refused as refused:
        if refused.kind is not RefusalKind.NO_NODE:
            raise
    return True  # or the replica was dropped, and need not be waited for


def _left(
    keeper: Keeper,
    paths: ReplicaPaths,
    number: int,
    is_meant: Callable[[bytes], bool],
    waker: Waker,
) -> list[str] | None:
    """The queue nodes that are still to be waited for. None if the log is not copied that far yet
    (the waker is woken when the pointer moves), or the replica is lost, or was cloned while we
    looked.

    A lost replica has carried out nothing, whatever its pointer says: a clone first sets the
    pointer and empties the queue, and removes dropped parts only later. Its last step changes
    `is_lost`.
    """
    is_lost, stat = keeper.get(paths.is_lost)
    pointer, _ = keeper.get(paths.log_pointer, waker.wake)
    if is_lost == b"1" or not pointer or int(pointer) <= number:
        return None
    nodes = keeper.children(paths.queue)
    lost_now, *reads = keeper.get_many([paths.is_lost, *map(paths.queue_entry, nodes)])
    if lost_now is None or lost_now[1].version != stat.version:
        return None
    return [node for node, read in zip(nodes, reads, strict=True) if read and is_meant(read[0])]
