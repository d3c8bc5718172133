"""The parsers of OPTIMIZE, CHECK TABLE and SYSTEM."""

from collections.abc import Callable, Mapping

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.mutation import read_partition
from rmt_pipeline.syntax.settings import settings_clause
from rmt_pipeline.syntax.statements.nodes import (
    CheckTable,
    ColumnsChosen,
    Optimize,
    SyncReplicaMode,
    SystemDropDatabaseReplica,
    SystemDropReplica,
    SystemNothingToDo,
    SystemRestartReplica,
    SystemRestoreDatabase,
    SystemRestoreReplica,
    SystemStatement,
    SystemSwitch,
    SystemSyncDatabase,
    SystemSyncReplica,
    SystemUnfreeze,
    SystemWaitLoadingParts,
)
from rmt_pipeline.syntax.statements.tail import (
    answer_tail,
    columns_left_out,
    on_cluster,
    snapshot_name,
    table_name,
)

_CACHES = (
    "COMPILED EXPRESSION", "DNS", "FILESYSTEM", "INDEX MARK", "INDEX UNCOMPRESSED", "MARK", "MMAP",
    "PAGE", "PRIMARY INDEX", "QUERY", "QUERY CONDITION", "UNCOMPRESSED",
)  # fmt: skip
"""The original's caches that this engine does not have: it reads files, or computes, each time."""
_RELOADED = ("CONFIG", "DICTIONARIES", "EMBEDDED DICTIONARIES", "FUNCTIONS", "MODELS", "USERS")
"""What `SYSTEM RELOAD` reads again in the original. There is none of it here but the configuration,
which each process reads when it starts.
"""
_MODES: tuple[SyncReplicaMode, ...] = ("STRICT", "LIGHTWEIGHT", "PULL", "DEFAULT")


def optimize(cursor: Cursor) -> Optimize:
    """Read the rest of OPTIMIZE (spec §6.7)."""
    cursor.expect_words("TABLE")
    table = table_name(cursor)
    part = read_partition(cursor) if cursor.take_words("PARTITION") else None
    final = cursor.take_words("FINAL")
    deduplicate = cursor.take_words("DEDUPLICATE")
    columns = _deduplicate_by(cursor) if deduplicate and cursor.take_words("BY") else ()
    cleanup = cursor.take_words("CLEANUP")
    given = settings_clause(cursor) if cursor.take_words("SETTINGS") else ()
    return Optimize(table, part, final, deduplicate, columns, cleanup, given)


def check(cursor: Cursor) -> CheckTable:
    """Read the rest of CHECK: `TABLE t [PARTITION p | PART 'n'] [FORMAT f] [SETTINGS …]`."""
    if cursor.at_words("ALL") or cursor.at_words("DATABASE"):
        raise NotImplementedStatement(
            f"CHECK {cursor.current.upper} is not implemented: check one table after the other"
        )
    cursor.take_words("TABLE")
    table = table_name(cursor)
    if cursor.take_words("PARTITION"):
        return CheckTable(table, partition=read_partition(cursor), answer=answer_tail(cursor))
    part = cursor.string("a part's name in single quotes") if cursor.take_words("PART") else ""
    return CheckTable(table, part=part, answer=answer_tail(cursor))


def _deduplicate_by(cursor: Cursor) -> tuple[str, ...] | ColumnsChosen:
    if cursor.take("*"):
        left_out = columns_left_out(cursor)
        return ColumnsChosen("", left_out) if left_out else ()
    if cursor.at_words("COLUMNS") and cursor.at_mark(1, "("):
        cursor.advance()
        cursor.advance()
        pattern = cursor.string("a regular expression in single quotes")
        cursor.expect(")")
        return ColumnsChosen(pattern, columns_left_out(cursor))
    grouped = cursor.take("(")
    names = [cursor.identifier("the name of a column")]
    if cursor.at("("):
        raise NotImplementedStatement("DEDUPLICATE BY takes names of columns, not expressions")
    while cursor.take(","):
        names.append(cursor.identifier("the name of a column"))
    if grouped:
        cursor.expect(")")
    return tuple(names)


def system(cursor: Cursor) -> SystemStatement:
    """Read the rest of SYSTEM (spec §4.13)."""
    if cursor.take_words("UNFREEZE"):
        on_cluster(cursor)
        return SystemUnfreeze(snapshot_name(cursor), answer_tail(cursor))
    if cursor.at_words("WAIT", "LOADING", "PARTS") or _has_nothing_to_do(cursor):
        return _nothing_to_do(cursor)
    if cursor.at_words("RESTART", "REPLICA") or cursor.at_words("RESTART", "REPLICAS"):
        return _restart_replica(cursor)
    for verb, read in _OF_REPLICAS.items():
        if cursor.take_words(verb, "REPLICA"):
            return read(cursor)
    if any(cursor.at_words(verb, "DATABASE", "REPLICA") for verb in _OF_REPLICAS):
        return _database_replica(cursor)
    switch = _switch(cursor)
    if switch is not None:
        return switch
    words: list[str] = []
    while len(words) < 3 and cursor.ahead(len(words)).upper:
        words.append(cursor.ahead(len(words)).upper)
    if not words:
        raise cursor.expected("a command of SYSTEM")
    raise NotImplementedStatement(f"SYSTEM {' '.join(words)} is not implemented")


