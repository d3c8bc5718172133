"""ALTER TABLE of a session: the table's columns, keys, TTL, settings and comments (spec §8)."""

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.replica.alter import request_alter
from rmt_pipeline.sql.define.alter import alter_commands
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.syntax.statements.nodes import SYSTEM_DATABASE, AlterTable
from rmt_pipeline.system import EventWaker


def alter_table(session: SessionContext, statement: AlterTable) -> Done:
    """On every replica, or here alone what is each replica's own; waits as `alter_sync` says.

    Raises UnknownTable; a UserError for what can't be altered or converted, before anything is
    changed; CannotAssignAlter; Unfinished.
    """
    name = statement.table
    database = session.database_of(name)
    if database == SYSTEM_DATABASE:
        raise UserError(f"system.{name.name} can't be altered")
    table = session.server.table(name.name, database)
    request_alter(
        lambda: table.replica,
        lambda definition: alter_commands(statement.commands, definition),
        session.query_settings(statement.settings),
        EventWaker,
    )
    return Done()
