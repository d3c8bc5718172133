"""The state of a replica's queue at one moment (spec §4.1 to §4.4, design §4).

A state is built from what ZooKeeper says, read in the order queue, claims, parts. An entry moves
from the queue to the parts in one multi, so this order can see it twice but never not at all (claim
P9). A worker that looks often makes each state from the one before. The result is equal to a state
that is built anew: tests/property/test_queue.py compares them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import assert_never

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import (
    AlterMetadata,
    AttachPart,
    DropPart,
    DropRange,
    GetPart,
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
    describe_entry,
    drop_range_of,
    partitions_about,
    result_of,
    touched_by,
    virtual_parts,
)
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.holdings import Holdings, PartChanges
from rmt_pipeline.protocol.parts.index import PartIndex
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import Intersects


class Lane(Enum):
    """A kind of entries, which wait for the same slots."""

    DROPS = auto()
    NEW_PARTS = auto()
    LOST_PARTS = auto()
    ATTACHED_PARTS = auto()
    MERGES = auto()
    MUTATIONS = auto()
    ADDITIONS = auto()
    """Replacements that drop nothing."""
    ALTERS = auto()


def lane_of(entry: LogEntry) -> Lane:
    """The lane that the entry belongs to."""
    match entry:
        case GetPart():
            return Lane.LOST_PARTS if entry.recovers else Lane.NEW_PARTS
        case AttachPart():
            return Lane.ATTACHED_PARTS
        case MergeParts():
            return Lane.MERGES
        case MutatePart():
            return Lane.MUTATIONS
        case DropRange() | DropPart() | ReplaceRange():
            return Lane.ADDITIONS if drop_range_of(entry) is None else Lane.DROPS
        case AlterMetadata():
            return Lane.ALTERS
        case _:
            assert_never(entry)


class QueueState:
    """The queue's working sets. A value: nothing in it changes once it is made.

    * `entries`: the entries by queue node, in queue order;
    * `lanes`: their nodes by lane, each in queue order, with the partition ("" for an ALTER);
    * `claims`: the claims of running entries, by queue node;
    * `holdings`: the parts that this replica has; `current`: the maximal ones;
    * `covered`: the nodes of entries of which nothing is left to do, each with the part of
      `current` that covers what it would bring;
    * `virtual`: the parts that the replica will have once the queue is empty, and fake ranges: the
      parts replayed through the entries in order. A DROP_PART takes out what it drops, for good;
    * `touched`: all names that entries bring or drop; `drops`: those that they drop;
    * `future`: the names that claimed entries produce;
    * `drop_parts`, `replacements`: parts of queued DROP_PARTs, new parts of queued REPLACE_RANGEs;
    * `detaching`: parts and ranges that queued drops move to `detached`;
    * `dropping`: the parts and ranges that claimed entries drop;
    * `first_drops`: by partition, the node of the first entry that drops something in it;
    * `alters`: metadata versions of queued ALTERs, by node.
    """

    __slots__ = (
        "alters",
        "claims",
        "covered",
        "current",
        "detaching",
        "drop_parts",
        "dropping",
        "drops",
        "entries",
        "first_drops",
        "future",
        "holdings",
        "lanes",
        "replacements",
        "touched",
        "virtual",
    )

    def __init__(
        self,
        entries: Mapping[str, LogEntry],
        claims: Mapping[str, Claim],
        parts: Iterable[PartName],
        before: "QueueState | None" = None,
    ) -> None:
        """`entries` must not change afterwards. With an earlier state `before`, only what has
        changed since is looked at. All entries of a partition are looked at again only where the
        queue drops something, or where an entry or part is gone whose part was still promised.

        Raises Corruption if parts or promises overlap in a way that no history gives.
        """
        self.entries = entries
        self.holdings = parts if isinstance(parts, Holdings) else Holdings.of(parts)
        self.current = self.holdings.current
        if before is None or not self._move(before):
            self._build()
        self.claims = dict(claims)
        self.future = PartIndex()
        for node, claim in self.claims.items():
            for part in claim.parts:
                self.future.add(part, node)
        self.dropping = PartIndex()
        self.first_drops: dict[str, str] = {}
        for node in self.lanes[Lane.DROPS]:
            dropped = drop_range_of(entries[node])
            assert dropped is not None
            self.first_drops.setdefault(dropped.partition, node)
            if node in claims:
                self.dropping.add(dropped, node)

    def _build(self) -> None:
        assert list(self.entries) == sorted(self.entries), "entries come in queue order"
        self.virtual = self.current.copy()
        self.lanes: dict[Lane, dict[str, str]] = {lane: {} for lane in Lane}
        self.touched = PartIndex()
        self.drops = PartIndex()
        self.drop_parts = PartIndex()
        self.detaching = PartIndex()
        self.replacements = PartIndex()
        self.alters: dict[str, int] = {}
        self.covered: dict[str, PartName] = {}
        for node, entry in self.entries.items():
            self._promise(node, entry)
            self._index_entry(node, entry)
            self._cover(node)

    def _move(self, before: "QueueState") -> bool:
        """Make the sets from those of the state `before`. Returns False and does nothing
        if an entry changed or came in the middle of the queue: `before` is of another queue then.
        """
        came, gone = _changed(before.entries, self.entries)
        if came and before.entries and came[0] <= [*before.entries][-1]:
            return False  # a queue only grows at its end, and its entries never change
        self.lanes, self.touched, self.drops = before.lanes, before.touched, before.drops
        self.drop_parts, self.detaching = before.drop_parts, before.detaching
        self.replacements = before.replacements
        self.alters, self.virtual, self.covered = before.alters, before.virtual, before.covered
        if came or gone:
            self._own_indexes()
        for node in gone:
            self._forget_entry(node, before.entries[node])
        for node in came:
            self._index_entry(node, self.entries[node])
        changes = before.holdings.changes(self.holdings)
        self._move_virtual(
            [before.entries[node] for node in gone],
            [self.entries[node] for node in came],
            changes,
        )
        self._move_covered(came, gone, changes)
        return True

    def _own_indexes(self) -> None:
        self.lanes = {lane: dict(nodes) for lane, nodes in self.lanes.items()}
        self.touched = self.touched.copy()
        self.drops = self.drops.copy()
        self.drop_parts = self.drop_parts.copy()
        self.detaching = self.detaching.copy()
        self.replacements = self.replacements.copy()
        self.alters = dict(self.alters)

    def _move_virtual(
        self, gone: Sequence[LogEntry], came: Sequence[LogEntry], changes: PartChanges
    ) -> None:
        """Compute the virtual parts from those before.

        In a partition in which nothing was or is dropped, the virtual parts are the maximal ones of
        all parts and promises, in whatever order these came. So parts that came are added, and a
        part that went makes no difference if a remaining one contains it. In any other case the
        partition's entries are replayed.
        """
        before, self.virtual = self.virtual, self.virtual.copy()
        moved = changes.keys() | {
            one for entry in (*gone, *came) for one in partitions_about(entry)
        }
        replayed = {one for one in moved if self.drops.has_any_in(one)}
        replayed |= {
            one.partition for entry in gone if (one := drop_range_of(entry)) is not None
        }
        promised = [part for entry in gone for part in virtual_parts(entry)]
        replayed |= {one.partition for one in promised if self.current.containing(one) is None}
        replayed |= {
            one.partition for _, lost in changes.values() for one in lost if one in before
        }
        added = [part for entry in came for part in virtual_parts(entry)]
        added += [part for new, _ in changes.values() for part in new]
        for part in added:
            if isinstance(self.virtual.add(part), Intersects):
                replayed.add(part.partition)  # the replay raises, and names the entry
        for partition in sorted(replayed):
            self.virtual.replace_partition(partition, self.current.in_partition(partition))
            for node in sorted(self.touched.nodes_in(partition)):
                self._promise(node, self.entries[node])

    def _move_covered(
        self, came: Iterable[str], gone: Iterable[str], changes: PartChanges
    ) -> None:
        """Compute `covered` from that before. Only entries that overlap a part that came can have
        become covered, and only covered ones of a partition that changed can have stopped being so.
        """
        asked = set(came)
        for new, _ in changes.values():
            asked.update(node for part in new for _, node in self.touched.overlapping(part))
        asked.update(node for node, part in self.covered.items() if part.partition in changes)
        self.covered = dict(self.covered)
        for node in (*gone, *asked):
            self.covered.pop(node, None)
        for node in asked:
            self._cover(node)

    def _promise(self, node: str, entry: LogEntry) -> None:
        """Replay the entry. A part that an earlier DROP_PART drops does not come: it is here, was
        given up, and is to be fetched again; the drop takes this entry, too. Merges go across its
        numbers by now, and their result may have too small a level to contain it.
        """
        for part in virtual_parts(entry):
            if any(
                drop < node and dropped.contains(part)
                for dropped, drop in self.drop_parts.overlapping(part)
            ):
                continue
            outcome = self.virtual.add(part)
            if isinstance(outcome, Intersects):
                raise Corruption(
                    f"{part}, what the queue will do ({describe_entry(entry)}), overlaps "
                    f"{outcome.part} and neither contains the other: no history gives both; "
                    "compare the log with the queue and the parts"
                )
        if isinstance(entry, DropPart):
            self.virtual.remove_covered(entry.part)

    def _index_entry(self, node: str, entry: LogEntry) -> None:
        self.lanes[lane_of(entry)][node] = "".join(partitions_about(entry))
        for part in touched_by(entry):
            self.touched.add(part, node)
        dropped = drop_range_of(entry)
        if dropped is not None:
            self.drops.add(dropped, node)
        if isinstance(entry, DropRange | DropPart) and entry.detach:
            assert dropped is not None
            self.detaching.add(dropped, node)
        if isinstance(entry, DropPart):
            self.drop_parts.add(entry.part, node)
        elif isinstance(entry, ReplaceRange):
            for part in entry.new_parts:
                self.replacements.add(part, node)
        elif isinstance(entry, AlterMetadata):
            self.alters[node] = entry.alter_version

    def _forget_entry(self, node: str, entry: LogEntry) -> None:
        del self.lanes[lane_of(entry)][node]
        indexes = self.touched, self.drops, self.drop_parts, self.detaching, self.replacements
        for part in touched_by(entry):
            for index in indexes:
                index.remove(part, node)
        self.alters.pop(node, None)

    def _cover(self, node: str) -> None:
        """Add the entry to `covered` if the replica has the part that it brings (spec §5.1.2)."""
        entry = self.entries.get(node)
        part = None if entry is None else result_of(entry)
        covering = None if part is None else self.current.containing(part)
        if covering is not None:
            self.covered[node] = covering

    def lanes_to_ask(self) -> Mapping[Lane, Collection[str]]:
        """The lanes without entries that wait for an earlier drop in their partition, but for the
        first of each partition. There may be ten thousand of them while a drop is carried out.
        """
        first_drops, first_behind = self.first_drops, dict[str, str]()
        if not first_drops:
            return self.lanes
        return {
            lane: nodes
            if lane is Lane.DROPS
            else [
                node
                for node, partition in nodes.items()
                if first_drops.get(partition, node) >= node
                or first_behind.setdefault(partition, node) == node
            ]
            for lane, nodes in self.lanes.items()
        }

    def names(self, partition: str) -> frozenset[PartName]:
        """Every part of the partition that this replica has in ZooKeeper, covered ones too."""
        return self.holdings.names(partition)

    def check(self) -> None:
        """Assert that no two members of a set overlap (P8), and no part is produced twice (P10)."""
        self.current.check()
        self.virtual.check()
        for part, nodes in self.future.owners.items():
            for other, node in self.future.overlapping(part):
                apart = part.is_drop_range or other.is_drop_range or nodes == (node,)
                assert apart, f"{nodes} and {node} produce {part} and {other} at once"


def _changed(
    before: Mapping[str, LogEntry], now: Mapping[str, LogEntry]
) -> tuple[list[str], list[str]]:
    """The nodes that came or whose entry changed, and those that went, each in order."""
    if before is now:
        return [], []
    came = [
        node
        for node, entry in now.items()
        if (known := before.get(node)) is not entry and known != entry
    ]
    return came, [node for node in before if node not in now]