def _nothing_to_do(cursor: Cursor) -> SystemNothingToDo | SystemWaitLoadingParts:
    waits = cursor.take_words("WAIT", "LOADING", "PARTS")
    on_cluster(cursor)
    return SystemWaitLoadingParts(table_name(cursor)) if waits else SystemNothingToDo()


def _has_nothing_to_do(cursor: Cursor) -> bool:
    """Read a FLUSH of something that this engine does not hold back, a DROP of a cache or a RELOAD
    of what it does not have, and return whether there was one.
    """
    if any(cursor.take_words("RELOAD", *what.split()) for what in _RELOADED):
        return True
    if cursor.take_words("FLUSH", "LOGS"):
        while cursor.current.kind == "word" and not cursor.at_word("ON"):
            table_name(cursor)
            if not cursor.take(","):
                break
        return True
    if cursor.take_words("FLUSH", "ASYNC", "INSERT", "QUEUE"):
        return True
    return any(
        cursor.take_words(verb, *cache.split(), "CACHE")
        for verb in ("DROP", "CLEAR")
        for cache in _CACHES
    )


def _switch(cursor: Cursor) -> SystemSwitch | None:
    verb = cursor.current.upper
    if verb not in ("STOP", "START"):
        return None
    for what in Background:
        if cursor.take_words(verb, *what.value.split()):
            on_cluster(cursor)
            table = None if cursor.at_end else table_name(cursor)
            return SystemSwitch(verb == "START", what, table)
    return None


def _restore_replica(cursor: Cursor) -> SystemRestoreReplica:
    on_cluster(cursor)
    return SystemRestoreReplica(table_name(cursor))


def _restart_replica(cursor: Cursor) -> SystemRestartReplica:
    if cursor.take_words("RESTART", "REPLICAS"):
        on_cluster(cursor)
        return SystemRestartReplica()
    cursor.expect_words("RESTART", "REPLICA")
    on_cluster(cursor)
    return SystemRestartReplica(table_name(cursor))


def _drop_replica(cursor: Cursor) -> SystemDropReplica:
    on_cluster(cursor)
    replica = cursor.string("the name of a replica in single quotes")
    if not cursor.take_words("FROM"):
        return SystemDropReplica(replica)
    if cursor.take_words("TABLE"):
        return SystemDropReplica(replica, table=table_name(cursor))
    if cursor.take_words("DATABASE"):
        database = cursor.identifier("the name of a database")
        return SystemDropReplica(replica, database=database)
    cursor.expect_words("ZKPATH")
    path = cursor.string("a path in ZooKeeper in single quotes")
    return SystemDropReplica(replica, zookeeper_path=path.rstrip("/"))


def _database_replica(
    cursor: Cursor,
) -> SystemSyncDatabase | SystemRestoreDatabase | SystemDropDatabaseReplica:
    if cursor.take_words("SYNC", "DATABASE", "REPLICA"):
        on_cluster(cursor)
        return SystemSyncDatabase(cursor.identifier("the name of a database"))
    if cursor.take_words("RESTORE", "DATABASE", "REPLICA"):
        on_cluster(cursor)
        return SystemRestoreDatabase(cursor.identifier("the name of a database"))
    cursor.expect_words("DROP", "DATABASE", "REPLICA")
    replica = cursor.string("the name of a replica in single quotes, 'shard|replica'")
    cursor.expect_words("FROM")
    if cursor.take_words("SHARD"):
        replica = f"{cursor.string('the name of a shard in single quotes')}|{replica}"
        cursor.expect_words("FROM")
    if cursor.take_words("ZKPATH"):
        path = cursor.string("a path in ZooKeeper in single quotes")
        return SystemDropDatabaseReplica(replica, zookeeper_path=path.rstrip("/"))
    cursor.expect_words("DATABASE")
    database = cursor.identifier("the name of a database")
    return SystemDropDatabaseReplica(replica, database)


def _sync_replica(cursor: Cursor) -> SystemSyncReplica:
    on_cluster(cursor)
    if_exists = cursor.take_words("IF", "EXISTS")
    table = table_name(cursor)
    if_exists = cursor.take_words("IF", "EXISTS") or if_exists  # in either place
    mode: SyncReplicaMode = "DEFAULT"
    for word in _MODES:
        if cursor.take_words(word):
            mode = word
    replicas: list[str] = []
    if cursor.take_words("FROM"):
        replicas.append(cursor.string("the name of a replica in single quotes"))
        while cursor.take(","):
            replicas.append(cursor.string("the name of a replica in single quotes"))
    return SystemSyncReplica(table, mode, tuple(replicas), if_exists)


_OF_REPLICAS: Mapping[str, Callable[[Cursor], SystemStatement]] = {
    "DROP": _drop_replica,
    "RESTORE": _restore_replica,
    "SYNC": _sync_replica,
}
