"""Checks before an ALTER is written to the log: whether its definition is valid, whether a mutation
stands in its way, and whether the values that are here can be converted.
"""

from collections.abc import Sequence

from rmt_pipeline.compute.read.convert import try_conversions
from rmt_pipeline.compute.rows.computed import (
    check_constant_default,
    compiled,
    gives_another_each_time,
)
from rmt_pipeline.compute.rows.defaults import DefaultExpressions
from rmt_pipeline.protocol.alter.commands import (
    AddColumn,
    AlterCommand,
    ClearColumn,
    DropColumn,
    ModifyColumn,
    RenameColumn,
)
from rmt_pipeline.protocol.alter.definition import Altered, KeyUse
from rmt_pipeline.protocol.alter.history import stored_as, stored_columns
from rmt_pipeline.protocol.errors import (
    BadTtl,
    BadTypeOfField,
    IllegalColumn,
    MissingPart,
    UserError,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import Column, Constraint, TableDefinition
from rmt_pipeline.replica.mutations.mutations import load_mutations, status_of_mutations
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.syntax.mutation import Command, names_used, parse_commands
from rmt_pipeline.syntax.nodes import Node
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.system import Waker
from rmt_pipeline.translate.compiler import NotDeterministic
from rmt_pipeline.translate.expression import Expression, compile_expression, compile_node
from rmt_pipeline.translate.mutation_rules import check_commands
from rmt_pipeline.translate.ttl import rules_of
from rmt_pipeline.types.key_safe import is_key_safe
from rmt_pipeline.zookeeper.snapshot import active_parts, staying_replicas

CATCH_UP_S = 10.0
CATCH_UP_SLICE_S = 0.2


def _used(node: Node, columns: Sequence[Column]) -> Sequence[str]:
    return compile_node(node, columns, allow_nondeterministic=True).columns_used


def columns_used(text: str, columns: Sequence[Column]) -> Sequence[str]:
    """The names of the columns that an expression reads; the expression need not be deterministic.
    Raises UserError if it is no expression over these columns.
    """
    return compile_expression(text, columns, allow_nondeterministic=True).columns_used


def keeps_rows(before: str, after: str, use: KeyUse) -> bool:
    """Whether a column with this use in a key may change its type from `before` to `after` so that
    every row stays in its place.
    """
    return is_key_safe(parse_type(before), parse_type(after), use)


def check_altered(definition: TableDefinition) -> None:
    """Raises a UserError that names the column, key or setting that is not valid."""
    settings = TableSettings.of(dict(definition.settings))
    for column in definition.columns:
        parse_type(column.type)
        if column.default:
            _check_default(column, definition.columns)
            check_expiring(column)
    computed = [c.name for c in definition.columns if c.default and c.default_kind != "ALIAS"]
    DefaultExpressions(definition.columns).in_order(computed)
    for text in definition.order_by:
        _check_key(text, definition, nullable=settings.allow_nullable_key)
    for one in map(Constraint.parse, definition.constraints):
        check_constraint(
            one.declared, compile_expression(one.expression, stored_columns(definition))
        )
    rules_of(definition)


def check_expiring(column: Column) -> None:
    """Raises BadTtl for a column whose expired values would become another value on each
    replica.
    """
    if column.ttl and gives_another_each_time(column):
        raise BadTtl(
            f"column {column.name} has a TTL, and is {column.default_kind} {column.default}: what "
            "expires becomes the default, which would be another one on each replica. Give it a "
            "constant default, or no TTL"
        )


def check_rows_without(
    before: TableDefinition,
    commands: Sequence[AlterCommand],
    altered: Altered,
    replica: Replica,
) -> None:
    """Check that no existing row gets its value from a default like `now()`. Such a default is
    computed when rows are inserted; for existing rows it would differ between replicas.

    Raises NotDeterministic if a column with such a default is added or cleared, or gets one in
    place of another default while parts lack its values.
    """
    known = _read_as(before, commands)
    cleared = {one.column for one in commands if isinstance(one, ClearColumn)}
    for column in (*before.columns, *altered.definition.columns):
        if column.name in cleared:
            _refuse_clearing(column)
    for column in altered.definition.columns:
        was = known[column.name]
        if not gives_another_each_time(column) or gives_another_each_time(was):
            continue
        if was.default and was.is_stored:
            _refuse_if_lacking(column, was, before, altered, replica)


def _read_as(before: TableDefinition, commands: Sequence[AlterCommand]) -> dict[str, Column]:
    """The existing columns by their names after the commands: as they were until now, with the
    defaults by which rows without them have been read. Raises NotDeterministic for an added column
    with a default like `now()`.
    """
    known = {column.name: column for column in before.columns}
    for command in commands:
        match command:
            case AddColumn(column) if column.name not in known:
                _refuse_for_old_rows(column)
                known[column.name] = column
            case RenameColumn() if command.column in known:
                known[command.renamed_to] = known.pop(command.column)
            case DropColumn():
                known.pop(command.column, None)
            case _:
                pass
    return known


def _refuse_for_old_rows(column: Column) -> None:
    if gives_another_each_time(column) and column.is_stored:
        raise NotDeterministic(
            f"ADD COLUMN {column.name} {column.default_kind} {column.default}: rows that are there "
            "would have another value on each replica, at each reading. Add it without, and say "
            f"for rows to come: ADD COLUMN {column.name} {column.type}, MODIFY COLUMN "
            f"{column.name} {column.default_kind} {column.default}"
        )


def _refuse_clearing(column: Column) -> None:
    if gives_another_each_time(column):
        raise NotDeterministic(
            f"CLEAR COLUMN {column.name}: it is {column.default_kind} {column.default}, which "
            "would be another value on each replica. UPDATE it to a constant"
        )


def _refuse_if_lacking(
    column: Column, was: Column, before: TableDefinition, altered: Altered, replica: Replica
) -> None:
    is_new = before.column(was.name) is not was
    reason = (
        "no part has values of it"
        if is_new
        else _why_not_written(column.name, altered.definition, replica)
    )
    if reason:
        raise NotDeterministic(
            f"MODIFY COLUMN {column.name} {column.default_kind} {column.default}: {reason}, and "
            f"rows without it are read with {was.default}, which they would lose. MATERIALIZE "
            f"COLUMN {was.name}, SYSTEM SYNC REPLICA on every replica, and repeat the ALTER"
        )


def _why_not_written(column: str, definition: TableDefinition, replica: Replica) -> str:
    """Why a part may lack values of the column, on some replica; "" if none does.

    1. This replica has merged a and b, and so written the old default into c.
    2. Another one still has a and b, or is about to fetch them. It applies the ALTER, and reads
       them with the new default.

    So all replicas must have the same parts. An insert that began before the column was added may
    still come; its rows have the default of the type, on every replica.
    """
    keeper = replica.keeper
    own = PartSet(active_parts(keeper, replica.paths))
    for part in own:
        try:
            manifest = replica.store.manifest(part)
        except MissingPart:
            return f"part {part} is not here just now"
        found = stored_as(definition, manifest.columns, manifest.metadata_version)
        if column not in {one.column for one in found}:
            return f"part {part} has no values of it"
    names = staying_replicas(keeper, replica.table)
    listed = keeper.children_many([replica.table.replica(name).parts for name in names])
    for name, parts in zip(names, listed, strict=True):
        theirs = PartSet(map(PartName.parse, parts or ()))
        for part in (*theirs, *own):
            if part not in own or part not in theirs:
                return f"replicas {name} and {replica.name} have not the same parts: {part}"
    return ""


def check_constraint(name: str, expression: Expression) -> None:
    """Raises BadTypeOfField for an expression that is neither true nor false."""
    kind = expression.type.plain
    if kind.family not in ("UInt8", "Bool"):
        raise BadTypeOfField(
            f"CONSTRAINT {name}: {expression.canonical} is {expression.type}, which is neither "
            "true nor false"
        )


def _check_default(column: Column, columns: Sequence[Column]) -> None:
    expression = compiled(column.default, columns)
    if column.name in expression.columns_used:
        raise UserError(f"the default of column {column.name} uses the column itself")
    if expression.columns_used:  # their types may have changed
        compiled(f"CAST({column.default} AS {column.type})", columns)
    check_constant_default(column, columns)


def _check_key(text: str, definition: TableDefinition, *, nullable: bool) -> None:
    expression = compile_expression(text, definition.columns)
    if not expression.type.is_comparable:
        raise BadTypeOfField(f"ORDER BY {text} is {expression.type}, which has no order")
    if expression.type.nullable and not nullable:
        raise IllegalColumn(
            f"ORDER BY {text} is {expression.type}: a key is not Nullable, unless SETTINGS "
            "allow_nullable_key = 1"
        )


def await_mutations(replica: Replica, altered: Altered, waker: Waker) -> None:
    """Wait for mutations that use columns which the ALTER changes. A mutation names columns as they
    were when it was written. Once it is finished here, all entries for it are in the log, and each
    replica carries those out before this ALTER (spec §8.1).

    Raises UserError if that takes longer than a few seconds.
    """
    clock = replica.clock
    deadline_s = clock.monotonic_s() + CATCH_UP_S
    while (reason := _held_up_by(replica, altered)) is not None:
        if clock.monotonic_s() >= deadline_s:
            raise UserError(
                f"{replica}: {reason}. ALTER it afterwards, or end the mutation with KILL MUTATION"
            )
        waker.wait_s(CATCH_UP_SLICE_S)


def _held_up_by(replica: Replica, altered: Altered) -> str | None:
    """Which unfinished mutation uses a column that the ALTER changes, in words; None if none
    does.
    """
    names = {name for command in altered.mutation if (name := _column_of(command))}
    types = {one.column for one in altered.mutation if isinstance(one, ModifyColumn)}
    mutations = load_mutations(replica)
    if not names or not mutations.entries:
        return None
    columns = replica.definition.columns
    for status in status_of_mutations(replica, mutations):
        if status.is_done or status.entry.alter_version != -1:
            continue
        commands = parse_commands(status.entry.commands)
        used = {
            name
            for command in commands
            for name in names_used(command, lambda node: _used(node, columns))
        }
        found = used & names
        if found and not (found <= types and _can_be(commands, altered.definition)):
            return (
                f"column {min(found)} is used by the mutation {status.mutation_id} "
                f"({status.entry.commands}), which is not finished: {status.waits_for}"
            )
    return None


def _can_be(commands: Sequence[Command], definition: TableDefinition) -> bool:
    """Whether the mutation's commands are valid for columns of the new types, too."""
    try:
        check_commands(commands, definition, allow_nondeterministic=True)
    except UserError:
        return False
    return True


def _column_of(command: AlterCommand) -> str:
    """The column whose name or type means something else after the command; "" if there is none."""
    match command:
        case DropColumn() | RenameColumn() | ModifyColumn():
            return command.column
        case _:
            return ""


def try_all_conversions(replica: Replica, altered: Altered) -> None:
    """Convert every value that is here to its new type, before every replica has to do it. Raises
    the error of a value that can't be converted.
    """
    changed = [one.column for one in altered.mutation if isinstance(one, ModifyColumn)]
    changed = _present_names(changed, altered)
    if not changed:
        return
    for part in PartSet(active_parts(replica.keeper, replica.paths)):
        try:
            with replica.store.pin([part]):
                try_conversions(
                    str(part),
                    replica.store.manifest(part),
                    replica.store.files(part),
                    altered.definition,
                    changed,
                )
        except MissingPart:
            continue  # merged away just now, or to be fetched again


def _present_names(columns: Sequence[str], altered: Altered) -> list[str]:
    """The names that these columns have after all commands of the ALTER; without those that it
    drops.
    """
    names = []
    for column in columns:
        name = column
        for command in altered.mutation:
            if isinstance(command, RenameColumn) and command.column == name:
                name = command.renamed_to
        if altered.definition.column(name) is not None:
            names.append(name)
    return names
