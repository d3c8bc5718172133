"""The parser of statements, which every statement of the original goes through: it is parsed here
or in its family's module, or refused by name with NotImplementedStatement. A new statement needs a
class in `nodes`, a parser here or in a module beside this one, and a line in a table below.
"""

from collections.abc import Callable
from dataclasses import replace

from rmt_pipeline.protocol.errors import (
    NotImplementedStatement,
    NotOnCluster,
    SyntaxProblem,
)
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.lexer import excerpt, problem
from rmt_pipeline.syntax.settings import settings_clause
from rmt_pipeline.syntax.statements.alter import (
    alter_rows,
    alter_table,
    at_alter,
    at_commands,
    delete_from,
    kill,
)
from rmt_pipeline.syntax.statements.create import attach_table, create_table
from rmt_pipeline.syntax.statements.insert import insert
from rmt_pipeline.syntax.statements.nodes import (
    ClusterStatement,
    CreateDatabase,
    CreateTable,
    DetachTable,
    DropDatabase,
    DropTable,
    ExchangeTables,
    OnCluster,
    RenameDatabase,
    RenameTables,
    ReplicatedEngine,
    SelectStatement,
    SetSettings,
    Statement,
    TableName,
    UndropTable,
    Use,
)
from rmt_pipeline.syntax.statements.partitions import (
    at_partition_command,
    partition_commands,
    truncate_table,
)
from rmt_pipeline.syntax.statements.show import describe, exists, show
from rmt_pipeline.syntax.statements.split import Piece, split
from rmt_pipeline.syntax.statements.system import check, optimize, system
from rmt_pipeline.syntax.statements.tail import (
    answer_tail,
    on_cluster,
    table_name,
    whole_query,
)

Parser = Callable[[Cursor], Statement]

_REFUSED = frozenset(
    (
        "BACKUP", "GRANT", "MOVE", "RESTORE", "REVOKE", "UPDATE", "WATCH",
    )
)  # fmt: skip
_REFUSED_KINDS = frozenset(
    (
        "DICTIONARY", "FUNCTION", "LIVE", "MATERIALIZED", "NAMED", "OR", "PART", "PARTITION",
        "POLICY", "PROFILE", "QUOTA", "ROLE", "ROW", "SETTINGS", "TEMPORARY", "USER", "VIEW",
        "WINDOW",
    )
)  # fmt: skip
_MORE_WORDS = frozenset(("COLLECTION", "PROFILE", "TABLE", "VIEW"))
"""Words that belong to the name of a refused kind when they follow one of its words."""
_ALTER_COMMANDS = {
    "ADD STATISTICS": "",
    "CLEAR STATISTICS": "",
    "DROP STATISTICS": "",
    "MATERIALIZE STATISTICS": "",
    "MODIFY QUERY": "",
    "MODIFY REFRESH": "",
    "MODIFY STATISTICS": "",
    "APPLY DELETED MASK": "",
    "FORGET PARTITION": (
        ": its block numbers would start again, and what was dropped is known by its numbers. An "
        "empty partition costs one znode"
    ),
    "MODIFY SAMPLE BY": "",
    "REMOVE SAMPLE BY": "",
}
"""The commands of ALTER that are refused. The text is the reason, where there is a lasting one."""


def parse(statement: Piece | str) -> Statement:
    """Parse the text of one statement.

    Raises SyntaxProblem with position and token, or NotImplementedStatement naming a statement
    of the original that is not available. Nothing is looked up: whether a table or a setting
    exists is found out when the statement is carried out.
    """
    piece = statement if isinstance(statement, Piece) else _only_piece(statement)
    try:
        return _parse(piece)
    except RecursionError:
        shown = excerpt(piece.text)
        raise SyntaxProblem(f"the statement is nested too deeply: {shown}") from None


def _parse(piece: Piece) -> Statement:
    cursor = Cursor(piece.source, piece.start, piece.stop)
    if cursor.at("(") or cursor.at_word("SELECT", "WITH", "FROM"):
        return _select(cursor)
    word = cursor.current.upper
    if word in _REFUSED:
        words = 2 if word in ("BACKUP", "MOVE", "RESTORE") else 1
        raise NotImplementedStatement(f"{_first_words(cursor, words)} is not implemented")
    if word not in _PARSERS:
        raise cursor.expected("a statement")
    cursor.advance()
    parsed = _PARSERS[word](cursor)
    if word != "INSERT":  # whose rows may follow, which are not tokens
        cursor.expect_end()
    return _on_cluster(parsed, cursor.cluster, piece) if cursor.cluster else parsed


