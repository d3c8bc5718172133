"""Statements about the tables of a Replicated database, which every replica carries out
(docs/decisions/0022): they are put into its log together with what they change in its records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rmt_pipeline.catalog.replicated import replicated_database, require_replicated
from rmt_pipeline.cluster.database import why_not_registered
from rmt_pipeline.cluster.queue import HostResult, put_in
from rmt_pipeline.context import with_names
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Conflict,
    NotImplementedStatement,
    TableAlreadyExists,
    TableDetached,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import TableRecord, Task
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.sql.formats.rows import Columns, Done, Result
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.sql.run.on_cluster import (
    AskedServers,
    own_settings,
    require_mode,
    wait_and_answer,
)
from rmt_pipeline.sql.run.tables import defined, typed_syntax
from rmt_pipeline.syntax.statements.nodes import (
    AlterTable,
    AttachTable,
    CreateTable,
    DetachTable,
    DropTable,
    ExchangeTables,
    RenameDatabase,
    RenameTables,
    Statement,
    TableName,
    UndropTable,
)
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Keeper, Op, Refused, SetData
from rmt_pipeline.zookeeper.paths import DatabasePaths

_ANSWER: Columns = (
    ("shard", "String"),
    ("replica", "String"),
    ("status", "Nullable(Enum8('OK' = 0, 'FAILED' = 1))"),
    ("error", "Nullable(String)"),
    ("num_hosts_remaining", "UInt64"),
    ("num_hosts_active", "UInt64"),
)


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
    found = require_replicated(server.catalog, database)
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
