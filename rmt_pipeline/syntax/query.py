"""The parser of SELECT: tokens to `nodes.Select`, with the original's clauses in its order."""

from fractions import Fraction
from typing import Literal as Choice

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import aliased, expression
from rmt_pipeline.syntax.nodes import (
    ArrayJoin,
    Derived,
    Join,
    JoinKind,
    LimitBy,
    Literal,
    NamedTable,
    Node,
    OrderItem,
    Query,
    SampleClause,
    Select,
    SetOperation,
    Strictness,
    TableExpression,
    TableFunction,
    WindowSpec,
    WithItem,
)
from rmt_pipeline.syntax.primary import order_item, primary, window_spec
from rmt_pipeline.syntax.settings import settings_clause

Operation = Choice["UNION ALL", "UNION", "EXCEPT ALL", "EXCEPT", "INTERSECT ALL", "INTERSECT"]


def inner_query(c: Cursor) -> Query:
    """Read a query inside another one. SETTINGS are read there and ignored: they only count at the
    end of the statement.
    """
    found = query(c)
    if c.take_words("SETTINGS"):
        settings_clause(c)
    return found


def query(c: Cursor) -> Query:
    """Read SELECTs joined by UNION, EXCEPT and INTERSECT, of which INTERSECT binds strongest."""
    left = _intersections(c)
    count = 0
    while c.at_word("UNION", "EXCEPT"):
        word = c.advance().upper
        operation = _operation(c, word)
        left = SetOperation(left, _intersections(c), operation)
        count += 1
        if count > 500:
            raise c.expected("fewer queries in one UNION")
    return left


def _intersections(c: Cursor) -> Query:
    left = _select_or_parenthesis(c)
    while c.at_word("INTERSECT"):
        c.advance()
        operation = _operation(c, "INTERSECT")
        left = SetOperation(left, _select_or_parenthesis(c), operation)
    return left


def _operation(c: Cursor, word: str) -> Operation:
    if c.take_words("DISTINCT"):
        return _OPERATIONS[word][1]
    if c.take_words("ALL"):
        return _OPERATIONS[word][0]
    if word == "UNION":
        raise c.expected("UNION ALL or UNION DISTINCT")
    return _OPERATIONS[word][0]  # the original's EXCEPT and INTERSECT keep duplicates


_OPERATIONS: dict[str, tuple[Operation, Operation]] = {
    "UNION": ("UNION ALL", "UNION"),
    "EXCEPT": ("EXCEPT ALL", "EXCEPT"),
    "INTERSECT": ("INTERSECT ALL", "INTERSECT"),
}


def _select_or_parenthesis(c: Cursor) -> Query:
    if c.take("("):
        inner: Query = c.query()
        c.expect(")")
        return inner
    return _select(c)


def _select(c: Cursor) -> Select:
    c.deeper()
    with_items = _with(c)
    if c.at_word("FROM"):  # FROM t SELECT a
        source = from_clause(c)
        c.expect_words("SELECT")
    else:
        c.expect_words("SELECT")
        source = None
    distinct, of_each = _distinct(c)
    top, top_with_ties = _top(c)
    items = c.several(_item)
    if source is None and c.at_word("FROM"):
        source = from_clause(c)
    prewhere = expression(c) if c.take_words("PREWHERE") else None
    where = expression(c) if c.take_words("WHERE") else None
    group_by, group_all, modifier = _group_by(c)
    totals = c.take_words("WITH", "TOTALS")
    having = expression(c) if c.take_words("HAVING") else None
    windows = _windows(c)
    qualify = expression(c) if c.take_words("QUALIFY") else None
    order_by, order_all = _order_by(c)
    limit_by, limit, offset, with_ties = _limits(c)
    if of_each:
        if limit_by is not None:
            raise UserError("DISTINCT ON and LIMIT BY can't be used together")
        limit_by = LimitBy(Literal(1, "1"), None, of_each)
    if top is not None:
        if limit is not None:
            raise UserError("TOP and LIMIT can't be used together")
        limit, with_ties = top, top_with_ties
    c.depth -= 1
    return Select(
        items=items,
        with_items=with_items,
        distinct=distinct,
        source=source,
        prewhere=prewhere,
        where=where,
        group_by=group_by,
        group_all=group_all,
        group_modifier=modifier,
        totals=totals,
        having=having,
        windows=windows,
        qualify=qualify,
        order_by=order_by,
        order_all=order_all,
        limit_by=limit_by,
        limit=limit,
        offset=offset,
        with_ties=with_ties,
    )


