"""The multis of the commands on partitions and parts (spec §9), as operations."""

from collections.abc import Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, SetData
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from rmt_pipeline.zookeeper.transactions import release_locks


@dataclass(frozen=True, slots=True)
class LoggedDrop:
    """One entry that drops a range, and the lock of the number that ends the range."""

    entry: bytes
    lock: str


def submit_drops(
    table: TablePaths, replica: ReplicaPaths, drops: Sequence[LoggedDrop], *, version: int
) -> list[Op]:
    """The entries, and their delimiting numbers given back (spec §9.2). `version` is that of
    `alter_partition_version` before the numbers were taken: commands on partitions whose numbers
    are in flight at the same time exclude each other. The version of `log` moves, so no merge is
    assigned that has not seen the drops. Deleting a lock also fences: once it is gone, a copy of
    this multi that is still under way can't land.
    """
    return [
        Check(replica.is_active),
        SetData(table.alter_partition_version, b"", version),
        SetData(table.log),
        *(Create(table.log_prefix, drop.entry, sequence=True) for drop in drops),
        *release_locks(drop.lock for drop in drops),
    ]


def cancel_insert(lock: str) -> list[Op]:
    """The insert that holds this number can't commit any more (spec §9.2)."""
    return [Delete(lock)]


@dataclass(frozen=True, slots=True)
class Dropping:
    """Who carries out a drop: `node` is its queue entry, which is claimed, and `is_lost_version`
    was read before the queue and the parts.
    """

    replica: ReplicaPaths
    node: str
    is_lost_version: int

    def _guards(self) -> list[Op]:
        """The claim stands, and nothing was given up, nor another replica's state taken over, since
        we looked: either may have brought entries or parts that we have not seen.
        """
        return [
            Check(self.replica.claim(self.node)),
            Check(self.replica.is_lost, self.is_lost_version),
        ]

    def remove_entries(self, nodes: Sequence[str]) -> list[Op]:
        """Whoever carries one of them out can't publish any more."""
        return [
            *self._guards(),
            *(Delete(self.replica.queue_entry(node)) for node in nodes),
        ]

    def forget_parts(self, parts: Sequence[PartName]) -> list[Op]:
        return [*self._guards(), *(Delete(self.replica.part(part)) for part in parts)]

    def finish(self, parts: Sequence[PartName]) -> list[Op]:
        """The last parts go, and with them the entry and its claim."""
        return [
            Check(self.replica.is_lost, self.is_lost_version),
            Delete(self.replica.queue_entry(self.node)),
            Delete(self.replica.claim(self.node)),
            *(Delete(self.replica.part(part)) for part in parts),
        ]
