"""Drop a replica: its nodes are removed, and with the last replica the whole table (spec §11.9).

The process that drops may die anywhere. Then the same DROP, a CREATE of the same table, or the
server when it looks, goes on. No step leaves anything that these can't get past:

    catalog: the table becomes a drop to finish
      ──► R: lock, is_lost, host, all else, R and the lock ──► T, if R was its last
        ──► the bytes ──► catalog: the name is free

Two processes never remove one replica at the same time: `R/dropping` is an ephemeral lock. It goes
in the multi that removes `R`, or with the session that made it. Since ZooKeeper carries out nothing
of a session after its end, a late delete of a dead process never meets a replica that was made
since.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.entries import DroppedTable, UnfinishedDrop
from rmt_pipeline.protocol.errors import Conflict, ReplicaIsActive, UserError
from rmt_pipeline.protocol.nodes.tasks import DATABASE_MARK
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Keeper,
    Op,
    RefusalKind,
    Refused,
    SetData,
    Stat,
    absent,
)
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from rmt_pipeline.zookeeper.strays import Stray, give_back, seen_to
from rmt_pipeline.zookeeper.trees import TRIES_MAX, delete_tree, delete_trees, is_written_to

_TABLE = ("block_numbers", "columns", "replicas")  # children of the root of a table


def drop_table(
    catalog: Catalog,
    keeper: Keeper,
    definition: TableDefinition,
    store_of: Callable[[TableDefinition], PartStore],
) -> None:
    """DROP TABLE of a table that is in the catalog. Raises UnknownTable, Conflict; after any error
    but UnknownTable the drop has begun and is to be resumed.
    """
    with catalog.begin_drop(definition, replica_czxid(keeper, definition)) as drop:
        _carry_out(catalog, keeper, drop, store_of)


def replica_czxid(keeper: Keeper, definition: TableDefinition) -> int:
    """Return the transaction that made the table's replica. 0 if there is no such replica, or if
    the one there belongs to another table by now, and must not be removed with this one.
    """
    replica = ReplicaPaths(definition.engine.root)
    stat = keeper.exists(replica.root)
    [creations] = keeper.children_many([replica.creations])
    if stat is None or not definition.may_be(creations or ()):
        return 0
    return stat.created_zxid


def remove_dropped(
    catalog: Catalog,
    keeper: Keeper,
    dropped: DroppedTable,
    store_of: Callable[[TableDefinition], PartStore],
) -> bool:
    """Remove a table that DROP TABLE without SYNC has left for later. Return False if it was taken
    back, or another process was faster. If the process dies, the next call goes on. Raises
    Conflict.
    """
    with catalog.begin_removal(dropped) as drop:
        if drop is not None:
            _remove(keeper, drop, store_of)
            catalog.end_removal(drop.definition)
    return drop is not None


def resume_drop(
    catalog: Catalog,
    keeper: Keeper,
    database: str,
    name: str,
    store_of: Callable[[TableDefinition], PartStore],
) -> bool:
    """Finish a drop that was cut off. Return False if there is none. Raises Conflict while another
    process finishes it.
    """
    with catalog.resume_drop(database, name) as drop:
        if drop is not None:
            _carry_out(catalog, keeper, drop, store_of)
    return drop is not None


def _carry_out(
    catalog: Catalog,
    keeper: Keeper,
    drop: UnfinishedDrop,
    store_of: Callable[[TableDefinition], PartStore],
) -> None:
    _remove(keeper, drop, store_of)
    catalog.end_drop(drop.definition)


def _remove(
    keeper: Keeper, drop: UnfinishedDrop, store_of: Callable[[TableDefinition], PartStore]
) -> None:
    engine = drop.definition.engine
    table = TablePaths(engine.zookeeper_path)
    drop_replica(keeper, table, engine.replica, made_in=drop.replica_czxid)
    store_of(drop.definition).destroy()


def drop_replica(
    keeper: Keeper, table: TablePaths, name: str, *, made_in: int | None = None
) -> bool:
    """Remove one replica. Return True if it was the last one and the table is gone too.

    First comes `is_lost`, so that a half-removed replica is never cloned; then `host`, whose
    absence says "dropped"; then `creation`: from here on no process that takes the replica for its
    own writes below it. Repeated after any interruption, this finishes the removal. With `made_in`,
    a replica that was made in another transaction is left alone: with 0 every one is. Raises
    Conflict while another process removes it.
    """
    replica = table.replica(name)
    with _alone(keeper, replica, made_in) as is_there:
        if is_there:
            for op in (SetData(replica.is_lost, b"1"), Delete(replica.host)):
                _quietly(keeper, op)
            delete_tree(keeper, replica.creations)
            _delete_with_lock(keeper, replica)
    _await_no_more(keeper, table, name)
    if keeper.exists(table.dropped) is not None:
        remove_leftovers(keeper, table)
        return True
    return drop_table_without_replicas(keeper, table)


def _await_no_more(keeper: Keeper, table: TablePaths, name: str) -> None:
    """If the other replicas are restoring the table, do not let them wait for the removed replica;
    and what it has announced is no part of the table.
    """
    awaited = table.restoring_replica(name)
    root, stat = keeper.exists_many([table.replica(name).root, awaited])
    if root is None and stat is not None:
        _quietly(keeper, Delete(awaited))


def drop_dead_replica(keeper: Keeper, table: TablePaths, name: str) -> bool:
    """SYSTEM DROP REPLICA: like `drop_replica`, for a replica whose server is gone for good. Return
    True if it was the last one and the table is gone too. A removal that was cut off is finished.

    The multi that marks the replica as lost asserts that it is not active: a replica that becomes
    active after that finds the mark, and would have to clone another one first. It also asserts
    which replica it is:

    1. P and Q drop the dead R at once, and both have found it.
    2. P removes R, and its user makes a new R.
    3. Q is about to remove R.

    Raises NoSuchReplica; ReplicaIsActive; Conflict while another process removes it.
    """
    replica = table.replica(name)
    # r1/parts is a node of r1, and '' stands for the parent of all
    if not name or "/" in name:
        raise _no_replica(keeper, table, name)
    root, meant = _found(keeper, replica)
    above, dropped, awaited = keeper.get_many(
        [table.root, table.dropped, table.restoring_replica(name)]
    )
    _require_no_database(table, above)
    # others are restoring the table, and this one will never announce its parts
    if awaited is not None:
        _quietly(keeper, Delete(table.restoring_replica(name)))
        # It may nevertheless have made its nodes until now. From now on it can't.
        root, meant = _found(keeper, replica)
        if root is None:
            return False
    if root is None and dropped is None:
        raise _no_replica(keeper, table, name)
    if root is not None:
        try:
            keeper.multi([*meant, *absent(replica.is_active), SetData(replica.is_lost, b"1")])
        except Refused as refused:
            if refused.kind is RefusalKind.NODE_EXISTS:
                raise ReplicaIsActive(
                    f"replica {name!r} of {table.root} is active: its server runs. DROP TABLE "
                    "there, or stop the server first"
                ) from refused
            if refused.path in {op.path for op in meant}:
                raise Conflict(
                    f"{replica.root} is being removed, or made again, by another process; look "
                    "what is there, and try again"
                ) from refused
            if refused.kind is not RefusalKind.NO_NODE:  # else another process is removing it
                raise
    # of a table whose removal was cut off, no replica is meant
    return drop_replica(keeper, table, name, made_in=0 if root is None else root.created_zxid)


def _found(keeper: Keeper, replica: ReplicaPaths) -> tuple[Stat | None, list[Op]]:
    """Return the node of the replica that is there, and what asserts that it still is that one, if
    its creation was noted.
    """
    while True:
        root = keeper.exists(replica.root)
        [creations] = keeper.children_many([replica.creations])
        if keeper.exists(replica.root) == root:
            return root, [Check(replica.creation(one)) for one in creations or ()]


def drop_put_away(
    keeper: Keeper, table: TablePaths, name: str, note_version: int | None
) -> None:
    """Remove a replica whose table was dropped, as its note of this version says (None: its removal
    had begun), unless that is not so any more:

    1. R's table was dropped. P and Q create the table at once, and both read the note.
    2. P removes R, and makes a new R, which its server has yet to make active.
    3. Q is about to remove R: the new one is not active, as the old one was not.

    So the multi that marks R as lost asserts which replica it is, and that its note is still there;
    UNDROP removes the note first. Raises ReplicaIsActive, Conflict while another process removes R.
    """
    replica = table.replica(name)
    root, meant = _found(keeper, replica)
    if root is None:
        return
    if keeper.exists(replica.host) is not None:
        if note_version is None:
            return
        meant += [Check(replica.detached, note_version), *absent(replica.is_active)]
        try:
            keeper.multi([*meant, SetData(replica.is_lost, b"1")])
        except Refused as refused:
            if refused.kind is RefusalKind.NODE_EXISTS:
                raise ReplicaIsActive(
                    f"replica {name!r} of {table.root} is active"
                ) from refused
            return  # it was taken back, or removed
    drop_replica(keeper, table, name, made_in=root.created_zxid)


class NoSuchReplica(UserError):
    """The table has no replica of that name in ZooKeeper. Nothing was removed."""


def _require_no_database(table: TablePaths, root: tuple[bytes, Stat] | None) -> None:
    """Raises NoSuchReplica for the path of a Replicated database, which has `replicas`, too."""
    if root is not None and root[0].startswith(DATABASE_MARK):
        raise NoSuchReplica(
            f"{table.root} is the path of a Replicated database, not of a table; of its replicas: "
            "SYSTEM DROP DATABASE REPLICA"
        )


def _no_replica(keeper: Keeper, table: TablePaths, name: str) -> NoSuchReplica:
    known = ", ".join(_replicas_of(keeper, table)) or "none"
    return NoSuchReplica(f"{table.root} has no replica {name!r}; it has: {known}")


def _replicas_of(keeper: Keeper, table: TablePaths) -> list[str]:
    [names] = keeper.children_many([table.replicas])
    return sorted(names or [])


@contextmanager
def _alone(keeper: Keeper, replica: ReplicaPaths, made_in: int | None) -> Iterator[bool]:
    """Hold the replica's drop lock; yields whether the replica is there and is the one that is
    meant. A drop that fails gives the lock back, so that another process can go on while our
    session lives.
    """
    lock = _lock(keeper, replica.dropping)
    if not _take(keeper, lock, replica.root):
        yield False
        return
    with _held(keeper, lock):
        stat = keeper.exists(replica.root)
        is_meant = made_in is None or (stat is not None and stat.created_zxid == made_in)
        yield is_meant
    if not is_meant:
        give_back(keeper, [lock])


def _lock(keeper: Keeper, path: str) -> Stray:
    return keeper.strays.marked(path, keeper.session_id)


def _take(keeper: Keeper, lock: Stray, root: str) -> bool:
    """Take the lock of a removal; False if what is to be removed, at `root`, is gone. Raises
    Conflict while another process's session has the lock.
    """
    try:
        with seen_to(keeper, [lock]):
            keeper.multi([Create(lock.path, lock.mark.encode(), ephemeral=True)])
    except Refused as refused:
        if refused.kind is RefusalKind.NO_NODE:
            return False
        if refused.kind is not RefusalKind.NODE_EXISTS:
            raise
        raise being_removed(root) from refused
    return True


def being_removed(root: str) -> Conflict:
    """The error to raise while another process's session has the lock of a removal."""
    return Conflict(
        f"{root} is being removed by another process, or by one that died: then its ZooKeeper "
        "session ends soon. Try again in a moment"
    )


