"""The multis of a table that is made again from the disks of its replicas (spec §11.6)."""

from collections.abc import Iterable, Mapping, Sequence

from rmt_pipeline.protocol.nodes.records import Restoring
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, SetData, absent
from rmt_pipeline.zookeeper.paths import SEQUENCE_DIGITS, ReplicaPaths, TablePaths


def begin_anew(
    table: TablePaths, first: str, awaited: Iterable[str], *, metadata: bytes, columns: bytes
) -> list[Op]:
    """The multi that begins to restore a table of which ZooKeeper has nothing: its nodes, and one
    for each replica that is waited for.
    """
    return [
        *transactions.create_table(table, first, metadata, columns),
        Create(table.restoring, Restoring(0).encode()),
        *(Create(table.restoring_replica(name)) for name in sorted(awaited)),
    ]


def begin_again(
    table: TablePaths,
    replicas: Iterable[str],
    awaited: Iterable[str],
    *,
    log: int,
    replicas_version: int,
) -> list[Op]:
    """ZooKeeper has the table as it was some time ago. Nobody is active, or joins it now; whoever
    becomes active afterwards finds out that it is being restored, and is not (`life.start`).
    """
    return [
        Check(table.replicas, replicas_version),
        *(op for name in sorted(replicas) for op in absent(table.replica(name).is_active)),
        *absent(table.restoring_lock),
        Create(table.restoring, Restoring(log).encode()),
        *(Create(table.restoring_replica(name)) for name in sorted(awaited)),
    ]


def reset_replica(
    replica: ReplicaPaths, *, metadata: bytes, columns: bytes, version: int, log: int
) -> list[Op]:
    """What the replica's nodes say of another time is over. Setting `is_lost` refuses whoever acts
    on what was in its queue.
    """
    return [
        SetData(replica.is_lost, b"0"),
        SetData(replica.metadata, metadata),
        SetData(replica.columns, columns),
        SetData(replica.metadata_version, str(version).encode()),
        SetData(replica.log_pointer, str(log).encode()),
        SetData(replica.mutation_pointer),
    ]


def skip_numbers(parent: str, prefix: str, first: int, count: int, version: int) -> list[Op]:
    """Sequence numbers from `first` on that nobody gets any more: made and gone at once. The
    version says that the next one is still `first`.
    """
    made: list[Op] = [Create(prefix, sequence=True) for _ in range(count)]
    gone = [Delete(f"{prefix}{first + number:0{SEQUENCE_DIGITS}d}") for number in range(count)]
    return [SetData(parent, b"", version), *made, *gone]


def open_table(
    table: TablePaths,
    announcements: Mapping[str, int],
    pointers: Iterable[str],
    queued: Sequence[tuple[ReplicaPaths, bytes]],
    *,
    log: int,
    gone: Sequence[str],
) -> list[Op]:
    """The table is whole: its replicas may become active. `announcements`: who was waited for, with
    the version of what they said; nobody else has come, or `restoring` is not empty. `pointers`:
    nodes that say how far each replica has copied the log, which begins for all of them at `log`.
    `queued`: entries that only one replica needs. `gone`: nodes of another time.
    """
    return [
        *(
            Delete(table.restoring_replica(name), version)
            for name, version in announcements.items()
        ),
        *(SetData(pointer, str(log).encode()) for pointer in pointers),
        *(Create(replica.queue_prefix, entry, sequence=True) for replica, entry in queued),
        *(Delete(path) for path in gone),
        Delete(table.restoring),
        Delete(table.restoring_lock),
    ]
