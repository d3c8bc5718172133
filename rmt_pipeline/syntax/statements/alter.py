"""The parsers of ALTER TABLE on columns (ADD, DROP, CLEAR, RENAME, MODIFY, COMMENT COLUMN), on the
table's clauses, and on rows (DELETE, UPDATE), with DELETE FROM and KILL MUTATION.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

from rmt_pipeline.protocol.alter.commands import (
    AddDeclared,
    DeclaredKind,
    DropColumn,
    DropDeclared,
    LeaveDeclared,
    ModifyColumn,
    ModifyComment,
    ModifySettings,
    ModifyTtl,
    Place,
    Removable,
    RenameColumn,
    ResetSettings,
)
from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import expression
from rmt_pipeline.syntax.mutation import Partition, command, delete_rows, read_partition
from rmt_pipeline.syntax.query import inner_query
from rmt_pipeline.syntax.settings import one_setting
from rmt_pipeline.syntax.statements.create import (
    DEFAULTS,
    column_clause,
    column_default,
    column_type,
    constraint_declared,
    index_declared,
    key_expressions,
)
from rmt_pipeline.syntax.statements.definition import (
    AddColumnSyntax,
    AddConstraintSyntax,
    AddIndexSyntax,
    AlterSyntax,
    ClearColumnSyntax,
    ColumnSyntax,
    ModifyColumnSyntax,
    ModifyKeySyntax,
    ModifyTtlSyntax,
)
from rmt_pipeline.syntax.statements.nodes import (
    AlterTable,
    KillMutation,
    KillQuery,
    MaterializeColumn,
    MaterializeTtl,
    MutateRows,
    RowsSyntax,
    TableName,
)
from rmt_pipeline.syntax.statements.tail import answer_tail, on_cluster, table_name
from rmt_pipeline.syntax.ttl import ttl_element
from rmt_pipeline.types.escapes import quote_name

_ENDS = frozenset(("COMMENT", "CODEC", "TTL", "REMOVE", "AFTER", "FIRST", "SETTINGS", "FORMAT"))
_NO_TYPE = frozenset((*_ENDS, *DEFAULTS))
_REMOVABLE: tuple[Removable, ...] = tuple(what for what in get_args(Removable) if what)


def at_alter(cursor: Cursor) -> bool:
    """Whether a command that changes columns or the table's clauses starts here."""
    return any(cursor.at_words(*words) for words in _COMMANDS)


def alter_table(cursor: Cursor, table: TableName) -> AlterTable:
    """Read the commands after ALTER TABLE t, and SETTINGS."""
    commands = [_command(cursor)]
    while cursor.take(","):
        commands.append(_command(cursor))
    return AlterTable(table, tuple(commands), answer_tail(cursor).settings)


def _command(cursor: Cursor) -> AlterSyntax:
    for words, read in _COMMANDS.items():
        if cursor.take_words(*words):
            return read(cursor)
    raise cursor.expected(
        "another command that changes the table; DELETE and UPDATE, and those on"
        " partitions, are statements of their own"
    )


def _add_column(cursor: Cursor) -> AddColumnSyntax:
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    column = ColumnSyntax(_column_name(cursor), *column_type(cursor, DEFAULTS))
    column = column_default(cursor, column, _ENDS)
    while (read := column_clause(cursor, column)) is not None:
        column = read
    return AddColumnSyntax(column, _place(cursor), if_not_exists)


def _modify_column(cursor: Cursor) -> ModifyColumnSyntax:
    if_exists = cursor.take_words("IF", "EXISTS")
    plain = ColumnSyntax(_column_name(cursor))
    if cursor.take_words("REMOVE"):
        return ModifyColumnSyntax(plain, remove=_removable(cursor), if_exists=if_exists)
    cursor.take_words("TYPE")  # as in ALTER COLUMN c TYPE UInt8
    column = ColumnSyntax(plain.name, *column_type(cursor, _NO_TYPE))
    found = ModifyColumnSyntax(column_default(cursor, column, _ENDS), if_exists=if_exists)
    while (read := column_clause(cursor, found)) is not None:
        found = read
    found = replace(found, place=_place(cursor))
    if found == ModifyColumnSyntax(plain, if_exists=if_exists):
        raise cursor.expected(
            "what to modify: a type, DEFAULT, COMMENT, CODEC, TTL, AFTER, REMOVE"
        )
    return found