def _on_cluster(parsed: Statement, cluster: str, piece: Piece) -> OnCluster:
    """Return the statement for the cluster. Raises NotOnCluster if it can't be ON CLUSTER."""
    if isinstance(parsed, CreateTable) and parsed.or_replace:
        raise NotOnCluster(
            "CREATE OR REPLACE TABLE … ON CLUSTER is not possible: a server that carries it out "
            "again would replace what came since. Say it on each server"
        )
    if isinstance(parsed, ClusterStatement):
        if not isinstance(parsed, CreateTable) or parsed.query is None or parsed.is_empty:
            return OnCluster(cluster, parsed, piece.text)
        raise NotOnCluster(
            "CREATE TABLE … ON CLUSTER … AS SELECT would insert the rows once on each server: "
            "create the table with AS EMPTY, or without AS, and INSERT into it"
        )
    raise NotOnCluster(
        f"{_first_words(Cursor(piece.source, piece.start, piece.stop), 2)} can't be ON CLUSTER: "
        "say it on the server that it is meant for"
    )


def _select(cursor: Cursor) -> SelectStatement:
    start = cursor.current.start
    found = whole_query(cursor)
    text = cursor.source[start : cursor.last_end]
    return SelectStatement(found, answer_tail(cursor), text)


def _explain(cursor: Cursor) -> SelectStatement:
    """Read the rest of EXPLAIN."""
    cursor.take_words("PLAN")
    if not (cursor.at("(") or cursor.at_word("SELECT", "WITH", "FROM")):
        raise NotImplementedStatement(
            f"EXPLAIN {_first_words(cursor, 1)} is not implemented: EXPLAIN [PLAN] SELECT … is"
        )
    return replace(_select(cursor), shows="plan")


def _only_piece(text: str) -> Piece:
    pieces = split(text)
    first = next(pieces, None)
    if first is None:
        raise problem(text, len(text), "there is no statement")
    second = next(pieces, None)
    if second is not None:
        raise problem(
            text, second.start, "one statement was expected, and a second one starts here"
        )
    return first


def _first_words(cursor: Cursor, words_max: int) -> str:
    words: list[str] = []
    while len(words) < words_max and cursor.ahead(len(words)).upper:
        words.append(cursor.ahead(len(words)).upper)
    return " ".join(words)


def _refuse_kind(cursor: Cursor, verb: str) -> None:
    """Raise NotImplementedStatement if something of a refused kind comes next: `CREATE MATERIALIZED
    VIEW`, say. The message has the words of the kind, without the name of the thing.
    """
    words = 0
    while cursor.ahead(words).upper in _REFUSED_KINDS:
        words += 1
    if words:
        words += cursor.ahead(words).upper in _MORE_WORDS
        raise NotImplementedStatement(
            f"{verb} {_first_words(cursor, words)} is not implemented"
        )


def _create(cursor: Cursor) -> Statement:
    if cursor.take_words("DATABASE"):
        if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
        created = CreateDatabase(cursor.identifier("the name of a database"), if_not_exists)
        on_cluster(cursor)
        if cursor.take_words("ENGINE"):
            cursor.take("=")
            engine = cursor.identifier("the name of an engine")
            if engine == "Replicated":
                return replace(created, replicated=_replicated_engine(cursor))
            if engine not in ("Atomic", "Ordinary"):
                raise NotImplementedStatement(
                    f"the database engine {engine} is not implemented"
                )
        return created
    or_replace = cursor.take_words("OR", "REPLACE")
    _refuse_kind(cursor, "CREATE OR REPLACE" if or_replace else "CREATE")
    cursor.expect_words("TABLE")
    if or_replace and cursor.at_words("IF", "NOT", "EXISTS"):
        raise cursor.expected("OR REPLACE or IF NOT EXISTS, not both")
    return replace(create_table(cursor), or_replace=or_replace)


def _replicated_engine(cursor: Cursor) -> ReplicatedEngine:
    """Read what follows the engine's name Replicated: `('path', 'shard', 'replica')`."""
    wanted = "('path', 'shard', 'replica')"
    cursor.expect("(")
    texts = cursor.list_of(lambda c: c.string(f"a string in single quotes: {wanted}"), ")")
    if len(texts) != 3:
        raise cursor.expected(f"three strings: {wanted}")
    return ReplicatedEngine(*texts)


def _attach(cursor: Cursor) -> Statement:
    if cursor.at_words("DATABASE"):
        raise NotImplementedStatement("ATTACH DATABASE is not implemented")
    _refuse_kind(cursor, "ATTACH")
    cursor.expect_words("TABLE")
    return attach_table(cursor)


def _detach(cursor: Cursor) -> DetachTable:
    if cursor.at_words("DATABASE"):
        raise NotImplementedStatement("DETACH DATABASE is not implemented")
    _refuse_kind(cursor, "DETACH")
    cursor.expect_words("TABLE")
    if_exists = cursor.take_words("IF", "EXISTS")
    table = table_name(cursor)
    permanently = cursor.take_words("PERMANENTLY")
    return DetachTable(table, if_exists, permanently, _sync(cursor))


