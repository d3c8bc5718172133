"""The parser of operands: literals, names, calls, stars, parentheses, subqueries."""

from dataclasses import replace

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.cursor import NEVER_NAMES, Cursor
from rmt_pipeline.syntax.nodes import (
    Aliased,
    Call,
    Changes,
    ColumnsMatcher,
    Fill,
    Lambda,
    Literal,
    Name,
    Node,
    OrderItem,
    Star,
    Subquery,
    WindowSpec,
)
from rmt_pipeline.syntax.special_forms import SPECIAL_FORMS, ReadExpression, interval, number

_WITH_NULLS = {"any", "any_value", "anylast", "first_value", "last_value"}
"""The functions that RESPECT NULLS may follow."""

_CONSTANTS: dict[str, Literal] = {
    "NULL": Literal(None),
    "TRUE": Literal(value=True),
    "FALSE": Literal(value=False),
    "INF": Literal(float("inf"), "inf"),
    "NAN": Literal(float("nan"), "nan"),
}

_AFTER_NAMES = (
    *(
        ",",
        ")",
        "]",
        ".",
        "=",
        "==",
        "!=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
        "/",
        "%",
        "||",
    ),
    "::",
)


def primary(c: Cursor, expression: ReadExpression) -> Node:
    """Read one operand: a literal, a name, a call, or something in parentheses or brackets. Raises
    SyntaxProblem.
    """
    token = c.current
    match token.kind:
        case "number":
            return number(c)
        case "string":
            c.advance()
            return Literal(token.value)
        case "name":
            c.advance()
            return _name_or_call(c, token.value, expression)
        case "word":
            return _word(c, expression)
        case "mark" if token.text == "(":
            return _parenthesis(c, expression)
        case "mark" if token.text == "[":
            c.advance()
            return Call("array", c.list_of(expression, "]"), operator=True)
        case "mark" if token.text == "*":
            c.advance()
            return Star((), _changes(c, expression))
        case "mark" if token.text == "{":
            raise NotImplementedStatement("query parameters {name:Type} are not supported")
        case _:
            raise c.expected("an expression")


def _word(c: Cursor, expression: ReadExpression) -> Node:
    word = c.current.upper
    following = c.ahead()
    if word in _CONSTANTS and not (following.kind == "mark" and following.text in {"(", "."}):
        c.advance()
        return _CONSTANTS[word]
    if word == "CASE":
        return _case(c, expression)
    if word in {"DATE", "TIMESTAMP"} and following.kind == "string":
        c.advance()
        name = "toDate" if word == "DATE" else "toDateTime"
        return Call(name, (Literal(c.advance().value),))
    if word == "INTERVAL" and (
        following.kind in {"word", "name", "string", "number"} or following.text in {"(", "-"}
    ):
        found = interval(c, expression)
        if found is not None:
            return found
    if word in NEVER_NAMES and not (c.at_mark(1, "(") or _is_alone(c) or _settings_is_name(c)):
        raise c.expected("an expression")
    return _name_or_call(c, c.advance().text, expression)


def _is_alone(c: Cursor) -> bool:
    """Whether the next token, a keyword, must be a column's name: no clause goes on like this."""
    return c.ahead().kind == "end" or c.at_mark(1, *_AFTER_NAMES)


def _settings_is_name(c: Cursor) -> bool:
    """Whether the next token is SETTINGS as a column's name: its clause goes on with `name = `."""
    is_clause = c.ahead().kind in ("word", "name") and c.at_mark(2, "=")
    return c.at_word("SETTINGS") and not is_clause


def _name_or_call(c: Cursor, name: str, expression: ReadExpression) -> Node:
    if c.at("("):
        return _call(c, name, expression)
    parts = [name]
    while c.at("."):
        following = c.ahead()
        if following.kind == "mark" and following.text == "*":
            c.advance()
            c.advance()
            return Star(tuple(parts), _changes(c, expression))
        if following.kind == "number":
            break  # a place in a tuple, which `expression` reads as an operator
        c.advance()
        parts.append(c.identifier())
    if c.at("("):
        raise c.expected(f"an operator: there is no function {'.'.join(parts)!r}")
    return Name(tuple(parts))


