"""A Replicated database in ZooKeeper: its replicas, its tables, and the log of its statements.

    <path>/log/query-0000000007       a statement for every replica, as those ON CLUSTER
    <path>/metadata/<table>           the table's record: what the table is now
    <path>/replicas/<shard|replica>   the replica's server; log_ptr; active, ephemeral
    <path>/dropped_replicas/<shard|replica>   SYSTEM DROP DATABASE REPLICA has removed this one
    <path>/restored                   for servers of earlier builds

A table is in `metadata` from the multi that puts its CREATE into the log to the one with its DROP.
So a replica that has missed statements needs none of them: it makes its tables as the records say.

A replica that is neither there nor noted as dropped may have been lost. Without the notes:

1. ZooKeeper loses everything. 2. CREATE DATABASE is said on a new server, or on one that has lost
its disk: now the database is there, with this one replica. 3. Servers whose tables have rows find
that theirs is not among the replicas. Had it been dropped, they were to drop the database.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from rmt_pipeline.cluster.worker import end_work
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Conflict,
    ReplicaAlreadyExists,
    ReplicaIsActive,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import DATABASE_MARK, TableRecord, TaskOutcome
from rmt_pipeline.replica.life.create import ensure_ancestors, require_apart
from rmt_pipeline.replica.life.drop import being_removed
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Keeper,
    LivingKeeper,
    Op,
    RefusalKind,
    Refused,
    SetData,
    Stat,
)
from rmt_pipeline.zookeeper.paths import (
    DatabasePaths,
    database_table,
    sequence_number,
)
from rmt_pipeline.zookeeper.strays import seen_to
from rmt_pipeline.zookeeper.trees import delete_tree


def make_database(keeper: Keeper, database: DatabasePaths, name: str) -> None:
    """Make the database if there is none. Raises UserError when the path has other data; PathInUse
    if it is below that of a table or another database.
    """
    if keeper.exists(database.root) is None:
        require_apart(keeper, database.root)  # before any node is made there
        ensure_ancestors(keeper, database.root)
        require_apart(keeper, database.root)  # one may have come since: now none comes any more
    _finish_removal(keeper, database)
    below = (database.queue.root, database.metadata, database.replicas, database.restored)
    mark = DATABASE_MARK + name.encode()
    made: list[Op] = [Create(database.root, mark), *(Create(path) for path in below)]
    with suppress(Refused):  # the root exists: the next read shows what it is
        keeper.multi(made)
    data, _ = keeper.get(database.root)
    if data != mark:
        is_database = data.startswith(DATABASE_MARK)
        words = data.decode(errors="replace") if is_database else "something else"
        raise UserError(
            f"{database.root} in ZooKeeper is {words}, not the Replicated database {name}: choose "
            "another path, or the same name on all its servers"
        )


def register(
    keeper: Keeper, database: DatabasePaths, name: str, *, replica: str, server: str
) -> None:
    """Make the database if there is none, and this replica of it. A repeated call, or a server that
    has lost its disk, finds its own nodes. Raises ReplicaAlreadyExists when the replica is another
    server's, and as `make_database`.
    """
    for _ in range(limits.LOOK_ROUNDS_MAX):
        try:
            make_database(keeper, database, name)
            return _register(keeper, database, replica, server)
        except Refused as refused:
            if refused.kind is not RefusalKind.NO_NODE:
                raise  # else the replica, or the last one, was dropped just now
    raise Conflict(f"{database.root} keeps being made and removed; try again")


def _register(keeper: Keeper, database: DatabasePaths, replica: str, server: str) -> None:
    was_dropped = keeper.exists(database.dropped_replica(replica)) is not None
    ops: list[Op] = [
        Create(database.replica(replica), server.encode()),
        Create(database.log_ptr(replica), b""),
        SetData(database.replicas),  # see `_remove_nodes`
        *([Delete(database.dropped_replica(replica))] if was_dropped else []),
    ]
    try:
        keeper.multi(ops)
    except Refused as refused:
        if refused.kind is not RefusalKind.NODE_EXISTS:
            raise
        holder, _ = keeper.get(database.replica(replica))
        if holder != server.encode():
            raise ReplicaAlreadyExists(
                f"replica {replica!r} of {database.root} is server {holder.decode()}'s: give this "
                "one another shard or replica name, or SYSTEM DROP DATABASE REPLICA when that is "
                "gone for good"
            ) from refused
        keeper.multi([SetData(database.log_ptr(replica), b"")])  # it looks at everything anew


class DatabaseLost(UserError):
    """ZooKeeper does not have this server's replica of a Replicated database, nor that it was
    dropped. The database may be there: another server has made it again already.
    """

    code = "UNKNOWN_DATABASE"


def why_not_registered(
    keeper: Keeper, database: DatabasePaths, name: str, replica: str, server: str
) -> UserError | None:
    """Why the database `name` has no replica `replica` (`shard|replica`) of this `server` in
    ZooKeeper; None if it has. Its tables hold rows: who is told to drop them has to know that
    nobody lost them.
    """
    mine, noted = keeper.get_many(
        [database.replica(replica), database.dropped_replica(replica)]
    )
    dropped = f"DROP DATABASE {name} here too, and create it again to come back"
    if mine is not None:
        if mine[0] == server.encode():
            return None
        return UserError(
            f"replica {replica!r} of {database.root} was dropped, and is server "
            f"{mine[0].decode(errors='replace')}'s now: {dropped}, under another shard or replica "
            "name"
        )
    if noted is not None:
        return UserError(f"replica {replica!r} of {database.root} was dropped: {dropped}")
    return DatabaseLost(
        f"{database.root} in ZooKeeper has no replica {replica!r}: if ZooKeeper lost its data, "
        f"SYSTEM RESTORE DATABASE REPLICA {name} on each of its servers makes it again, after "
        "SYSTEM RESTORE REPLICA of its tables (rmt restore does both); if somebody dropped it, "
        f"{dropped}"
    )


def drop_database_replica(keeper: Keeper, database: DatabasePaths, replica: str) -> bool:
    """Remove one replica. True when it was the last one, and the database was removed with it.
    Raises ReplicaIsActive, and UserError when there is no such replica, or no database.

    This is refused if its server has started since: then `active` is below it.
    """
    [root] = keeper.get_many([database.root])
    if root is not None and not root[0].startswith(DATABASE_MARK):  # tables have replicas, too
        raise UserError(
            f"{database.root} in ZooKeeper is not the path of a Replicated database"
        )
    try:
        names, stat = keeper.children_stat(database.replicas)
    except Refused:
        names = []
    if replica not in names:  # '' would remove all of them
        known = ", ".join(names) or "none"
        raise UserError(f"{database.root} has no replica {replica!r}; it has: {known}")
    with suppress(Refused):  # it is there, or the database goes, which this must not keep
        keeper.multi([Check(database.replicas), Create(database.dropped_replicas)])
    note = database.dropped_replica(replica)
    noted: list[Op] = [Create(note)] if keeper.exists(note) is None else []
    nodes = [database.log_ptr(replica), database.replica(replica)]
    try:
        _remove_nodes(keeper, database, stat, nodes, noted)
    except Refused as refused:
        if refused.kind is RefusalKind.NOT_EMPTY:
            raise ReplicaIsActive(
                f"replica {replica!r} of {database.root} is active: its server runs. DROP DATABASE "
                "there, or stop the server first"
            ) from refused
        raise Conflict(
            f"replica {replica!r} of {database.root} is being removed, or made again, by another "
            "process; look what is there, and try again"
        ) from refused
    return _remove_if_last(keeper, database)


def remove_replica(keeper: Keeper, database: DatabasePaths, replica: str, server: str) -> bool:
    """Remove the replica of this `server`, as `drop_database_replica` does for another one. Does
    nothing when it is gone already, or is another server's by now. Raises Conflict.
    """
    for _ in range(limits.LOOK_ROUNDS_MAX):
        try:
            stat = keeper.children_stat(database.replicas)[1]
            holder, _ = keeper.get(database.replica(replica))
            below = keeper.children(database.replica(replica))
        except Refused:  # it is gone
            return _remove_if_last(keeper, database)
        if holder != server.encode():
            return _remove_if_last(keeper, database)
        own = [f"{database.replica(replica)}/{name}" for name in below]
        with suppress(Refused):  # its server has just started or ended, or a replica was made
            _remove_nodes(keeper, database, stat, [*own, database.replica(replica)])
    raise Conflict(f"replica {replica!r} of {database.root} keeps changing; try again")


def _remove_nodes(
    keeper: Keeper,
    database: DatabasePaths,
    replicas: Stat,
    nodes: Sequence[str],
    noted: Sequence[Op] = (),
) -> None:
    """Remove the nodes of a replica in one multi, with what is `noted` of that. It is refused if a
    replica was made since `replicas` was read, perhaps in its place, whose nodes may have its
    versions; and if there are others below it.
    """
    there = keeper.exists_many(nodes)
    ops = [Delete(path) for path, one in zip(nodes, there, strict=True) if one is not None]
    keeper.multi([Check(database.replicas, replicas.version), *ops, *noted])


def _remove_if_last(keeper: Keeper, database: DatabasePaths) -> bool:
    """Remove the database if it has no replica any more. No replica can register once their parent
    is gone, nor while there is the lock.
    """
    with _locked(keeper, database, [Delete(database.replicas)]) as is_locked:
        if is_locked:
            _remove_all(keeper, database)
    return is_locked or _finish_removal(keeper, database)


def _finish_removal(keeper: Keeper, database: DatabasePaths) -> bool:
    """Finish the removal of the database if a process died while it removed the last replica. False
    when there is no such removal. Raises Conflict while another process's session still has the
    lock.
    """
    root, replicas = keeper.exists_many([database.root, database.replicas])
    if root is None or replicas is not None:
        return False
    data, _ = keeper.get(database.root)
    if not data.startswith(DATABASE_MARK):
        return False
    with _locked(keeper, database) as is_locked:
        if not is_locked:
            raise being_removed(database.root)
        _remove_all(keeper, database)
    return True


@contextmanager
def _locked(
    keeper: Keeper, database: DatabasePaths, first: Sequence[Op] = ()
) -> Iterator[bool]:
    """Take the lock of the removal in one multi with what comes `first`; yields False if that is
    refused. If the removal fails, the session deletes the lock later, so that another process can
    go on while this session lives.
    """
    lock = keeper.strays.marked(database.dropping, keeper.session_id)
    try:
        with seen_to(keeper, [lock]):
            keeper.multi([*first, Create(lock.path, lock.mark.encode(), ephemeral=True)])
    except Refused:
        yield False
        return
    try:
        yield True
    except BaseException:
        keeper.strays.leave([lock])
        raise


def _remove_all(keeper: Keeper, database: DatabasePaths) -> None:
    """Remove the database's nodes; the lock goes together with the root."""
    noted = (database.dropped_replicas, database.restored)
    for path in (database.queue.root, database.metadata, *noted):
        delete_tree(keeper, path)
    keeper.multi([Delete(database.dropping), Delete(database.root)])


