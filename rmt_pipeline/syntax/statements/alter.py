"""ALTER TABLE … ADD, DROP, CLEAR, RENAME, MODIFY, COMMENT COLUMN and the table's own clauses."""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

from rmt_pipeline.protocol.alter_commands import (
    DropColumn,
    ModifyColumn,
    ModifyComment,
    ModifySettings,
    ModifyTtl,
    Place,
    Removable,
    RenameColumn,
    ResetSettings,
)
from rmt_pipeline.protocol.table import DefaultKind
from rmt_pipeline.syntax.sql_cursor import Cursor
from rmt_pipeline.syntax.sql_tokens import Kind
from rmt_pipeline.syntax.statements.create import column_type, key_expressions
from rmt_pipeline.syntax.statements.nodes import (
    AddColumnSyntax,
    AlterSyntax,
    AlterTable,
    ClearColumnSyntax,
    ColumnSyntax,
    ModifyColumnSyntax,
    ModifyKeySyntax,
    ModifyTtlSyntax,
    TableName,
)
from rmt_pipeline.syntax.statements.system import partition
from rmt_pipeline.syntax.statements.tail import answer_tail, at_answer_tail, one_setting

_ENDS = frozenset(("COMMENT", "CODEC", "TTL", "REMOVE", "AFTER", "FIRST", "SETTINGS", "FORMAT"))
_DEFAULTS: tuple[DefaultKind, ...] = tuple(kind for kind in get_args(DefaultKind) if kind)
_TAIL = frozenset(("SETTINGS", "FORMAT"))
_NO_TYPE = frozenset((*_ENDS, *_DEFAULTS))
_REMOVABLE: tuple[Removable, ...] = tuple(what for what in get_args(Removable) if what)


def at_alter(cursor: Cursor) -> bool:
    """Whether a command that this module reads starts here."""
    return any(cursor.at(*words) for words in _COMMANDS)


def alter_table(cursor: Cursor, table: TableName) -> AlterTable:
    """After ALTER TABLE t."""
    commands = [_command(cursor)]
    while cursor.accept_mark(","):
        commands.append(_command(cursor))
    return AlterTable(table, tuple(commands), answer_tail(cursor).settings)


def _command(cursor: Cursor) -> AlterSyntax:
    for words, read in _COMMANDS.items():
        if cursor.accept(*words):
            return read(cursor)
    raise cursor.expected(
        "another command that changes the table; DELETE and UPDATE, and those on"
        " partitions, are statements of their own"
    )


def _add_column(cursor: Cursor) -> AddColumnSyntax:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    column = ColumnSyntax(_column_name(cursor), "")
    if cursor.token.upper not in _DEFAULTS:
        column = _nullable(cursor, replace(column, type=column_type(cursor)))
    column = _default(cursor, column)
    while True:
        if cursor.accept("COMMENT"):
            column = replace(column, comment=cursor.string())
        elif cursor.accept("CODEC"):
            column = replace(column, codec=cursor.group()[1:-1].strip())
        elif cursor.accept("TTL"):
            column = replace(column, ttl=cursor.expression("an expression", _ENDS))
        else:
            return AddColumnSyntax(column, _place(cursor), if_not_exists)


def _modify_column(cursor: Cursor) -> ModifyColumnSyntax:
    if_exists = cursor.accept("IF", "EXISTS")
    column = ColumnSyntax(_column_name(cursor), "")
    if cursor.accept("REMOVE"):
        return ModifyColumnSyntax(column, remove=_removable(cursor), if_exists=if_exists)
    if cursor.token.upper not in _NO_TYPE:
        column = _nullable(cursor, replace(column, type=column_type(cursor)))
    column = _default(cursor, column)
    found = ModifyColumnSyntax(column, if_exists=if_exists)
    while True:
        if cursor.accept("COMMENT"):
            found = replace(found, comment=cursor.string())
        elif cursor.accept("CODEC"):
            found = replace(found, codec=cursor.group()[1:-1].strip())
        elif cursor.accept("TTL"):
            found = replace(found, ttl=cursor.expression("an expression", _ENDS))
        else:
            break
    found = replace(found, place=_place(cursor))
    if found == ModifyColumnSyntax(ColumnSyntax(column.name, ""), if_exists=if_exists):
        raise cursor.expected(
            "what to modify: a type, DEFAULT, COMMENT, CODEC, TTL, AFTER, REMOVE"
        )
    return found


def _removable(cursor: Cursor) -> Removable:
    for what in _REMOVABLE:
        if cursor.accept(what):
            return what
    raise cursor.expected(", ".join(_REMOVABLE))


def _drop_column(cursor: Cursor) -> DropColumn:
    if_exists = cursor.accept("IF", "EXISTS")
    return DropColumn(_column_name(cursor), if_exists)


