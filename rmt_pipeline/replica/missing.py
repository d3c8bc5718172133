"""Explanations for parts that can't be fetched: no replica has them, or only inactive ones (spec
§5.9).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from rmt_pipeline.protocol.errors import Corruption, ReplicaRetired
from rmt_pipeline.protocol.log.entry import (
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
    drop_range_of,
    parts_brought,
    result_of,
    sources_of,
)
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import contained_in
from rmt_pipeline.replica.put_back import is_unseen
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.known import KnownQueue
from rmt_pipeline.zookeeper.paths import ReplicaPaths
from rmt_pipeline.zookeeper.snapshot import entries_to_come, queued_entries, staying_replicas

LOOKED_AT_MAX = 100


def why_missing(replica: Replica, wanted: Iterable[PartName]) -> dict[PartName, str]:
    """For each of the `wanted` parts that can't be had now: what stands in the way, in words, with
    the remedy if there is one. That is a part that only inactive replicas have, or that no replica
    has and no queue entry can make. At most `LOOKED_AT_MAX` parts are looked at.

    The queues are read only if some part is on no replica. The parts are read once more after the
    queues, because the part that an entry makes moves from the queue to the parts.
    """
    parts = sorted(set(wanted))[:LOOKED_AT_MAX]
    if not parts:
        return {}
    living = staying_replicas(replica.keeper, replica.table)
    queues, there = PeerQueues(replica), _There(_promised(replica, living), ())
    if not all(map(there.holders, parts)):
        queued = _queued(replica, living, queues)
        there = _There(_promised(replica, living), queued)
    found: dict[PartName, str] = {}
    lost = {part: sorted(there.lost(part)) for part in parts}
    first_ones = {some[0] for some in lost.values() if some}
    unseen = yet_to_look(replica, first_ones, queues) if first_ones else {}
    for part in parts:
        holders = there.holders(part)
        if some := lost.get(part):
            found[part] = _lost_words(replica, some, list(living), unseen.get(some[0], ()))
        elif holders and not any(living[name] for name in holders):
            found[part] = (
                f"{part} is only on {', '.join(holders)}, not active now: start the server there"
            )
    return found


class PeerQueues:
    """The queues of all replicas of a table, for who looks at them many times in a row: what was
    read of one is not read again. For one thread.
    """

    def __init__(self, replica: Replica) -> None:
        self.keeper = replica.keeper
        self._table = replica.table
        self._known: dict[str, KnownQueue] = {}

    def entries(self, peer: ReplicaPaths) -> Mapping[str, LogEntry]:
        """The entries in the peer's queue now, by node. Raises ReplicaDropped."""
        return queued_entries(self.keeper, peer, self._of_now(peer))

    def to_come(self, peer: ReplicaPaths) -> list[LogEntry]:
        """As `entries_to_come`."""
        return entries_to_come(self.keeper, self._table, peer, self._of_now(peer))

    def _of_now(self, peer: ReplicaPaths) -> KnownQueue:
        """What is known of this peer's queue; nothing if another replica may have its name since:
        the nodes of its queue have the same names. Of one that comes in this very moment the guards
        of `lost` tell.
        """
        known = self._known.get(peer.name)
        listed = None if known is None else known.queued(peer)
        stat = None if listed is None else self.keeper.exists(peer.queue)
        is_still = listed and stat and stat.created_zxid == listed.created_zxid
        if known is None or not is_still:
            known = self._known[peer.name] = KnownQueue()
        return known


def lost_of(
    replica: Replica, wanted: Collection[PartName], queues: PeerQueues | None = None
) -> set[PartName]:
    """Which parts are lost among the `wanted` ones and the sources of what is to make them. The
    parts are read after the queues, because the part that an entry makes moves from the queue to
    the parts.
    """
    living = staying_replicas(replica.keeper, replica.table)
    queued = _queued(replica, living, queues or PeerQueues(replica))
    there = _There(_promised(replica, living), queued)
    return {leaf for part in wanted for leaf in there.lost(part)}


def yet_to_look(
    replica: Replica, wanted: Collection[PartName], queues: PeerQueues | None = None
) -> dict[PartName, tuple[str, ...]]:
    """Those of the `wanted` parts that may still be whole on some disk, each with the replicas that
    have yet to look there.

    This replica asks its own disk whether that has something left of the part. Another replica has
    yet to look if it has an entry that brings the part, and has not tried it since a replica last
    gave up a part, or has not looked at its own disk when it did; or if it has yet to find out
    whether it has a copy in the table that the part was copied from. (A replica that gives up the
    part from now on is noticed by the guards of `lost`; one that finds such a copy later does not
    use it.)

    If several entries of a replica bring a part, it is enough that one was tried. There are two
    ways to get several:

    1. The replica inserts the part, and gives it up before it has copied the insert's log entry.
    2. A replacement brings the part: an entry for the part itself waits while the replacement is
       queued.
    """
    keeper, table, queues = replica.keeper, replica.table, queues or PeerQueues(replica)
    found = {part: {replica.name} for part in wanted if is_unseen(replica, part)}
    names = staying_replicas(keeper, table)
    lost = keeper.exists_many([table.replica(name).is_lost for name in names])
    given_up_ms = max((stat.modified_ms for stat in lost if stat is not None), default=0)
    for peer in (table.replica(name) for name in names if name != replica.name):
        try:
            queued = queues.entries(peer)
            copying = {part for part in wanted if _may_copy(queues, peer, part, queued)}
        except ReplicaRetired:  # it was dropped meanwhile
            continue
        brought = {
            node: parts
            for node, entry in queued.items()
            if (parts := {part for part in parts_brought(entry) if part in wanted})
        }
        reads = keeper.get_many([peer.attempts_of(node) for node in brought])
        looked: set[PartName] = set()
        for parts, tried in zip(brought.values(), reads, strict=True):
            if (
                tried is not None
                and not Attempts.read(tried[0]).is_unseen
                # Else it may be of a time when another replica had the part.
                and tried[1].modified_ms >= given_up_ms
            ):
                looked |= parts
        for part in (set().union(*brought.values()) - looked) | copying:
            found.setdefault(part, set()).add(peer.name)
    return {part: tuple(sorted(names)) for part, names in found.items()}


