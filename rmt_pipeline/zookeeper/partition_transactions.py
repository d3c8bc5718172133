"""The multis of the commands on partitions and parts (spec §9), as lists of operations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper.batches import cut, op_bytes
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, SetData
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from rmt_pipeline.zookeeper.transactions import release_locks

_T = TypeVar("_T")
_GUARD_BYTES = 4 * limits.OP_BYTES_OVERHEAD


@dataclass(frozen=True, slots=True)
class LoggedDrop:
    """A log entry that drops a range, and the lock of the block number that ends the range."""

    entry: bytes
    lock: str


def submit_drops(
    table: TablePaths, replica: ReplicaPaths, drops: Sequence[LoggedDrop], *, version: int
) -> list[Op]:
    """Write the entries to the log, and give back the block numbers that end their ranges (spec
    §9.2).

    `version` is that of `alter_partition_version` before the numbers were taken: of two commands on
    partitions whose numbers are in flight at the same time only one succeeds. The multi changes the
    version of `log`, so that no merge is assigned by a replica that has not seen the drops.
    Deleting a lock also fences: once it is gone, another copy of this multi that is still on its
    way is refused.
    """
    return [
        *_alone(table, replica, version),
        SetData(table.log),
        *(Create(table.log_prefix, drop.entry, sequence=True) for drop in drops),
        *release_locks(drop.lock for drop in drops),
    ]


def _alone(table: TablePaths, replica: ReplicaPaths, version: int) -> list[Op]:
    """Assert that no other command on partitions was committed since `alter_partition_version` had
    this version, and that the replica is active.
    """
    return [
        Check(replica.is_active),
        SetData(table.alter_partition_version, b"", version),
    ]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A part that this replica adds when the log entry is written, and the lock of its number.

    `header` is the text of the part's node. With a `block_id`, the same block is refused from then
    on.
    """

    part: PartName
    header: bytes
    lock: str
    block_id: str = ""


@dataclass(frozen=True, slots=True)
class Swap:
    """A log entry, and what changes in the same multi on the replica that writes it.

    `arrivals` are added, `parts` and the queue entries at `nodes` are removed. `delimiter` is the
    lock of the block number that ends the range of what is replaced; "" if nothing is.
    """

    entry: bytes
    delimiter: str = ""
    arrivals: tuple[Arrival, ...] = ()
    nodes: tuple[str, ...] = ()
    parts: tuple[PartName, ...] = ()

    @property
    def locks(self) -> tuple[str, ...]:
        """The locks that the multi deletes: of the delimiter and of the arrivals."""
        ends = (self.delimiter,) if self.delimiter else ()
        return (*ends, *(one.lock for one in self.arrivals))


def submit_swaps(
    table: TablePaths,
    replica: ReplicaPaths,
    swaps: Sequence[Swap],
    *,
    version: int,
    log_version: int,
    is_lost_version: int,
) -> list[Op]:
    """Add and remove parts in the log and on this replica at one moment (spec §9.6).

    `version` is that of `alter_partition_version` before the numbers were taken. `log_version` and
    `is_lost_version` were read when the log was pulled, before we looked which parts and entries
    the ranges have: so since then nothing was assigned, given up or cloned that would be inside a
    range and stay. (`log_version` is -1, any version, if nothing is removed.) Deleting the locks
    also fences, as in `submit_drops`.
    """
    return [
        *_alone(table, replica, version),
        Check(replica.is_lost, is_lost_version),
        SetData(table.log, b"", log_version),
        *(Create(table.log_prefix, swap.entry, sequence=True) for swap in swaps),
        *release_locks(lock for swap in swaps for lock in swap.locks),
        *(Delete(replica.queue_entry(node)) for swap in swaps for node in swap.nodes),
        *(Delete(replica.part(part)) for swap in swaps for part in swap.parts),
        *(
            Create(replica.part(one.part), one.header)
            for swap in swaps
            for one in swap.arrivals
        ),
        *(
            Create(table.block(one.block_id), str(one.part).encode())
            for swap in swaps
            for one in swap.arrivals
            if one.block_id
        ),
    ]


def cancel_insert(lock: str) -> list[Op]:
    """Cancel the insert that holds this block number: without its lock it can't commit
    (spec §9.2).
    """
    return [Delete(lock)]


@dataclass(frozen=True, slots=True)
class Dropping:
    """The multis of a worker that carries out a drop. `node` is the drop's queue entry, which the
    worker has claimed; `is_lost_version` was read before the queue and the parts.
    """

    replica: ReplicaPaths
    node: str
    is_lost_version: int

    def _guards(self) -> list[Op]:
        """Assert that the claim exists, and that this replica has not given up a part, nor taken
        over another replica's state, since the worker looked: both may have brought entries or
        parts that the worker has not seen.
        """
        return [
            Check(self.replica.claim(self.node)),
            Check(self.replica.is_lost, self.is_lost_version),
        ]

    def remove_entries(self, nodes: Sequence[str]) -> list[Op]:
        """Remove queue entries. A worker that is carrying one of them out can't
        publish any more.
        """
        return [
            *self._guards(),
            *(Delete(self.replica.queue_entry(node)) for node in nodes),
        ]

    def forget_parts(self, parts: Sequence[PartName]) -> list[Op]:
        """Remove parts from those that the replica promises."""
        return [*self._guards(), *(Delete(self.replica.part(part)) for part in parts)]

    def finish(
        self, parts: Sequence[PartName], arrivals: Sequence[tuple[PartName, bytes]] = ()
    ) -> list[Op]:
        """Remove the last parts, the drop's queue entry and its claim, and add `arrivals` (parts
        with the texts of their nodes) in their place: readers see both at one moment.
        """
        return [
            Check(self.replica.is_lost, self.is_lost_version),
            Delete(self.replica.queue_entry(self.node)),
            Delete(self.replica.claim(self.node)),
            *(Delete(self.replica.part(part)) for part in parts),
            *(Create(self.replica.part(part), header) for part, header in arrivals),
        ]


def cut_deletions(names: Sequence[_T], path: Callable[[_T], str]) -> Iterator[Sequence[_T]]:
    """Yield the names in groups, each so small that one multi of a `Dropping` can delete the nodes
    of the whole group: the multi must fit into a packet. `path` gives the path of a name.
    """
    return cut(
        names, lambda name: op_bytes(Delete(path(name))), limits.MULTI_BYTES_MAX - _GUARD_BYTES
    )
