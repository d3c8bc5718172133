"""Commands on partitions and parts, and TRUNCATE, of a session (spec §9)."""

from rmt_pipeline.protocol.errors import BadValue, UnknownTable, UserError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.sql.define.partition import partition_id_of
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.syntax.statements.nodes import (
    SYSTEM_DATABASE,
    AllPartitions,
    AlterPartitions,
    DropPartition,
    OnePart,
    TableName,
    Truncate,
)
from rmt_pipeline.table import Table


def alter_partitions(session: SessionContext, statement: AlterPartitions) -> Done:
    """One command after another; each on every replica, waited for as `alter_sync` says.

    Raises UnknownTable, BadValue for what names no partition or part, and what the command raises:
    those before it have been carried out then.
    """
    table = _table(session, statement.table)
    query = session.query_settings(statement.settings)
    told = [_drop(table, command, query) for command in statement.commands]
    return Done("; ".join(filter(None, told)))


def truncate(session: SessionContext, statement: Truncate) -> Done:
    """Raises UnknownTable; as DROP PARTITION ALL otherwise."""
    try:
        table = _table(session, statement.table)
    except UnknownTable:
        if statement.if_exists:
            return Done()
        raise
    table.truncate(settings=session.query_settings(statement.settings))
    return Done()


def _drop(table: Table, command: DropPartition, query: QuerySettings) -> str:
    match command.target:
        case OnePart(name):
            table.drop_part(part_of(name), detach=command.detach, settings=query)
            return ""
        case AllPartitions():
            table.drop_partitions(None, detach=command.detach, settings=query)
            return ""
        case partition:
            partition_id = partition_id_of(partition, table.definition)
            dropped = table.drop_partitions(
                [partition_id], detach=command.detach, settings=query
            )
            never = f"partition {partition_id} has never had a row; nothing was dropped"
            return "" if dropped else never


def part_of(name: str) -> PartName:
    """Raises BadValue: a part's name never leads out of the table's directory."""
    part = PartName.try_parse(name)
    if part is None or part.is_drop_range:
        raise BadValue(
            f"{name!r} is not the name of a part: that is "
            "<partition>_<first block>_<last block>_<level>[_<mutation>], as system.parts shows it"
        )
    return part


def _table(session: SessionContext, name: TableName) -> Table:
    database = session.database_of(name)
    if database == SYSTEM_DATABASE:
        raise UserError(f"system.{name.name} has no partitions to change")
    return session.server.table(name.name, database)
