"""Carrying out a drop entry on one replica (spec §5.5, §4.11).

    queue entries inside go ──► [detached copies] ──► the disk knows what may go ──►
    ids forgotten ──► parts no longer promised, entry and claim gone ──► directories go

1. The queue entries inside the range are removed first. A worker that is carrying out one of them
   can't publish any more, because publishing deletes the entry. So once none is left, no part
   appears in the range. A part that is given up moves the other way, from the parts to the queue;
   so each step asserts that `is_lost` still has the version that it had before we looked, which
   changes when a part is given up, and when another replica is cloned.
2. The disk notes the drop before ZooKeeper forgets the parts (`DroppedRanges.note`). If we die in
   between, or a reader still holds a part, or a slow worker gives a directory its name, then the
   process that finds the directory knows that it was dropped, and removes it, now or years later.
3. A second process that carries out the same drop finds less to do; the last step is refused to all
   but one.
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
from rmt_pipeline.replica.caught_up import caught_up
from rmt_pipeline.replica.forget import blocks_beside, forget
from rmt_pipeline.replica.partitions.inside import (
    in_no_part,
    parts_inside,
    remove_unpromised,
    stop_making,
)
from rmt_pipeline.replica.publish import EntryGone
from rmt_pipeline.replica.pull_log import PullingIsStopped
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
        """The range that is dropped, or the part."""
        dropped = drop_range_of(self.entry)
        assert dropped is not None
        return dropped


@dataclass(frozen=True, slots=True)
class _Found:
    """What is in the range: `pointless` are queue entries to remove; `parts` are all promised
    parts; `active` are those of them that no other one covers.
    """

    dropping: Dropping
    pointless: tuple[str, ...]
    parts: tuple[PartName, ...]
    active: tuple[PartName, ...]


def drop_here(replica: Replica, node: str, drop: DropHere) -> Swept:
    """Carry out the claimed entry at `node`. May be repeated, and may die at any point.

    Raises EntryGone when our claim is gone, TableIsReadOnly when the replica is lost, Conflict when
    other processes keep changing the range; and what `detach_copy` raises.
    """
    for _ in range(limits.LOOK_ROUNDS_MAX):
        found = _look(replica, node, drop)
        if found is None:
            return Swept(is_claimed=True)
        try:
            if found.pointless:
                # Another replica's disk may have the parts that were to come here. If ZooKeeper
                # loses the table before that replica has carried out the drop, this note tells.
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
    """Read what is in the range; None if the entry is gone. `is_lost` is read first, then the
    queue, and then the parts: a part that is seen in neither was given up meanwhile, and that
    changes `is_lost`.
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
    """Do all that must be done before the first part is no longer promised."""
    store = replica.store
    for part in found.active if drop.entry.detach else ():
        with suppress(MissingPart):  # it is to be fetched again: other replicas keep a copy
            store.detach_copy(part, "", once=True)
    if found.parts or are_on_disk(replica, [drop.part]):
        store.drops.note(drop.part)
    forget_dropped_quorums(replica, drop.part)
    beside = _gone_beside(replica, drop.part) if isinstance(drop.entry, DropPart) else []
    forget(replica, [drop.part, *beside])


def _gone_beside(replica: Replica, part: PartName) -> list[PartName]:
    """The blocks that were dropped before, of inserts which have others in this part, as they are
    looked for when the drop is decided (`partitions.drop`): what was found then may not have fitted
    into the multi, and its process have died. If this part had the last of an insert's rows in the
    partition, its record would keep them out for ever.

    What the records name is read first: it was in the log by then, which is copied after that.
    While nothing is to be copied that is not known, and the drop does not wait for it.
    """
    beside = blocks_beside(replica, part)
    if not beside:
        return []
    try:
        _, snapshot = caught_up(replica)
    except PullingIsStopped:
        return []
    view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts)
    return in_no_part(beside, (view.current, view.virtual), snapshot.entries.values())


def _counted(replica: Replica, gone: tuple[PartName, ...]) -> Swept:
    """What was dropped, counted only afterwards, so that readers do not wait until thousands of
    manifests are read. A part that clean-up has removed already is not counted, nor one that can't
    be read.
    """
    rows = size_bytes = 0
    for part in gone:
        with suppress(Corruption, MissingPart, OSError):
            counts = replica.store.counts(part)
            rows, size_bytes = rows + counts[0], size_bytes + counts[1]
    return Swept(gone, rows, size_bytes)
