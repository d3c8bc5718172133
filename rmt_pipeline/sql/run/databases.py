"""Replicated databases of a session: how they are made, dropped and waited for; and statements
about their tables, which every replica carries out (docs/decisions/0022).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rmt_pipeline.catalog.replicated import (
    ReplicatedDatabase,
    encode_replicated,
    replicated_database,
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
from rmt_pipeline.cluster.queue import HostResult, put_in
from rmt_pipeline.config import expand
from rmt_pipeline.context import ServerContext, with_names
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Conflict,
    DatabaseAlreadyExists,
    NotImplementedStatement,
    TableAlreadyExists,
    TableDetached,
    Timeout,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import TableRecord, Task
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.protocol.text import require_node, require_path
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.sql.formats.rows import Columns, Done, Result
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.sql.run.on_cluster import (
    AskedServers,
    own_settings,
    require_mode,
    wait_and_answer,
)
from rmt_pipeline.sql.run.tables import defined, require_none_detached, typed_syntax
from rmt_pipeline.syntax.statements.nodes import (
    AlterTable,
    AttachTable,
    CreateDatabase,
    CreateTable,
    DetachTable,
    DropDatabase,
    DropTable,
    ExchangeTables,
    RenameDatabase,
    RenameTables,
    ReplicatedEngine,
    Statement,
    SystemDropDatabaseReplica,
    SystemRestoreDatabase,
    SystemSyncDatabase,
    TableName,
    UndropTable,
)
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.batches import refusals
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Keeper,
    Op,
    Refused,
    SetData,
)
from rmt_pipeline.zookeeper.paths import DatabasePaths

ACTIVE_WAIT_S = 10.0
"""How long CREATE DATABASE waits for the server to take the database up."""
WAIT_SLICE_S = 3.0  # the delay after an event that was missed, at most
DROP_ROUNDS_MAX = 5  # while the server still makes tables from earlier statements

_ANSWER: Columns = (
    ("shard", "String"),
    ("replica", "String"),
    ("status", "Nullable(Enum8('OK' = 0, 'FAILED' = 1))"),
    ("error", "Nullable(String)"),
    ("num_hosts_remaining", "UInt64"),
    ("num_hosts_active", "UInt64"),
)


# --- the database itself ----------------------------------------------------------------------


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
    database = _required(session, statement.database)
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
    found = _required(session, statement.database)
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
    make_database(keeper, paths, name, is_restored=True)
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
        database = _required(session, statement.database)
        path = database.path
        if database.name == statement.replica:
            raise UserError(f"{statement.replica!r} is this server's own: DROP DATABASE")
    if drop_database_replica(session.server.keeper(), DatabasePaths(path), statement.replica):
        return Done(f"it was the last replica of {path}: the database is gone")
    return Done()


def _required(session: SessionContext, name: str) -> ReplicatedDatabase:
    session.server.catalog.require_database(name)
    found = replicated_database(session.server.catalog, name)
    if found is None:
        raise UserError(f"database {name!r} is not Replicated")
    return found


# --- statements about its tables --------------------------------------------------------------


def replicated_of(session: SessionContext, statement: Statement) -> str:
    """The Replicated database whose replicas carry this statement out; "" for none. Raises
    NotImplementedStatement for what they can't carry out.
    """
    named = _tables_named(statement)
    databases = sorted({session.database_of(table) for table in named})
    catalog = session.server.catalog
    found = [name for name in databases if replicated_database(catalog, name) is not None]
    if not found:
        return ""
    if isinstance(statement, AttachTable) and statement.syntax is None:
        return "" if _is_own(session, statement.table) else found[0]
    if len(databases) > 1 or not _is_of_replicas(statement):
        raise NotImplementedStatement(
            f"in a Replicated database ({found[0]}) this is not implemented: there are CREATE, "
            "ALTER, DROP, RENAME, DETACH PERMANENTLY and ATTACH of one of its tables, and EXCHANGE "
            "of two"
        )
    return found[0]


def _tables_named(statement: Statement) -> tuple[TableName, ...]:
    """The tables that a statement names, if it is one that may concern a Replicated database. A
    database alone is a table without a name.
    """
    match statement:
        case CreateTable(table=table) | AlterTable(table=table) | AttachTable(table=table):
            return (table,)
        case DropTable(tables=tables):
            return tables
        case DetachTable(table=table, permanently=True) | UndropTable(table=table):
            return (table,)
        case RenameTables(moves=moves):
            return tuple(table for move in moves for table in move)
        case ExchangeTables(one, other):
            return one, other
        case RenameDatabase(old=old):
            return (TableName(old, ""),)
        case _:
            return ()


def _is_of_replicas(statement: Statement) -> bool:
    """Whether the replicas carry it out, as far as its form tells."""
    match statement:
        case DropTable(tables=several) | RenameTables(moves=several):
            return len(several) == 1
        case CreateTable() | AlterTable() | DetachTable() | ExchangeTables():
            return True
        case _:
            return False


def _is_own(session: SessionContext, table: TableName) -> bool:
    """Whether ATTACH concerns this server alone: it undoes a DETACH without PERMANENTLY, which is
    each server's own.
    """
    catalog, database = session.server.catalog, session.database_of(table)
    here = {one.definition.name for one in catalog.detached(database) if not one.permanently}
    return catalog.has(database, table.name) or table.name in here


def ask_replicas(
    session: SessionContext, statement: Statement, text: str, database: str
) -> Result:
    """Put the statement into the database's log, and wait as for one ON CLUSTER. Raises
    UnknownTable, TableAlreadyExists, BadSetting, StillDue, FailedOnServer, Conflict;
    OutcomeUnknown.
    """
    server = session.server
    found = _required(session, database)
    if found.is_dropping:
        raise UserError(
            f"database {database} is being dropped here: DROP DATABASE goes on with it"
        )
    own = own_settings(statement)
    require_mode(session, own)
    for table in _tables_named(statement):
        server.catalog.has(database, table.name)  # raises if the name is not allowed
    paths, request_id = DatabasePaths(found.path), server.ids.new_id()
    problem = why_not_registered(
        server.keeper(), paths, database, found.name, server.server.name
    )
    if problem is not None:  # else the log would be made again, without a database
        raise problem
    settings = session.settings
    if isinstance(statement, CreateTable):
        text = _create_text(session, statement, request_id)
        settings = {**settings, "flatten_nested": "0"}
    task = Task(
        text, (), found.name, request_id, session.database, tuple(sorted(settings.items()))
    )
    for _ in range(limits.LOOK_ROUNDS_MAX):
        changes = _changes(_Records(server.keeper(), paths, database), statement, task)
        if changes is None:
            return Done()
        try:
            put = put_in(server.keeper(), paths.queue, task, server.clock, changes)
        except Refused as refused:
            if refused.path not in {op.path for op in changes}:
                raise
            continue  # another client changed the table: look at it again
        break
    else:
        raise Conflict(f"the tables of database {database} keep changing; try again")
    names = {one: one for one in server.keeper().children(paths.replicas)}
    of = f"database {database}"
    asked = AskedServers(names, of, _ANSWER, _row)
    return wait_and_answer(session, paths.queue, put, asked, own)


@dataclass(frozen=True, slots=True)
class _Known:
    """A table's record, and the version of its node."""

    path: str
    record: TableRecord
    version: int


