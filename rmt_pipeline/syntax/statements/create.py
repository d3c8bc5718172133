"""CREATE TABLE and ATTACH TABLE: columns, engine, keys."""

from collections.abc import Callable
from dataclasses import replace

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.protocol.table import DefaultKind
from rmt_pipeline.syntax.sql_cursor import Cursor
from rmt_pipeline.syntax.sql_tokens import Kind, problem
from rmt_pipeline.syntax.statements.nodes import (
    AttachTable,
    ColumnSyntax,
    CreateTable,
    TableSyntax,
)
from rmt_pipeline.syntax.statements.tail import settings_list, table_name

_DEFAULTS: dict[str, DefaultKind] = {
    "DEFAULT": "DEFAULT",
    "MATERIALIZED": "MATERIALIZED",
    "ALIAS": "ALIAS",
    "EPHEMERAL": "EPHEMERAL",
}
_COLUMN_CLAUSES = frozenset(("COMMENT", "CODEC", "TTL", "STATISTICS", "SETTINGS", "PRIMARY"))
_TABLE_CLAUSES = frozenset(
    ("ENGINE", "PARTITION", "PRIMARY", "ORDER", "SAMPLE", "TTL", "SETTINGS", "COMMENT", "AS")
)
_TYPE_ENDINGS = frozenset(("UNSIGNED", "SIGNED", "PRECISION", "VARYING"))


def create_table(cursor: Cursor) -> CreateTable:
    """After CREATE TABLE."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    table = table_name(cursor)
    _skip_uuid(cursor)
    return CreateTable(table, _definition(cursor), if_not_exists)


def attach_table(cursor: Cursor) -> AttachTable:
    """After ATTACH TABLE."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    table = table_name(cursor)
    _skip_uuid(cursor)
    if cursor.at_end:
        return AttachTable(table, None, if_not_exists)
    return AttachTable(table, _definition(cursor), if_not_exists)


def _skip_uuid(cursor: Cursor) -> None:
    if cursor.at("UUID"):
        raise NotImplementedStatement("CREATE TABLE … UUID is not implemented: leave UUID out")


def _definition(cursor: Cursor) -> TableSyntax:
    if cursor.at("AS") or cursor.at("CLONE"):
        raise NotImplementedStatement(
            "CREATE TABLE … AS is not implemented: name the columns, then INSERT … SELECT"
        )
    columns: list[ColumnSyntax] = []
    cursor.in_parentheses(lambda: columns.append(_column(cursor)))
    syntax = TableSyntax(tuple(columns), "", ())
    given: set[str] = set()
    while not cursor.at_end:
        clause = cursor.token.upper
        if clause in given:
            raise cursor.expected(f"{clause} only once")
        if clause == "AS":
            raise NotImplementedStatement(
                "CREATE TABLE … AS SELECT is not implemented: use INSERT … SELECT afterwards"
            )
        if clause not in _CLAUSES:
            raise cursor.expected(
                "ENGINE, ORDER BY, PARTITION BY, PRIMARY KEY, SAMPLE BY, TTL, SETTINGS, COMMENT"
            )
        given.add(clause)
        syntax = _CLAUSES[clause](cursor, syntax)
    if not syntax.engine:
        raise cursor.expected("ENGINE")
    return syntax


