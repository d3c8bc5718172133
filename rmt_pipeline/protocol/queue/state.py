"""What a replica's queue is at one moment, and how it changes (spec §4.1 to §4.4, design §4).

Workers are stateless: this is built from what ZooKeeper says, read in the order queue, claims,
parts. An entry moves from the queue to the parts in one multi, so this order can see it twice
but never not at all (claim P9).
"""

from collections.abc import Iterable, Mapping, Sequence

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import (
    AlterMetadata,
    DropPart,
    LogEntry,
    ReplaceRange,
    describe_entry,
    drop_range_of,
    virtual_parts,
)
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.holdings import Holdings, by_partition
from rmt_pipeline.protocol.parts.index import PartIndex
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import Intersects, PartSet

NodesAndEntries = Sequence[tuple[str, LogEntry]]


class QueueState:
    """The queue's sets. Treated as a value: `changed` returns another one, sharing nothing
    mutable.

    * `entries`: what is to be done, by queue node, in queue order;
    * `claims`: who is doing what, by queue node;
    * `current`: the parts that this replica has;
    * `virtual`: the parts that it will have once the queue is empty, and fake ranges: the parts
      replayed through the entries in order. A DROP_PART takes out what it drops;
    * `future`: the names that claims produce;
    * `drop_parts`, `replacements`: names of queued DROP_PARTs, new parts of queued
    REPLACE_RANGEs;
    * `dropping`: drop ranges of entries that run now;
    * `alters`: queued metadata versions.

    Invariant: `virtual` equals the replay, and no two of its members overlap (P8).
    """

    __slots__ = (
        "_names",
        "alters",
        "claims",
        "current",
        "drop_parts",
        "dropping",
        "entries",
        "future",
        "replacements",
        "virtual",
    )

    def __init__(
        self,
        entries: NodesAndEntries,
        claims: Mapping[str, Claim],
        parts: Iterable[PartName],
    ) -> None:
        """Raises Corruption when parts or promises overlap in a way that no history gives."""
        self.entries: dict[str, LogEntry] = dict(entries)
        assert list(self.entries) == sorted(self.entries), "entries come in queue order"
        holdings = parts if isinstance(parts, Holdings) else Holdings.of(parts)
        self._names = dict(holdings.of_partition)
        self.current = holdings.current  # shared; only a copy is changed, see `copy`
        self.virtual = self.current.copy()
        for entry in self.entries.values():
            _promise(self.virtual, entry)
        self._index_entries()
        self._index_claims(claims)

    def _index_entries(self) -> None:
        """The entries that others wait for. They are few and rare, so collected from
        scratch.
        """
        self.drop_parts = PartIndex()
        self.replacements = PartIndex()
        self.alters: dict[str, int] = {}
        for node, entry in self.entries.items():
            if isinstance(entry, DropPart):
                self.drop_parts.add(entry.part, node)
            elif isinstance(entry, ReplaceRange):
                for part in entry.new_parts:
                    self.replacements.add(part, node)
            elif isinstance(entry, AlterMetadata):
                self.alters[node] = entry.alter_version

    def _index_claims(self, claims: Mapping[str, Claim]) -> None:
        self.claims = dict(claims)
        self.future = PartIndex()
        self.dropping = PartIndex()
        for node, claim in self.claims.items():
            self._index_claim(node, claim)

    def _index_claim(self, node: str, claim: Claim) -> None:
        for part in claim.parts:
            self.future.add(part, node)
        entry = self.entries.get(node)
        dropped = None if entry is None else drop_range_of(entry)
        if dropped is not None:
            self.dropping.add(dropped, node)

    def names(self, partition: str) -> frozenset[PartName]:
        """Every part name of the partition in ZooKeeper, the covered ones too."""
        return self._names.get(partition, frozenset())

    def copy(self) -> "QueueState":
        twin = QueueState((), {}, ())
        twin.entries = dict(self.entries)
        twin._names = dict(self._names)  # its sets are never changed in place
        twin.current = self.current.copy()
        twin.virtual = self.virtual.copy()
        twin.drop_parts = self.drop_parts
        twin.replacements = self.replacements
        twin.alters = self.alters
        return twin

    def apply(
        self,
        *,
        added_entries: NodesAndEntries,
        removed_nodes: Iterable[str],
        claims: Mapping[str, Claim],
        added_parts: Iterable[PartName],
        removed_parts: Iterable[PartName],
    ) -> None:
        """Bring the state up to date; `claims` are all of them.

        Only a partition that loses something which nothing replaces is replayed from its parts
        and entries (a DROP, a part found broken); everything else is a search per change.
        """
        removed = [(node, self.entries[node]) for node in removed_nodes if node in self.entries]
        dirty = self._remove_parts(removed_parts)
        dirty |= self._add_parts(added_parts, dirty)
        dirty |= self._remove_entries(removed, dirty)
        self._add_entries(added_entries, dirty)
        if any(_others_wait_for(entry) for _, entry in (*removed, *added_entries)):
            self._index_entries()
        for partition in dirty:
            self._replay(partition)
        self._index_claims(claims)

    def _remove_parts(self, parts: Iterable[PartName]) -> set[str]:
        dirty = set()
        for partition, removed in by_partition(parts).items():
            self._names[partition] = self.names(partition) - removed
            if any(part in self.current for part in removed):
                dirty.add(partition)  # else covered ones were cleaned up: no set notices
        return dirty

    def _add_parts(self, parts: Iterable[PartName], dirty: set[str]) -> set[str]:
        also_dirty = set()
        for partition, added in by_partition(parts).items():
            self._names[partition] = self.names(partition) | added
            if partition in dirty:
                continue
            if any(self.drop_parts.overlaps(part) for part in added):
                also_dirty.add(partition)  # a drop later in the queue takes it out of `virtual`
                continue
            for part in sorted(added):
                _add(self.current, part, "a part of this replica")
                _add(self.virtual, part, "a part of this replica")
        return also_dirty

    def _remove_entries(self, removed: NodesAndEntries, dirty: set[str]) -> set[str]:
        also_dirty = set()
        for node, entry in removed:
            del self.entries[node]
            if isinstance(entry, DropPart):
                also_dirty.add(entry.part.partition)
            for part in virtual_parts(entry):
                kept = not part.is_drop_range and self.current.containing(part) is not None
                if not kept:  # nothing promises it any more, and it did not come either
                    also_dirty.add(part.partition)
        return also_dirty - dirty

    def _add_entries(self, added: NodesAndEntries, dirty: set[str]) -> None:
        last = next(reversed(self.entries), "")
        for node, entry in added:
            assert node > last, f"{node} was added after {last}"
            last = node
            self.entries[node] = entry
            if _partition_of(entry) not in dirty:
                _promise(self.virtual, entry)

    def _replay(self, partition: str) -> None:
        names = self.names(partition)
        self.current.replace_partition(partition, names)
        self.virtual.replace_partition(partition, names)
        for entry in self.entries.values():
            if _partition_of(entry) == partition:
                _promise(self.virtual, entry)

    def check(self) -> None:
        """Assert the invariant, and that nothing that was promised is forgotten (P8, P10)."""
        names = [part for partition in self._names.values() for part in partition]
        replayed = QueueState(tuple(self.entries.items()), self.claims, names)
        assert self.current == replayed.current, f"{self.current} != {replayed.current}"
        assert self.virtual == replayed.virtual, f"{self.virtual} != {replayed.virtual}"
        self.current.check()
        self.virtual.check()
        for name in ("drop_parts", "replacements", "future", "dropping"):
            mine, theirs = getattr(self, name).owners, getattr(replayed, name).owners
            assert dict(mine) == dict(theirs), f"{name}: {mine} != {theirs}"
        for part, nodes in self.future.owners.items():
            for other, node in self.future.overlapping(part):
                apart = part.is_drop_range or other.is_drop_range or nodes == (node,)
                assert apart, f"{nodes} and {node} produce {part} and {other} at once"


def _others_wait_for(entry: LogEntry) -> bool:
    return isinstance(entry, DropPart | ReplaceRange | AlterMetadata)


def _partition_of(entry: LogEntry) -> str | None:
    """The partition that the entry is about; an entry is about one, or is about metadata."""
    dropped = drop_range_of(entry)
    if dropped is not None:
        return dropped.partition
    promised = virtual_parts(entry)
    return promised[0].partition if promised else None


def _promise(virtual: PartSet, entry: LogEntry) -> None:
    for part in virtual_parts(entry):
        _add(virtual, part, f"what the queue will do ({describe_entry(entry)})")
    if isinstance(entry, DropPart):
        virtual.remove_covered(entry.part)


def _add(parts: PartSet, part: PartName, whence: str) -> None:
    outcome = parts.add(part)
    if isinstance(outcome, Intersects):
        raise Corruption(
            f"{part}, {whence}, overlaps {outcome.part} and neither contains the other: no "
            "history gives both; compare the log with the queue and the parts"
        )
