"""OPTIMIZE and SYSTEM SYNC REPLICA."""

from typing import TYPE_CHECKING

from rmt_pipeline.protocol.errors import (
    BadValue,
    NotImplementedStatement,
    UnknownColumn,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.wait import SyncMode
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.syntax.statements.nodes import (
    Optimize,
    PartitionById,
    PartitionByValue,
    PartitionSyntax,
    SystemSyncReplica,
    Values,
)
from rmt_pipeline.types.to_text import column_values

if TYPE_CHECKING:
    from rmt_pipeline.sql.run.session import Session


def optimize(session: "Session", statement: Optimize) -> Done:
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


def partition_id_of(partition: PartitionSyntax, definition: TableDefinition) -> str:
    """The id of the partition that a statement names, by its id or by the value of its key.

    Raises BadValue when the value does not fit the key, UserError when there is no key.
    """
    from rmt_pipeline.compute.key_columns import KeyColumns  # noqa: PLC0415
    from rmt_pipeline.compute.partition import NO_KEY, partition_id  # noqa: PLC0415
    from rmt_pipeline.sql.define.constants import evaluate_constants  # noqa: PLC0415
    from rmt_pipeline.sql.formats.rows import ResultColumn  # noqa: PLC0415
    from rmt_pipeline.sql.run.values import read_values  # noqa: PLC0415

    match partition:
        case PartitionById():
            return partition.id
        case PartitionByValue():
            pass
    text = partition.expression
    if not definition.partition_by:
        if text.replace(" ", "").lower() not in ("tuple()", "()"):
            raise UserError(
                f"{definition.full_name} has no PARTITION BY: its one partition is tuple(),"
                f" not {text}"
            )
        return NO_KEY
    key = KeyColumns(definition.partition_by, definition.columns)
    columns = [ResultColumn(*each) for each in zip(key.names, key.types, strict=True)]
    row = _as_row(text, len(columns))
    try:
        (read,) = read_values(Values(row, 0, len(row)), columns, evaluate_constants)
    except UserError as error:
        wanted = ", ".join(
            f"{name} {kind}" for name, kind in zip(key.names, key.types, strict=True)
        )
        raise BadValue(
            f"PARTITION {text} is no value of the partition key of {definition.full_name}"
            f" ({wanted}): {error}"
        ) from error
    values = [column_values(array)[0] for array in read.batch.columns]
    return partition_id(values, key.types)


def _as_row(text: str, width: int) -> str:
    """The value of a key as a row of VALUES: a key of several columns is a tuple already."""
    if width == 1:
        return f"({text})"
    return text[len("tuple") :] if text.lower().startswith("tuple") else text


def sync_replica(session: "Session", statement: SystemSyncReplica) -> Done:
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
