"""ALTER TABLE … DELETE and UPDATE, DELETE FROM, KILL MUTATION (spec §7)."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import expression
from rmt_pipeline.syntax.mutation import command, delete_rows
from rmt_pipeline.syntax.query import inner_query
from rmt_pipeline.syntax.statements.nodes import KillMutation, MutateRows, TableName
from rmt_pipeline.syntax.statements.tail import answer_tail, table_name


def at_commands(cursor: Cursor) -> bool:
    """Whether a command of a mutation starts here."""
    return cursor.at_word("DELETE", "UPDATE")


def alter_rows(cursor: Cursor, table: TableName) -> MutateRows:
    """After ALTER TABLE t."""
    commands = cursor.several(command)
    return MutateRows(table, commands, answer_tail(cursor).settings)


def delete_from(cursor: Cursor) -> MutateRows:
    """After DELETE: `FROM t [IN PARTITION p] WHERE …`, which is a mutation here."""
    cursor.expect_words("FROM")
    table = table_name(cursor)
    if not cursor.at_words("WHERE") and not cursor.at_words("IN", "PARTITION"):
        raise cursor.expected("WHERE: DELETE FROM t WHERE 1 deletes every row")
    deleted = delete_rows(cursor)
    return MutateRows(table, (deleted,), answer_tail(cursor).settings, is_lightweight=True)


def kill(cursor: Cursor) -> KillMutation:
    """After KILL (spec §7.8)."""
    if not cursor.take_words("MUTATION"):
        raise NotImplementedStatement(f"KILL {cursor.current.text} is not implemented")
    cursor.expect_words("WHERE")
    cursor.read_query = inner_query
    condition = expression(cursor)
    is_test = cursor.take_words("TEST")
    sync = None
    if cursor.take_words("SYNC"):
        sync = True
    elif cursor.take_words("ASYNC"):
        sync = False
    return KillMutation(condition, is_test, sync, answer_tail(cursor))
