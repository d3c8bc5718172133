"""CREATE, ATTACH, DETACH, DROP and RENAME of tables and databases.

Imports inside functions are for start-up time.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rmt_pipeline.catalog.contents import FullName
from rmt_pipeline.catalog.replicated import replicated_database
from rmt_pipeline.protocol.errors import (
    DatabaseAlreadyExists,
    DatabaseNotEmpty,
    NotImplementedStatement,
    ReplicaAlreadyExists,
    RmtError,
    UnknownDatabase,
    UnknownTable,
    UserError,
    ZooKeeperUnreachable,
)
from rmt_pipeline.protocol.table import Engine, TableDefinition
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.syntax.nodes import Derived, Literal, Select, Star
from rmt_pipeline.syntax.statements.definition import ColumnSyntax, TableSyntax
from rmt_pipeline.syntax.statements.nodes import (
    SYSTEM_DATABASE,
    AttachTable,
    CreateDatabase,
    CreateTable,
    DetachTable,
    DropDatabase,
    DropTable,
    ExchangeTables,
    FromQuery,
    Insert,
    RenameDatabase,
    RenameTables,
    SelectStatement,
    TableName,
    UndropTable,
)
from rmt_pipeline.system import EventWaker

if TYPE_CHECKING:
    from rmt_pipeline.catalog.catalog import Catalog
    from rmt_pipeline.replica.replica import Replica
    from rmt_pipeline.zookeeper.keeper import Watch

ACTIVE_WAIT_S = 10.0
"""How long CREATE waits for the server to take the new table up, or DETACH for it to let go. It
takes some 10 ms.
"""
CLAIMS_LOOK_S = 0.1


def create_table(session: SessionContext, statement: CreateTable) -> Done:
    """CREATE TABLE. Checks the definition first, even with IF NOT EXISTS; then waits until the
    table is active.

    When the server does not run, the table is made nevertheless, and the answer says so.
    """
    definition = defined(session, statement.table, typed_syntax(session, statement))
    if definition.database == SYSTEM_DATABASE:
        raise UserError("the database system holds no tables of your own: choose another")
    if statement.or_replace and session.server.catalog.has(
        definition.database, definition.name
    ):
        return _replace_table(session, statement, definition)
    created = session.server.create_table(definition, if_not_exists=statement.if_not_exists)
    if not created:
        return Done(f"table {definition.full_name} exists already")
    done = _wait_active(session, definition.database, definition.name)
    if statement.query is not None and not statement.is_empty:
        _fill(session, statement.table, statement.query)
    return _with_unused(done, definition)


def defined(session: SessionContext, table: TableName, syntax: TableSyntax) -> TableDefinition:
    """The typed definition, checked, with this session's settings about defaults.
    Raises UserError.
    """
    from rmt_pipeline.sql.define.table import define_table  # noqa: PLC0415  start-up

    return define_table(
        table,
        syntax,
        session.database,
        flatten_nested=session.query_settings().flatten_nested,
        session=tuple(session.session_values().items()),
    )


def _replace_table(
    session: SessionContext, statement: CreateTable, definition: TableDefinition
) -> Done:
    """CREATE OR REPLACE of an existing table. A new table is made and filled beside the old one,
    the two exchange names in one step, and the old table is dropped. A reader sees one of the two.
    When the new table can't be made or filled, the old one stays. A process that dies before the
    exchange leaves the new table under its temporary name.
    """
    server = session.server
    database, name = definition.database, definition.name
    path = server.expanded(replace(definition, uuid=server.new_uuid(definition)))
    if server.catalog.definition(database, name).engine.root == path.engine.root:
        raise ReplicaAlreadyExists(
            f"the new {definition.full_name} would be at the path of the old one in ZooKeeper, "
            f"{path.engine.zookeeper_path}: give it another path, or DROP the old one first"
        )
    called = f"_tmp_replace_{server.ids.new_id()}"
    server.create_table(definition, called=called)
    made = server.catalog.definition(database, called)
    try:
        note = _wait_active(session, database, called).note.replace(called, name)
        if statement.query is not None and not statement.is_empty:
            _fill(session, TableName(database, called), statement.query)
        server.exchange_tables((database, called), (database, name))
    except BaseException:
        _take_back(session, made)
        raise
    try:
        _drop(session, database, called, sync=False)
    except RmtError as error:  # a note, no error: repeating it would replace the new one
        note += (
            f"\n{definition.full_name} is replaced. The old table, which is {database}.{called} "
            f"until it is dropped, could not be dropped yet: {error}"
        )
    return _with_unused(Done(note.lstrip()), definition)


def _take_back(session: SessionContext, made: TableDefinition) -> None:
    """Drop a table that was made in vain. If another table has its name now, that stays: an
    exchange that failed may have happened.
    """
    catalog = session.server.catalog
    with suppress(RmtError):
        if catalog.definition(made.database, made.name).uuid == made.uuid:
            session.server.drop_table(made.database, made.name)


def _with_unused(done: Done, definition: TableDefinition) -> Done:
    return replace(done, note="\n".join(filter(None, (done.note, _unused(definition)))))


def _fill(session: SessionContext, name: TableName, query: FromQuery) -> None:
    """Insert a query's rows into a new table; when they can't be inserted, drop the table."""
    from rmt_pipeline.sql.run.insert import insert  # noqa: PLC0415  start-up

    made = session.server.catalog.definition(session.database_of(name), name.name)
    try:
        insert(session, Insert(name, None, query))
    except BaseException:
        _take_back(session, made)
        raise


def typed_syntax(session: SessionContext, statement: CreateTable) -> TableSyntax:
    """The typed syntax, completed by the columns of another table or of a query. Raises
    UnknownTable.
    """
    given = statement.syntax
    if statement.like is not None:
        found = _syntax_of(session, statement.like)
        if given is None:
            return found
        return replace(
            given,
            columns=found.columns,
            indices=found.indices,
            projections=found.projections,
            constraints=found.constraints,
        )
    assert given is not None
    if given.columns or statement.query is None:
        return given
    from rmt_pipeline.sql.run.select import select  # noqa: PLC0415  start-up

    query = statement.query
    nothing = Select((Star(),), source=Derived(query.query), limit=Literal(0, "0"))
    rows = select(session, SelectStatement(nothing, text=query.text))
    for _ in rows.batches:  # there are none; at their end, the parts are released
        pass
    columns = tuple(ColumnSyntax(column.name, column.type) for column in rows.columns)
    return replace(given, columns=columns)


def _syntax_of(session: SessionContext, table: TableName) -> TableSyntax:
    """The syntax of a table like this one, at a path of its own: the server's default."""
    from rmt_pipeline.sql.define.engine import (  # noqa: PLC0415  start-up
        DEFAULT_REPLICA,
        DEFAULT_ZOOKEEPER_PATH,
    )
    from rmt_pipeline.sql.define.show_create import create_query  # noqa: PLC0415  start-up
    from rmt_pipeline.syntax.statements.parse import parse  # noqa: PLC0415  start-up

    other = session.server.catalog.definition(session.database_of(table), table.name)
    engine = replace(
        other.engine, typed_path=DEFAULT_ZOOKEEPER_PATH, typed_replica=DEFAULT_REPLICA
    )
    shown = parse(create_query(replace(other, engine=engine)))
    assert isinstance(shown, CreateTable)
    assert shown.syntax is not None
    return shown.syntax


