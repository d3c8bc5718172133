"""OPTIMIZE, CHECK TABLE, and SYSTEM statements about replicas."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import assert_never

from rmt_pipeline.protocol.background import Background, first_stopped
from rmt_pipeline.protocol.errors import (
    TABLE_FAILS,
    NoSuchColumn,
    RmtError,
    UnknownDatabase,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.protocol.text import require_node, require_path
from rmt_pipeline.replica.life.dead import drop_dead_replicas
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.sync import SyncMode
from rmt_pipeline.replica.upkeep.scrub import CheckedPart
from rmt_pipeline.replica.work.running import stop_by_hand
from rmt_pipeline.sql.define.partition import partition_id_of
from rmt_pipeline.sql.formats.rows import Columns, Done, Result, Rows, rows_of
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.sql.run.databases import (
    drop_replica_of_database,
    restore_database,
    sync_database,
)
from rmt_pipeline.sql.run.partitions import CommandResult, results
from rmt_pipeline.sql.run.tables import ACTIVE_WAIT_S
from rmt_pipeline.syntax.statements.nodes import (
    CheckTable,
    ColumnsChosen,
    Optimize,
    SystemDropDatabaseReplica,
    SystemDropReplica,
    SystemNothingToDo,
    SystemRestartReplica,
    SystemRestoreDatabase,
    SystemRestoreReplica,
    SystemStatement,
    SystemSwitch,
    SystemSyncDatabase,
    SystemSyncReplica,
    SystemUnfreeze,
    SystemWaitLoadingParts,
    TableName,
)
from rmt_pipeline.system import EventWaker
from rmt_pipeline.table import Table
from rmt_pipeline.translate.select.items import matching
from rmt_pipeline.zookeeper.keeper import Delete, Refused


def upkeep(  # noqa: C901, PLR0912  one line each
    session: SessionContext, statement: Optimize | CheckTable | SystemStatement
) -> Result:
    """Carry out OPTIMIZE, CHECK TABLE or a SYSTEM statement on this server."""
    match statement:
        case Optimize():
            return _optimize(session, statement)
        case CheckTable():
            return check_table(session, statement)
        case SystemSyncReplica():
            return _sync_replica(session, statement)
        case SystemDropReplica():
            return drop_replica_of(session, statement)
        case SystemRestartReplica():
            return restart_replicas(session, statement)
        case SystemRestoreReplica():
            return restore_replica(session, statement)
        case SystemSyncDatabase():
            return sync_database(session, statement)
        case SystemRestoreDatabase():
            return restore_database(session, statement)
        case SystemDropDatabaseReplica():
            return drop_replica_of_database(session, statement)
        case SystemNothingToDo():
            # System tables are read when a query names them, and an INSERT is done at once.
            return Done()
        case SystemUnfreeze():
            return unfreeze(session, statement)
        case SystemWaitLoadingParts():
            _table_named(session, statement.table)
            return Done()  # an active replica knows its parts
        case SystemSwitch():
            return switch(session, statement)
        case _:
            assert_never(statement)


def unfreeze(session: SessionContext, statement: SystemUnfreeze) -> Result:
    """SYSTEM UNFREEZE: for every table of this server, and for tables that are gone. Raises
    BadSnapshotName.
    """
    gone = session.server.shadow().remove(statement.name)
    if not gone:
        return Done(f"nothing is frozen under the name {statement.name!r}")
    for table in session.server.tables():
        of_table = table.frozen_parts.directory(statement.name)
        table.note_command(
            "SYSTEM UNFREEZE",
            "UnfreezePart",
            [one.part for one in gone if one.directory == of_table],
        )
    rows = [CommandResult.of_snapshot("SYSTEM UNFREEZE", one) for one in gone]
    return results(rows, statement.answer)


class NoColumns(UserError):
    """A choice of columns has chosen none."""

    code = "EMPTY_LIST_OF_COLUMNS_QUERIED"


def _deduplicated(
    given: tuple[str, ...] | ColumnsChosen, definition: TableDefinition
) -> tuple[str, ...]:
    if not isinstance(given, ColumnsChosen):
        return given
    names = [column.name for column in definition.columns if column.is_stored]
    for name in given.without:
        if name not in names:
            raise NoSuchColumn(
                f"DEDUPLICATE BY … EXCEPT {name}: {definition.full_name} has {', '.join(names)}"
            )
    chosen = matching(given.pattern, names) if given.pattern else [True] * len(names)
    found = [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
    left = tuple(name for name in found if name not in given.without)
    if not left:
        raise NoColumns(f"DEDUPLICATE BY chooses no column; there are {', '.join(names)}")
    return left


def _optimize(session: SessionContext, statement: Optimize) -> Done:
    """Assign merges and wait for them as `alter_sync` says (spec §6.7).

    Raises UnknownTable, NoSuchColumn, KeyLeftOut, CleanupRefused, BadValue for a partition's value.
    """
    name = statement.table
    table = session.server.table(name.name, session.database_of(name))
    definition = table.definition
    columns = _deduplicated(statement.deduplicate_by, definition)
    partition = None
    if statement.partition is not None:
        partition = partition_id_of(statement.partition, definition)
    session.progress.waits_for(
        "its merges, which may wait for Spark to start (see: rmt merges)"
    )
    merged = table.optimize(
        partition,
        final=statement.final,
        deduplicate=statement.deduplicate,
        deduplicate_by=columns,
        cleanup=statement.cleanup,
        settings=session.query_settings(statement.settings),
    )
    if merged:
        return Done()
    stopped = first_stopped(table.store.marks.stopped(), Background.MERGES)
    if stopped is not None:
        return Done(f"{definition.full_name}: nothing was merged: {stopped}")
    if partition is None:
        return Done()
    return Done(
        f"partition {partition}: nothing was merged; optimize_throw_if_noop = 1 makes that an "
        "error that says why"
    )


_RESULT: Columns = (("result", "UInt8"),)
_RESULTS: Columns = (("part_path", "String"), ("is_passed", "UInt8"), ("message", "String"))


def check_table(session: SessionContext, statement: CheckTable) -> Rows:
    """Read every byte of the parts. A broken part is given up, and fetched again. The answer is 1
    or 0, or, without `check_query_single_value_result`, a row for each part.

    Raises UnknownTable, UserError for a part that the table does not have, and BadValue for a
    partition.
    """
    name = statement.table
    table = session.server.table(name.name, session.database_of(name))
    checked = table.check(_wanted(statement, table.definition))
    if statement.part:
        checked = _the_part(checked, statement.part, table)
    settings = session.query_settings(statement.answer.settings)
    if settings.check_query_single_value_result:
        passed = not [found for found in checked if found.problem]  # checks every part
        return rows_of(_RESULT, [(int(passed),)], statement.answer.format)
    rows = ((str(found.part), int(not found.problem), found.problem) for found in checked)
    return rows_of(_RESULTS, rows, statement.answer.format)


def _wanted(
    statement: CheckTable, definition: TableDefinition
) -> Callable[[PartName], bool] | None:
    if statement.partition is not None:
        partition = partition_id_of(statement.partition, definition)
        return lambda part: part.partition == partition
    if statement.part:
        return lambda part: str(part) == statement.part
    return None


def _the_part(checked: Iterator[CheckedPart], name: str, table: Table) -> Iterator[CheckedPart]:
    found = list(checked)
    if not found:
        raise UserError(
            f"{table.definition.full_name} has no active part {name!r}: system.parts lists them"
        )
    return iter(found)


def _sync_replica(session: SessionContext, statement: SystemSyncReplica) -> Done:
    """Wait until this replica has what is in the log now, at most for `receive_timeout` (spec
    §4.13).

    Raises UnknownTable, Timeout.
    """
    name = statement.table
    try:
        table = session.server.table(name.name, session.database_of(name))
    except (UnknownTable, UnknownDatabase):
        if statement.if_exists:
            return Done()
        raise
    timeout_s = session.query_settings().receive_timeout
    table.sync(SyncMode(statement.mode), timeout_s, statement.from_replicas)
    return Done()


def _table_named(session: SessionContext, name: TableName) -> Table:
    """The table of that name. Raises UnknownTable."""
    return session.server.table(name.name, session.database_of(name))


def switch(session: SessionContext, statement: SystemSwitch) -> Done:
    """STOP and START of background work, in every process of this host. As in the original, a
    restart of the server forgets it, and work that is under way is cancelled.

    Raises UnknownTable. STOP TTL MERGES looks at the queue for what is under way, and raises its
    errors; the other tables are stopped, or go on, nevertheless.
    """
    name, what = statement.table, statement.what
    if what is Background.MOVES:
        return Done()  # there is only one disk, so nothing is moved
    tables = session.server.tables() if name is None else [_table_named(session, name)]
    problem: RmtError | OSError | None = None
    for table in tables:
        try:
            if statement.start:
                table.store.marks.go_on(what)
            else:
                _stop(table, what)
        except TABLE_FAILS as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return Done()


def _stop(table: Table, what: Background) -> None:
    stop_by_hand(table.store, what, lambda: table.replica)


def drop_replica_of(session: SessionContext, statement: SystemDropReplica) -> Done:
    """Remove what a replica whose server is gone for good has left in ZooKeeper.

    Of several tables, those without such a replica are skipped. Raises UnknownTable,
    UnknownDatabase; UserError when it is this server's own; what `drop_dead_replicas` raises.
    """
    server = session.server
    require_node(statement.replica, "replica")
    if statement.database:
        server.catalog.require_database(statement.database)
    if statement.zookeeper_path:
        require_path(statement.zookeeper_path, "ZKPATH")
        paths = [statement.zookeeper_path]
    elif statement.table is not None:
        name = statement.table
        definition = server.catalog.definition(session.database_of(name), name.name)
        paths = [definition.engine.zookeeper_path]
    else:
        paths = [
            definition.engine.zookeeper_path
            for definition in server.catalog.definitions()
            if statement.database in ("", definition.database)
        ]
    own = {
        (definition.engine.zookeeper_path, definition.engine.replica): definition
        for definition in server.catalog.definitions()
    }
    mine = [own[path, statement.replica] for path in paths if (path, statement.replica) in own]
    if mine and len(mine) == len(paths):
        raise UserError(
            f"{statement.replica!r} is this server's own replica of {mine[0].full_name}: DROP TABLE"
        )
    others = [path for path in paths if (path, statement.replica) not in own]
    gone = drop_dead_replicas(server.keeper, others, statement.replica).gone
    was_last = (
        f"it was the last replica of {', '.join(gone)}: the table is gone" if gone else ""
    )
    return Done(was_last)


def restart_replicas(session: SessionContext, statement: SystemRestartReplica) -> Done:
    """Remove the replica's `is_active`: its server notices that, and starts the replica as after a
    crash. Waits for that. Work that is under way goes on, or is taken up again.

    Raises UnknownTable.
    """
    server, name = session.server, statement.table
    if name is None:
        tables = server.tables()
    else:
        tables = [server.table(name.name, session.database_of(name))]
    before = [(table, _stop_being_active(table.replica)) for table in tables]
    return Done("; ".join(_late_ones(session, before)))


def _late_ones(session: SessionContext, before: Iterable[tuple[Table, int]]) -> list[str]:
    """Wait until each replica is active again, by a later transaction than the named one. Returns a
    note about those that are not after `ACTIVE_WAIT_S`.
    """
    clock, waker = session.server.clock, EventWaker()
    deadline_s = clock.monotonic_s() + ACTIVE_WAIT_S
    late = []
    for table, czxid in before:
        while not _is_active_anew(table.replica, czxid, waker.wake):
            left_s = deadline_s - clock.monotonic_s()
            if left_s <= 0:
                late.append(table.definition.full_name)
                break
            waker.wait_s(left_s)
    if not late:
        return []
    return [f"{', '.join(late)}: not active yet; does its server run? rmt status says why"]


def restore_replica(session: SessionContext, statement: SystemRestoreReplica) -> Done:
    """Restore the table in ZooKeeper from the parts on this disk (spec §11.6), and wait until the
    server has noticed.

    Raises UnknownTable, NothingToRestore, UserError, Conflict.
    """
    server, name = session.server, statement.table
    definition = server.catalog.definition(session.database_of(name), name.name)
    restored = server.restore(definition)
    words = [f"{definition.full_name}: {restored.words()}"]
    if not restored.waits_for:
        words += _late_ones(session, [(server.table_of(definition), 0)])
    return Done("; ".join(words))


def _stop_being_active(replica: Replica) -> int:
    """Remove `is_active`. Returns the transaction that had created it; 0 when there was none."""
    stat = replica.keeper.exists(replica.paths.is_active)
    if stat is None:
        return 0
    with suppress(Refused):  # the replica's session has ended
        replica.keeper.multi([Delete(replica.paths.is_active, stat.version)])
    return stat.created_zxid


def _is_active_anew(replica: Replica, before: int, watch: Callable[[], None]) -> bool:
    stat = replica.keeper.exists(replica.paths.is_active, watch)
    return stat is not None and stat.created_zxid > before