def _removable(cursor: Cursor) -> Removable:
    for what in _REMOVABLE:
        if cursor.take_words(what):
            return what
    raise cursor.expected(", ".join(_REMOVABLE))


def _drop_column(cursor: Cursor) -> DropColumn:
    if_exists = cursor.take_words("IF", "EXISTS")
    return DropColumn(_column_name(cursor), if_exists)


def _clear_column(cursor: Cursor) -> ClearColumnSyntax:
    if_exists = cursor.take_words("IF", "EXISTS")
    name = _column_name(cursor)
    return ClearColumnSyntax(name, _in_partition(cursor), if_exists)


def _rename_column(cursor: Cursor) -> RenameColumn:
    if_exists = cursor.take_words("IF", "EXISTS")
    name = _column_name(cursor)
    cursor.expect_words("TO")
    return RenameColumn(name, _column_name(cursor), if_exists)


def _comment_column(cursor: Cursor) -> ModifyColumn:
    if_exists = cursor.take_words("IF", "EXISTS")
    return ModifyColumn(_column_name(cursor), comment=cursor.string(), if_exists=if_exists)


def _modify_setting(cursor: Cursor) -> ModifySettings:
    """Read one or more settings. After a comma, a word before `=` is a setting; else a command
    follows.
    """
    settings = [one_setting(cursor)]
    while cursor.at(",") and cursor.at_mark(2, "="):
        cursor.advance()
        settings.append(one_setting(cursor))
    return ModifySettings(tuple(settings))


def _reset_setting(cursor: Cursor) -> ResetSettings:
    names = [cursor.identifier("the name of a setting")]
    while cursor.at(",") and _name_ends(cursor):
        cursor.advance()
        names.append(cursor.identifier("the name of a setting"))
    return ResetSettings(tuple(names))


def _name_ends(cursor: Cursor) -> bool:
    """Whether a single name follows the comma: another setting to reset, and not a command."""
    after = cursor.ahead(2)
    is_tail = after.kind == "end" or after.upper in ("SETTINGS", "FORMAT")
    return is_tail or cursor.at_mark(2, ",")


def _modify_ttl(cursor: Cursor) -> ModifyTtlSyntax:
    """Read the table's TTL. A comma after which a command starts ends it."""
    elements = [ttl_element(cursor)]
    while cursor.at(",") and not _command_follows(cursor):
        cursor.advance()
        elements.append(ttl_element(cursor))
    return ModifyTtlSyntax(tuple(elements))


def _command_follows(cursor: Cursor) -> bool:
    return any(
        all(cursor.ahead(1 + at).upper == word for at, word in enumerate(words))
        for words in _COMMANDS
    )


def _column_name(cursor: Cursor) -> str:
    name = cursor.identifier("the name of a column")
    while cursor.take("."):  # `n.a`, as columns of Nested types are named
        name += "." + cursor.identifier("the name of a column")
    return name


def _place(cursor: Cursor) -> Place | None:
    if cursor.take_words("FIRST"):
        return Place("")
    return Place(_column_name(cursor)) if cursor.take_words("AFTER") else None


def _add_index(cursor: Cursor) -> AddIndexSyntax:
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    found = index_declared(cursor)
    return AddIndexSyntax(found, _place(cursor), if_not_exists)


def _add_projection(cursor: Cursor) -> AddDeclared:
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    name = cursor.identifier("the name of a projection")
    if not cursor.at("("):
        raise cursor.expected("`(SELECT …)`")
    query = " ".join(cursor.group()[1:-1].split())
    text = f"{quote_name(name)} ({query})"
    return AddDeclared("PROJECTION", name, text, _place(cursor), if_not_exists)


def _add_constraint(cursor: Cursor) -> AddConstraintSyntax:
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    return AddConstraintSyntax(constraint_declared(cursor), if_not_exists)


def _drop_declared(kind: DeclaredKind) -> Callable[[Cursor], DropDeclared]:
    def read(cursor: Cursor) -> DropDeclared:
        if_exists = cursor.take_words("IF", "EXISTS")
        return DropDeclared(kind, cursor.identifier(f"the name of the {kind}"), if_exists)

    return read