@dataclass(frozen=True, slots=True)
class _Records:
    """The current records of the database's tables."""

    keeper: Keeper
    paths: DatabasePaths
    database: str

    def find(self, table: TableName) -> _Known | None:
        path = self.paths.table(table.name)
        [read] = self.keeper.get_many([path])
        if read is None:
            return None
        return _Known(path, TableRecord.decode(read[0]), read[1].version)

    def get(self, table: TableName, *, detached: bool = False) -> _Known:
        """The table's record. Raises UnknownTable, and TableDetached if it is detached
        permanently.
        """
        known = self.find(table)
        if known is None:
            raise UnknownTable(f"table {self.database}.{table.name} does not exist")
        if known.record.is_detached and not detached:
            raise TableDetached(
                f"table {self.database}.{table.name} is detached permanently: ATTACH TABLE takes "
                "it up again"
            )
        return known

    def require_free(self, table: TableName) -> None:
        """Raises TableAlreadyExists if the database has a table of this name."""
        known = self.find(table)
        if known is not None:
            words = " (detached permanently)" if known.record.is_detached else ""
            raise TableAlreadyExists(
                f"table {self.database}.{table.name} already exists{words}"
            )

    def unchanged(self) -> Op:
        """Return the operation that asserts that no table was made or renamed since now; to be
        called before a record is read that is written anew. The version of a record does not tell
        that it is still the one that was read:

        1. P reads the record of t, to rename t to u.
        2. t is dropped, and another t is created: its record has the first version, too.
        3. P writes the record of the first t at u, and removes the other one. The servers rename
           the second t, which has rows by now, and find that it is not the one of the record.
        """
        stat = self.keeper.exists(self.paths.metadata)
        return SetData(self.paths.metadata, version=0 if stat is None else stat.version)

    def renamed(self, known: _Known, old: TableName, new: TableName) -> bytes:
        return renamed_record(known.record, self.database, old.name, new.name).encode()


def _changes(records: _Records, statement: Statement, task: Task) -> Sequence[Op] | None:
    """The operations that change the database's records for this statement; ZooKeeper refuses them
    if the records have changed since. None when there is nothing to do. Raises UnknownTable,
    TableAlreadyExists.
    """
    try:
        return _changes_of(records, statement, task)
    except TableDetached:
        raise
    except UnknownTable:
        if (
            isinstance(statement, DropTable | RenameTables | DetachTable)
            and statement.if_exists
        ):
            return None
        raise
    except TableAlreadyExists:
        if isinstance(statement, CreateTable | AttachTable) and statement.if_not_exists:
            return None
        raise