def _may_copy(
    queues: PeerQueues,
    peer: ReplicaPaths,
    part: PartName,
    queued: Mapping[str, LogEntry],
) -> bool:
    """Whether this peer may have a copy of the part in another table, and has not tried yet to
    carry out the entry that copies it; perhaps it has not even copied that entry from the log.
    Raises ReplicaRetired.
    """
    nodes = [node for node, entry in queued.items() if _copies(entry, part)]
    tried = queues.keeper.get_many([peer.attempts_of(node) for node in nodes])
    if any(read is not None and Attempts.read(read[0]).tries for read in tried):
        return False
    return any(_copies(entry, part) for entry in queues.to_come(peer))


def _copies(entry: LogEntry, part: PartName) -> bool:
    return (
        isinstance(entry, ReplaceRange) and bool(entry.from_table) and part in entry.new_parts
    )


def _promised(replica: Replica, names: Collection[str]) -> dict[str, list[PartName]]:
    listed = replica.keeper.children_many([replica.table.replica(name).parts for name in names])
    return {
        name: [PartName.parse(text) for text in texts or []]
        for name, texts in zip(names, listed, strict=True)
    }


def _queued(replica: Replica, names: Iterable[str], queues: PeerQueues) -> list[LogEntry]:
    """The queue entries of all these replicas. A replica that was dropped meanwhile, or whose queue
    can't be read, is left out: it makes nothing, and its own worker reports that.
    """
    found: list[LogEntry] = []
    for name in names:
        with suppress(ReplicaRetired, Corruption):
            found += queues.entries(replica.table.replica(name)).values()
    return found


class _There:
    """What replicas promise, and what is queued on them, for questions about many parts."""

    def __init__(
        self, promised: Mapping[str, Sequence[PartName]], queued: Collection[LogEntry]
    ) -> None:
        self._promised = {name: contained_in(parts) for name, parts in promised.items()}
        self._is_dropped = contained_in(filter(None, map(drop_range_of, queued)))
        self._makers = [
            (result, sources_of(entry))
            for entry in queued
            if isinstance(entry, MergeParts | MutatePart)
            and (result := result_of(entry)) is not None
        ]
        self._is_made = contained_in(result for result, _ in self._makers)

    def holders(self, part: PartName) -> list[str]:
        """The replicas that have the part, or one that contains it."""
        return [name for name, has in self._promised.items() if has(part)]

    def lost(self, part: PartName) -> set[PartName]:
        """Which parts are lost so that `part` can't be had: itself, or sources of what is to make
        it. Empty if it is on a replica, can be made, or is going to be dropped. An entry whose
        source is the part itself, or contains it, does not make it.
        """
        if self.holders(part) or self._is_dropped(part):
            return set()
        lost = {part}
        for result, sources in self._makers if self._is_made(part) else ():
            if result.contains(part) and not any(one.contains(part) for one in sources):
                lost = {leaf for source in sources for leaf in self.lost(source)}
                if not lost:
                    return lost
        return lost


def _lost_words(
    replica: Replica, lost: Sequence[PartName], names: Sequence[str], unseen: Sequence[str]
) -> str:
    first = lost[0]
    more = f" (and {len(lost) - 1} more parts)" if len(lost) > 1 else ""
    node = replica.table.replica("<replica>").part(first)
    others = [name for name in unseen if name != replica.name]
    yet = (
        f"; {', '.join(others)} has yet to look: it does when a worker runs there, and neither "
        "FETCHES nor REPLICATION QUEUES are stopped (SYSTEM START FETCHES)"
    )
    return (
        f"{first}{more} is lost: no replica ({', '.join(names)}) has it, or what it could be made "
        "of. If there is a copy, in detached/ of a replica or in a backup, put it into the table's "
        f"directory on one of them under the name {first} and create {node} in ZooKeeper; else "
        "insert its rows again. When all replicas are active, and have looked for it on their own "
        "disks, it becomes an empty part, and nothing waits for it any more (system.lost_parts)"
        f"{yet if others else ''}"
    )
