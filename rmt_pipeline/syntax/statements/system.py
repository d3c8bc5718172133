"""OPTIMIZE and SYSTEM."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.sql_cursor import Cursor
from rmt_pipeline.syntax.statements.nodes import (
    Background,
    Optimize,
    PartitionById,
    PartitionByValue,
    PartitionSyntax,
    SyncMode,
    SystemSwitch,
    SystemSyncReplica,
)
from rmt_pipeline.syntax.statements.tail import refuse_cluster, settings_list, table_name

_AFTER_PARTITION = frozenset(("FINAL", "DEDUPLICATE", "CLEANUP", "SETTINGS"))
_MODES: tuple[SyncMode, ...] = ("STRICT", "LIGHTWEIGHT", "PULL", "DEFAULT")


def optimize(cursor: Cursor) -> Optimize:
    """After OPTIMIZE (spec §6.7)."""
    cursor.expect("TABLE")
    table = table_name(cursor)
    part = partition(cursor, _AFTER_PARTITION) if cursor.accept("PARTITION") else None
    final = cursor.accept("FINAL")
    deduplicate = cursor.accept("DEDUPLICATE")
    columns = _deduplicate_by(cursor) if deduplicate and cursor.accept("BY") else ()
    cleanup = cursor.accept("CLEANUP")
    settings = settings_list(cursor) if cursor.accept("SETTINGS") else ()
    return Optimize(table, part, final, deduplicate, columns, cleanup, settings)


def partition(cursor: Cursor, ends: frozenset[str]) -> PartitionSyntax:
    """After PARTITION: `ID '…'`, or the value of the partition key up to a word of `ends`."""
    if cursor.accept("ID"):
        return PartitionById(cursor.string("the id of a partition in single quotes"))
    return PartitionByValue(cursor.expression("the value of a partition", ends))


def _deduplicate_by(cursor: Cursor) -> tuple[str, ...]:
    if cursor.accept_mark("*"):
        if cursor.at("EXCEPT"):
            raise NotImplementedStatement(
                "DEDUPLICATE BY * EXCEPT is not implemented: name the columns"
            )
        return ()
    grouped = cursor.accept_mark("(")
    names = [cursor.name("the name of a column")]
    if cursor.at_mark("("):
        raise NotImplementedStatement("DEDUPLICATE BY takes names of columns, not expressions")
    while cursor.accept_mark(","):
        names.append(cursor.name("the name of a column"))
    if grouped:
        cursor.expect_mark(")")
    return tuple(names)


def system(cursor: Cursor) -> SystemSyncReplica | SystemSwitch:
    """After SYSTEM (spec §4.13)."""
    if cursor.accept("SYNC", "REPLICA"):
        return _sync_replica(cursor)
    verb = cursor.token.upper
    if verb in ("STOP", "START"):
        for what in Background:
            if cursor.accept(verb, *what.value.split()):
                refuse_cluster(cursor)
                table = None if cursor.at_end else table_name(cursor)
                return SystemSwitch(verb == "START", what, table)
    words: list[str] = []
    while len(words) < 3 and cursor.peek(len(words)).upper:
        words.append(cursor.peek(len(words)).upper)
    if not words:
        raise cursor.expected("a command of SYSTEM")
    raise NotImplementedStatement(f"SYSTEM {' '.join(words)} is not implemented")


def _sync_replica(cursor: Cursor) -> SystemSyncReplica:
    refuse_cluster(cursor)
    if_exists = cursor.accept("IF", "EXISTS")
    table = table_name(cursor)
    mode: SyncMode = "DEFAULT"
    for word in _MODES:
        if cursor.accept(word):
            mode = word
    replicas: list[str] = []
    if cursor.accept("FROM"):
        replicas.append(cursor.string("the name of a replica in single quotes"))
        while cursor.accept_mark(","):
            replicas.append(cursor.string("the name of a replica in single quotes"))
    return SystemSyncReplica(table, mode, tuple(replicas), if_exists)