def _item(c: Cursor) -> Node:
    return aliased(c)


def _with(c: Cursor) -> tuple[WithItem, ...]:
    if not c.take_words("WITH"):
        return ()
    if c.at_word("RECURSIVE") and c.ahead().upper != "AS":
        c.not_supported("WITH RECURSIVE")
    return c.several(_with_item)


def _with_item(c: Cursor) -> WithItem:
    named = c.current.kind in {"word", "name"} and c.ahead().upper == "AS"
    if named and c.ahead(2).text == "(" and c.at_query(2):
        name = c.identifier()
        c.expect_words("AS")
        c.expect("(")
        found = c.query()
        c.expect(")")
        return WithItem(name, found)
    node = expression(c)
    c.expect_words("AS")
    return WithItem(c.identifier(), node)


def _distinct(c: Cursor) -> tuple[bool, tuple[Node, ...]]:
    """Read DISTINCT, or DISTINCT ON (…), which is LIMIT 1 BY …, in the original too."""
    if c.at_word("DISTINCT") and c.ahead().upper == "ON":
        c.advance()
        c.advance()
        c.expect("(")
        return False, c.list_of(expression, ")")
    if c.take_words("DISTINCT"):
        return True, ()
    c.take_words("ALL")
    return False, ()


def _top(c: Cursor) -> tuple[Node | None, bool]:
    """`TOP n [WITH TIES]` before the list, which is its LIMIT."""
    if not c.at_word("TOP"):
        return None, False
    ahead = c.ahead()
    if ahead.kind != "number" and ahead.text != "(":
        return None, False
    c.advance()
    return primary(c, expression), c.take_words("WITH", "TIES")


# The clauses after WHERE.


def _group_by(c: Cursor) -> tuple[tuple[Node, ...], bool, Choice["", "ROLLUP", "CUBE"]]:
    if not c.take_words("GROUP", "BY"):
        return (), False, ""
    if c.at_word("ALL") and c.ahead().text not in {",", "(", "."}:
        c.advance()
        nodes: tuple[Node, ...] = ()
        group_all = True
    else:
        group_all = False
        modifier = c.current.upper
        if modifier in {"ROLLUP", "CUBE"} and c.ahead().text == "(":
            c.advance()
            c.expect("(")
            inner = c.list_of(expression, ")")
            return inner, False, "ROLLUP" if modifier == "ROLLUP" else "CUBE"
        if modifier == "GROUPING":
            c.not_supported("GROUPING SETS")
        nodes = c.several(expression)
    if c.take_words("WITH", "ROLLUP"):
        return nodes, group_all, "ROLLUP"
    if c.take_words("WITH", "CUBE"):
        return nodes, group_all, "CUBE"
    return nodes, group_all, ""


def _windows(c: Cursor) -> tuple[tuple[str, WindowSpec], ...]:
    if not (c.at_word("WINDOW") and c.ahead(2).upper == "AS"):
        return ()
    c.advance()

    def one(c: Cursor) -> tuple[str, WindowSpec]:
        name = c.identifier()
        c.expect_words("AS")
        c.expect("(")
        return name, window_spec(c, expression)

    return c.several(one)


def _order_by(c: Cursor) -> tuple[tuple[OrderItem, ...], bool]:
    if not c.take_words("ORDER", "BY"):
        return (), False
    if c.at_word("ALL") and c.ahead().text not in {",", "(", "."}:
        c.advance()
        return (), True
    return c.several(lambda inner: order_item(inner, expression)), False


def _limits(c: Cursor) -> tuple[LimitBy | None, Node | None, Node | None, bool]:
    limit_by: LimitBy | None = None
    limit: Node | None = None
    offset: Node | None = None
    with_ties = False
    while c.at_word("LIMIT", "OFFSET"):
        if c.take_words("OFFSET"):
            offset = expression(c)
            c.take_words("ROWS")
            c.take_words("ROW")
            continue
        c.advance()
        count = expression(c)
        skipped: Node | None = None
        if c.take(","):
            skipped, count = count, expression(c)
        elif c.take_words("OFFSET"):
            skipped = expression(c)
        if c.take_words("BY"):
            limit_by = LimitBy(count, skipped, c.several(expression))
            continue
        if limit is not None:
            raise c.expected("one LIMIT")
        limit, offset = count, skipped if skipped is not None else offset
        with_ties = c.take_words("WITH", "TIES")
    if c.take_words("FETCH"):
        if limit is not None:
            raise c.expected("one of LIMIT and FETCH")
        limit, with_ties = _fetched(c)
    return limit_by, limit, offset, with_ties


