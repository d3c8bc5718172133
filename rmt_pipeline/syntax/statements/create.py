"""The parsers of CREATE TABLE and ATTACH TABLE: columns, engine, keys."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar, get_args

from rmt_pipeline.protocol.errors import NotImplementedStatement, UserError
from rmt_pipeline.protocol.table import DefaultKind
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import OPERATOR_WORDS, expression
from rmt_pipeline.syntax.lexer import place, problem
from rmt_pipeline.syntax.nodes import Call, Name, Node
from rmt_pipeline.syntax.settings import settings_clause
from rmt_pipeline.syntax.statements.definition import (
    ColumnSyntax,
    ConstraintSyntax,
    ElementSyntax,
    IndexSyntax,
    ModifyColumnSyntax,
    PrimaryKeySyntax,
    ProjectionSyntax,
    TableSyntax,
)
from rmt_pipeline.syntax.statements.nodes import AttachTable, CreateTable, FromQuery, TableName
from rmt_pipeline.syntax.statements.tail import table_name, whole_query
from rmt_pipeline.syntax.ttl import ttl_element
from rmt_pipeline.syntax.types import read_type
from rmt_pipeline.types.data_type import DataType

DEFAULT_ENGINE = "MergeTree"

DEFAULTS: Mapping[str, DefaultKind] = {kind: kind for kind in get_args(DefaultKind) if kind}
_COLUMN_CLAUSES = frozenset(("COMMENT", "CODEC", "TTL", "STATISTICS", "SETTINGS", "PRIMARY"))
_Column = TypeVar("_Column", ColumnSyntax, ModifyColumnSyntax)


def create_table(cursor: Cursor) -> CreateTable:
    """Read the rest of CREATE TABLE."""
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    table = table_name(cursor)
    _skip_uuid(cursor)
    like = None
    if cursor.at_words("AS") and not cursor.at_query(1):
        cursor.advance()
        if cursor.at_mark(1, "("):
            raise NotImplementedStatement(
                "CREATE TABLE … AS a table function is not implemented"
            )
        like = table_name(cursor)
        if cursor.at_end:
            return CreateTable(table, None, if_not_exists, like)
    syntax = _definition(cursor, like)
    is_empty = cursor.take_words("EMPTY")
    if like is not None or not cursor.take_words("AS"):
        return CreateTable(table, syntax, if_not_exists, like)
    start = cursor.current.start
    found = whole_query(cursor)
    text = cursor.source[start : cursor.last_end]
    return CreateTable(table, syntax, if_not_exists, like, FromQuery(found, text), is_empty)


def attach_table(cursor: Cursor) -> AttachTable:
    """Read the rest of ATTACH TABLE."""
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    table = table_name(cursor)
    _skip_uuid(cursor)
    if cursor.at_end:
        return AttachTable(table, None, if_not_exists)
    return AttachTable(table, _definition(cursor, None), if_not_exists)


def _skip_uuid(cursor: Cursor) -> None:
    if cursor.at_words("UUID"):
        raise NotImplementedStatement("CREATE TABLE … UUID is not implemented: leave UUID out")


def _definition(cursor: Cursor, like: TableName | None) -> TableSyntax:
    """Read columns and clauses up to the end, or up to the AS or EMPTY AS before a query. There may
    be no columns if another table (`like`) or a query gives them.
    """
    if cursor.at_words("CLONE"):
        raise NotImplementedStatement("CREATE TABLE … CLONE AS is not implemented")
    if like is None and cursor.take("("):
        syntax = _with_elements(cursor.list_of(_element, ")"), cursor)
    elif like is not None or cursor.at_word(*_CLAUSES) or cursor.at_words("AS"):
        syntax = TableSyntax((), "", ())
    else:
        raise cursor.expected("`(`, ENGINE or AS")
    given: set[str] = set()
    while not cursor.at_end:
        clause = cursor.current.upper
        if clause in given:
            raise cursor.expected(f"{clause} only once")
        if clause in ("AS", "EMPTY"):
            break
        if clause not in _CLAUSES:
            raise cursor.expected(
                "ENGINE, ORDER BY, PARTITION BY, PRIMARY KEY, SAMPLE BY, TTL, SETTINGS, COMMENT"
            )
        given.add(clause)
        syntax = _CLAUSES[clause](cursor, syntax)
    return syntax if syntax.engine else replace(syntax, engine=DEFAULT_ENGINE)


def _with_elements(elements: tuple[ElementSyntax, ...], cursor: Cursor) -> TableSyntax:
    """Return the syntax with the elements between the parentheses sorted by kind. Raises UserError
    for two primary keys.
    """
    columns = tuple(one for one in elements if isinstance(one, ColumnSyntax))
    keys = [one.key for one in elements if isinstance(one, PrimaryKeySyntax)]
    named = tuple(Name((one.name,)) for one in columns if one.is_primary_key)
    keys += [named] if named else []
    if len(keys) > 1:
        raise _several_primary_keys(cursor)
    return TableSyntax(
        columns,
        "",
        (),
        primary_key=keys[0] if keys else None,
        indices=tuple(one for one in elements if isinstance(one, IndexSyntax)),
        projections=tuple(one for one in elements if isinstance(one, ProjectionSyntax)),
        constraints=tuple(one for one in elements if isinstance(one, ConstraintSyntax)),
    )


def _several_primary_keys(cursor: Cursor) -> UserError:
    where = place(cursor.source, cursor.current.start)
    return UserError(f"a table has one PRIMARY KEY, and here is another one, before {where}")


def _engine(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect_words("ENGINE")
    cursor.take("=")
    name = cursor.identifier("the name of an engine")
    arguments = cursor.list_of(expression, ")") if cursor.take("(") else ()
    return replace(syntax, engine=name, engine_arguments=arguments)


def _partition_by(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect_words("PARTITION", "BY")
    return replace(syntax, partition_by=key_expressions(cursor))


def _order_by(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect_words("ORDER", "BY")
    return replace(syntax, order_by=key_expressions(cursor))


def _primary_key(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    if syntax.primary_key is not None:
        raise _several_primary_keys(cursor)
    cursor.expect_words("PRIMARY", "KEY")
    return replace(syntax, primary_key=key_expressions(cursor))


def _sample_by(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect_words("SAMPLE", "BY")
    return replace(syntax, sample_by=expression(cursor))


def _ttl(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect_words("TTL")
    return replace(syntax, ttl=cursor.several(ttl_element))


def _settings(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect_words("SETTINGS")
    return replace(syntax, settings=settings_clause(cursor))


def _comment(cursor: Cursor, syntax: TableSyntax) -> TableSyntax:
    cursor.expect_words("COMMENT")
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


def key_expressions(cursor: Cursor) -> tuple[Node, ...]:
    """Read a key's expressions: `a`, `(a, b)`, `tuple(a, b)`, `((a, b))`; none for `tuple()` and
    `()`.
    """
    start = cursor.place
    if cursor.at_words("TUPLE") and cursor.at_mark(1, "("):
        cursor.advance()
    if cursor.take("("):
        keys = cursor.list_of(_ascending, ")")
        at_mark = cursor.current.kind == "mark" and not cursor.at(",", ")", ";")
        if not at_mark and not cursor.at_word(*OPERATOR_WORDS):
            only = keys[0] if len(keys) == 1 else None
            is_list = isinstance(only, Call) and only.operator and only.name == "tuple"
            return only.arguments if is_list and isinstance(only, Call) else keys
        cursor.place = start  # the parenthesis was part of one expression: `(a + 1) * 2`
    return (_ascending(cursor),)


def _ascending(cursor: Cursor) -> Node:
    node = expression(cursor)
    if cursor.at_words("DESC"):
        raise NotImplementedStatement("keys in descending order (DESC) are not implemented")
    cursor.take_words("ASC")
    return node


def _element(cursor: Cursor) -> ElementSyntax:
    """Read an INDEX, PROJECTION, CONSTRAINT, PRIMARY KEY or column. A column may be named like one
    of these words.
    """
    if cursor.at_words("CONSTRAINT") and cursor.ahead(2).upper in ("CHECK", "ASSUME"):
        cursor.advance()
        return constraint_declared(cursor)
    if cursor.at_words("PRIMARY", "KEY"):
        cursor.advance()
        cursor.advance()
        return PrimaryKeySyntax(key_expressions(cursor))
    if (
        cursor.at_words("PROJECTION")
        and cursor.at_mark(2, "(")
        and cursor.ahead(3).upper in ("SELECT", "WITH")
    ):
        cursor.advance()
        name = cursor.identifier("the name of a projection")
        return ProjectionSyntax(name, " ".join(cursor.group()[1:-1].split()))
    return _index(cursor) if _at_index(cursor) else _column(cursor)


def _at_index(cursor: Cursor) -> bool:
    """Whether an index starts here: TYPE follows INDEX before the next comma. Otherwise INDEX is
    the name of a column.
    """
    if not cursor.at_words("INDEX"):
        return False
    distance, depth = 1, 0
    while depth >= 0 and cursor.ahead(distance).kind != "end":
        token = cursor.ahead(distance)
        if depth == 0 and (token.upper == "TYPE" or token.text == ","):
            return token.upper == "TYPE"
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        distance += 1
    return False


def constraint_declared(cursor: Cursor) -> ConstraintSyntax:
    """Read the rest of CONSTRAINT: its name, and CHECK or ASSUME with an expression."""
    name = cursor.identifier("the name of a constraint")
    if cursor.take_words("ASSUME"):
        return ConstraintSyntax(name, "ASSUME", expression(cursor))
    cursor.expect_words("CHECK")
    return ConstraintSyntax(name, "CHECK", expression(cursor))


def _index(cursor: Cursor) -> IndexSyntax:
    cursor.expect_words("INDEX")
    return index_declared(cursor)


def index_declared(cursor: Cursor) -> IndexSyntax:
    """Read the rest of INDEX: its name, expression, type and granularity."""
    name = cursor.identifier("the name of an index")
    node = expression(cursor)
    cursor.expect_words("TYPE")
    start = cursor.current.start
    cursor.identifier("the type of an index")
    if cursor.at("("):
        cursor.group()
    kind = cursor.source[start : cursor.last_end]
    granularity = 1
    if cursor.take_words("GRANULARITY"):
        if cursor.current.kind != "number" or not cursor.current.text.isdigit():
            raise cursor.expected("a whole number")
        granularity = int(cursor.advance().text)
    return IndexSyntax(name, node, kind, granularity)


def _column(cursor: Cursor) -> ColumnSyntax:
    name = cursor.identifier("the name of a column")
    if cursor.at("."):  # `n.a`, as columns of Nested types are named
        cursor.advance()
        name += "." + cursor.identifier("the name of a column")
    column = ColumnSyntax(name, *column_type(cursor, DEFAULTS))
    column = column_default(cursor, column, _COLUMN_CLAUSES)
    while not (cursor.at(",") or cursor.at(")") or cursor.at_end):
        at = cursor.current
        if (read := column_clause(cursor, column)) is not None:
            column = read
        elif cursor.take_words("PRIMARY", "KEY"):
            column = replace(column, is_primary_key=True)
        elif at.upper in _COLUMN_CLAUSES:
            raise NotImplementedStatement(
                f"{at.upper} of a column is not implemented (column {column.name})"
            )
        else:
            what = f"unexpected {at.text} in the definition of column {column.name}"
            raise problem(cursor.source, at.start, what)
    return column


def column_type(cursor: Cursor, others: Collection[str]) -> tuple[DataType | None, bool | None]:
    """Read a type, and NULL (True), NOT NULL (False) or neither (None) after it. The type is None
    when one of the words `others` stands in its place.
    """
    if cursor.at_word(*others):
        return None, None
    found = read_type(cursor)
    if cursor.take_words("NOT", "NULL"):
        return found, False
    return found, True if cursor.take_words("NULL") else None


def column_default(cursor: Cursor, column: ColumnSyntax, ends: Collection[str]) -> ColumnSyntax:
    """Return the column with the default that comes next, if one does. EPHEMERAL needs no
    expression where one of the words `ends` follows it.
    """
    kind = DEFAULTS.get(cursor.current.upper)
    if kind is None:
        return column
    cursor.advance()
    ends_here = cursor.at_end or cursor.at(",", ")") or cursor.at_word(*ends)
    default = None if kind == "EPHEMERAL" and ends_here else expression(cursor)
    return replace(column, default_kind=kind, default=default)


def column_clause(cursor: Cursor, column: _Column) -> _Column | None:
    """Return the column with the COMMENT, CODEC or TTL that comes next; None if none does."""
    if cursor.take_words("COMMENT"):
        return replace(column, comment=cursor.string())
    if cursor.take_words("CODEC"):
        return replace(column, codec=cursor.group()[1:-1].strip())
    if cursor.take_words("TTL"):
        return replace(column, ttl=expression(cursor))
    return None
