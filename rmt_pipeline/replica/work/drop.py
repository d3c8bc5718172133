"""A drop entry, carried out by one replica (spec §5.5, §4.11).

    queue entries inside go ──► [detached copies] ──► the disk knows what may go ──►
    ids forgotten ──► parts no longer promised, entry and claim gone ──► directories go

1. The queue first: whoever carries out an entry inside can't publish any more, for that deletes the
   entry. So once none is left, nothing appears in the range. A part that is given up goes the other
   way, from the parts to the queue: each step asserts that the version of `is_lost` is the one from
   before we looked, which changes then, and when another replica's state is taken over.
2. The disk is told before ZooKeeper forgets (`DroppedRanges.note`): if we die in between, or a
   reader holds a part, or somebody slow gives a directory its name, then who finds it knows that it
   was dropped, and removes it, now or years later.
3. Whoever comes second finds less to do; the last step is refused to all but one.
"""

from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, Corruption, MissingPart
from rmt_pipeline.protocol.log.entry import (
    DropPart,
    DropRange,
    describe_entry,
    drop_range_of,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.answered import answered
from rmt_pipeline.replica.forget import forget
from rmt_pipeline.replica.partitions.inside import (
    parts_inside,
    remove_unpromised,
    stop_making,
)
from rmt_pipeline.replica.publish import EntryGone
from rmt_pipeline.replica.quorum import forget_dropped_quorums
from rmt_pipeline.replica.replica import Replica, lost_error
from rmt_pipeline.replica.settled import are_on_disk
from rmt_pipeline.replica.work.step import Swept
from rmt_pipeline.zookeeper.keeper import Refused
from rmt_pipeline.zookeeper.partition_transactions import Dropping, cut_deletions
from rmt_pipeline.zookeeper.snapshot import sweep_snapshot


@dataclass(frozen=True, slots=True)
class DropHere:
    """A DROP_RANGE or DROP_PART entry, carried out on this replica."""

    entry: DropRange | DropPart

    @property
    def part(self) -> PartName:
        """The range, or the part."""
        dropped = drop_range_of(self.entry)
        assert dropped is not None
        return dropped


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is in the range: queue entries to remove; parts, and of them the active ones."""

    dropping: Dropping
    pointless: tuple[str, ...]
    parts: tuple[PartName, ...]
    active: tuple[PartName, ...]


def drop_here(replica: Replica, node: str, drop: DropHere) -> Swept:
    """Carry out the claimed entry at `node`. Idempotent; may die anywhere.

    Raises EntryGone when our claim is gone, TableIsReadOnly when the replica is lost, Conflict when
    others keep changing the range; what `detach_copy` raises.
    """
    for _ in range(limits.LOOK_ROUNDS_MAX):
        found = _look(replica, node, drop)
        if found is None:
            return Swept(is_claimed=True)
        try:
            if found.pointless:
                # Another disk may have what was to come here: when ZooKeeper loses the table
                # before that one has heard of the drop, this disk tells it.
                replica.store.drops.note(drop.part)
                for nodes in cut_deletions(found.pointless, replica.paths.queue_entry):
                    answered(replica, found.dropping.remove_entries(nodes))
                stop_making(replica, drop.part)
                continue
            _prepare(replica, drop, found)
            *first, last = [*cut_deletions(found.parts, replica.paths.part)] or [()]
            for some in first:
                answered(replica, found.dropping.forget_parts(some))
            answered(replica, found.dropping.finish(last))
        except Refused as refused:
            if refused.path == replica.paths.claim(node):
                raise EntryGone(
                    f"{replica}: our claim of {node} is gone ({refused})"
                ) from refused
            continue
        dropped = _counted(replica, found.active)
        remove_unpromised(replica, found.parts)
        return dropped
    raise Conflict(f"{replica}: what {drop.part} drops changes all the time; trying again")


def _look(replica: Replica, node: str, drop: DropHere) -> _Found | None:
    """None when the entry is gone. `is_lost` first, then the queue, and then the parts: what was in
    neither was given up since, and that changes `is_lost`.
    """
    snapshot = sweep_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    if snapshot.is_lost:
        raise lost_error(replica)
    if node not in snapshot.entries:
        return None
    view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts)
    pointless = view.entries_removed_by(drop.part, by=node)
    inside = parts_inside(replica, snapshot.parts, drop.part, describe_entry(drop.entry))
    active = PartSet(inside)
    return _Found(
        Dropping(replica.paths, node, snapshot.is_lost_version),
        tuple(node for node, _ in pointless),
        inside,
        tuple(active),
    )


def _prepare(replica: Replica, drop: DropHere, found: _Found) -> None:
    """All that must be there before the first part is no longer promised."""
    store = replica.store
    for part in found.active if drop.entry.detach else ():
        with suppress(MissingPart):  # it is to be fetched again: others keep a copy
            store.detach_copy(part, "", once=True)
    if found.parts or are_on_disk(replica, [drop.part]):
        store.drops.note(drop.part)
    forget_dropped_quorums(replica, drop.part)
    if drop.entry.source_replica == replica.name:
        forget(replica, [drop.part])


def _counted(replica: Replica, gone: tuple[PartName, ...]) -> Swept:
    """What there was, as told afterwards: readers do not wait until thousands of manifests are
    read. A part that clean-up was faster with is not counted, nor one that can't be read.
    """
    rows = size_bytes = 0
    for part in gone:
        with suppress(Corruption, MissingPart):
            counts = replica.store.counts(part)
            rows, size_bytes = rows + counts[0], size_bytes + counts[1]
    return Swept(gone, rows, size_bytes)