@dataclass(frozen=True, slots=True)
class Picture:
    """A database at one moment: its tables as their records say, and the number of the last
    statement in the log. An ALTER is in a record only after a replica has carried it out.
    """

    tables: Mapping[str, TableRecord]
    last_task: int


NO_TASK = -1


def picture(keeper: Keeper, database: DatabasePaths) -> Picture:
    """Read the records between two equal looks at the log, so that they have the changes of each
    statement before its end, and of none after it. Raises Conflict while the log keeps changing,
    and Refused when the database is gone.
    """
    for _ in range(limits.LOOK_ROUNDS_MAX):
        keeper.sync(database.root)
        _, before = keeper.children_stat(database.queue.root)
        nodes = keeper.children(database.metadata)
        reads = keeper.get_many([f"{database.metadata}/{node}" for node in nodes])
        _, after = keeper.children_stat(database.queue.root)
        if before.next_sequence == after.next_sequence and None not in reads:
            tables = {
                database_table(node): TableRecord.decode(read[0])
                for node, read in zip(nodes, reads, strict=True)
                if read is not None
            }
            return Picture(tables, after.next_sequence - 1)
    raise Conflict(f"{database.root} keeps changing; trying again")


def log_pointer(keeper: Keeper, database: DatabasePaths, replica: str) -> int | None:
    """The last statement that the replica is done with; None if it has to look at
    everything first.
    """
    [read] = keeper.get_many([database.log_ptr(replica)])
    return int(read[0]) if read is not None and read[0] else None


