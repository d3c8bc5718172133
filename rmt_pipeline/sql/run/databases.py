"""Replicated databases themselves: how they are made, dropped, restored and waited for. Statements
about their tables are in `replicated`.
"""

from collections.abc import Mapping
from dataclasses import replace

from rmt_pipeline.catalog.replicated import (
    ReplicatedDatabase,
    encode_replicated,
    replicated_database,
    require_replicated,
    uuid_made_by,
)
from rmt_pipeline.cluster.database import (
    NO_TASK,
    DatabaseLost,
    drop_database_replica,
    log_pointer,
    make_database,
    picture,
    register,
    remove_replica,
    update_record,
    why_not_registered,
)
from rmt_pipeline.config import expand
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import (
    Conflict,
    DatabaseAlreadyExists,
    Timeout,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import TableRecord
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.protocol.text import require_node, require_path
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.sql.run.tables import require_none_detached
from rmt_pipeline.syntax.statements.nodes import (
    CreateDatabase,
    DropDatabase,
    ReplicatedEngine,
    SystemDropDatabaseReplica,
    SystemRestoreDatabase,
    SystemSyncDatabase,
)
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.batches import refusals
from rmt_pipeline.zookeeper.keeper import Create, Keeper
from rmt_pipeline.zookeeper.paths import DatabasePaths

ACTIVE_WAIT_S = 10.0
"""How long CREATE DATABASE waits for the server to take the database up."""
WAIT_SLICE_S = 3.0  # the delay after an event that was missed, at most
DROP_ROUNDS_MAX = 5  # while the server still makes tables from earlier statements


def create_replicated(
    session: SessionContext, statement: CreateDatabase, engine: ReplicatedEngine
) -> Done:
    """Make the database in ZooKeeper if it is not there, join it, and wait until the server has
    taken it up and made its tables. Raises DatabaseAlreadyExists, ReplicaAlreadyExists, UserError.

    One that this server has already is not made in ZooKeeper: if that has lost it, the servers
    would move all tables away that an empty one does not have, and others be told to drop theirs.
    """
    server = session.server
    name = statement.name
    definition = _expanded(session, name, engine)
    paths = DatabasePaths(definition.path)
    if name in server.catalog.databases():
        known = replicated_database(server.catalog, name)
        if not statement.if_not_exists:
            raise DatabaseAlreadyExists(f"database {name!r} already exists")
        if known is None or (known.path, known.name) != (definition.path, definition.name):
            return Done()
        problem = why_not_registered(
            server.keeper(), paths, name, definition.name, server.server.name
        )
        if problem is not None:
            raise problem
        return _wait_active(session, paths, definition.name)
    register(server.keeper(), paths, name, replica=definition.name, server=server.server.name)
    made = encode_replicated(definition)
    created = server.catalog.create_database(name, if_not_exists=True, replicated=made)
    if not created and not statement.if_not_exists:
        raise DatabaseAlreadyExists(f"database {name!r} already exists")
    return _wait_active(session, paths, definition.name)


def _expanded(
    session: SessionContext, name: str, engine: ReplicatedEngine
) -> ReplicatedDatabase:
    """The database's definition. Raises UserError for an unknown macro, and for a bad
    path or name.
    """
    session.server.catalog.replicated_file(name)  # raises if the name is not allowed
    macros = session.server.server.macros_for(database=name)
    path = expand(engine.path, macros).rstrip("/")
    shard, replica = expand(engine.shard, macros), expand(engine.replica, macros)
    if not path.startswith("/") or "//" in path or not path.strip("/"):
        raise UserError(f"{path!r} is no absolute path in ZooKeeper: write '/databases/{name}'")
    for text in (shard, replica):
        if not text or "/" in text or "|" in text:
            raise UserError(
                f"{text!r} names no shard or replica: it is empty, or has / or | in it"
            )
        require_node(text, "shard or replica")
    require_path(path, f"the path of database {name}")
    typed = f"Replicated('{engine.path}', '{engine.shard}', '{engine.replica}')"
    return ReplicatedDatabase(path, shard, replica, typed)


def _wait_active(session: SessionContext, paths: DatabasePaths, replica: str) -> Done:
    server = session.server
    reached = _wait_reached(session, paths, replica, NO_TASK, ACTIVE_WAIT_S)
    return Done(
        f"the database waits for its server: rmt serve --server {server.server.name}; if that "
        "runs, rmt status says what it waits for"
        if reached is None
        else ""
    )


def _wait_reached(
    session: SessionContext, paths: DatabasePaths, replica: str, wanted: int, timeout_s: float
) -> int | None:
    """Wait until the replica has reached the statement `wanted`, at most for `timeout_s` seconds.
    Return where in the log it is; None if it has not caught up for the first time.
    """
    server, waker = session.server, EventWaker()
    deadline_s = server.clock.monotonic_s() + timeout_s
    while True:
        keeper = server.keeper()
        keeper.exists(paths.log_ptr(replica), waker.wake)
        reached = log_pointer(keeper, paths, replica)
        left_s = deadline_s - server.clock.monotonic_s()
        if left_s <= 0 or (reached is not None and reached >= wanted):
            return reached
        waker.wait_s(min(left_s, WAIT_SLICE_S))


def drop_replicated(
    session: SessionContext, statement: DropDatabase, database: ReplicatedDatabase
) -> Done:
    """Drop this server's replica of the database, with its tables here. The next DROP finishes one
    that was cut off. With the last replica, the database is removed. Raises Conflict.
    """
    server, name = session.server, statement.name
    require_none_detached(server.catalog, name)
    begun = replace(database, is_dropping=True)
    server.catalog.save_replicated(name, encode_replicated(begun))
    keeper, paths = server.keeper(), DatabasePaths(database.path)
    for _ in range(DROP_ROUNDS_MAX):
        for one in server.catalog.detached(name):  # detached by the log since the look above
            server.attach_table(name, one.definition.name)
        tables = [*server.catalog.tables(name), *server.catalog.dropping(name)]
        for table in tables:
            server.drop_table(name, table)
        remove_replica(keeper, paths, database.name, server.server.name)
        if not server.catalog.tables(name):
            break
    else:
        raise Conflict(f"tables are made in database {name} while it is dropped; try again")
    server.catalog.drop_database(name)
    return Done()


def sync_database(session: SessionContext, statement: SystemSyncDatabase) -> Done:
    """Wait until this server has carried out what is in the log now, at most for `receive_timeout`.
    Raises Timeout, and UserError for a database that is not Replicated.
    """
    server = session.server
    database = require_replicated(session.server.catalog, statement.database)
    paths = DatabasePaths(database.path)
    wanted = picture(server.keeper(), paths).last_task
    timeout_s = session.query_settings().receive_timeout
    reached = _wait_reached(session, paths, database.name, wanted, timeout_s)
    if reached is None or reached < wanted:
        raise Timeout(
            f"database {statement.database} was not caught up within {timeout_s} s: it is "
            f"{'new' if reached is None else f'at statement {reached} of {wanted}'}. Does its "
            f"server run? rmt serve --server {server.server.name}"
        )
    return Done()


def restore_database(session: SessionContext, statement: SystemRestoreDatabase) -> Done:
    """SYSTEM RESTORE DATABASE REPLICA: ZooKeeper lost the database. Make it again, with the tables
    of this server, and wait until the server has taken it up. Raises as `restore_lost`.
    """
    found = require_replicated(session.server.catalog, statement.database)
    words = restore_lost(session.server, statement.database, found)
    done = _wait_active(session, DatabasePaths(found.path), found.name)
    return Done("; ".join(filter(None, (words, done.note))))


def restore_lost(server: ServerContext, name: str, database: ReplicatedDatabase) -> str:
    """Make the database in ZooKeeper again if it is not there, with a record for each table of this
    server that has none, and then this replica of it. May be repeated. Returns, in words, which
    tables have no record: their server moves them to `<database>_broken_tables`.

    The records come first: as soon as the replica is there, the server compares its tables with
    them. Raises NothingToRestore; UserError when the replica was dropped, and not lost.
    """
    keeper, paths = server.keeper(), DatabasePaths(database.path)
    problem = why_not_registered(keeper, paths, name, database.name, server.server.name)
    if problem is None:
        raise NothingToRestore(
            f"{paths.root} has the replica {database.name!r}: there is nothing to restore"
        )
    if not isinstance(problem, DatabaseLost):
        raise problem
    make_database(keeper, paths, name)
    catalog = server.catalog
    here = [(catalog.definition(name, table), False) for table in catalog.tables(name)]
    here += [(one.definition, one.permanently) for one in catalog.detached(name)]
    known = _by_origin(keeper, paths)
    aside = []
    for table, is_detached in here:
        origin = _origin_of(table, server.server.name)
        record = TableRecord(
            origin, create_query(table), table.metadata_version, 0, is_detached
        )
        if origin not in known:
            made = Create(paths.table(table.name), record.encode())
            if origin and refusals(keeper, [[made]])[0] is None:
                continue
            known = _by_origin(keeper, paths)  # another server may have been faster
        if origin in known:  # by another server, which may have missed an ALTER
            update_record(keeper, paths, known[origin], record)
        else:
            aside.append(table.name)
    register(keeper, paths, name, replica=database.name, server=server.server.name)
    return f"moved to {name}_broken_tables: {', '.join(aside)}" if aside else ""


def _by_origin(keeper: Keeper, paths: DatabasePaths) -> Mapping[str, str]:
    """The names of the database's tables, by the id of the statement that made each."""
    return {one.origin: table for table, one in picture(keeper, paths).tables.items()}


def _origin_of(definition: TableDefinition, server: str) -> str:
    """The id of the statement that made the table, which is in the path that the table was given;
    "" for a table whose path was typed, of which it is not known any more.
    """
    for piece in definition.engine.zookeeper_path.split("/"):
        if uuid_made_by(piece, server) == definition.uuid:
            return piece
    return ""


def drop_replica_of_database(
    session: SessionContext, statement: SystemDropDatabaseReplica
) -> Done:
    """SYSTEM DROP DATABASE REPLICA. Raises ReplicaIsActive, and UserError for this server's own
    replica or an unknown one.
    """
    path = statement.zookeeper_path
    require_node(statement.replica, "replica")
    if path:
        require_path(path, "ZKPATH")
    else:
        database = require_replicated(session.server.catalog, statement.database)
        path = database.path
        if database.name == statement.replica:
            raise UserError(f"{statement.replica!r} is this server's own: DROP DATABASE")
    if drop_database_replica(session.server.keeper(), DatabasePaths(path), statement.replica):
        return Done(f"it was the last replica of {path}: the database is gone")
    return Done()
