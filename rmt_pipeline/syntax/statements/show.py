"""The parsers of SHOW, DESCRIBE and EXISTS.

As in the original, a statement that system tables can answer becomes a query of them, so that it
can have WHERE and LIMIT.
"""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import expression
from rmt_pipeline.syntax.statements.nodes import (
    Answer,
    DescribeTable,
    ExistsDatabase,
    ExistsTable,
    Pattern,
    SelectStatement,
    ShowCreateDatabase,
    ShowCreateTable,
    ShowDatabases,
    ShowSettings,
    ShowTables,
    Statement,
)
from rmt_pipeline.syntax.statements.tail import answer_tail, table_name, whole_query


def show(cursor: Cursor) -> Statement:
    """Read the rest of SHOW."""
    query = _of_system(cursor)
    if query is not None:
        return query
    if cursor.take_words("DATABASES"):
        pattern = _pattern(cursor)
        return ShowDatabases(pattern, _limit(cursor), answer_tail(cursor))
    if cursor.take_words("TABLES"):
        database = None
        if cursor.take_words("FROM") or cursor.take_words("IN"):
            database = cursor.identifier("the name of a database")
        pattern = _pattern(cursor)
        return ShowTables(database, pattern, _limit(cursor), answer_tail(cursor))
    if cursor.take_words("CREATE") or (
        cursor.at_words("TABLE") and cursor.ahead(1).kind != "end"
    ):
        return _created(cursor)
    changed = cursor.at_words("CHANGED", "SETTINGS") and cursor.take_words("CHANGED")
    if cursor.take_words("SETTINGS"):
        pattern = _pattern(cursor)
        return ShowSettings(pattern, changed, answer_tail(cursor))
    if cursor.current.upper:
        raise NotImplementedStatement(f"SHOW {cursor.current.upper} is not implemented")
    raise cursor.expected("TABLES, DATABASES, CREATE TABLE or SETTINGS")


def _created(cursor: Cursor) -> ShowCreateTable | ShowCreateDatabase:
    """Read what follows SHOW CREATE, or SHOW if TABLE does."""
    if cursor.at_words("DATABASE") and cursor.ahead(1).kind != "end":
        cursor.advance()
        name = cursor.identifier("the name of a database")
        return ShowCreateDatabase(name, answer_tail(cursor))
    if cursor.at_words("VIEW") or cursor.at_words("DICTIONARY"):
        raise NotImplementedStatement(
            f"SHOW CREATE {cursor.current.upper} is not implemented: there are none"
        )
    cursor.take_words("TABLE")
    return ShowCreateTable(table_name(cursor), answer_tail(cursor))


_COLUMNS = """SELECT name AS field, type, if(startsWith(type, 'Nullable'), 'YES', 'NO') AS `null`,
concat(if(is_in_primary_key, 'PRI', ''), if(is_in_primary_key AND is_in_sorting_key, ' ', ''),
if(is_in_sorting_key, 'SOR', '')) AS key,
if(default_kind IN ('ALIAS', 'DEFAULT', 'MATERIALIZED'), default_expression, NULL) AS `default`,
'' AS extra{more} FROM system.columns WHERE database = {database} AND table = {table}"""
_FULL_COLUMNS = ", CAST(NULL, 'Nullable(String)') AS collation, comment, '' AS privileges"
_MERGES = """SELECT table, database, if(progress > 0, round(elapsed * (1 - progress) / progress, 2),
NULL) AS estimate_complete, round(elapsed, 2) AS elapsed, round(progress * 100, 2) AS progress,
is_mutation, formatReadableSize(total_size_bytes_compressed) AS size_compressed
FROM system.merges"""


_INDEXES = """SELECT name AS table, toUInt8(1) AS non_unique, 'PRIMARY' AS key_name, seq_in_index,
column_name, 'A' AS collation, toUInt8(0) AS cardinality,
CAST(NULL, 'Nullable(String)') AS sub_part, CAST(NULL, 'Nullable(String)') AS packed,
CAST(NULL, 'Nullable(String)') AS `null`,
'PRIMARY' AS index_type, '' AS comment, '' AS index_comment, 'YES' AS visible, '' AS expression
FROM system.tables ARRAY JOIN splitByString(', ', primary_key) AS column_name,
arrayEnumerate(splitByString(', ', primary_key)) AS seq_in_index
WHERE database = {database} AND name = {table} AND primary_key != ''"""
"""The primary key, column by column. INDEX clauses are not built, so they are none."""
_INDEX_WORDS = ("INDEX", "INDEXES", "INDICES", "KEYS")


def _of_system(cursor: Cursor) -> SelectStatement | None:
    """Return the query of system tables that answers SHOW; None if it is none of those."""
    if cursor.take_words("FUNCTIONS"):
        return _listed(cursor, "SELECT * FROM system.functions", "name")
    if cursor.take_words("ENGINES"):
        return _listed(cursor, "SELECT * FROM system.table_engines", "name")
    if cursor.take_words("CLUSTERS"):
        return _listed(cursor, "SELECT DISTINCT cluster AS name FROM system.clusters", "name")
    if cursor.take_words("PROCESSLIST"):
        return _query("SELECT * FROM system.processes", answer_tail(cursor))
    if cursor.take_words("MERGES"):
        return _listed(cursor, _MERGES, "table")
    if cursor.take_words("DICTIONARIES"):  # an empty list: this engine has none
        return _listed(cursor, "SELECT name FROM system.databases WHERE 0", "name")
    if cursor.take_words("SETTING"):
        name = _text(cursor.identifier("the name of a setting"))
        text = f"SELECT value FROM system.settings WHERE name = {name}"  # noqa: S608
        return _query(text, answer_tail(cursor))
    if cursor.ahead(int(cursor.at_word("EXTENDED"))).upper in _INDEX_WORDS:
        cursor.take_words("EXTENDED")
        cursor.advance()
        return _of_table(cursor, _INDEXES, "seq_in_index")
    full = _ahead_of(cursor, "FULL", "TABLES") and cursor.take_words("FULL")
    if cursor.at_words("TABLES") and (full or _has_where(cursor)):
        cursor.advance()
        kind = ", engine AS table_type" if full else ""
        database = _database(cursor, ("FROM", "IN"))
        names = f"SELECT name{kind} FROM system.tables WHERE database = {database}"  # noqa: S608
        return _listed(cursor, names, "name")
    return _columns(cursor)