def _unused(definition: TableDefinition) -> str:
    """A note about parts of the definition that are kept and shown, but do nothing."""
    words = ("INDEX", definition.indices), ("PROJECTION", definition.projections)
    found = [word for word, texts in words if texts]
    return not_built(found, definition.full_name) if found else ""


def not_built(kinds: Sequence[str], full_name: str) -> str:
    """The hint that an INDEX or a PROJECTION makes nothing faster here."""
    return (
        f"{' and '.join(kinds)} of {full_name} is kept and shown, and not built: Parquet's own \
statistics leave out what a query does not need"
    )


def _wait_active(session: SessionContext, database: str, name: str) -> Done:
    server = session.server
    replica = server.table(name, database).replica
    deadline_s = server.clock.monotonic_s() + ACTIVE_WAIT_S
    waker = EventWaker()
    while not _is_ready(replica, waker.wake):
        left_s = deadline_s - server.clock.monotonic_s()
        if left_s <= 0:
            if replica.keeper.exists(replica.paths.root) is None:
                return Done(
                    f"table {database}.{name} is read-only: its replica {replica.name!r} was "
                    "removed from ZooKeeper. SYSTEM RESTORE REPLICA makes it again from this disk, "
                    "DROP TABLE ends it here"
                )
            return Done(
                f"table {database}.{name} is read-only until its server runs:"
                f" rmt serve --server {server.server.name}"
            )
        waker.wait_s(left_s)
    return Done()


