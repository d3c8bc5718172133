"""Which parts a reader reads, and which rows it can't have at the moment."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import MissingPart, Unavailable
from rmt_pipeline.protocol.log.entry import (
    AttachPart,
    GetPart,
    LogEntry,
    drop_range_of,
    parts_brought,
    result_of,
    sources_of,
)
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet, contained_in
from rmt_pipeline.replica.quorum import read_quorums
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.snapshot import (
    awaiting_quorum,
    entries_to_come,
    gone,
    parts_now,
    queued_entries,
)

MARK_KEPT_S = 600.0  # longer than ZooKeeper may take to answer when a part is given up


@dataclass(frozen=True, slots=True)
class ReadableParts:
    """The active parts, sorted by name, and the `absent` ones, without whose rows an answer would
    be wrong: parts that were broken or gone, or that a clone has left for others that contain them,
    and that are not fetched yet.
    """

    active: tuple[PartName, ...]
    absent: tuple[PartName, ...]

    def of_partition(self, partition: str | None) -> "ReadableParts":
        """Those of one partition; all for None."""
        if partition is None:
            return self
        chosen = (
            tuple(part for part in parts if part.partition == partition)
            for parts in (self.active, self.absent)
        )
        return ReadableParts(*chosen)


def readable_parts(replica: Replica) -> ReadableParts:
    """The parts that a reader may read now, and those that it would have to wait for. Raises
    ReplicaDropped.

    A part that is given up is first marked on this disk; then one multi removes its promise and
    queues its fetch; later another multi ends the fetch and restores the promise. So a part that is
    missing from the promises was marked before they were read. If the queue, which is read after
    the promises, does not have its fetch, then either the part was fetched between the two reads,
    and the promises, which are read once more, have it; or it was dropped.

    A clone marks the parts that it leaves and that will be contained in others. It fills the queue
    only afterwards, and until it has, `is_lost` is "1". So `is_lost` is read before the queue, and
    again at the end.
    """
    keeper, paths, store = replica.keeper, replica.paths, replica.store
    active = parts_now(keeper, paths, replica.memory.queue).current
    marked = store.marks.given_up()
    if not marked:
        return ReadableParts(tuple(active), ())
    absent: list[PartName] = []
    if any(active.containing(part) is None for part in marked):
        [lost] = keeper.get_many([paths.is_lost])
        is_coming = _coming(queued_entries(keeper, paths, replica.memory.queue).values())
        active = parts_now(keeper, paths, replica.memory.queue).current
        [lost_now] = keeper.get_many([paths.is_lost])
        if lost is None or lost_now is None:
            raise gone(paths)
        if lost[1].version != lost_now[1].version:
            return readable_parts(replica)  # a clone began or ended, or a part was given up
        absent = [
            part
            for part in marked
            if active.containing(part) is None and (lost[0] == b"1" or is_coming(part))
        ]
    _forget_old_marks(replica, [part for part in marked if part not in absent])
    return ReadableParts(tuple(active), tuple(absent))


def _coming(queued: Collection[LogEntry]) -> Callable[[PartName], bool]:
    """A function that says whether the rows of a part come with what is queued. A part that was
    dropped by itself leaves its numbers, and merges go across them: such a merge has none of its
    rows.
    """
    makers = {result: one for one in queued if sources_of(one) and (result := result_of(one))}
    is_made = contained_in(makers)
    is_brought = contained_in(
        made for entry in queued if not sources_of(entry) for made in parts_brought(entry)
    )

    def brings(result: PartName, part: PartName) -> bool:
        near = [one for one in sources_of(makers[result]) if not one.disjoint(part)]
        return any(one not in makers or brings(one, part) for one in near)

    def is_coming(part: PartName) -> bool:
        if is_brought(part):
            return True
        return is_made(part) and any(
            brings(result, part) for result in makers if result.contains(part)
        )

    return is_coming


class ReplicaIsNotInQuorum(Unavailable):
    """Rows that have reached their quorum are not on this replica yet."""

    code = "REPLICA_IS_NOT_IN_QUORUM"


def sequential_parts(replica: Replica) -> ReadableParts:
    """Like `readable_parts`, for a sequentially consistent read: all rows that have reached their
    quorum, and none that still wait for it or were inserted after the last ones that reached it,
    or, where none has, after one that waits alone (spec §2.7). Raises ReplicaIsNotInQuorum.

    1. The parts that have reached it are read first. All of them are in the log by then; so each is
       in the log, in the queue, or among the parts, which are read in this order. Of the parts
       still on their way only those that wait or failed may be missing. (The last part alone proves
       nothing, because parts overtake each other.)
    2. The parts that wait or failed are read once more after the parts: an active part that is not
       among them has reached its quorum, whenever it came.

    A part that has both such rows and later ones is read: no part that waits is merged.
    """
    replica.keeper.sync(replica.table.root)
    quorums = read_quorums(replica)
    reached = () if quorums.last is None else quorums.last[0].parts
    beyond = {part.partition: part.block_max for part in reached}
    alone = () if quorums.status is None else quorums.status[0].parts
    limits = {part.partition: part.block_min - 1 for part in alone} | beyond
    coming = _on_their_way(replica)
    may_miss = awaiting_quorum(replica.keeper, replica.table) if coming else frozenset()
    found = readable_parts(replica)
    active = PartSet(found.active)
    promised = [
        part
        for part, quorum in coming.items()
        if part not in may_miss and (quorum or part.block_min <= beyond.get(part.partition, -1))
    ]
    for part in (*reached, *promised):
        is_here = active.containing(part) is not None
        if not is_here and not any(one.contains(part) for one in found.absent):
            raise ReplicaIsNotInQuorum(
                f"{replica} does not have {part} yet, which reached its quorum: "
                "select_sequential_consistency reads where it is. Try again, or on another server"
            )
    waiting = awaiting_quorum(replica.keeper, replica.table)
    return ReadableParts(
        tuple(
            part
            for part in found.active
            if part not in waiting
            and part.block_min <= limits.get(part.partition, part.block_min)
        ),
        found.absent,
    )


def _on_their_way(replica: Replica) -> dict[PartName, int]:
    """The parts that this replica is still to get, except those that are to be dropped, each with
    the quorum that its insert asked for.
    """
    entries = entries_to_come(
        replica.keeper, replica.table, replica.paths, replica.memory.queue
    )
    ranges = [drop for entry in entries if (drop := drop_range_of(entry)) is not None]
    return {
        entry.part: entry.quorum
        for entry in entries
        if isinstance(entry, GetPart | AttachPart)
        and not any(drop.contains(entry.part) for drop in ranges)
    }


def note_active(replica: Replica, noted: Holdings | None = None) -> Holdings | None:
    """Note on the disk which parts are active, for readers while ZooKeeper is away.

    Returns what is noted now, or None if the disk could not take the note. A caller that passes
    that as `noted` the next time spares the comparison with the disk while the parts are the same.
    """
    promised = parts_now(replica.keeper, replica.paths, replica.memory.queue)
    if promised is noted:
        return noted
    active = tuple(promised.current)
    seen = replica.store.marks.active_seen()
    if seen is not None and seen.parts == active:
        return promised
    return promised if replica.store.marks.note_active(active) else None


def _forget_old_marks(replica: Replica, settled: list[PartName]) -> None:
    """Forget marks of parts that are not absent, but only old ones: a process that has just marked
    a part may be about to give it up. Nobody who only reads fails because the disk can't be written
    to.
    """
    for part in settled:
        marked_s = replica.store.marks.given_up_s(part)
        if marked_s is not None and replica.clock.now_s() - marked_s > MARK_KEPT_S:
            with suppress(OSError):
                replica.store.marks.forget_given_up(part)


def absent_error(table: object, absent: Sequence[PartName]) -> MissingPart:
    """The error for a reader of the table (or replica) that can't have all rows."""
    first = absent[0]
    more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
    return MissingPart(
        f"part {first}{more} of {table} was broken or gone, and it is fetched again from another "
        "replica, by itself or merged: try again when it is here (system.replication_queue says "
        "what it waits for), read on another server, or without its rows: SETTINGS "
        "skip_broken_parts = 1",
        part=first,
    )
