"""The multis of the commands on partitions and parts (spec §9), as operations."""

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
        *_alone(table, replica, version),
        SetData(table.log),
        *(Create(table.log_prefix, drop.entry, sequence=True) for drop in drops),
        *release_locks(drop.lock for drop in drops),
    ]


def _alone(table: TablePaths, replica: ReplicaPaths, version: int) -> list[Op]:
    """No other command on partitions was decided since it had this version."""
    return [
        Check(replica.is_active),
        SetData(table.alter_partition_version, b"", version),
    ]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A part that this replica has once it is in the log, and the lock of its number."""

    part: PartName
    header: bytes
    lock: str
    block_id: str = ""


@dataclass(frozen=True, slots=True)
class Swap:
    """One entry, and what it does at once on the replica that writes it: `arrivals` come, `parts`
    and the entries at the queue `nodes` go. `delimiter`: the lock of the number that ends the range
    of what goes; "" when nothing does.
    """

    entry: bytes
    delimiter: str = ""
    arrivals: tuple[Arrival, ...] = ()
    nodes: tuple[str, ...] = ()
    parts: tuple[PartName, ...] = ()

    @property
    def locks(self) -> tuple[str, ...]:
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
    """Parts come and go in the log, and on this replica, at one moment (spec §9.6).

    `version` is that of `alter_partition_version`, before the numbers were taken. `log_version` was
    read when the log was pulled, before it was looked what goes, and `is_lost_version` with it: so
    nothing was assigned, given up or cloned since, which could be in the ranges and stay. (-1, when
    nothing goes.) Deleting the locks also fences, as in `submit_drops`.
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

    def finish(
        self, parts: Sequence[PartName], arrivals: Sequence[tuple[PartName, bytes]] = ()
    ) -> list[Op]:
        """The last parts go, and with them the entry and its claim. `arrivals` with their headers
        come in their place, at the same moment for whoever reads.
        """
        return [
            Check(self.replica.is_lost, self.is_lost_version),
            Delete(self.replica.queue_entry(self.node)),
            Delete(self.replica.claim(self.node)),
            *(Delete(self.replica.part(part)) for part in parts),
            *(Create(self.replica.part(part), header) for part, header in arrivals),
        ]


def cut_deletions(names: Sequence[_T], path: Callable[[_T], str]) -> Iterator[Sequence[_T]]:
    """The names in groups, such that one multi of a `Dropping` can delete all of a group: it must
    fit into a packet.
    """
    return cut(
        names, lambda name: op_bytes(Delete(path(name))), limits.MULTI_BYTES_MAX - _GUARD_BYTES
    )