def _is_ready(replica: "Replica", watch: "Watch") -> bool:
    """Whether the replica is active, and not cloning another one, which a new replica does first
    (spec §11.5).
    """
    if replica.keeper.exists(replica.paths.is_active, watch) is None:
        return False
    lost, _ = replica.keeper.get(replica.paths.is_lost, watch)
    return lost != b"1"


def attach_table(session: SessionContext, statement: AttachTable) -> Done:
    """Take up a table that was detached; with a definition, a replica that is in ZooKeeper but not
    in this server's catalog.

    That definition must be the one in ZooKeeper. That is checked when the server starts the table,
    and until then it is read-only (spec §11.2). Raises TableAlreadyExists, UnknownTable,
    ReplicaAlreadyExists.
    """
    server = session.server
    if statement.syntax is None:
        database, name = _full_name(session, statement.table)
        if statement.if_not_exists and server.catalog.has(database, name):
            return Done()
        server.attach_table(database, name)
        return _wait_active(session, database, name)
    definition = defined(session, statement.table, statement.syntax)
    if definition.engine.is_private:
        raise NotImplementedStatement(
            f"ATTACH TABLE … ENGINE = {definition.engine.name} is not implemented: only replicas "
            "of Replicated engines can be found by their path"
        )
    definition = server.expanded(definition)
    if statement.if_not_exists and server.catalog.has(definition.database, definition.name):
        return Done()
    if server.catalog.is_dropping(definition.database, definition.name):
        server.catalog.definition(definition.database, definition.name)  # its error has advice
    server.attach_replica(definition)
    return _wait_active(session, definition.database, definition.name)


def detach_table(session: SessionContext, statement: DetachTable) -> Done:
    """DETACH TABLE. Waits until the server has let go of the table; with SYNC, also until workers
    have ended what they have begun. Raises UnknownTable.
    """
    database, name = _full_name(session, statement.table)
    if database == SYSTEM_DATABASE:
        raise UserError(f"system.{name} cannot be detached")
    try:
        detached = session.server.detach_table(
            database, name, permanently=statement.permanently
        )
    except (UnknownTable, UnknownDatabase):
        if statement.if_exists:
            return Done()
        raise
    try:
        return _wait_let_go(session, detached.engine, sync=_is_sync(session, statement))
    except ZooKeeperUnreachable as error:
        return Done(
            f"{database}.{name} is detached; whether its server knows is unknown: {error}"
        )


def _wait_let_go(session: SessionContext, engine: Engine, *, sync: bool) -> Done:
    from rmt_pipeline.zookeeper.paths import TablePaths  # noqa: PLC0415  start-up

    server = session.server
    replica = TablePaths(engine.zookeeper_path).replica(engine.replica)
    keeper, waker = server.keeper(), EventWaker()
    was_held = False
    wait_s = max(ACTIVE_WAIT_S, session.query_settings().receive_timeout if sync else 0)
    deadline_s = server.clock.monotonic_s() + wait_s
    while True:
        held = keeper.exists(replica.is_active, waker.wake) is not None
        was_held |= held  # a server that held it also notes that it is detached
        held |= was_held and keeper.exists(replica.detached, waker.wake) is None
        [claims] = keeper.children_many([replica.executing]) if sync else [None]
        left_s = deadline_s - server.clock.monotonic_s()
        if not held and not claims:
            return Done()
        if left_s <= 0:
            runs = f"{len(claims or ())} entries of its queue are still running"
            what = "its server still has it open" if held else runs
            return Done(f"it is detached, but after {wait_s:g} s {what}")
        waker.wait_s(min(left_s, CLAIMS_LOOK_S) if claims else left_s)


def drop_tables(session: SessionContext, statement: DropTable) -> Done:
    """Drop the tables one after the other. Raises UnknownTable before any is dropped."""
    catalog = session.server.catalog
    wanted = []
    for database, name in (_full_name(session, table) for table in statement.tables):
        if database == SYSTEM_DATABASE:
            raise UserError(f"system.{name} cannot be dropped")
        try:
            if not catalog.is_dropping(database, name):
                catalog.definition(database, name)
        except (UnknownTable, UnknownDatabase):
            if not statement.if_exists:
                raise
            continue
        wanted.append((database, name))
    for database, name in wanted:
        try:
            _drop(session, database, name, sync=_is_sync(session, statement))
        except (UnknownTable, UnknownDatabase):  # another client has dropped it since
            if not statement.if_exists:
                raise
    return Done()