def log_is_whole(keeper: Keeper, database: DatabasePaths, after: int) -> bool:
    """Whether every statement after number `after` is still in the log."""
    names, log = keeper.children_stat(database.queue.root)
    numbers = {sequence_number(name) for name in names if name.startswith("query-")}
    return all(number in numbers for number in range(after + 1, log.next_sequence))


@dataclass(frozen=True, slots=True)
class Follower:
    """A replica that goes through the log statement by statement. `done` is the last statement that
    it is done with; `is_active` says whether its server runs.
    """

    name: str
    done: int
    is_active: bool


def followers(keeper: Keeper, database: DatabasePaths, replica: str) -> list[Follower]:
    """The other replicas that will come to every statement after the last one that they are done
    with. Replicas that have to look at everything first are not among them.
    """
    others = [one for one in keeper.children(database.replicas) if one != replica]
    actives = keeper.exists_many([database.queue.server_active(one) for one in others])
    found = []
    for other, active in zip(others, actives, strict=True):
        pointer = log_pointer(keeper, database, other)
        if pointer is not None and log_is_whole(keeper, database, pointer):
            found.append(Follower(other, pointer, active is not None))
    return found


def skip_to(keeper: LivingKeeper, database: DatabasePaths, replica: str, to: int) -> None:
    """The replica needs none of the statements up to number `to`: note each as finished there, so
    that clients do not wait for it, remove the replica's `active` nodes of statements that it had
    begun, and move its pointer.
    """
    tasks = [
        database.queue.task(name)
        for name in keeper.children(database.queue.root)
        if name.startswith("query-") and sequence_number(name) <= to
    ]
    for task in tasks:
        with suppress(Refused):  # the task is finished, or being removed
            keeper.multi([Create(task.finished_on(replica), TaskOutcome().encode())])
    end_work(keeper, [task.active_on(replica) for task in tasks])
    move_pointer(keeper, database, replica, to)


def move_pointer(keeper: Keeper, database: DatabasePaths, replica: str, to: int) -> None:
    """Note that the replica has carried out the database's log up to, and with, statement `to`."""
    keeper.multi([SetData(database.log_ptr(replica), str(to).encode())])


def update_record(
    keeper: Keeper, database: DatabasePaths, table: str, record: TableRecord
) -> None:
    """Make `record` the table's record, unless it is gone or a replica that knows of more changes
    has written it. Whether the table is detached is kept as it is in the record: a later DETACH or
    ATTACH has changed that in the multi which put it into the log, and the replica that carries an
    ALTER out may not know it.
    """
    path = database.table(table)
    for _ in range(limits.LOOK_ROUNDS_MAX):
        # A table that is created changes the version of `metadata`: one of the same name may have
        # a record of the same version.
        above, read = keeper.get_many([database.metadata, path])
        if above is None or read is None:
            return
        known = TableRecord.decode(read[0])
        if known.origin != record.origin or not known.is_older_than(record):
            return
        told = replace(record, is_detached=known.is_detached)
        try:
            keeper.multi(
                [
                    Check(database.metadata, above[1].version),
                    SetData(path, told.encode(), read[1].version),
                ]
            )
        except Refused:
            continue
        return
