"""SYSTEM RESTORE REPLICA: ZooKeeper lost the table, and its replicas make it again from the parts
on their disks (spec §11.6).

    ZooKeeper has     ──begin──► T/restoring ──each replica──► every node below ──open──► the table
    no such table                                announces     T/restoring is full

1. **Begin.** SYSTEM RESTORE REPLICA is given on the server of r1. One multi makes the table's
   nodes, the node `T/restoring`, and below it an empty node for each replica that r1's disk has
   known of: these are waited for. As long as `T/restoring` is there no replica becomes active. So
   no block number is given out, and nothing is inserted, merged or cleaned up: a number or a merge
   could be one that a disk knows already. (`_begin`)
2. **Announce.** r1 makes its own nodes what its disk says: its parts, the numbers that they have,
   the inserts that they tell of. The last request writes into `T/restoring/r1` what the others have
   to know: which ranges r1 has dropped, and which parts it never saw promised. Until then the node
   is empty, and the command, repeated, begins this step anew. (`announce`)
3. **Wait.** r2 and r3 do the same, in any order or at once. A replica that will never come is
   removed with SYSTEM DROP REPLICA: that deletes its node below `T/restoring`.
4. **Open.** A process that finds that no node below `T/restoring` is empty takes the lock
   `T/restoring_lock`, which goes with its session, and decides which parts are the table
   (`protocol.restoring`). Parts keep their names, for these say which rows are in two parts of two
   disks: nothing is renamed, copied or attached. A copy that is not in the table is given up: its
   promise is deleted, and its bytes go to `detached/` when its server starts. All parts go into the
   log, so that the others fetch them. The last multi asserts that no replica has come or gone, and
   deletes `T/restoring` and the lock. (`opening`)
5. **Start.** Each server starts its replica as after any other crash.

What may come in between:

* A process dies at any step: the command, repeated, or a server that starts, goes on. Each request
  of step 2 asserts the version of the node below `T/restoring`, and each one of step 4 belongs to
  the session of the lock: no late request of a dead process lands.
* A replica is dropped after another one has given up a copy for it, and before the table is open:
  the other one announces its parts again (`opening._open_locked`).
* ZooKeeper was not lost, but restored from an older copy: then step 1 makes `T/restoring` in the
  table that is there, if no replica is active, and step 2 corrects what the copy says.
* The table was opened without a replica, and works: that replica joins it as a new one does, and
  clones. Of its parts those stay that others have, too; the rest goes to `detached/`. (`latecomer`)

All requests go through the session itself: what `BoundKeeper` asserts of a replica is made here.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, MissingPart, UserError
from rmt_pipeline.replica.life.announce import announce, texts_of
from rmt_pipeline.replica.life.disk_parts import DiskParts, parts_of_disk
from rmt_pipeline.replica.life.drop import remove_leftovers
from rmt_pipeline.replica.life.known_inserts import unbound
from rmt_pipeline.replica.life.latecomer import join_late
from rmt_pipeline.replica.life.opening import given_up_words, open_restored
from rmt_pipeline.replica.life.restoring import NothingToRestore, Restored, at_work, awaited
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.rewound import (
    BeingRestored,
    ZooKeeperIsOlder,
    require_as_seen,
    require_log_as_seen,
    require_no_namesake,
)
from rmt_pipeline.zookeeper import restore_transactions
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Keeper,
    Op,
    RefusalKind,
    Refused,
)
from rmt_pipeline.zookeeper.paths import ancestors
from rmt_pipeline.zookeeper.snapshot import living_replicas

_OPENINGS_MAX = 3  # tries of one call, if replicas are dropped meanwhile


def restore(replica: Replica, creator: bytes) -> Restored:
    """Announce this disk's parts, and open the table if no other replica is waited for.

    Raises NothingToRestore; UserError if the table is active, or other replicas have to be restored
    first; Conflict if another process restores or removes the table: repeat it.
    """
    replica = replace(replica)  # it becomes another one: not the one that other threads mean
    keeper, table = replica.session, replica.table
    keeper.sync("/")  # else a ZooKeeper server that is behind may answer with an older table
    disk = parts_of_disk(replica)
    is_begun = _begin(replica)
    for part in replica.store.marks.given_up():  # from now on another part may have its name
        replica.store.marks.looked_again(part)
    if not is_begun:
        return join_late(replica, creator, disk)
    for _ in range(_OPENINGS_MAX):
        disk, inserts = _announced(replica, creator, disk)
        waits_for = awaited(keeper, table)
        united = None if waits_for else open_restored(replica)
        if not waits_for and united is None:
            waits_for = awaited(keeper, table)
        if replica.name not in waits_for:
            break
    return Restored(
        parts=len(disk.parts),
        rows=sum(manifest.rows for manifest in disk.parts.values()),
        inserts=inserts,
        left_out=tuple((str(part), reason) for part, reason in disk.left_out),
        given_up=() if united is None else tuple(given_up_words(united)),
        waits_for=waits_for,
        opened=united is not None,
    )


def _announced(replica: Replica, creator: bytes, disk: DiskParts) -> tuple[DiskParts, int]:
    """Announce what is on the disk, and return that, and the number of inserts that are known
    again.
    """
    for _ in range(limits.LOOK_ROUNDS_MAX):
        try:
            return disk, announce(replica, creator, disk)
        except MissingPart as missing:
            gone = missing
            disk = parts_of_disk(replica)
    raise Conflict(
        f"{replica}: a clean-up, which began before, is removing parts: {gone}. Say it again"
    )


def require_not_restoring(replica: Replica) -> None:
    """Raise BeingRestored, which says what to do, if the table is being restored. If all replicas
    have announced their parts, and the process of the last one died before it opened the table, the
    table is opened here.
    """
    keeper, table = replica.session, replica.table
    [names] = keeper.children_many([table.restoring])
    if names is None:
        return
    waits_for = awaited(keeper, table)
    if replica.name in names and not waits_for:
        open_restored(replica)
        waits_for = awaited(keeper, table)
        if not waits_for:
            return
    todo = []
    if replica.name not in names or replica.name in waits_for:
        todo.append(f"say SYSTEM RESTORE REPLICA {replica.definition.full_name} on this server")
    others = ", ".join(name for name in waits_for if name != replica.name)
    if others:
        todo.append(
            f"say it on {others}, or, of one that is gone for good, SYSTEM DROP REPLICA"
        )
    raise BeingRestored(
        f"{replica} is being restored from the disks of its replicas, and read-only until all are "
        f"there: {'; '.join(todo) or 'somebody is opening it'}"
    )


# --- beginning


def _begin(replica: Replica) -> bool:
    """Begin to restore the table. True: it is being restored now, and this replica is waited for.
    False: the table is there and not being restored, so this replica has to join it.

    Raises NothingToRestore, ReplicaDropped (another one was created in its place), UserError,
    Conflict.
    """
    for _ in range(limits.CREATE_TABLE_ROUNDS_MAX):
        require_no_namesake(replica)
        begun = _begun(replica)
        if begun is not None:
            return begun
    raise Conflict(
        f"{replica.table.root}: others created and dropped the table "
        f"{limits.CREATE_TABLE_ROUNDS_MAX} times while we tried; try again"
    )


def _begun(replica: Replica) -> bool | None:
    """Try once what `_begin` does; None if the table changed meanwhile: look again."""
    keeper, table, paths = replica.session, replica.table, replica.paths
    restoring, replicas, dropped, host, active = keeper.exists_many(
        [table.restoring, table.replicas, table.dropped, paths.host, paths.is_active]
    )
    if restoring is not None:
        return _is_awaited(replica)
    if dropped is not None:
        remove_leftovers(keeper, table)
        return None
    if replicas is None:
        return _sent(keeper, _ops_anew(replica))
    if active is not None:
        raise NothingToRestore(f"{replica} is active: there is nothing to restore")
    if host is None:
        _require_known_ones_first(replica)
        return False
    try:
        require_as_seen(replica)  # also if ZooKeeper is as before the first start
    except ZooKeeperIsOlder:
        return _sent(keeper, _ops_again(replica))
    if not host.data_length:
        return False
    raise NothingToRestore(
        f"{replica} is in ZooKeeper, which knows all that this disk has seen of it: there is "
        "nothing to restore; rmt status says why it is not active"
    )


def _require_known_ones_first(replica: Replica) -> None:
    """Raise ZooKeeperIsOlder if this replica, which an older copy of ZooKeeper does not know, would
    be restored before those that the copy knows:

    1. ZooKeeper goes back to before r2 was created. r2 has rows that r1 had yet to fetch.
    2. r2 is restored first. To the copy it is a replica that joins, and what no other one has is
       set aside: those rows leave the table. If r1 had been first, it would have waited for r2, and
       r2 would have announced them.

    If a replica is active and works with what the copy says, it is too late: then this one joins.
    """
    living = living_replicas(replica.session, replica.table)
    if not living or any(living.values()):
        return
    name = replica.definition.full_name
    require_log_as_seen(
        unbound(replica),
        f"It does not know this replica: say SYSTEM RESTORE REPLICA {name} (or rmt restore) on the "
        f"servers of {', '.join(living)} first, and then here; or, of one that is gone for good, "
        "SYSTEM DROP REPLICA. If the table is what they know, start one of them: then this replica "
        "joins it, and what nobody else has is set aside in detached/",
    )


def _is_awaited(replica: Replica) -> bool | None:
    """Make this replica one of those that are waited for, even if the one that began the restore
    does not know of it, and return True. None if the restore has ended meanwhile.
    """
    table = replica.table
    node = Create(table.restoring_replica(replica.name))
    with suppress(Refused):
        replica.session.multi([Check(table.restoring), node])
    there = replica.session.exists(table.restoring_replica(replica.name))
    return True if there is not None else None


def _sent(keeper: Keeper, ops: Sequence[Op]) -> bool | None:
    try:
        keeper.multi(ops)
    except Refused as refused:
        if refused.path.endswith("/is_active") and refused.kind is RefusalKind.NODE_EXISTS:
            raise UserError(
                f"{refused.path} is there: that replica works with what ZooKeeper knows. Stop its "
                "server, and then restore the table on all of them"
            ) from refused
        if refused.path.endswith("/restoring_lock"):
            raise at_work(refused) from refused
        return None
    return True


def _known_replicas(replica: Replica) -> set[str]:
    return {replica.name, *replica.store.marks.replicas_seen()}


def _ops_anew(replica: Replica) -> list[Op]:
    missing = ancestors(replica.table.root)
    for path, stat in zip(missing, replica.session.exists_many(missing), strict=True):
        if stat is None:
            with suppress(Refused):
                replica.session.multi([Create(path)])
    metadata, columns = texts_of(replica)
    return restore_transactions.begin_anew(
        replica.table,
        replica.name,
        _known_replicas(replica),
        metadata=metadata,
        columns=columns,
    )


def _ops_again(replica: Replica) -> list[Op]:
    names, stat = replica.session.children_stat(replica.table.replicas)
    log = replica.session.exists(replica.table.log)
    return restore_transactions.begin_again(
        replica.table,
        names,
        _known_replicas(replica) | set(names),
        log=0 if log is None else log.next_sequence,
        replicas_version=stat.version,
    )