def _drop(session: SessionContext, database: str, name: str, *, sync: bool) -> None:
    """Drop a table. Without `sync`, wait until its server has let go of it, so that a new table can
    take its place.
    """
    catalog = session.server.catalog
    sync |= replicated_database(catalog, database) is not None  # not tables of one server alone
    is_begun = catalog.is_dropping(database, name)
    engine = None if is_begun else catalog.definition(database, name).engine
    session.server.drop_table(database, name, sync=sync)
    if engine is not None and not sync:
        _wait_let_go(session, engine, sync=False)


def _is_sync(
    session: SessionContext, statement: DropTable | DropDatabase | DetachTable
) -> bool:
    settings = session.query_settings()
    return statement.sync or settings.database_atomic_wait_for_drop_and_detach_synchronously


def undrop_table(session: SessionContext, statement: UndropTable) -> Done:
    """UNDROP TABLE. Waits until the server has taken the table up. Raises UnknownTable,
    UnknownDatabase, TableAlreadyExists.
    """
    database, name = _full_name(session, statement.table)
    session.server.undrop_table(database, name, statement.uuid)
    return _wait_active(session, database, name)


def rename(
    session: SessionContext, statement: RenameTables | ExchangeTables | RenameDatabase
) -> Done:
    """RENAME, or EXCHANGE. Raises UnknownTable, UnknownDatabase, TableAlreadyExists,
    DatabaseAlreadyExists; then nothing was renamed.
    """
    server = session.server
    if isinstance(statement, RenameDatabase):
        if SYSTEM_DATABASE in (statement.old, statement.new):
            raise UserError("the database system keeps its name")
        if not statement.if_exists or statement.old in server.catalog.databases():
            server.rename_database(statement.old, statement.new)
        return Done()
    if isinstance(statement, ExchangeTables):
        pairs: tuple[tuple[TableName, TableName], ...] = ((statement.one, statement.other),)
        if_exists = False
    else:
        pairs, if_exists = statement.moves, statement.if_exists
    moves = [(_full_name(session, old), _full_name(session, new)) for old, new in pairs]
    if any(name[0] == SYSTEM_DATABASE for move in moves for name in move):
        raise UserError("the tables of the database system keep their names")
    if isinstance(statement, ExchangeTables):
        server.exchange_tables(*moves[0])
        return Done()
    server.rename_tables(*(_possible(server.catalog, moves) if if_exists else moves))
    return Done()


def _possible(
    catalog: "Catalog", moves: Sequence[tuple[FullName, FullName]]
) -> Iterator[tuple[FullName, FullName]]:
    """Those of the moves, in their order, that find a table: an earlier one may have brought it."""
    there: dict[FullName, bool] = {}
    for old, new in moves:
        if there.get(old, catalog.has(*old)):
            there |= {old: False, new: True}
            yield old, new


def _full_name(session: SessionContext, table: TableName) -> tuple[str, str]:
    return session.database_of(table), table.name


def create_database(session: SessionContext, statement: CreateDatabase) -> Done:
    """CREATE DATABASE with the engine Atomic. Raises DatabaseAlreadyExists."""
    if statement.name == SYSTEM_DATABASE:
        raise DatabaseAlreadyExists("database system already exists")
    session.server.catalog.create_database(
        statement.name, if_not_exists=statement.if_not_exists
    )
    return Done()


def require_none_detached(catalog: "Catalog", database: str) -> None:
    """Raises DatabaseNotEmpty if the database has detached tables."""
    detached = catalog.detached(database)
    if detached:
        names = ", ".join(f"{one.definition.name} ({one.words})" for one in detached)
        raise DatabaseNotEmpty(
            f"database {database} has detached tables: {names}; ATTACH TABLE them first"
        )


def drop_database(session: SessionContext, statement: DropDatabase) -> Done:
    """DROP DATABASE with its tables, as in the original. Raises UnknownDatabase."""
    if statement.name == SYSTEM_DATABASE:
        raise UserError("database system cannot be dropped")
    try:
        _drop_with_tables(session, statement)
    except UnknownDatabase:
        if not statement.if_exists:
            raise
    return Done()


def _drop_with_tables(session: SessionContext, statement: DropDatabase) -> None:
    catalog = session.server.catalog
    catalog.require_database(statement.name)
    catalog.require_readable(statement.name)
    require_none_detached(catalog, statement.name)  # before anything is dropped
    for name in [*catalog.tables(statement.name), *catalog.dropping(statement.name)]:
        with suppress(UnknownTable):  # another client has dropped it since
            _drop(session, statement.name, name, sync=_is_sync(session, statement))
    catalog.drop_database(statement.name)
