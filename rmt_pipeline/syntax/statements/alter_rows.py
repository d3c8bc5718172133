"""ALTER TABLE … DELETE and UPDATE, DELETE FROM, KILL MUTATION (spec §7)."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.sql_cursor import Cursor
from rmt_pipeline.syntax.sql_tokens import Kind
from rmt_pipeline.syntax.statements.nodes import KillMutation, MutateRows, TableName
from rmt_pipeline.syntax.statements.tail import answer_tail, query_text, table_name

_KILL_TAIL = ("SYNC", "ASYNC", "TEST")


def at_commands(cursor: Cursor) -> bool:
    """Whether a command of a mutation starts here."""
    return cursor.at("DELETE") or cursor.at("UPDATE")


def alter_rows(cursor: Cursor, table: TableName) -> MutateRows:
    """After ALTER TABLE t. What the commands mean is for the expressions package."""
    commands = query_text(cursor)
    tail = answer_tail(cursor)
    return MutateRows(table, commands, tail.settings)


def delete_from(cursor: Cursor) -> MutateRows:
    """After DELETE: `FROM t [IN PARTITION p] WHERE …`, which is a mutation here."""
    cursor.expect("FROM")
    table = table_name(cursor)
    if not cursor.at("WHERE") and not cursor.at("IN", "PARTITION"):
        raise cursor.expected("WHERE: DELETE FROM t WHERE 1 deletes every row")
    commands = f"DELETE {query_text(cursor)}"
    tail = answer_tail(cursor)
    return MutateRows(table, commands, tail.settings, is_lightweight=True)


def kill(cursor: Cursor) -> KillMutation:
    """After KILL (spec §7.8)."""
    if not cursor.accept("MUTATION"):
        raise NotImplementedStatement(f"KILL {cursor.token.text} is not implemented")
    cursor.expect("WHERE")
    start, stop = cursor.token.start, cursor.token.start
    while not cursor.at_end and not _at_kill_tail(cursor):
        if cursor.token.kind is Kind.MARK and cursor.token.text in "([{":
            cursor.group()
        else:
            cursor.advance()
        stop = cursor.last_stop
    if start == stop:
        raise cursor.expected("a condition on columns of system.mutations")
    condition = cursor.source[start:stop]
    is_test = cursor.accept("TEST")
    sync = None
    if cursor.accept("SYNC"):
        sync = True
    elif cursor.accept("ASYNC"):
        sync = False
    return KillMutation(condition, is_test, sync, answer_tail(cursor))


def _at_kill_tail(cursor: Cursor) -> bool:
    after = cursor.peek(1)
    is_last = after.kind is Kind.END or after.upper in ("FORMAT", "SETTINGS")
    return (cursor.token.upper in _KILL_TAIL and is_last) or (
        cursor.at("FORMAT") and cursor.peek(2).kind is Kind.END
    )
