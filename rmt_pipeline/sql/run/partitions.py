"""ALTER TABLE commands on partitions and parts, and TRUNCATE, of a session (spec §9)."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, assert_never

from rmt_pipeline.config import expand
from rmt_pipeline.files import escape_file_name
from rmt_pipeline.protocol.errors import (
    BadPartName,
    Corruption,
    UnknownDatabase,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.sql.define.partition import partition_id_of
from rmt_pipeline.sql.formats.rows import Done, Result, Rows, rows_of
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.store.frozen import InSnapshot
from rmt_pipeline.syntax.statements.nodes import (
    SYSTEM_DATABASE,
    AllPartitions,
    AlterPartitions,
    Answer,
    AttachPartition,
    DropDetached,
    DropPartition,
    FetchPartition,
    FreezePartition,
    MovePartition,
    OnePart,
    PartitionCommand,
    PartitionFrom,
    TableName,
    Truncate,
    UnfreezePartition,
)
from rmt_pipeline.table import Table


class SupportIsDisabled(UserError):
    """PARTITION ALL of a command for which the original does not support it, or DROP DETACHED
    without `allow_drop_detached = 1`.
    """

    code = "SUPPORT_IS_DISABLED"


class CommandResult(NamedTuple):
    """What a command did with a part: a row of its answer, with the original's names for the
    columns.
    """

    command_type: str
    partition_id: str
    part_name: str
    old_part_name: str = ""
    backup_name: str = ""
    backup_path: str = ""
    part_backup_path: str = ""

    @classmethod
    def of_snapshot(cls, command: str, one: InSnapshot) -> "CommandResult":
        return cls(
            command,
            one.part.partition,
            str(one.part),
            backup_name=one.snapshot,
            backup_path=one.directory,
            part_backup_path=one.part_directory,
        )


def results(rows: Sequence[CommandResult], answer: Answer) -> Rows:
    """The answer with these rows. Except the first three, columns without any value
    are left out.
    """
    names = CommandResult._fields
    kept = [at for at in range(len(names)) if at < 3 or any(row[at] for row in rows)]
    columns = [(names[at], "String") for at in kept]
    return rows_of(columns, [[row[at] for at in kept] for row in rows], answer.format)


def alter_partitions(session: SessionContext, statement: AlterPartitions) -> Result:
    """Carry out one command after another. Each is for every replica, and waited for as
    `alter_sync` says, but FREEZE and UNFREEZE are for this one only. With
    `alter_partition_verbose_result` the answer is a row for each part that was attached, frozen or
    unfrozen.

    Raises UnknownTable, BadValue or BadPartName for a bad partition or part, and what the command
    raises. The commands before the one that fails have been carried out then.
    """
    table = _table(session, statement.table)
    query = session.query_settings(statement.answer.settings)
    told: list[str] = []
    rows: list[CommandResult] = []
    for command in statement.commands:
        outcome = _one(session, table, command, query)
        if isinstance(outcome, str):
            told.append(outcome)
        else:
            rows += outcome
    if query.alter_partition_verbose_result:
        return results(rows, statement.answer)
    return Done("; ".join(filter(None, told)))


def truncate(session: SessionContext, statement: Truncate) -> Done:
    """TRUNCATE TABLE. Raises UnknownTable, and what DROP PARTITION ALL raises."""
    try:
        table = _table(session, statement.table)
    except (UnknownTable, UnknownDatabase):
        if statement.if_exists:
            return Done()
        raise
    table.truncate(settings=session.query_settings(statement.settings))
    return Done()


def _one(
    session: SessionContext, table: Table, command: PartitionCommand, query: QuerySettings
) -> str | list[CommandResult]:
    """Carry out one command. Returns a note about it, or what it did with which parts."""
    match command:
        case FetchPartition():
            return _fetch(session, table, command, query)
        case FreezePartition() | UnfreezePartition():
            return _snapshot(table, command, query)
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


def _fetch(
    session: SessionContext, table: Table, command: FetchPartition, query: QuerySettings
) -> str:
    definition = table.definition
    macros = session.server.server.macros_for(definition.database, definition.name)
    path = expand(command.path, macros)
    match command.target:
        case AllPartitions():
            raise _only_some("FETCH is of one partition at a time")
        case OnePart(name):
            fetched = table.fetch_partition(path, part=part_of(name), settings=query)
        case partition:
            wanted = partition_id_of(partition, definition)
            fetched = table.fetch_partition(path, wanted, settings=query)
    if not fetched.kept:
        return ""
    kept = ", ".join(map(str, fetched.kept))
    return f"an earlier FETCH, which was cut off, had brought {kept}"


def _only_some(instead: str) -> SupportIsDisabled:
    return SupportIsDisabled(
        f"Only support DROP/DETACH/ATTACH PARTITION ALL currently: {instead}"
    )


def _nothing_in(partition: str, table: Table) -> str:
    return f"{table.definition.full_name} has no row in partition {partition}: nothing was done"


def _attach(
    table: Table, command: AttachPartition, query: QuerySettings
) -> str | list[CommandResult]:
    nothing = ""
    match command.target:
        case OnePart(name):
            attached = table.attach(part=part_of(name), settings=query)
        case AllPartitions():
            attached = table.attach(settings=query)
        case partition:
            partition_id = partition_id_of(partition, table.definition)
            attached = table.attach(partition_id, settings=query)
            nothing = f"no part of partition {partition_id} is detached here"
    if query.alter_partition_verbose_result:
        kind = "ATTACH PART" if isinstance(command.target, OnePart) else "ATTACH PARTITION"
        return [_attached(table, kind, part) for part in attached.parts]
    return attached.words() or ("" if attached.parts else nothing)


def _attached(table: Table, kind: str, part: PartName) -> CommandResult:
    """The row for a part that was attached. If it is merged away and removed already, it has no old
    name.
    """
    old = ""
    with suppress(Corruption):
        old = ", ".join(table.store.manifest(part).sources)
    return CommandResult(kind, part.partition, str(part), old_part_name=old)


def _snapshot(
    table: Table, command: FreezePartition | UnfreezePartition, query: QuerySettings
) -> str | list[CommandResult]:
    partition = command.partition
    if isinstance(partition, AllPartitions):
        raise _only_some("FREEZE and UNFREEZE without PARTITION are of all of them")
    wanted = None if partition is None else partition_id_of(partition, table.definition)
    if isinstance(command, FreezePartition):
        verb, made = "FREEZE", table.freeze(wanted, name=command.name, settings=query)
        # As in the original: FREEZE answers with the name of the directory.
        found = [one._replace(snapshot=escape_file_name(one.snapshot)) for one in made]
    else:
        verb, found = "UNFREEZE", table.unfreeze(command.name, wanted)
    if not found and not query.alter_partition_verbose_result:
        of = table.definition.full_name if wanted is None else f"partition {wanted}"
        if verb == "FREEZE":
            return f"{of} has no part here: nothing was frozen"
        return f"snapshot {command.name!r} has nothing of {of} here: nothing was removed"
    kind = f"{verb} {'ALL' if partition is None else 'PARTITION'}"
    return [CommandResult.of_snapshot(kind, one) for one in found]


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


def _drop(table: Table, command: DropPartition, query: QuerySettings) -> str:
    match command.target:
        case OnePart(name):
            table.drop_part(part_of(name), detach=command.detach, settings=query)
        case AllPartitions():
            table.drop_partitions(None, detach=command.detach, settings=query)
        case partition:
            wanted = partition_id_of(partition, table.definition)
            if not table.drop_partitions([wanted], detach=command.detach, settings=query):
                done = "detached" if command.detach else "dropped"
                return f"partition {wanted} has never had a row; nothing was {done}"
    return ""


def part_of(name: str) -> PartName:
    """The part of that name, which never leads out of the table's directory. Raises BadPartName."""
    part = PartName.try_parse(name)
    if part is None or part.is_drop_range:
        raise BadPartName(
            f"{name!r} is not the name of a part: that is "
            "<partition>_<first block>_<last block>_<level>[_<mutation>], as system.parts shows it"
        )
    return part


def _table(session: SessionContext, name: TableName) -> Table:
    database = session.database_of(name)
    if database == SYSTEM_DATABASE:
        raise UserError(f"system.{name.name} has no partitions to change")
    return session.server.table(name.name, database)
