"""SELECT: tokens to `nodes.Select`. The clauses of the original, in its order."""

from typing import Literal as Choice

from rmt_pipeline.protocol.errors import SyntaxProblem
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import aliased, expression
from rmt_pipeline.syntax.from_parser import from_clause
from rmt_pipeline.syntax.nodes import (
    Aliased,
    LimitBy,
    Literal,
    Name,
    Node,
    OrderItem,
    Query,
    Select,
    SetOperation,
    WindowSpec,
    WithItem,
)
from rmt_pipeline.syntax.primary import order_item, window_spec

Operation = Choice["UNION ALL", "UNION", "EXCEPT ALL", "EXCEPT", "INTERSECT ALL", "INTERSECT"]


def parse_query(text: str) -> Query:
    """The one query that `text` is. Raises SyntaxProblem naming the place."""
    cursor = Cursor(text, query)
    try:
        found = query(cursor)
        cursor.expect_end()
    except RecursionError:
        raise SyntaxProblem(f"the query is nested too deeply: {text[:100]!r}...") from None
    return found


def query(c: Cursor) -> Query:
    """SELECTs joined by UNION, EXCEPT and INTERSECT; INTERSECT binds stronger."""
    left = _intersections(c)
    count = 0
    while c.at_word("UNION", "EXCEPT"):
        word = c.advance().upper
        operation = _operation(c, word)
        left = SetOperation(left, _intersections(c), operation)
        count += 1
        if count > 500:
            c.fail("expected fewer queries in one UNION")
    return _trailing(c, left) if isinstance(left, SetOperation) else left


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
        c.fail("expected UNION ALL or UNION DISTINCT")
    return _OPERATIONS[word][0]  # the original's EXCEPT and INTERSECT keep duplicates


_OPERATIONS: dict[str, tuple[Operation, Operation]] = {
    "UNION": ("UNION ALL", "UNION"),
    "EXCEPT": ("EXCEPT ALL", "EXCEPT"),
    "INTERSECT": ("INTERSECT ALL", "INTERSECT"),
}


def _trailing(c: Cursor, whole: SetOperation) -> SetOperation:
    """ORDER BY and SETTINGS behind the last SELECT of a UNION belong to that SELECT."""
    settings, output = _settings_and_format(c)
    if not settings and not output:
        return whole
    return SetOperation(
        whole.left, whole.right, whole.operation, whole.order_by, settings, output
    )


def _select_or_parenthesis(c: Cursor) -> Query:
    if c.take("("):
        inner = c.query()
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
    distinct, distinct_on = _distinct(c)
    items = c.several(_item)
    if source is None and c.at_word("FROM"):
        source = from_clause(c)
    prewhere = expression(c) if c.take_words("PREWHERE") else None
    where = expression(c) if c.take_words("WHERE") else None
    group_by, group_all, modifier = _group_by(c)
    having = expression(c) if c.take_words("HAVING") else None
    windows = _windows(c)
    qualify = expression(c) if c.take_words("QUALIFY") else None
    order_by, order_all = _order_by(c)
    limit_by, limit, offset, with_ties = _limits(c)
    settings, output = _settings_and_format(c)
    c.depth -= 1
    return Select(
        items=items,
        with_items=with_items,
        distinct=distinct,
        distinct_on=distinct_on,
        source=source,
        prewhere=prewhere,
        where=where,
        group_by=group_by,
        group_all=group_all,
        group_modifier=modifier,
        having=having,
        windows=windows,
        qualify=qualify,
        order_by=order_by,
        order_all=order_all,
        limit_by=limit_by,
        limit=limit,
        offset=offset,
        with_ties=with_ties,
        settings=settings,
        format=output,
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
    if c.at_word("DISTINCT") and c.ahead().upper == "ON":
        c.advance()
        c.advance()
        c.expect("(")
        return False, c.list_of(expression, ")")
    if c.take_words("DISTINCT"):
        return True, ()
    if c.at_word("TOP") and c.ahead().kind == "number":
        c.not_supported("TOP; write LIMIT")
    c.take_words("ALL")
    return False, ()


# The clauses behind WHERE.


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
    if c.at_word("WITH") and c.ahead().upper == "TOTALS":
        c.not_supported("WITH TOTALS")
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
            c.fail("expected one LIMIT")
        limit, offset = count, skipped if skipped is not None else offset
        with_ties = c.take_words("WITH", "TIES")
    if c.at_word("FETCH"):
        c.not_supported("FETCH; write LIMIT")
    return limit_by, limit, offset, with_ties


def _settings_and_format(c: Cursor) -> tuple[tuple[tuple[str, str], ...], str]:
    settings: tuple[tuple[str, str], ...] = ()
    output = ""
    while c.at_word("SETTINGS", "FORMAT", "INTO"):
        if c.take_words("SETTINGS"):
            settings += c.several(_setting)
        elif c.take_words("FORMAT"):
            output = c.identifier()
        else:
            c.not_supported("INTO OUTFILE")
    return settings, output


def _setting(c: Cursor) -> tuple[str, str]:
    name = c.identifier()
    c.expect("=")
    node = expression(c)
    if isinstance(node, Literal):
        return name, node.value if isinstance(node.value, str) else canonical(node)
    return name, canonical(node)


def name_of(node: Node) -> str:
    """The name that an item of SELECT has in the result: its alias, else its text."""
    match node:
        case Aliased():
            return node.alias
        case Name():
            return node.parts[-1]
        case _:
            return canonical(node)