def _call(c: Cursor, name: str, expression: ReadExpression) -> Node:
    c.expect("(")
    special = SPECIAL_FORMS.get(name.upper())
    if special is not None:
        found = special(c, expression)
        if found is not None:
            return found
    if name.upper() == "COLUMNS" and c.current.kind == "string":
        pattern = c.advance().value
        c.expect(")")
        return ColumnsMatcher(pattern, _changes(c, expression))
    parameters: tuple[Node, ...] = ()
    distinct, arguments = _arguments(c, expression)
    if c.at("(") and not distinct:  # quantile(0.5)(x)
        c.advance()
        parameters = arguments
        distinct, arguments = _arguments(c, expression)
    # `sum(DISTINCT x)` is sumDistinct(x), as in the original.
    name = f"{name}Distinct" if distinct else name
    if name.upper() == "NOT" and len(arguments) == 1 and not parameters:
        # In `0 = not(a) + 2`. Elsewhere `expression` reads NOT. As an operator it is written with
        # parentheses around it: `not(a) + 2` alone would be NOT (a + 2).
        return _with_modifiers(c, Call("not", arguments, operator=True), expression)
    return _with_modifiers(c, Call(name, arguments, parameters), expression)


def _arguments(c: Cursor, expression: ReadExpression) -> tuple[bool, tuple[Node, ...]]:
    """Read whether DISTINCT comes first, and the arguments up to the `)`. A query may be the
    argument: `exists(SELECT ...)`.
    """
    is_distinct = c.at_word("DISTINCT") and not (
        c.ahead().kind == "mark" and c.ahead().text in {",", ")"}
    )
    if is_distinct:
        c.advance()
    if c.at_word("SELECT", "WITH"):
        query = Subquery(c.query())
        c.expect(")")
        return is_distinct, (query,)

    def argument(c: Cursor) -> Node:
        node = expression(c)
        return Aliased(node, c.identifier()) if c.take_words("AS") else node

    return is_distinct, c.list_of(argument, ")")


def _with_modifiers(c: Cursor, call: Call, expression: ReadExpression) -> Call:
    """Return the call with the RESPECT NULLS, FILTER (WHERE …) and OVER that follow it, if they do.
    `any(x) RESPECT NULLS` is any_respect_nulls(x), as in the original; aggregate functions ignore
    NULL anyway.
    """
    if c.take_words("RESPECT", "NULLS"):
        name = call.name.removesuffix("If")
        if name.lower() not in _WITH_NULLS:
            c.not_supported(f"{call.name} with RESPECT NULLS")
        call = replace(call, name=f"{name}_respect_nulls{call.name[len(name) :]}")
    c.take_words("IGNORE", "NULLS")
    if c.at_word("FILTER") and c.ahead().text == "(":
        c.advance()
        c.expect("(")
        c.expect_words("WHERE")
        condition = expression(c)
        c.expect(")")
        call = Call(
            f"{call.name}If",
            (*call.arguments, condition),
            call.parameters,
        )
    if not c.take_words("OVER"):
        return call
    in_place = c.take("(")
    window = window_spec(c, expression) if in_place else WindowSpec(base=c.identifier())
    return Call(call.name, call.arguments, call.parameters, over=window)


def window_spec(c: Cursor, expression: ReadExpression) -> WindowSpec:
    """Read a window after its `(`, up to and with the `)`."""
    base = ""
    partition: tuple[Node, ...] = ()
    order: tuple[OrderItem, ...] = ()
    if c.is_alias():
        base = c.identifier()
    if c.take_words("PARTITION", "BY"):
        partition = c.several(expression)
    if c.take_words("ORDER", "BY"):
        order = c.several(lambda inner: order_item(inner, expression))
        if any(one.fill for one in order):
            c.not_supported("WITH FILL in a window")
    frame = _frame(c) if c.at_word("ROWS", "RANGE") else ""
    c.expect(")")
    return WindowSpec(base, partition, order, frame)


def _frame(c: Cursor) -> str:
    unit = c.advance().upper
    if not c.take_words("BETWEEN"):
        return f"{unit} BETWEEN {_frame_bound(c)} AND CURRENT ROW"
    start = _frame_bound(c)
    c.expect_words("AND")
    return f"{unit} BETWEEN {start} AND {_frame_bound(c)}"


def _frame_bound(c: Cursor) -> str:
    if c.take_words("CURRENT", "ROW"):
        return "CURRENT ROW"
    if c.take_words("UNBOUNDED"):
        count = "UNBOUNDED"
    elif c.current.kind == "number" and c.current.text.isdigit():
        count = c.advance().text
    else:
        raise c.expected("a whole number of rows, UNBOUNDED or CURRENT ROW")
    if not c.at_word("PRECEDING", "FOLLOWING"):
        raise c.expected("PRECEDING or FOLLOWING")
    return f"{count} {c.advance().upper}"


