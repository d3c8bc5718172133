"""FROM: tables, subqueries, joins, ARRAY JOIN."""

from rmt_pipeline.syntax.cursor import CLAUSE_WORDS, Cursor
from rmt_pipeline.syntax.expression import aliased, expression
from rmt_pipeline.syntax.nodes import (
    ArrayJoin,
    Derived,
    Join,
    JoinKind,
    Source,
    Strictness,
    TableFunction,
    TableName,
)

_JOIN_WORDS = frozenset(
    {
        *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ANY", "ALL", "SEMI", "ANTI"),
        *("ASOF", "GLOBAL", "ARRAY", "PASTE"),
    }
)


def from_clause(c: Cursor) -> Source:
    c.expect_words("FROM")
    source = _table(c)
    count = 0
    while True:
        count += 1
        if count > 100:
            c.fail("expected fewer joins")
        if c.take(","):
            source = Join(source, _table(c), "CROSS")
        elif c.at_word("ARRAY") or (c.at_word("LEFT", "INNER") and c.ahead().upper == "ARRAY"):
            source = _array_join(c, source)
        elif c.at_word(*_JOIN_WORDS):
            source = _join(c, source)
        else:
            return source


def _table(c: Cursor) -> Source:
    if c.take("("):
        if not c.at_query():
            c.fail("expected a query")
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
    if c.at_word("SAMPLE"):
        c.not_supported("SAMPLE")
    return TableName(database, first, alias, final)


def _alias(c: Cursor) -> str:
    if c.take_words("AS"):
        return c.identifier()
    token = c.current
    if token.kind == "name" or (token.kind == "word" and token.upper not in CLAUSE_WORDS):
        return c.advance().text
    return ""


def _array_join(c: Cursor, left: Source) -> ArrayJoin:
    keep_empty = c.at_word("LEFT")
    if not c.at_word("ARRAY"):
        c.advance()
    c.expect_words("ARRAY", "JOIN")
    return ArrayJoin(left, c.several(aliased), keep_empty)


def _join(c: Cursor, left: Source) -> Join:
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
                raise c.problem("expected JOIN")
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
    raise c.problem("expected ON or USING")
