"""Compare the rows of all replicas by their row hashes in ZooKeeper, without reading any part."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.nodes.formats import PartHeader, number_of
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.snapshot import staying_replicas

ROUNDS_MAX = 5


@dataclass(frozen=True, slots=True)
class Held:
    """What one replica promises of one partition. Row hashes add up over parts (design §5)."""

    parts: int
    row_hash: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What each replica has: `held[partition][replica]`. `behind` are replicas that have entries
    left to carry out.
    """

    held: Mapping[str, Mapping[str, Held]]
    replicas: tuple[str, ...]
    behind: tuple[str, ...]

    @property
    def different(self) -> tuple[str, ...]:
        """Partitions whose rows are not the same on every replica."""
        return tuple(
            partition
            for partition, by_replica in sorted(self.held.items())
            if len({_rows(by_replica.get(name)) for name in self.replicas}) > 1
        )


def compare_replicas(replica: Replica) -> Comparison:
    """Compare every partition of every replica. A replica that is behind may well differ until it
    has caught up; any other difference is a fault.
    """
    keeper, table = replica.keeper, replica.table
    keeper.sync(table.root)
    names = tuple(staying_replicas(keeper, table))
    behind = _behind(replica, names)
    held: dict[str, dict[str, Held]] = defaultdict(dict)
    found = {name: _held(replica, name) for name in names}
    there = staying_replicas(keeper, table)  # what one has while it is dropped is no difference
    names = tuple(name for name in names if name in there)
    for name in names:
        for partition, sums in found[name].items():
            held[partition][name] = sums
    return Comparison(dict(held), names, tuple(name for name in behind if name in there))


def _behind(replica: Replica, names: Sequence[str]) -> tuple[str, ...]:
    """Return the replicas that are behind. They are read before the parts: a replica that is up to
    date now has its parts when they are read.
    """
    keeper, table = replica.keeper, replica.table
    _, log = keeper.children_stat(table.log)
    paths = [table.replica(name) for name in names]
    pointers = keeper.get_many([path.log_pointer for path in paths])
    queues = keeper.children_many([path.queue for path in paths])
    return tuple(
        name
        for name, pointer, queue in zip(names, pointers, queues, strict=True)
        if queue or pointer is None or number_of(pointer[0]) < log.next_sequence
    )


def _held(replica: Replica, name: str) -> dict[str, Held]:
    """Sum up the active parts of a replica by partition."""
    sums: dict[str, Held] = {}
    for part, header in _headers(replica, name):
        row_hash = int.from_bytes(header.uncompressed_hash_of_compressed_files, "little")
        before = sums.get(part.partition, Held(0, 0))
        total = (before.row_hash + row_hash) % 2**128
        sums[part.partition] = Held(before.parts + 1, total)
    return sums


def _headers(replica: Replica, name: str) -> list[tuple[PartName, PartHeader]]:
    """Return the headers of a replica's active parts; none if it was dropped meanwhile. If a part
    was merged away and removed between the two reads, they are read again. Raises Unavailable if
    that happens too often.
    """
    keeper, paths = replica.keeper, replica.table.replica(name)
    for _ in range(ROUNDS_MAX):
        [listed] = keeper.children_many([paths.parts])
        parts = list(PartSet(map(PartName.parse, listed or ())))
        reads = keeper.get_many([paths.part(part) for part in parts])
        found = [
            (part, PartHeader.decode(read[0]))
            for part, read in zip(parts, reads, strict=True)
            if read is not None
        ]
        if len(found) == len(parts):
            return found
    raise Unavailable(
        f"the parts of {paths.root} changed {ROUNDS_MAX} times while they were read; try again"
    )


def _rows(held: Held | None) -> int:
    return held.row_hash if held is not None else 0
