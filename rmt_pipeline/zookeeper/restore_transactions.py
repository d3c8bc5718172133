"""The multis that restore a table from the disks of its replicas (spec §11.6).

`replica.life.restore` describes the steps.
"""

from collections.abc import Iterable, Mapping, Sequence

from rmt_pipeline.protocol.nodes.records import Restoring
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, SetData, absent
from rmt_pipeline.zookeeper.paths import SEQUENCE_DIGITS, ReplicaPaths, TablePaths


def begin_anew(
    table: TablePaths, first: str, awaited: Iterable[str], *, metadata: bytes, columns: bytes
) -> list[Op]:
    """Begin to restore a table of which ZooKeeper has nothing: create its nodes, `restoring`, and
    below that a node for each replica that is `awaited`. `first` is the replica that begins.
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
    """Begin to restore a table that ZooKeeper has as it was some time ago.

    The multi asserts that none of the `replicas` is active and that no process is joining or
    opening the table. A replica that starts afterwards finds `restoring`, and does not stay active
    (`life.start`). `log` is the number of the log entry that comes next.
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
    """Overwrite what the replica's nodes say of an earlier time.

    Setting `is_lost` gives it a new version, so a process that acts on what was in the replica's
    queue is refused.
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
    """Use up `count` sequence numbers from `first` on, so that they are never given out: each node
    is created and deleted in the same multi. `version`, of `parent`, asserts that the next number
    is still `first`.
    """
    made: list[Op] = [Create(prefix, sequence=True) for _ in range(count)]
    gone = [Delete(f"{prefix}{first + number:0{SEQUENCE_DIGITS}d}") for number in range(count)]
    return [SetData(parent, b"", version), *made, *gone]


def open_table(
    table: TablePaths,
    announcements: Mapping[str, int],
    replicas: Sequence[ReplicaPaths],
    queued: Sequence[tuple[ReplicaPaths, bytes]],
    *,
    log: int,
    not_lost: Mapping[str, int],
    gone: Sequence[str],
) -> list[Op]:
    """Open the restored table: its replicas may become active.

    `announcements` are the replicas that the restore waited for, with the version of what each
    announced; if another replica has been added since, `restoring` can't be deleted and the multi
    is refused. The `replicas` will copy the log from entry `log` on. `queued` are entries for the
    queue of one replica. `gone` are nodes of an earlier time, to be deleted.

    The parts of all replicas have come into the log without block numbers being held meanwhile. So
    its version changes: a merge that a worker chose among the parts of its replica alone is
    refused, since it may go across parts of others. And `is_lost` gets a new version: a worker that
    saw nothing left to do for a mutation, which an older copy of ZooKeeper knows, had not seen what
    comes from others. `not_lost` has the paths and versions of those that say "0": a replica whose
    drop has begun stays lost.
    """
    return [
        *(
            Delete(table.restoring_replica(name), version)
            for name, version in announcements.items()
        ),
        *(SetData(path, b"0", version) for path, version in not_lost.items()),
        *(SetData(one.log_pointer, str(log).encode()) for one in replicas),
        *(Create(replica.queue_prefix, entry, sequence=True) for replica, entry in queued),
        *(Delete(path) for path in gone),
        *transactions.bump_log(table),
        Delete(table.restoring),
        Delete(table.restoring_lock),
    ]
