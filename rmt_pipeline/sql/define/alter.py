"""Makes commands with canonical texts of the commands of an ALTER TABLE, for one table's
definition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rmt_pipeline.protocol.alter.commands import (
    AddColumn,
    AddDeclared,
    AlterCommand,
    ClearColumn,
    DropColumn,
    DropDeclared,
    LeaveDeclared,
    ModifyColumn,
    ModifyOrderBy,
    ModifySettings,
    ModifyTtl,
    Place,
    RenameColumn,
    ResetSettings,
)
from rmt_pipeline.protocol.alter.definition import apply_alter, place_of
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.errors import DuplicateColumn
from rmt_pipeline.protocol.settings.setting import checked
from rmt_pipeline.protocol.settings.table import find_table_setting
from rmt_pipeline.protocol.table import Column, TableDefinition, nested_group
from rmt_pipeline.replica.alter.check import columns_used, keeps_rows
from rmt_pipeline.sql.define.engine import without_keys
from rmt_pipeline.sql.define.partition import partition_id_of
from rmt_pipeline.sql.define.table import column_of, constraint_texts, flattened, index_texts
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.nodes import Name, Node
from rmt_pipeline.syntax.rename import with_renamed
from rmt_pipeline.syntax.special_forms import cast_node
from rmt_pipeline.syntax.statements.definition import (
    AddColumnSyntax,
    AddConstraintSyntax,
    AddIndexSyntax,
    AlterSyntax,
    ClearColumnSyntax,
    ModifyColumnSyntax,
    ModifyKeySyntax,
    ModifyTtlSyntax,
)
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.translate.expression import compile_node
from rmt_pipeline.translate.mutation_rules import check_partition
from rmt_pipeline.translate.ttl import column_ttl, table_ttl, ttl_text

_MAKES_NAMES = (
    *(AddColumn, DropColumn, RenameColumn, ModifyColumn),
    *(AddDeclared, DropDeclared, LeaveDeclared),
)
"""Commands that change the names which later commands of the same ALTER can use."""
_OF_CLAUSES = (ModifyKeySyntax, ModifyTtlSyntax, ModifySettings, ResetSettings)
"""Commands that change what stands behind the engine."""


def alter_commands(
    given: Sequence[AlterSyntax], definition: TableDefinition, *, flatten_nested: bool = True
) -> list[AlterCommand]:
    """Return the commands for a table of this definition, in their order. Each may use the columns
    that earlier ones make. A command on a group of Nested becomes one for each of its columns.

    Raises a UserError that names the column, type, expression or setting that is wrong.
    """
    commands: list[AlterCommand] = []
    now = definition
    if now.engine.is_plain and any(isinstance(one, _OF_CLAUSES) for one in given):
        raise without_keys(now.engine.name)
    for syntax in given:
        several = _one_by_one(syntax, now, flatten_nested=flatten_nested)
        for one in _users_first(several, now):
            command = _command(_behind_column(one, now), now)
            commands.append(command)
            if isinstance(command, _MAKES_NAMES):
                now = apply_alter(
                    now, [command], columns_used, with_renamed, keeps_rows
                ).definition
    return commands


def _one_by_one(
    syntax: AlterSyntax, now: TableDefinition, *, flatten_nested: bool
) -> list[AlterSyntax]:
    """Return the command, or the commands for the columns of the group of Nested that it names;
    none for ADD COLUMN IF NOT EXISTS of a group that exists. Raises DuplicateColumn.
    """
    match syntax:
        case AddColumnSyntax():
            name = syntax.column.name
            if now.column(name) is None and _group(name, now):
                if syntax.if_not_exists:
                    return []
                raise DuplicateColumn(
                    f"{now.full_name} has a group {name} of Nested already: "
                    f"{', '.join(_group(name, now))}"
                )
            whole = now.column(nested_group(name))
            if whole is not None and parse_type(whole.type).is_nested:
                raise DuplicateColumn(
                    f"{name} would be a column of {whole.name}, which is {whole.type} as a whole"
                )
            return _added(syntax) if flatten_nested else [syntax]
        case DropColumn() | ClearColumnSyntax() if now.column(syntax.column) is None:
            group = _group(syntax.column, now)
            return [replace(syntax, column=name) for name in group] or [syntax]
        case _:
            return [syntax]


def _users_first(given: list[AlterSyntax], now: TableDefinition) -> Iterator[AlterSyntax]:
    """Yield the same commands; of a group's columns that are dropped, those that are computed from
    others come first.
    """
    columns = now.columns
    used = {
        one.name: columns_used(one.default, columns) if one.default else () for one in columns
    }
    left = list(given)
    while left:
        dropped = {one.column for one in left if isinstance(one, DropColumn)}
        needed = {name for column in dropped for name in used.get(column, ())}
        free = (one for one in left if isinstance(one, DropColumn) and one.column not in needed)
        first = next(free, left[0])
        left.remove(first)
        yield first


def _behind_column(syntax: AlterSyntax, now: TableDefinition) -> AlterSyntax:
    """Return the command with AFTER a group of Nested replaced by AFTER the group's last column."""
    if not isinstance(syntax, AddColumnSyntax | ModifyColumnSyntax):
        return syntax
    after = "" if syntax.place is None else syntax.place.after
    if not after or now.column(after) is not None:
        return syntax
    group = _group(after, now)
    return replace(syntax, place=Place(group[-1])) if group else syntax


