"""Commands on partitions and parts, and TRUNCATE, of a session (spec §9)."""

from typing import assert_never

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
    AttachPartition,
    DropDetached,
    DropPartition,
    MovePartition,
    OnePart,
    PartitionCommand,
    PartitionFrom,
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
    told = [_one(session, table, command, query) for command in statement.commands]
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


def _one(
    session: SessionContext, table: Table, command: PartitionCommand, query: QuerySettings
) -> str:
    match command:
        case PartitionFrom():
            return _from(session, table, command, query)
        case MovePartition():
            return _move(session, table, command, query)
        case DropPartition():
            return _drop(table, command, query)
        case AttachPartition():
            return _attach(table, command, query)
        case DropDetached():
            return _drop_detached(table, command, query)
        case _:
            assert_never(command)


def _from(
    session: SessionContext, table: Table, command: PartitionFrom, query: QuerySettings
) -> str:
    source = _table(session, command.source)
    partition = partition_id_of(command.partition, table.definition)
    if not command.attach:
        table.replace_partition(partition, source, settings=query)
        return ""
    taken = table.attach_partition(partition, source, settings=query)
    if taken.already:
        already = ", ".join(map(str, taken.already))
        return f"{already} of {command.source} had been attached before: not once more"
    return "" if taken.parts else _nothing_in(partition, source)


def _move(
    session: SessionContext, table: Table, command: MovePartition, query: QuerySettings
) -> str:
    destination = _table(session, command.destination)
    partition = partition_id_of(command.partition, table.definition)
    taken = table.move_partition(partition, destination, settings=query)
    return "" if taken.parts else _nothing_in(partition, table)


def _nothing_in(partition: str, table: Table) -> str:
    return f"{table.definition.full_name} has no row in partition {partition}: nothing was done"


def _attach(table: Table, command: AttachPartition, query: QuerySettings) -> str:
    match command.target:
        case OnePart(name):
            return table.attach(part=part_of(name), settings=query).words()
        case AllPartitions():
            return table.attach(settings=query).words()
        case partition:
            partition_id = partition_id_of(partition, table.definition)
            attached = table.attach(partition_id, settings=query)
            nothing = f"no part of partition {partition_id} is detached here"
            return attached.words() or ("" if attached.parts else nothing)


def _drop_detached(table: Table, command: DropDetached, query: QuerySettings) -> str:
    if not query.allow_drop_detached:
        raise SupportIsDisabled(
            "DROP DETACHED removes what nothing else keeps: SETTINGS allow_drop_detached = 1 allows"
            " it; system.detached_parts shows what there is"
        )
    match command.target:
        case OnePart(name):
            removed = table.drop_detached(name=name)
        case AllPartitions():
            removed = table.drop_detached()
        case partition:
            partition_id = partition_id_of(partition, table.definition)
            removed = table.drop_detached(partition_id)
    return f"removed {', '.join(removed)}" if removed else "nothing of it is detached here"


class SupportIsDisabled(UserError):
    code = "SUPPORT_IS_DISABLED"


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