@contextmanager
def _held(keeper: Keeper, lock: Stray) -> Iterator[None]:
    """Wraps steps that end with the lock's deletion. If they fail the session deletes the lock
    later, so that others can go on while the session lives.
    """
    try:
        yield
    except BaseException:
        keeper.strays.leave([lock])
        raise


def _delete_with_lock(keeper: Keeper, replica: ReplicaPaths) -> None:
    for _ in range(TRIES_MAX):
        below = [f"{replica.root}/{name}" for name in keeper.children(replica.root)]
        delete_trees(keeper, [one for one in below if one != replica.dropping])
        try:
            keeper.multi([Delete(replica.dropping), Delete(replica.root)])
        except Refused as refused:
            if refused.kind is not RefusalKind.NOT_EMPTY:
                raise
        else:
            return
    raise is_written_to(replica.root)


def drop_table_without_replicas(keeper: Keeper, table: TablePaths) -> bool:
    """Remove a table if it has no replica. Return True if it is gone, removed by us.

    A table that is being restored may have none yet, and is left alone while some are waited for:
    each makes its nodes when it announces its parts.
    """
    lock = _lock(keeper, table.dropped_lock)
    is_restored = keeper.exists(table.restoring) is not None
    begin: list[Op] = [
        Delete(table.replicas),
        *([Delete(table.restoring)] if is_restored else absent(table.restoring)),
        Create(table.dropped),
        Create(lock.path, lock.mark.encode(), ephemeral=True),
    ]
    try:
        with seen_to(keeper, [lock]):
            keeper.multi(begin)
    except Refused:
        # a replica was just created or is waited for, or another process removes it
        return False
    _remove_dropped(keeper, table, lock)
    return True


def remove_leftovers(keeper: Keeper, table: TablePaths) -> None:
    """Finish the removal of a table that a process began when it removed the last replica, and
    died.
    """
    lock = _lock(keeper, table.dropped_lock)
    if _take(keeper, lock, table.root):  # else another process has finished it
        _remove_dropped(keeper, table, lock)


def _remove_dropped(keeper: Keeper, table: TablePaths, lock: Stray) -> None:
    """Remove all nodes of the table. The lock goes together with the root, so that a table without
    either is never seen. Tables that earlier builds let be created below this one stay, and so does
    the root above them.
    """
    with _held(keeper, lock):
        paths = [f"{table.root}/{name}" for name in keeper.children(table.root)]
        stay = delete_trees(keeper, [one for one in paths if one != table.dropped], _TABLE)
        root = [] if stay else [Delete(table.root)]
        keeper.multi([Delete(lock.path), Delete(table.dropped), *root])


def _quietly(keeper: Keeper, op: SetData | Delete) -> None:
    try:
        keeper.multi([op])
    except Refused as refused:
        if refused.kind is not RefusalKind.NO_NODE:
            raise
