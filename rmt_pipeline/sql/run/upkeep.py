"""OPTIMIZE and SYSTEM SYNC REPLICA."""

from rmt_pipeline.protocol.errors import (
    NotImplementedStatement,
    UnknownColumn,
    UnknownTable,
)
from rmt_pipeline.replica.wait import SyncMode
from rmt_pipeline.sql.define.partition import partition_id_of
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.syntax.statements.nodes import (
    Optimize,
    SystemSyncReplica,
)


def optimize(session: SessionContext, statement: Optimize) -> Done:
    """Assign merges and wait for them as `alter_sync` says (spec §6.7).

    Raises UnknownTable, UnknownColumn, BadValue for a partition's value.
    """
    if statement.cleanup:
        raise NotImplementedStatement("OPTIMIZE … CLEANUP is not implemented")
    name = statement.table
    table = session.server.table(name.name, session.database_of(name))
    definition = table.definition
    for column in statement.deduplicate_by:
        if definition.column(column) is None:
            known = ", ".join(each.name for each in definition.columns)
            raise UnknownColumn(f"DEDUPLICATE BY {column}: {definition.full_name} has {known}")
    partition = None
    if statement.partition is not None:
        partition = partition_id_of(statement.partition, definition)
    table.optimize(
        partition,
        final=statement.final,
        deduplicate=statement.deduplicate,
        deduplicate_by=statement.deduplicate_by,
        settings=session.query_settings(statement.settings),
    )
    return Done()


def sync_replica(session: SessionContext, statement: SystemSyncReplica) -> Done:
    """Wait for what is in the log now, at most `receive_timeout` (spec §4.13).

    Raises UnknownTable, Timeout.
    """
    if statement.from_replicas:
        raise NotImplementedStatement("SYSTEM SYNC REPLICA … FROM is not implemented")
    name = statement.table
    try:
        table = session.server.table(name.name, session.database_of(name))
    except UnknownTable:
        if statement.if_exists:
            return Done()
        raise
    timeout_s = session.query_settings().receive_timeout
    table.sync(SyncMode(statement.mode), timeout_s)
    return Done()
