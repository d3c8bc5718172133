"""ZooKeeper that has gone back in time: it was restored from an older copy, or it is another one.

What it has forgotten, this disk may still know: then what looks unexpected here are rows of inserts
that were acknowledged, and to set it aside would take them out of every answer.
"""

from collections.abc import Collection, Sequence

from rmt_pipeline.protocol.errors import (
    Corruption,
    ReplicaDropped,
    TableIsReadOnly,
    Unavailable,
    UserError,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.replica import Replica


class TooManyUnexpectedParts(UserError):
    """So much on this disk is unknown to ZooKeeper that a person has to decide."""

    code = "TOO_MANY_UNEXPECTED_DATA_PARTS"


class ZooKeeperIsOlder(TooManyUnexpectedParts):
    """ZooKeeper knows less than this disk has seen of it."""


class BeingRestored(TableIsReadOnly):
    """Its replicas are making the table again from their disks, and not all are there."""


class TableIsLost(Unavailable):
    """ZooKeeper has nothing of the table, which this server has."""

    code = "TABLE_IS_READ_ONLY"


def require_no_namesake(replica: Replica) -> TableDefinition | None:
    """Our definition with the replica that is there; None when that is not noted. Raises
    ReplicaDropped: it is another table's.
    """
    [names] = replica.keeper.children_many([replica.paths.creations])
    found = None if names is None else replica.definition.of_creation(names)
    if names is not None and replica.definition.uuid and found is None:
        raise ReplicaDropped(
            f"{replica.paths.root} in ZooKeeper is not the replica that {replica} had there: that "
            "one was dropped, and another one was created in its place. DROP the table here, and "
            "create it under another replica name"
        )
    return found


def require_promises(replica: Replica) -> None:
    """Raises BeingRestored, TableIsLost, ReplicaDropped, ZooKeeperIsOlder: what is promised of this
    replica is less than what is in the table. For readers, who go on with what was known before.

    `restoring`, which comes with the replicas, is read after them, for they are read one by one:

    1. A reader finds that nothing is being restored, in an empty ZooKeeper. 2. His replica is the
    first one that is: it has some of its promises, and the log starts anew. 3. He finds the log no
    shorter than it was seen.
    """
    table = replica.table
    replicas, log, restoring = replica.keeper.exists_many(
        [table.replicas, table.log, table.restoring]
    )
    if restoring is not None:
        raise BeingRestored(f"{replica} is being restored from the disks of its replicas")
    if replicas is None:
        raise TableIsLost(f"ZooKeeper has nothing of {replica}")
    if log is not None and log.next_sequence < replica.store.marks.log_seen():
        require_log_as_seen(replica)


def require_log_as_seen(replica: Replica, remedy: str = "") -> None:
    """Raises ZooKeeperIsOlder when the log is behind where this disk has seen it."""
    seen = replica.store.marks.log_seen()
    if not seen or replica.keeper.exists(replica.paths.force_restore_data) is not None:
        return
    replica.keeper.sync(replica.table.root)  # else this may be an answer from the past
    log = replica.keeper.exists(replica.table.log)
    if log is not None and log.next_sequence < seen:
        lost = seen - log.next_sequence
        raise _older(
            replica,
            f"its log has {log.next_sequence} entries, and this disk has seen {seen}: {lost} "
            "inserts, merges or mutations are forgotten",
            remedy=remedy,
        )


def require_as_seen(replica: Replica) -> None:
    """Raises ZooKeeperIsOlder when ZooKeeper has forgotten something that this disk knows."""
    require_log_as_seen(replica)
    on_disk = replica.store.parts()
    replica.keeper.sync(replica.table.root)
    promised = frozenset(map(PartName.parse, replica.keeper.children(replica.paths.parts)))
    require_numbers_given_out(replica, [part for part in on_disk if part not in promised])


def remember_replicas(replica: Replica) -> None:
    """Whose disks have parts of the table, for when ZooKeeper does not know it any more."""
    [names] = replica.keeper.children_many([replica.table.replicas])
    if names and tuple(sorted(names)) != replica.store.marks.replicas_seen():
        replica.store.marks.note_replicas(names)


def remember_log(replica: Replica, *, anew: bool = False) -> None:
    """How far the log is now is how far it is to be from now on; `anew`: also if that is less."""
    log = replica.keeper.exists(replica.table.log)
    seen = replica.store.marks.log_seen()
    if log is not None and (log.next_sequence > seen or anew) and log.next_sequence != seen:
        replica.store.marks.note_log_seen(log.next_sequence)


def require_numbers_given_out(replica: Replica, unexpected: Collection[PartName]) -> None:
    """Raises ZooKeeperIsOlder when one of these parts of this disk, which ZooKeeper does not know,
    has a number that it has never given out.

    A block or a mutation has its number before a part of that name is on any disk. So if the disk
    was listed first, and the numbers are read now, in a session that has caught up since, then
    nothing but an older ZooKeeper explains such a part.
    """
    if not unexpected:
        return
    partitions = sorted({part.partition for part in unexpected})
    stats = replica.keeper.exists_many([replica.table.partition(one) for one in partitions])
    given_out = {
        partition: 0 if stat is None else stat.next_sequence
        for partition, stat in zip(partitions, stats, strict=True)
    }
    future = [
        part
        for part in sorted(unexpected)
        if max(part.block_max, part.mutation) >= given_out[part.partition]
    ]
    if future:
        first = future[0]
        raise _older(
            replica,
            f"{len(future)} parts of this disk have numbers that it has never given out, for "
            f"instance {first}: the next one of its partition is {given_out[first.partition]}",
            unexpected,
        )


def _older(
    replica: Replica,
    why: str,
    unexpected: Collection[PartName] | None = None,
    *,
    remedy: str = "",
) -> ZooKeeperIsOlder:
    require_no_namesake(replica)  # whose log is another one: no older ZooKeeper, and no RESTORE
    if unexpected is None:
        [names] = replica.keeper.children_many([replica.paths.parts])
        known = frozenset(map(PartName.parse, names or ()))
        unexpected = [part for part in replica.store.parts() if part not in known]
    rows, parts = _rows_at_stake(replica, list(PartSet(unexpected)))
    remedy = remedy or (
        "If a newer copy of ZooKeeper can be had, restore that. Else make the table again from the "
        "disks: stop the servers of its other replicas, and say SYSTEM RESTORE REPLICA "
        f"{replica.definition.full_name} (or rmt restore) on each of them. To go on with what "
        "ZooKeeper knows, and set aside the rest in detached/, create the node "
        f"{replica.paths.force_restore_data}"
    )
    return ZooKeeperIsOlder(
        f"{replica}: ZooKeeper is older than this disk: {why}. {rows} rows in {parts} parts here "
        "are unknown to it. Was it restored from an older copy, or is it another one? Nothing was "
        f"changed, and the table stays read-only. {remedy}"
    )


def _rows_at_stake(replica: Replica, parts: Sequence[PartName]) -> tuple[int, int]:
    """Rows and parts of those whose manifest can be read."""
    rows = count = 0
    for part in parts:
        try:
            rows += replica.store.manifest(part).rows
            count += 1
        except Corruption:
            continue
    return rows, count
