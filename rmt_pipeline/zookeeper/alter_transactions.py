"""The multis and reads of ALTER (spec §8), as operations; nothing is sent here but reads."""

from collections.abc import Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.alter.history import AlterRecord
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Keeper, Op, SetData, Stat
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths, log_entry_name
from rmt_pipeline.zookeeper.snapshot import gone
from rmt_pipeline.zookeeper.transactions import release_locks


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the log ended when it was found out what is in the table: the number that the next
    entry gets, and the version of this replica's pointer then.
    """

    number: int
    pointer: int


@dataclass(frozen=True, slots=True)
class AlterVersions:
    """What the table's nodes were when an ALTER was decided, and what this replica has applied."""

    metadata: int
    columns: int
    alters: int | None
    """None: the table was made before there was this node."""
    mutations: int
    applied: int
    end: LogEnd | None = None
    """Nothing may have come into the log since. None: it may."""


def alter_versions(keeper: Keeper, table: TablePaths, replica: ReplicaPaths) -> AlterVersions:
    """The versions by which an ALTER is checked: of the table's nodes, and how many ALTERs this
    replica has applied. Raises ReplicaDropped when the table or the replica is gone.
    """
    paths = [table.metadata, table.columns, table.alters, table.mutations]
    metadata, columns, alters, mutations, applied = keeper.get_many(
        [*paths, replica.metadata_version]
    )
    if metadata is None or columns is None or mutations is None or applied is None:
        raise gone(replica)
    return AlterVersions(
        metadata=metadata[1].version,
        columns=columns[1].version,
        alters=None if alters is None else alters[1].version,
        mutations=mutations[1].version,
        applied=int(applied[0] or b"0"),
    )


def read_at_once(keeper: Keeper, paths: Sequence[str]) -> list[tuple[bytes, Stat]] | None:
    """The nodes of a structure as they were at one moment. None: one is missing."""
    reads = as_of_one_moment(keeper, paths)
    found = [read for read in reads if read is not None]
    return found if len(found) == len(reads) else None


def as_of_one_moment(keeper: Keeper, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
    """What the nodes were together: whatever changes one of them, changes the first one in the same
    multi.

    1. A clone reads that its source is at version 1. 2. The source applies ALTER 2. 3. The clone
    reads the columns: those of version 2, as which nobody would know them.
    """
    while True:
        *reads, again = keeper.get_many([*paths, paths[0]])
        if again == reads[0]:
            return reads


def log_end(keeper: Keeper, table: TablePaths, replica: ReplicaPaths) -> LogEnd:
    """To be asked before looking at what is in the table. Raises ReplicaDropped."""
    log, pointer = keeper.exists_many([table.log, replica.log_pointer])
    if log is None or pointer is None:
        raise gone(replica)
    return LogEnd(log.next_sequence, pointer.version)


def alter_records(keeper: Keeper, table: TablePaths, version: int) -> list[AlterRecord]:
    """What the ALTERs up to this version did, in their order."""
    [names] = keeper.children_many([table.alters])
    wanted = [number for number in map(int, names or ()) if number <= version]
    reads = keeper.get_many([table.alter(number) for number in wanted])
    return [
        AlterRecord.decode(read[0], number)
        for number, read in zip(wanted, reads, strict=True)
        if read is not None
    ]


@dataclass(frozen=True, slots=True)
class AlterTexts:
    """What an ALTER writes. `mutation` is the entry of its data part; None without one. `lock` is
    that of one of its numbers, "" without one.
    """

    metadata: bytes
    columns: bytes
    record: bytes
    entry: bytes
    mutation: bytes | None
    lock: str = ""


def submit_alter(
    table: TablePaths, replica: ReplicaPaths, texts: AlterTexts, seen: AlterVersions
) -> list[Op]:
    """The next version of the table's structure, its record, its log entry, and the mutation of
    its data, or none of them. The version of `metadata` says that this replica has applied every
    ALTER before; that of `mutations` that no mutation came since they were looked at (§7.1, §8.1).
    Once the lock is gone, a copy that is still under way can't land: merges may then span the
    mutation's numbers.

    With `seen.end` nothing has come into the log since: no rows either, of which no version tells.
    The entry gets the very name that the next one would have got. While our pointer stays where it
    is, no clean-up takes away what has got that name.
    """
    assert seen.alters is not None
    entry, guards = Create(table.log_prefix, texts.entry, sequence=True), list[Op]()
    if seen.end is not None:
        entry = Create(table.log_entry(log_entry_name(seen.end.number)), texts.entry)
        guards = [Check(replica.log_pointer, seen.end.pointer)]
    ops: list[Op] = [
        Check(replica.is_active),
        SetData(table.metadata, texts.metadata, seen.metadata),
        SetData(table.columns, texts.columns, seen.columns),
        SetData(table.alters, b"", seen.alters),
        Create(table.alter(seen.metadata + 1), texts.record),
        entry,
        SetData(table.mutations, b"", seen.mutations)
        if texts.mutation is not None
        else Check(table.mutations, seen.mutations),
    ]
    if texts.mutation is not None:
        ops.append(Create(f"{table.mutations}/", texts.mutation, sequence=True))
    ops += guards
    return [*ops, *release_locks([texts.lock] if texts.lock else [])]


def fence_alter(table: TablePaths, seen: AlterVersions) -> list[Op]:
    """Settles a submission without answer: only one of the two can still succeed."""
    assert seen.alters is not None
    return [SetData(table.alters, b"", seen.alters)]


def create_alters(table: TablePaths) -> list[Op]:
    """Make the node that numbers the table's ALTERs: that of a table which an older version
    created.
    """
    return [Create(table.alters)]


def applied_alter(
    replica: ReplicaPaths, node: str, *, metadata: bytes, columns: bytes, version: int
) -> list[Op]:
    """This replica is at the new structure, and the queue entry is gone (spec §8.2)."""
    return [
        Delete(replica.queue_entry(node)),
        SetData(replica.metadata, metadata),
        SetData(replica.columns, columns),
        SetData(replica.metadata_version, str(version).encode()),
    ]