def _changes_of(records: _Records, statement: Statement, task: Task) -> Sequence[Op]:
    match statement:
        case CreateTable(table=table):
            records.require_free(table)
            made = TableRecord(task.request_id, task.query)
            return [
                SetData(records.paths.metadata),  # see `_Records.unchanged`
                Create(records.paths.table(table.name), made.encode()),
            ]
        case DropTable(tables=(table,)):
            known = records.get(table)
            return [Delete(known.path, known.version)]
        case AlterTable(table=table):
            known = records.get(table)
            return [Check(known.path, known.version)]
        case DetachTable(table=table):
            same = records.unchanged()
            known = records.get(table)
            detached = replace(known.record, is_detached=True)
            return [same, SetData(known.path, detached.encode(), known.version)]
        case AttachTable(table=table):
            same = records.unchanged()
            known = records.get(table, detached=True)
            if not known.record.is_detached:
                raise TableAlreadyExists(
                    f"table {records.database}.{table.name} is attached already"
                )
            attached = replace(known.record, is_detached=False)
            return [same, SetData(known.path, attached.encode(), known.version)]
        case RenameTables(moves=((old, new),)):
            same = records.unchanged()
            known = records.get(old)
            records.require_free(new)
            return [
                same,
                Delete(known.path, known.version),
                Create(records.paths.table(new.name), records.renamed(known, old, new)),
            ]
        case ExchangeTables(one, other):
            same = records.unchanged()
            first, second = records.get(one), records.get(other)
            if first.path == second.path:
                raise UserError(
                    f"{one} and {other} are one table: there is nothing to exchange"
                )
            return [
                same,
                SetData(first.path, records.renamed(second, other, one), first.version),
                SetData(second.path, records.renamed(first, one, other), second.version),
            ]
        case _:
            raise AssertionError(f"{statement} is not for replicas of a database")


def renamed_record(record: TableRecord, database: str, old: str, new: str) -> TableRecord:
    """The record of the same table under its new name. Its path in ZooKeeper stays, so that a
    server that makes the table later finds the other replicas there.
    """
    definition = replace(defined_by(record, database), database=database, name=old)
    engine = definition.engine
    if not engine.is_private:
        engine = replace(
            engine,
            typed_path=with_names(engine.zookeeper_path, definition),
            typed_replica=with_names(engine.replica, definition),
        )
    return replace(record, query=create_query(replace(definition, name=new, engine=engine)))


def defined_by(record: TableRecord, database: str) -> TableDefinition:
    """The table that the record describes."""
    from rmt_pipeline.sql.define.table import define_table  # noqa: PLC0415  start-up

    statement = parse(record.query)
    assert isinstance(statement, CreateTable)
    assert statement.syntax is not None
    return define_table(statement.table, statement.syntax, database, flatten_nested=False)


def _row(result: HostResult) -> tuple[object, ...]:
    shard, _, replica = result.host.partition("|")
    status: tuple[object, object] = (None, None)
    if result.outcome is not None:
        code, message = result.outcome.code, result.outcome.message
        status = ("FAILED", f"Code: {code}. {message}") if code else ("OK", "")
    return (shard, replica, *status, result.remaining, result.active)


def _create_text(session: SessionContext, statement: CreateTable, request_id: str) -> str:
    """The CREATE of the whole table, checked. Macros stay in it except {uuid}, which is the same
    for all replicas. A table without a path gets one of its own, so that it does not meet a table
    that is still being dropped here.
    """
    if statement.or_replace:
        raise NotImplementedStatement(
            "CREATE OR REPLACE TABLE in a Replicated database is not implemented: DROP it first"
        )
    if statement.query is not None and not statement.is_empty:
        raise NotImplementedStatement(
            "CREATE TABLE … AS SELECT in a Replicated database is not implemented: each replica "
            "would insert the rows. AS EMPTY SELECT, and then INSERT"
        )
    definition = defined(session, statement.table, typed_syntax(session, statement))
    return create_query(with_own_path(definition, request_id))


def with_own_path(definition: TableDefinition, request_id: str) -> TableDefinition:
    """The definition as a Replicated database records it: a default path, or one with {uuid},
    becomes the table's own, by the id of the statement that made the table.
    """
    from rmt_pipeline.sql.define.engine import DEFAULT_ZOOKEEPER_PATH  # noqa: PLC0415  start-up

    engine = definition.engine
    if engine.is_private:
        return definition
    path = engine.zookeeper_path
    if path == DEFAULT_ZOOKEEPER_PATH:
        path = "/clickhouse/tables/{uuid}/{shard}"
    path = path.replace("{uuid}", request_id)
    return replace(
        definition, engine=replace(engine, typed_path=path, typed_replica=engine.replica)
    )
