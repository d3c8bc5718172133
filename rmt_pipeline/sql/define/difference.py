"""Finds the commands of ALTER that turn one definition of a table into another."""

from dataclasses import replace

from rmt_pipeline.compute.rows.computed import gives_another_each_time
from rmt_pipeline.protocol.alter.commands import (
    AddColumn,
    AddDeclared,
    AlterCommand,
    DeclaredKind,
    DropColumn,
    DropDeclared,
    ModifyColumn,
    ModifyOrderBy,
    ModifyTtl,
    Place,
)
from rmt_pipeline.protocol.alter.definition import declared_name
from rmt_pipeline.protocol.table import Column, TableDefinition


def commands_towards(now: TableDefinition, wanted: TableDefinition) -> list[AlterCommand]:
    """Return the commands that turn the definition `now` into `wanted`. A column that was renamed
    is dropped and added.
    """
    kept = {column.name for column in now.columns} & {column.name for column in wanted.columns}
    is_in_order = [one.name for one in now.columns if one.name in kept] == [
        one.name for one in wanted.columns if one.name in kept
    ]
    commands: list[AlterCommand] = []
    kinds: tuple[tuple[DeclaredKind, tuple[str, ...], tuple[str, ...]], ...] = (
        ("INDEX", now.indices, wanted.indices),
        ("PROJECTION", now.projections, wanted.projections),
        ("CONSTRAINT", now.constraints, wanted.constraints),
    )
    others = [kind for kind in kinds if kind[1] != kind[2]]
    for kind, before, _ in others:
        commands += [DropDeclared(kind, declared_name(text)) for text in before]
    commands += [DropColumn(one.name) for one in now.columns if one.name not in kept]
    last = ""
    for column in wanted.columns:
        known = now.column(column.name)
        if known is None:
            # ADD COLUMN with a default such as `now()` is refused, so that is set by MODIFY COLUMN.
            plain = replace(column, default_kind="", default="", ttl="")
            different = gives_another_each_time(column) and column.is_stored
            commands.append(AddColumn(plain if different else column, Place(last)))
            commands += [_made_to(column, None)] * different
        elif known != column or not is_in_order:
            commands.append(_made_to(column, None if is_in_order else Place(last)))
        last = column.name
    if now.order_by != wanted.order_by:
        commands.append(ModifyOrderBy(wanted.order_by))
    if now.ttl != wanted.ttl:
        commands.append(ModifyTtl(wanted.ttl))
    for kind, _, after in others:
        commands += [AddDeclared(kind, declared_name(text), text) for text in after]
    return commands


def _made_to(column: Column, place: Place | None) -> ModifyColumn:
    return ModifyColumn(
        column.name,
        type=column.type,
        default_kind=column.default_kind,
        default=column.default,
        comment=column.comment,
        codec=column.codec,
        ttl=column.ttl,
        place=place,
    )
