"""The multis of ALTER (spec §8), as lists of operations, and its reads."""

from collections.abc import Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.alter.history import AlterRecord
from rmt_pipeline.protocol.nodes.formats import number_of
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Keeper, Op, SetData, Stat
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths, log_entry_name
from rmt_pipeline.zookeeper.snapshot import gone
from rmt_pipeline.zookeeper.transactions import release_locks


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the log ended before we looked at what the table contains.

    `number` is that of the next log entry, `pointer` the version of this replica's log pointer.
    """

    number: int
    pointer: int


@dataclass(frozen=True, slots=True)
class AlterVersions:
    """The versions of the table's nodes when an ALTER was decided on, and how many ALTERs this
    replica has applied.
    """

    metadata: int
    columns: int
    alters: int | None
    """None: the table was created by a version that did not have this node."""
    mutations: int
    applied: int
    end: LogEnd | None = None
    """If given, the ALTER is refused if an entry was added to the log since. None: entries may have
    been added.
    """


def alter_versions(keeper: Keeper, table: TablePaths, replica: ReplicaPaths) -> AlterVersions:
    """Read the versions of the table's nodes that guard an ALTER, and how many ALTERs this replica
    has applied. Raises ReplicaDropped when the table or the replica is gone.
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
        applied=number_of(applied[0]),
    )


def read_at_once(keeper: Keeper, paths: Sequence[str]) -> list[tuple[bytes, Stat]] | None:
    """The nodes at `paths` as they were at one moment (`as_of_one_moment`); None if one of them is
    missing.
    """
    reads = as_of_one_moment(keeper, paths)
    found = [read for read in reads if read is not None]
    return found if len(found) == len(reads) else None


def as_of_one_moment(keeper: Keeper, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
    """Read the nodes at `paths` as they were at one moment; None for each that is missing.

    Each multi that changes one of these nodes must change the first one, too: if the first node is
    the same before and after the reads, none has changed in between. Without that:

    1. A clone reads that its source's structure has version 1.
    2. The source applies ALTER 2.
    3. The clone reads the source's columns, which are those of version 2, and takes them for
       version 1.
    """
    while True:
        *reads, again = keeper.get_many([*paths, paths[0]])
        if again == reads[0]:
            return reads


def log_end(keeper: Keeper, table: TablePaths, replica: ReplicaPaths) -> LogEnd:
    """Read where the log ends; to be called before reading what the table contains.

    The pointer is read first. If an entry is written and copied between the two reads, its version
    is an old one, and a multi that asserts it is refused. Raises ReplicaDropped.
    """
    pointer, log = keeper.exists_many([replica.log_pointer, table.log])
    if log is None or pointer is None:
        raise gone(replica)
    return LogEnd(log.next_sequence, pointer.version)


def alter_records(keeper: Keeper, table: TablePaths, version: int) -> list[AlterRecord]:
    """The records of the ALTERs up to and including `version`, in their order."""
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
    """The texts that an ALTER writes.

    `mutation` is the entry of the mutation that rewrites data; None if there is none. `lock` is the
    path of the lock of one of the mutation's block numbers, "" if there is none.
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
    """Write the next version of the table's structure, the ALTER's record, its log entry, and the
    mutation of the data, all or none.

    The version of `metadata` asserts that this replica has applied every ALTER before; that of
    `mutations` that no mutation was created since we looked (§7.1, §8.1). The multi deletes the
    lock. Once the lock is gone, another copy of this multi that is still on its way is refused,
    and merges may span the mutation's block numbers.

    With `seen.end` the multi also asserts that no entry was added to the log since, so no rows
    either (an insert changes none of the versions above). It does so by creating the log entry
    under the number that came next then: if another entry has taken that name, the multi is
    refused. The version of our log pointer asserts that no clean-up has deleted such an entry,
    since entries that we have not pulled are kept.
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
    """Settle a submission that got no answer: this multi and `submit_alter` need the same version
    of `alters`, so only one of the two can still succeed.
    """
    assert seen.alters is not None
    return [SetData(table.alters, b"", seen.alters)]


def create_alters(table: TablePaths) -> list[Op]:
    """Create the node whose version orders ALTERs, in a table that an older version created
    without it.
    """
    return [Create(table.alters)]


def applied_alter(
    replica: ReplicaPaths, node: str, *, metadata: bytes, columns: bytes, version: int
) -> list[Op]:
    """Note that this replica has the new structure, and remove the queue entry (spec §8.2)."""
    return [
        Delete(replica.queue_entry(node)),
        SetData(replica.metadata, metadata),
        SetData(replica.columns, columns),
        SetData(replica.metadata_version, str(version).encode()),
    ]
