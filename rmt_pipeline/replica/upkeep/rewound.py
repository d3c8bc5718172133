"""Detect a ZooKeeper that has gone back in time: it was restored from an older copy, or it is
another one.

This disk may still know what it has forgotten. Then the parts that look unexpected here have rows
of inserts that were acknowledged, and setting them aside would take these rows out of every answer.
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
from rmt_pipeline.protocol.parts.set import of_disk
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.replica import Replica


class TooManyUnexpectedParts(UserError):
    """So many parts on this disk are unknown to ZooKeeper that a person has to decide."""

    code = "TOO_MANY_UNEXPECTED_DATA_PARTS"


class ZooKeeperIsOlder(TooManyUnexpectedParts):
    """ZooKeeper knows less than this disk has seen of it."""


class BeingRestored(TableIsReadOnly):
    """The replicas are making the table again from their disks, and not all have announced their
    parts.
    """


class TableIsLost(Unavailable):
    """ZooKeeper has no nodes of the table, which this server has."""

    code = "TABLE_IS_READ_ONLY"


def require_no_namesake(replica: Replica) -> TableDefinition | None:
    """Return our definition, adapted to the replica that is in ZooKeeper; None if that one's
    creation is not noted. Raises ReplicaDropped if it belongs to another table.
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
    """Raises BeingRestored, TableIsLost, ReplicaDropped, ZooKeeperIsOlder if what is promised of
    this replica may be less than what is in the table. For readers, which then go on with what they
    knew before.

    `restoring`, which is created together with the replicas, is read after them, because the nodes
    are read one by one. Otherwise:

    1. A reader finds, in an empty ZooKeeper, that nothing is being restored.
    2. Its replica is the first one that is restored: it has some of its promises, and the log
       starts anew.
    3. The reader finds the log no shorter than it was seen.
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


def require_not_restored(replica: Replica) -> None:
    """Raise BeingRestored if the table is being made again from the disks of its replicas."""
    if replica.keeper.exists(replica.table.restoring) is not None:
        raise BeingRestored(
            f"{replica} is being restored from the disks of its replicas, and nothing is cleaned "
            "up until SYSTEM RESTORE REPLICA has been said on all of them"
        )


def require_log_as_seen(replica: Replica, remedy: str = "") -> None:
    """Raise ZooKeeperIsOlder if the log is shorter than this disk has seen it."""
    seen = replica.store.marks.log_seen()
    if not seen or replica.keeper.exists(replica.paths.force_restore_data) is not None:
        return
    replica.keeper.sync(replica.table.root)  # else the answer may be from the past
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
    """Raise ZooKeeperIsOlder if ZooKeeper has forgotten something that this disk knows."""
    require_log_as_seen(replica)
    on_disk = replica.store.parts()
    replica.keeper.sync(replica.table.root)
    promised = frozenset(map(PartName.parse, replica.keeper.children(replica.paths.parts)))
    require_numbers_given_out(replica, [part for part in on_disk if part not in promised])


def remember_replicas(replica: Replica) -> None:
    """Note on the disk which replicas have parts of the table, for when ZooKeeper has lost it."""
    [names] = replica.keeper.children_many([replica.table.replicas])
    if names and tuple(sorted(names)) != replica.store.marks.replicas_seen():
        replica.store.marks.note_replicas(names)


def remember_log(replica: Replica) -> None:
    """Note on the disk how long the log is, for `require_log_as_seen`."""
    log = replica.keeper.exists(replica.table.log)
    if log is not None and log.next_sequence > replica.store.marks.log_seen():
        replica.store.marks.note_log_seen(log.next_sequence)


def require_numbers_given_out(replica: Replica, unexpected: Collection[PartName]) -> None:
    """Raise ZooKeeperIsOlder if one of these parts of this disk, which ZooKeeper does not know, has
    a number that ZooKeeper has never given out.

    A block or a mutation gets its number before any disk has a part of that name. So if the disk
    was listed before the numbers are read, and the session has caught up in between (`sync`), then
    only an older ZooKeeper explains such a part.
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
        )


def _older(replica: Replica, why: str, remedy: str = "") -> ZooKeeperIsOlder:
    # raises if the log is another table's: then ZooKeeper is not older, and RESTORE is no remedy
    require_no_namesake(replica)
    [names] = replica.keeper.children_many([replica.paths.parts])
    known = frozenset(map(PartName.parse, names or ()))
    unexpected = [part for part in replica.store.parts() if part not in known]
    rows, parts = _rows_at_stake(replica, list(of_disk(unexpected)))
    remedy = remedy or (
        "If a newer copy of ZooKeeper can be had, restore that. Else make the table again from the "
        "disks: stop the servers of its other replicas, and say SYSTEM RESTORE REPLICA "
        f"{replica.definition.full_name} (or rmt restore) on each of them. To go on with what "
        "ZooKeeper knows, and set aside the rest in detached/: rmt force-restore-data "
        f"{replica.definition.full_name}"
    )
    return ZooKeeperIsOlder(
        f"{replica}: ZooKeeper is older than this disk: {why}. {rows} rows in {parts} parts here "
        "are unknown to it. Was it restored from an older copy, or is it another one? Nothing was "
        f"changed, and the table stays read-only. {remedy}"
    )


def _rows_at_stake(replica: Replica, parts: Sequence[PartName]) -> tuple[int, int]:
    """Return how many rows and parts there are whose manifest can be read."""
    rows = count = 0
    for part in parts:
        try:
            rows += replica.store.manifest(part).rows
            count += 1
        except Corruption:
            continue
    return rows, count