def _drop(cursor: Cursor) -> DropTable | DropDatabase:
    if cursor.take_words("DATABASE"):
        if_exists = cursor.take_words("IF", "EXISTS")
        name = cursor.identifier("the name of a database")
        on_cluster(cursor)
        return DropDatabase(name, if_exists, _sync(cursor))
    _refuse_kind(cursor, "DROP")
    cursor.expect_words("TABLE")
    if_exists = cursor.take_words("IF", "EXISTS")
    tables = [table_name(cursor)]
    while cursor.take(","):
        tables.append(table_name(cursor))
    return DropTable(tuple(tables), if_exists, _sync(cursor))


def _rename(cursor: Cursor) -> RenameTables | RenameDatabase:
    if cursor.take_words("DATABASE"):
        if_exists = cursor.take_words("IF", "EXISTS")
        old = cursor.identifier("the name of a database")
        cursor.expect_words("TO")
        new = cursor.identifier("the name of a database")
        if cursor.at(","):
            raise NotImplementedStatement(
                "RENAME DATABASE of several databases is not implemented: say it for each"
            )
        on_cluster(cursor)
        return RenameDatabase(old, new, if_exists)
    _refuse_kind(cursor, "RENAME")
    cursor.take_words("TABLE")
    if_exists = cursor.take_words("IF", "EXISTS")
    moves = [_move(cursor)]
    while cursor.take(","):
        moves.append(_move(cursor))
    return RenameTables(tuple(moves), if_exists)


def _move(cursor: Cursor) -> tuple[TableName, TableName]:
    old = table_name(cursor)
    cursor.expect_words("TO")
    return old, table_name(cursor)


def _exchange(cursor: Cursor) -> ExchangeTables:
    _refuse_kind(cursor, "EXCHANGE")
    if cursor.at_words("DICTIONARIES"):
        raise NotImplementedStatement("EXCHANGE DICTIONARIES is not implemented")
    cursor.expect_words("TABLES")
    one = table_name(cursor)
    cursor.expect_words("AND")
    return ExchangeTables(one, table_name(cursor))


def _undrop(cursor: Cursor) -> UndropTable:
    _refuse_kind(cursor, "UNDROP")
    cursor.expect_words("TABLE")
    table = table_name(cursor)
    uuid = cursor.string("a uuid in single quotes") if cursor.take_words("UUID") else ""
    on_cluster(cursor)
    return UndropTable(table, uuid)


def _sync(cursor: Cursor) -> bool:
    return cursor.take_words("SYNC") or cursor.take_words("NO", "DELAY")


def _use(cursor: Cursor) -> Use:
    cursor.take_words("DATABASE")
    return Use(cursor.identifier("the name of a database"))


def _insert(cursor: Cursor) -> Statement:
    overwrites = cursor.take_words("OVERWRITE")
    cursor.take_words("INTO")
    return insert(cursor, overwrites=overwrites)


def _set(cursor: Cursor) -> Statement:
    if (
        cursor.at_words("DEFAULT", "ROLE")
        or cursor.at_words("ROLE")
        or cursor.at_words("TRANSACTION")
    ):
        raise NotImplementedStatement(f"SET {_first_words(cursor, 1)} is not implemented")
    return SetSettings(settings_clause(cursor))


def _alter(cursor: Cursor) -> Statement:
    _refuse_kind(cursor, "ALTER")
    cursor.expect_words("TABLE")
    table = table_name(cursor)
    if at_commands(cursor):
        return alter_rows(cursor, table)
    if at_alter(cursor):
        return alter_table(cursor, table)
    if at_partition_command(cursor):
        return partition_commands(cursor, table)
    for command, reason in _ALTER_COMMANDS.items():
        if cursor.at_words(*command.split()):
            raise NotImplementedStatement(
                f"ALTER TABLE {table} {command} is not implemented{reason}"
            )
    raise cursor.expected("a command of ALTER TABLE")


def _truncate(cursor: Cursor) -> Statement:
    if cursor.at_word("DATABASE", "ALL") or cursor.at_words("TABLES"):
        raise NotImplementedStatement(
            f"TRUNCATE {cursor.current.upper} is not implemented: say it for each table"
        )
    return truncate_table(cursor)


_PARSERS: dict[str, Parser] = {
    "EXPLAIN": _explain,
    "ALTER": _alter,
    "ATTACH": _attach,
    "CHECK": check,
    "CREATE": _create,
    "DELETE": delete_from,
    "DESC": describe,
    "DESCRIBE": describe,
    "DETACH": _detach,
    "DROP": _drop,
    "EXCHANGE": _exchange,
    "EXISTS": exists,
    "INSERT": _insert,
    "KILL": kill,
    "OPTIMIZE": optimize,
    "RENAME": _rename,
    "SET": _set,
    "SHOW": show,
    "SYSTEM": system,
    "TRUNCATE": _truncate,
    "UNDROP": _undrop,
    "USE": _use,
}
