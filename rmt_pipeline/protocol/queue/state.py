"""What a replica's queue is at one moment (spec §4.1 to §4.4, design §4).

Workers are stateless: this is built from what ZooKeeper says, read in the order queue, claims,
parts. An entry moves from the queue to the parts in one multi, so this order can see it twice
but never not at all (claim P9).
"""

from collections.abc import Iterable, Mapping, Sequence

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import (
    AlterMetadata,
    DropPart,
    DropRange,
    LogEntry,
    ReplaceRange,
    describe_entry,
    drop_range_of,
    virtual_parts,
)
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.index import PartIndex
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import Intersects

NodesAndEntries = Sequence[tuple[str, LogEntry]]


class QueueState:
    """The queue's sets. A value: nothing in it changes once it is made.

    * `entries`: what is to be done, by queue node, in queue order;
    * `claims`: who is doing what, by queue node;
    * `current`: the parts that this replica has;
    * `virtual`: the parts that it will have once the queue is empty, and fake ranges: the parts
      replayed through the entries in order. A DROP_PART takes out what it drops;
    * `future`: the names that claims produce;
    * `drop_parts`, `replacements`: names of queued DROP_PARTs, new parts of queued
    REPLACE_RANGEs;
    * `detaching`: what queued drops set aside;
    * `dropping`: drop ranges of entries that run now;
    * `alters`: queued metadata versions.
    """

    __slots__ = (
        "_names",
        "alters",
        "claims",
        "current",
        "detaching",
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
        self._names = holdings.of_partition
        self.current = holdings.current
        self.virtual = self.current.copy()
        self.drop_parts = PartIndex()
        self.detaching = PartIndex()
        self.replacements = PartIndex()
        self.alters: dict[str, int] = {}
        for node, entry in self.entries.items():
            self._promise(entry)
            self._index_entry(node, entry)
        self.claims = dict(claims)
        self.future = PartIndex()
        self.dropping = PartIndex()
        for node, claim in self.claims.items():
            self._index_claim(node, claim)

    def _promise(self, entry: LogEntry) -> None:
        for part in virtual_parts(entry):
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
        """What others wait for."""
        if isinstance(entry, DropRange | DropPart) and entry.detach:
            dropped = drop_range_of(entry)
            assert dropped is not None
            self.detaching.add(dropped, node)
        if isinstance(entry, DropPart):
            self.drop_parts.add(entry.part, node)
        elif isinstance(entry, ReplaceRange):
            for part in entry.new_parts:
                self.replacements.add(part, node)
        elif isinstance(entry, AlterMetadata):
            self.alters[node] = entry.alter_version

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

    def check(self) -> None:
        """Assert that no two members of a set overlap (P8), and nothing is made twice (P10)."""
        self.current.check()
        self.virtual.check()
        for part, nodes in self.future.owners.items():
            for other, node in self.future.overlapping(part):
                apart = part.is_drop_range or other.is_drop_range or nodes == (node,)
                assert apart, f"{nodes} and {node} produce {part} and {other} at once"