def _leave_declared(kind: DeclaredKind) -> Callable[[Cursor], LeaveDeclared]:
    """Return the reader of CLEAR and MATERIALIZE of something declared. IN PARTITION is read and
    ignored: there is nothing to do for a partition either.
    """

    def read(cursor: Cursor) -> LeaveDeclared:
        if_exists = cursor.take_words("IF", "EXISTS")
        name = cursor.identifier(f"the name of the {kind}")
        _in_partition(cursor)
        return LeaveDeclared(kind, name, if_exists)

    return read


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
    ("MODIFY", "ORDER", "BY"): lambda cursor: ModifyKeySyntax(key_expressions(cursor)),
    ("MODIFY", "TTL"): _modify_ttl,
    ("REMOVE", "TTL"): lambda _: ModifyTtl(""),
    ("MODIFY", "COMMENT"): lambda cursor: ModifyComment(cursor.string()),
    ("ADD", "INDEX"): _add_index,
    ("ADD", "PROJECTION"): _add_projection,
    ("ADD", "CONSTRAINT"): _add_constraint,
    ("DROP", "CONSTRAINT"): _drop_declared("CONSTRAINT"),
    ("DROP", "INDEX"): _drop_declared("INDEX"),
    ("DROP", "PROJECTION"): _drop_declared("PROJECTION"),
    ("CLEAR", "INDEX"): _leave_declared("INDEX"),
    ("CLEAR", "PROJECTION"): _leave_declared("PROJECTION"),
    ("MATERIALIZE", "INDEX"): _leave_declared("INDEX"),
    ("MATERIALIZE", "PROJECTION"): _leave_declared("PROJECTION"),
}


# Rows: ALTER TABLE … DELETE and UPDATE, DELETE FROM, KILL MUTATION (spec §7).


def at_commands(cursor: Cursor) -> bool:
    """Whether a command on rows starts here: DELETE, UPDATE, MATERIALIZE COLUMN or TTL."""
    materializes = any(cursor.at_words("MATERIALIZE", what) for what in ("COLUMN", "TTL"))
    return materializes or cursor.at_word("DELETE", "UPDATE")


def alter_rows(cursor: Cursor, table: TableName) -> MutateRows:
    """Read the commands on rows after ALTER TABLE t, and SETTINGS."""
    commands = cursor.several(_rows_command)
    return MutateRows(table, commands, answer_tail(cursor).settings)


def _rows_command(cursor: Cursor) -> RowsSyntax:
    if cursor.take_words("MATERIALIZE", "COLUMN"):
        return MaterializeColumn(_column_name(cursor), _in_partition(cursor))
    if cursor.take_words("MATERIALIZE", "TTL"):
        return MaterializeTtl(_in_partition(cursor))
    cursor.read_query = inner_query
    return command(cursor)


def _in_partition(cursor: Cursor) -> Partition | None:
    return read_partition(cursor) if cursor.take_words("IN", "PARTITION") else None


def delete_from(cursor: Cursor) -> MutateRows:
    """Read the rest of DELETE: `FROM t [IN PARTITION p] WHERE …`. It becomes a mutation."""
    cursor.expect_words("FROM")
    table = table_name(cursor)
    if not cursor.at_words("WHERE") and not cursor.at_words("IN", "PARTITION"):
        raise cursor.expected("WHERE: DELETE FROM t WHERE 1 deletes every row")
    cursor.read_query = inner_query
    deleted = delete_rows(cursor)
    return MutateRows(table, (deleted,), answer_tail(cursor).settings, is_lightweight=True)


def kill(cursor: Cursor) -> KillMutation | KillQuery:
    """Read the rest of KILL MUTATION (spec §7.8) or KILL QUERY."""
    is_query = cursor.take_words("QUERY")
    if not is_query and not cursor.take_words("MUTATION"):
        raise NotImplementedStatement(f"KILL {cursor.current.text} is not implemented")
    on_cluster(cursor)
    cursor.expect_words("WHERE")
    cursor.read_query = inner_query
    condition = expression(cursor)
    is_test = cursor.take_words("TEST")
    sync = None
    if cursor.take_words("SYNC"):
        sync = True
    elif cursor.take_words("ASYNC"):
        sync = False
    statement = KillQuery if is_query else KillMutation
    return statement(condition, is_test, sync, answer_tail(cursor))