def _engine(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect("ENGINE")
    cursor.accept_mark("=")
    name = cursor.name("the name of an engine")
    arguments: list[str] = []
    if cursor.at_mark("("):
        cursor.in_parentheses(lambda: arguments.append(cursor.expression("an engine argument")))
    return replace(syntax, engine=name, engine_arguments=tuple(arguments))


def _partition_by(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect("PARTITION", "BY")
    return replace(syntax, partition_by=key_expressions(cursor))


def _order_by(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect("ORDER", "BY")
    return replace(syntax, order_by=key_expressions(cursor))


def _primary_key(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect("PRIMARY", "KEY")
    return replace(syntax, primary_key=key_expressions(cursor))


def _sample_by(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect("SAMPLE", "BY")
    return replace(syntax, sample_by=cursor.expression("an expression", _TABLE_CLAUSES))


def _ttl(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect("TTL")
    start = cursor.token.start
    cursor.expression("an expression", _TABLE_CLAUSES)
    while cursor.accept_mark(","):
        cursor.expression("an expression", _TABLE_CLAUSES)
    return replace(syntax, ttl=cursor.source[start : cursor.last_stop])


def _settings(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect("SETTINGS")
    return replace(syntax, settings=settings_list(cursor))


def _comment(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect("COMMENT")
    return replace(syntax, comment=cursor.string())


_CLAUSES: dict[str, Callable[[Cursor, TableSyntax], TableSyntax]] = {
    "ENGINE": _engine,
    "PARTITION": _partition_by,
    "ORDER": _order_by,
    "PRIMARY": _primary_key,
    "SAMPLE": _sample_by,
    "TTL": _ttl,
    "SETTINGS": _settings,
    "COMMENT": _comment,
}


def key_expressions(cursor: Cursor) -> tuple[str, ...]:
    """A key's expressions: `a`, `(a, b)`, `tuple(a, b)`; none for `tuple()` and `()`."""
    start = cursor.token.start
    cursor.expression("an expression", _TABLE_CLAUSES)
    return key_list(cursor.source, start, cursor.last_stop)


def key_list(source: str, start: int, stop: int) -> tuple[str, ...]:
    """The expressions of a key given as text; see `key_expressions`."""
    whole = Cursor(source, start, stop)
    bare = not (whole.at_mark("(") or (whole.at("TUPLE") and whole.peek(1).text == "("))
    if not bare:
        whole.accept("TUPLE")
        inside = whole.token.stop
        whole.group()
        bare = not whole.at_end  # as in `(a + 1) * 2`
    if bare:
        return (_ascending(Cursor(source, start, stop)),)
    parts = Cursor(source, inside, whole.last_stop - 1)
    keys: list[str] = []
    while not parts.at_end:
        keys.append(_ascending(parts))
        if not parts.at_end:
            parts.expect_mark(",")
    return tuple(keys)


def _ascending(cursor: Cursor) -> str:
    text = cursor.expression("an expression", frozenset(("ASC", "DESC")))
    if cursor.at("DESC"):
        raise NotImplementedStatement("keys in descending order (DESC) are not implemented")
    cursor.accept("ASC")
    return text


def _column(cursor: Cursor) -> ColumnSyntax:
    element = _element(cursor)
    if element is not None:
        raise NotImplementedStatement(f"{element} in CREATE TABLE is not implemented")
    if cursor.at("PRIMARY", "KEY"):
        raise NotImplementedStatement(
            "PRIMARY KEY among the columns is not implemented: write it after the engine"
        )
    name = cursor.name("the name of a column")
    if cursor.at_mark("."):  # `n.a`, as columns of Nested types are named
        cursor.advance()
        name += "." + cursor.name("the name of a column")
    column = ColumnSyntax(name, "" if cursor.token.upper in _DEFAULTS else column_type(cursor))
    if cursor.accept("NOT", "NULL"):
        column = replace(column, nullable=False)
    elif cursor.accept("NULL"):
        column = replace(column, nullable=True)
    return _column_clauses(cursor, _default(cursor, column))


def _element(cursor: Cursor) -> str | None:
    """INDEX, PROJECTION or CONSTRAINT; None when it is a column, maybe of that name."""
    third = cursor.peek(2)
    if cursor.at("CONSTRAINT") and third.upper in ("CHECK", "ASSUME"):
        return "CONSTRAINT"
    if (
        cursor.at("PROJECTION")
        and third.text == "("
        and cursor.peek(3).upper in ("SELECT", "WITH")
    ):
        return "PROJECTION"
    if not cursor.at("INDEX"):
        return None
    distance, depth = 1, 0
    while depth >= 0 and cursor.peek(distance).kind is not Kind.END:
        token = cursor.peek(distance)
        if depth == 0 and (token.upper == "TYPE" or token.text == ","):
            return "INDEX" if token.upper else None
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        distance += 1
    return None


def column_type(cursor: Cursor) -> str:
    """The text of a type, with its arguments."""
    start = cursor.token.start
    cursor.name("the type of a column")
    while cursor.token.upper in _TYPE_ENDINGS:
        cursor.advance()
    if cursor.at_mark("("):
        cursor.group()
    while cursor.token.upper in _TYPE_ENDINGS:
        cursor.advance()
    return cursor.source[start : cursor.last_stop]


def _default(cursor: Cursor, column: ColumnSyntax) -> ColumnSyntax:
    kind = _DEFAULTS.get(cursor.token.upper, "")
    if not kind:
        return column
    cursor.advance()
    ends_here = cursor.token.text in (",", ")") or cursor.token.upper in _COLUMN_CLAUSES
    if kind == "EPHEMERAL" and ends_here:
        return replace(column, default_kind=kind)
    default = cursor.expression("an expression", _COLUMN_CLAUSES)
    return replace(column, default_kind=kind, default=default)


def _column_clauses(cursor: Cursor, column: ColumnSyntax) -> ColumnSyntax:
    while not (cursor.at_mark(",") or cursor.at_mark(")") or cursor.at_end):
        at = cursor.token
        if cursor.accept("COMMENT"):
            column = replace(column, comment=cursor.string())
        elif cursor.accept("CODEC"):
            column = replace(column, codec=cursor.group()[1:-1].strip())
        elif cursor.accept("TTL"):
            column = replace(column, ttl=cursor.expression("an expression", _COLUMN_CLAUSES))
        elif at.upper in _COLUMN_CLAUSES:
            raise NotImplementedStatement(
                f"{at.upper} of a column is not implemented (column {column.name})"
            )
        else:
            what = f"unexpected {at.text} in the definition of column {column.name}"
            raise problem(cursor.source, at.start, what)
    return column