def _group(name: str, now: TableDefinition) -> list[str]:
    return [one.name for one in now.columns if nested_group(one.name) == name]


def _added(syntax: AddColumnSyntax) -> list[AlterSyntax]:
    """Return a command for each column that is added. Each is placed after the one before it, if a
    place was given.
    """
    found: list[AlterSyntax] = []
    place = syntax.place
    for column in flattened(syntax.column):
        found.append(replace(syntax, column=column, place=place))
        place = None if place is None else Place(column.name)
    return found


def _command(  # noqa: C901  one line each
    syntax: AlterSyntax, now: TableDefinition
) -> AlterCommand:
    match syntax:
        case AddColumnSyntax():
            return _add(syntax, now)
        case ModifyColumnSyntax():
            return _modify(syntax, now)
        case ClearColumnSyntax():
            place = syntax.partition
            if place is None:
                return ClearColumn(syntax.column, None, syntax.if_exists)
            cleared = ClearColumn(syntax.column, partition_id_of(place, now), syntax.if_exists)
            check_partition(cleared.partition_id or "", cleared)
            return cleared
        case ModifyKeySyntax():
            columns = now.columns
            texts = (compile_node(node, columns).stored for node in syntax.order_by)
            return ModifyOrderBy(tuple(texts))
        case ModifyTtlSyntax():
            return ModifyTtl(ttl_text(table_ttl(syntax.ttl, stored_columns(now))))
        case AddIndexSyntax():
            columns = stored_columns(now)
            [text] = index_texts([syntax.index], columns)
            return AddDeclared(
                "INDEX", syntax.index.name, text, syntax.place, syntax.if_not_exists
            )
        case AddConstraintSyntax():
            [text] = constraint_texts([syntax.constraint], stored_columns(now))
            name = syntax.constraint.name
            return AddDeclared("CONSTRAINT", name, text, None, syntax.if_not_exists)
        case ModifySettings():
            return ModifySettings((*checked(syntax.settings, find_table_setting).items(),))
        case ResetSettings():
            return ResetSettings(tuple(find_table_setting(one).name for one in syntax.names))
        case _:
            return syntax


def _add(syntax: AddColumnSyntax, now: TableDefinition) -> AddColumn:
    given = syntax.column
    column = column_of(given, now.columns)
    if given.ttl is not None:
        stored = [*stored_columns(now), column]
        column = replace(column, ttl=_column_ttl(given.name, given.ttl, stored, now))
    return AddColumn(column, syntax.place, syntax.if_not_exists)


def _modify(syntax: ModifyColumnSyntax, now: TableDefinition) -> ModifyColumn:
    given = syntax.column
    known = now.column(given.name)
    if known is None:  # the ALTER is refused later, or ignored with IF EXISTS
        return ModifyColumn(given.name, comment="", if_exists=syntax.if_exists)
    default = given.default
    if default is None and known.default and not given.default_kind:
        default = parse_expression(known.default)
    kind = given.default_kind or known.default_kind
    typed = replace(
        given, type=given.type or parse_type(known.type), default=default, default_kind=kind
    )
    others = [column for column in now.columns if column.name != given.name]
    wanted = column_of(replace(typed, codec=syntax.codec or ""), others)
    if given.type is not None and known.is_stored:  # raises if no such cast exists
        compile_node(cast_node(Name((given.name,)), parse_type(wanted.type)), (known,))
    ttl = None
    if syntax.ttl is not None:
        ttl = _column_ttl(given.name, syntax.ttl, stored_columns(now), now)
    return ModifyColumn(
        given.name,
        type=wanted.type if given.type else None,
        default_kind=given.default_kind or None,
        default=wanted.default if given.default_kind else "",
        comment=syntax.comment,
        codec=syntax.codec,
        ttl=ttl,
        remove=syntax.remove,
        place=syntax.place,
        if_exists=syntax.if_exists,
    )


def _column_ttl(name: str, time: Node, stored: Sequence[Column], now: TableDefinition) -> str:
    place = place_of(name, now, columns_used)
    in_use = frozenset() if place is None else frozenset({name})
    return column_ttl(name, time, stored, in_use).text