def _fetched(c: Cursor) -> tuple[Node, bool]:
    """`FIRST | NEXT [n] ROW | ROWS ONLY | WITH TIES`, which is a LIMIT."""
    if not c.take_words("FIRST"):
        c.expect_words("NEXT")
    limit = Literal(1, "1") if c.at_word("ROW", "ROWS") else expression(c)
    if not c.take_words("ROWS"):
        c.expect_words("ROW")
    with_ties = c.take_words("WITH", "TIES")
    if not with_ties:
        c.expect_words("ONLY")
    return limit, with_ties


# FROM: tables, subqueries, joins, ARRAY JOIN.

_JOIN_WORDS = frozenset(
    {
        *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ANY", "ALL", "SEMI", "ANTI"),
        *("ASOF", "GLOBAL", "ARRAY", "PASTE"),
    }
)


def from_clause(c: Cursor) -> TableExpression:
    """Read FROM with its joins, from left to right. Raises SyntaxProblem."""
    c.expect_words("FROM")
    source = _table(c)
    count = 0
    while True:
        count += 1
        if count > 100:
            raise c.expected("fewer joins")
        if c.take(","):
            source = Join(source, _table(c), "CROSS")
        elif c.at_word("ARRAY") or (c.at_word("LEFT", "INNER") and c.ahead().upper == "ARRAY"):
            source = _array_join(c, source)
        elif c.at_word(*_JOIN_WORDS):
            source = _join(c, source)
        else:
            return source


def _table(c: Cursor) -> TableExpression:
    if c.take("("):
        if not c.at_query():
            raise c.expected("a query")
        found = c.query()
        c.expect(")")
        return Derived(found, _alias(c))
    first = c.identifier()
    if c.take("("):
        arguments = c.list_of(expression, ")")
        return TableFunction(first, arguments, _alias(c))
    database = None
    if c.take("."):
        database, first = first, c.identifier()
    alias = _alias(c)
    final = c.take_words("FINAL")
    if not alias:
        alias = _alias(c)
    return NamedTable(database, first, alias, final, _sample(c))


def _sample(c: Cursor) -> SampleClause | None:
    if not c.take_words("SAMPLE"):
        return None
    size = _ratio(c)
    return SampleClause(size, _ratio(c) if c.take_words("OFFSET") else Fraction(0))


def _ratio(c: Cursor) -> Fraction:
    """Read the number of SAMPLE or its OFFSET: `0.1`, `1/10`, `1000`."""
    found = _number(c)
    return found / _number(c, least=1) if c.take("/") else found


def _number(c: Cursor, least: int = 0) -> Fraction:
    expected = c.expected("a share such as 0.1 or 1/10, or a number of rows")
    try:
        found = Fraction(c.current.text)
    except ValueError:
        raise expected from None
    if c.current.kind != "number" or found < least:
        raise expected
    c.advance()
    return found


def _alias(c: Cursor) -> str:
    if c.take_words("AS"):
        return c.identifier()
    return c.advance().value if c.is_alias() else ""


def _array_join(c: Cursor, left: TableExpression) -> ArrayJoin:
    keep_empty = c.at_word("LEFT")
    if not c.at_word("ARRAY"):
        c.advance()
    c.expect_words("ARRAY", "JOIN")
    return ArrayJoin(left, c.several(aliased), keep_empty)


def _join(c: Cursor, left: TableExpression) -> Join:
    c.take_words("GLOBAL")
    kind: JoinKind = "INNER"
    strictness: Strictness = "ALL"
    while not c.at_word("JOIN"):
        word = c.advance().upper
        match word:
            case "INNER" | "LEFT" | "RIGHT" | "FULL" | "CROSS":
                kind = word
            case "ANY" | "ALL" | "SEMI" | "ANTI" | "ASOF":
                strictness = word
            case "OUTER":
                pass
            case _:
                c.place -= 1
                raise c.expected("JOIN")
    c.advance()
    right = _table(c)
    if kind == "CROSS":
        return Join(left, right, kind)
    if c.take_words("ON"):
        return Join(left, right, kind, strictness, on=expression(c))
    if c.take_words("USING"):
        parenthesised = c.take("(")
        names = c.several(Cursor.identifier)
        if parenthesised:
            c.expect(")")
        return Join(left, right, kind, strictness, using=names)
    raise c.expected("ON or USING")