def _columns(cursor: Cursor) -> SelectStatement | None:
    """Read `[EXTENDED] [FULL] COLUMNS FROM t [FROM database]`; None if something else
    comes next.
    """
    words = [cursor.ahead(place).upper for place in range(3)]
    while words and words[0] in ("EXTENDED", "FULL"):
        words.pop(0)
    if not words or words[0] not in ("COLUMNS", "FIELDS"):
        return None
    cursor.take_words("EXTENDED")
    full = cursor.take_words("FULL")
    cursor.advance()
    return _of_table(cursor, _COLUMNS, "field", more=_FULL_COLUMNS if full else "")


def _of_table(cursor: Cursor, text: str, name: str, *, more: str = "") -> SelectStatement:
    """Read `FROM t [FROM database]`, and return the query `text` of that table."""
    if not cursor.take_words("FROM") and not cursor.take_words("IN"):
        raise cursor.expected("FROM and a table")
    table = table_name(cursor)
    inside = _text(table.database) if table.database else _database(cursor, ("FROM", "IN"))
    query = text.format(more=more, database=inside, table=_text(table.name))
    return _listed(cursor, query, name)


def _ahead_of(cursor: Cursor, *words: str) -> bool:
    return all(cursor.ahead(place).upper == word for place, word in enumerate(words))


def _has_where(cursor: Cursor) -> bool:
    """Whether WHERE comes next, or after FROM and a name."""
    behind = cursor.ahead(1).upper in ("FROM", "IN")
    return cursor.ahead(3 if behind else 1).upper == "WHERE"


def _database(cursor: Cursor, words: tuple[str, ...]) -> str:
    for word in words:
        if cursor.take_words(word):
            return _text(cursor.identifier("the name of a database"))
    return "currentDatabase()"


def _listed(cursor: Cursor, text: str, name: str) -> SelectStatement:
    """Return a query of the rows of the query `text`, in the order of the column `name`, with the
    WHERE, or [NOT] LIKE or ILIKE of that column, and the LIMIT that come next.
    """
    condition = "1"
    if cursor.take_words("WHERE"):
        start = cursor.current.start
        expression(cursor)
        condition = cursor.source[start : cursor.last_end]
    else:
        pattern = _pattern(cursor)
        if pattern is not None:
            like = "ILIKE" if pattern.ignore_case else "LIKE"
            negated = "NOT " if pattern.negated else ""
            condition = f"{name} {negated}{like} {_text(pattern.like)}"
    limit = _limit(cursor)
    most = "" if limit is None else f" LIMIT {limit}"
    chosen = f"SELECT * FROM ({text}) WHERE {condition} ORDER BY {name}{most}"  # noqa: S608
    return _query(chosen, answer_tail(cursor))


def _query(text: str, answer: Answer) -> SelectStatement:
    return SelectStatement(whole_query(Cursor(text, 0, len(text))), answer, text)


def _text(value: str) -> str:
    """Return the value as a string literal of a query."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _pattern(cursor: Cursor) -> Pattern | None:
    if cursor.at_words("WHERE"):
        raise NotImplementedStatement(
            "SHOW … WHERE is not implemented: use LIKE, or SELECT from system"
        )
    negated = cursor.take_words("NOT")
    ignore_case = cursor.at_words("ILIKE")
    if cursor.take_words("ILIKE") or cursor.take_words("LIKE"):
        return Pattern(cursor.string(), negated, ignore_case)
    if negated:
        raise cursor.expected("LIKE")
    return None


def _limit(cursor: Cursor) -> int | None:
    if not cursor.take_words("LIMIT"):
        return None
    if cursor.current.kind != "number" or not cursor.current.text.isdigit():
        raise cursor.expected("a number")
    return int(cursor.advance().text)


def describe(cursor: Cursor) -> DescribeTable | SelectStatement:
    """Read the rest of DESCRIBE or DESC."""
    cursor.take_words("TABLE")
    if cursor.at_query(0):
        start = cursor.current.start
        query = whole_query(cursor)
        text = cursor.source[start : cursor.last_end]
        return SelectStatement(query, answer_tail(cursor), text, shows="columns")
    return DescribeTable(table_name(cursor), answer_tail(cursor))


def exists(cursor: Cursor) -> ExistsTable | ExistsDatabase | SelectStatement:
    """Read the rest of EXISTS."""
    if cursor.at_words("DATABASE") and cursor.ahead(1).kind != "end":
        cursor.advance()
        return ExistsDatabase(cursor.identifier("the name of a database"), answer_tail(cursor))
    for kind in ("VIEW", "DICTIONARY", "TEMPORARY"):
        if cursor.at_words(kind) and cursor.ahead(1).kind not in ("end", "."):
            cursor.advance()
            cursor.take_words("TABLE")
            table_name(cursor)
            return _query("SELECT toUInt8(0) AS result", answer_tail(cursor))  # never any
    cursor.take_words("TABLE")
    return ExistsTable(table_name(cursor), answer_tail(cursor))