def order_item(c: Cursor, expression: ReadExpression) -> OrderItem:
    """Read one item of ORDER BY. Raises SyntaxProblem; NotImplementedStatement for COLLATE."""
    node = expression(c)
    descending = False
    if c.at_word("ASC", "ASCENDING", "DESC", "DESCENDING"):
        descending = c.advance().upper.startswith("DESC")
    nulls_first = False
    if c.take_words("NULLS", "FIRST"):
        nulls_first = True
    elif not c.take_words("NULLS", "LAST") and c.at_word("NULLS"):
        raise c.expected("NULLS FIRST or NULLS LAST")
    if c.at_word("COLLATE"):
        c.not_supported("COLLATE")
    fill = _fill(c, expression) if c.take_words("WITH", "FILL") else None
    return OrderItem(node, descending, nulls_first, fill)


def _fill(c: Cursor, expression: ReadExpression) -> Fill:
    start = expression(c) if c.take_words("FROM") else None
    end = expression(c) if c.take_words("TO") else None
    step = expression(c) if c.take_words("STEP") else None
    if c.at_word("STALENESS", "INTERPOLATE"):
        c.not_supported(f"WITH FILL … {c.current.upper}")
    return Fill(start, end, step)


def _parenthesis(c: Cursor, expression: ReadExpression) -> Node:
    c.expect("(")
    if c.at_query():
        query = Subquery(c.query())
        c.expect(")")
        return query

    def element(c: Cursor) -> Node:
        node = expression(c)
        return Aliased(node, c.identifier()) if c.take_words("AS") else node

    first_comma = False
    nodes: list[Node] = []
    while not c.take(")"):
        if nodes:
            if not c.take(","):
                raise c.expected("`,` or `)`")
            first_comma = True
            if c.take(")"):
                break
        nodes.append(element(c))
    if len(nodes) == 1 and not first_comma:
        return nodes[0]
    if not nodes and not c.at("->"):
        return Call("tuple", ())
    return Call("tuple", tuple(nodes), operator=len(nodes) > 1)


def _case(c: Cursor, expression: ReadExpression) -> Node:
    c.advance()
    subject = None if c.at_word("WHEN") else expression(c)
    arguments: list[Node] = []
    while c.take_words("WHEN"):
        arguments.append(expression(c))
        c.expect_words("THEN")
        arguments.append(expression(c))
    if not arguments:
        raise c.expected("WHEN")
    arguments.append(expression(c) if c.take_words("ELSE") else Literal(None))
    c.expect_words("END")
    if subject is None:
        return Call("multiIf", tuple(arguments))
    return Call("caseWithExpression", (subject, *arguments))


def _changes(c: Cursor, expression: ReadExpression) -> Changes:
    without: tuple[str, ...] = ()
    replaced: tuple[tuple[str, Node], ...] = ()
    applied: tuple[Call | Lambda, ...] = ()
    while True:
        if c.at_word("EXCEPT") and not c.ahead().upper:
            c.advance()
            c.expect("(")
            without += c.list_of(Cursor.identifier, ")")
        elif c.at_word("EXCEPT") and c.ahead().upper not in {
            "SELECT",
            "ALL",
            "DISTINCT",
            "WITH",
        }:
            c.advance()
            without += (c.identifier(),)
        elif c.at_word("REPLACE"):
            c.advance()
            parenthesised = c.take("(")
            pairs = c.several(lambda inner: _replacement(inner, expression))
            if parenthesised:
                c.expect(")")
            replaced += pairs
        elif c.take_words("APPLY"):
            applied += (_applied(c, expression),)
        else:
            return Changes(without, replaced, applied)


def _applied(c: Cursor, expression: ReadExpression) -> Call | Lambda:
    """Read what APPLY applies: `f`, `(f)`, `(quantile(0.9))` or `(x -> x + 1)`."""
    parenthesised = c.take("(")
    node = expression(c)
    if parenthesised:
        c.expect(")")
    match node:
        case Name((name,)):
            return Call(name)
        case Call(operator=False, parameters=(), over=None):
            return Call(node.name, parameters=node.arguments)
        case Lambda(parameters=(_,)):
            return node
        case _:
            raise c.expected("the name of a function, or a lambda of one argument, for APPLY")


def _replacement(c: Cursor, expression: ReadExpression) -> tuple[str, Node]:
    node = expression(c)
    c.expect_words("AS")
    return c.identifier(), node