def _clear_column(cursor: Cursor) -> ClearColumnSyntax:
    if_exists = cursor.accept("IF", "EXISTS")
    name = _column_name(cursor)
    place = partition(cursor, _TAIL) if cursor.accept("IN", "PARTITION") else None
    return ClearColumnSyntax(name, place, if_exists)


def _rename_column(cursor: Cursor) -> RenameColumn:
    if_exists = cursor.accept("IF", "EXISTS")
    name = _column_name(cursor)
    cursor.expect("TO")
    return RenameColumn(name, _column_name(cursor), if_exists)


def _comment_column(cursor: Cursor) -> ModifyColumn:
    if_exists = cursor.accept("IF", "EXISTS")
    return ModifyColumn(_column_name(cursor), comment=cursor.string(), if_exists=if_exists)


def _modify_setting(cursor: Cursor) -> ModifySettings:
    """More settings may follow a comma, and so may another command."""
    settings = [one_setting(cursor)]
    while cursor.at_mark(",") and cursor.peek(2).text == "=":
        cursor.advance()
        settings.append(one_setting(cursor))
    return ModifySettings(tuple(settings))


def _reset_setting(cursor: Cursor) -> ResetSettings:
    names = [cursor.name("the name of a setting")]
    while cursor.at_mark(",") and _ends_item(cursor, 2):
        cursor.advance()
        names.append(cursor.name("the name of a setting"))
    return ResetSettings(tuple(names))


def _ends_item(cursor: Cursor, distance: int) -> bool:
    after = cursor.peek(distance)
    return after.kind is Kind.END or after.text == "," or after.upper in ("SETTINGS", "FORMAT")


def _modify_order_by(cursor: Cursor) -> ModifyKeySyntax:
    return ModifyKeySyntax(key_expressions(cursor))


def _modify_ttl(cursor: Cursor) -> ModifyTtlSyntax:
    """Its own commas are those behind which no command starts."""
    start = cursor.token.start
    cursor.expression("an expression", _TAIL)
    while cursor.at_mark(",") and not _command_follows(cursor):
        cursor.advance()
        cursor.expression("an expression", _TAIL)
    return ModifyTtlSyntax(cursor.source[start : cursor.last_stop])


def _command_follows(cursor: Cursor) -> bool:
    return any(
        all(cursor.peek(1 + at).upper == word for at, word in enumerate(words))
        for words in _COMMANDS
    )


def _remove_ttl(_: Cursor) -> ModifyTtl:
    return ModifyTtl("")


def _modify_comment(cursor: Cursor) -> ModifyComment:
    return ModifyComment(cursor.string())


def _column_name(cursor: Cursor) -> str:
    name = cursor.name("the name of a column")
    while cursor.accept_mark("."):  # `n.a`, as columns of Nested types are named
        name += "." + cursor.name("the name of a column")
    return name


def _nullable(cursor: Cursor, column: ColumnSyntax) -> ColumnSyntax:
    if cursor.accept("NOT", "NULL"):
        return replace(column, nullable=False)
    return replace(column, nullable=True) if cursor.accept("NULL") else column


def _default(cursor: Cursor, column: ColumnSyntax) -> ColumnSyntax:
    for kind in _DEFAULTS:
        if cursor.accept(kind):
            if kind == "EPHEMERAL" and _at_clause(cursor):
                return replace(column, default_kind=kind)
            default = cursor.expression("an expression", _ENDS)
            return replace(column, default_kind=kind, default=default)
    return column


def _at_clause(cursor: Cursor) -> bool:
    ends = cursor.at_end or cursor.at_mark(",") or at_answer_tail(cursor)
    return ends or cursor.token.upper in _ENDS


def _place(cursor: Cursor) -> Place | None:
    if cursor.accept("FIRST"):
        return Place("")
    return Place(_column_name(cursor)) if cursor.accept("AFTER") else None


_COMMANDS: dict[tuple[str, ...], Callable[[Cursor], AlterSyntax]] = {
    ("ADD", "COLUMN"): _add_column,
    ("DROP", "COLUMN"): _drop_column,
    ("CLEAR", "COLUMN"): _clear_column,
    ("RENAME", "COLUMN"): _rename_column,
    ("MODIFY", "COLUMN"): _modify_column,
    ("ALTER", "COLUMN"): _modify_column,
    ("COMMENT", "COLUMN"): _comment_column,
    ("MODIFY", "SETTING"): _modify_setting,
    ("RESET", "SETTING"): _reset_setting,
    ("MODIFY", "ORDER", "BY"): _modify_order_by,
    ("MODIFY", "TTL"): _modify_ttl,
    ("REMOVE", "TTL"): _remove_ttl,
    ("MODIFY", "COMMENT"): _modify_comment,
}
