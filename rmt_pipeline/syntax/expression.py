"""The parser of expressions: tokens to nodes, with ClickHouse's priorities of operators.

From weak to strong: `->`, `? :`, OR, AND, NOT, IS NULL, BETWEEN, comparison with LIKE and IN,
`||`, `+ -`, `* / % DIV MOD`, unary minus, then `. [ ] ::`. All are left-associative.
"""

from rmt_pipeline.protocol.errors import NotReadBack, UserError
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.cursor import CLAUSE_WORDS, DEPTH_MAX, Cursor
from rmt_pipeline.syntax.lexer import Token
from rmt_pipeline.syntax.nodes import Aliased, Call, Lambda, Literal, Name, Node
from rmt_pipeline.syntax.primary import primary
from rmt_pipeline.syntax.special_forms import cast_node, number
from rmt_pipeline.syntax.types import read_type

# Priorities of operators, from weak to strong.
OR, AND, NOT, IS, BETWEEN, COMPARISON, CONCATENATION, ADDITIVE, MULTIPLICATIVE = range(1, 10)

_COMPARISONS = {
    "=": "equals",
    "==": "equals",
    "!=": "notEquals",
    "<>": "notEquals",
    "<": "less",
    "<=": "lessOrEquals",
    ">": "greater",
    ">=": "greaterOrEquals",
    "<=>": "isNotDistinctFrom",
}
_ADDITIVE = {"+": "plus", "-": "minus"}
_MULTIPLICATIVE = {
    "*": "multiply",
    "/": "divide",
    "%": "modulo",
    "DIV": "intDiv",
    "MOD": "modulo",
}
_BINARY = {**_COMPARISONS, **_ADDITIVE, **_MULTIPLICATIVE}
_ARITHMETIC = frozenset({**_ADDITIVE, **_MULTIPLICATIVE}.values())
_LIKES = {"LIKE": "like", "ILIKE": "ilike", "REGEXP": "match", "RLIKE": "match"}
_NEGATED = {"like": "notLike", "ilike": "notILike"}
_WORD_COMPARISONS = frozenset((*_LIKES, "IN", "GLOBAL"))
_PRIORITIES = {
    "OR": OR,
    "AND": AND,
    "IS": IS,
    "BETWEEN": BETWEEN,
    "||": CONCATENATION,
    **dict.fromkeys((*_COMPARISONS, *_WORD_COMPARISONS), COMPARISON),
    **dict.fromkeys(_ADDITIVE, ADDITIVE),
    **dict.fromkeys(_MULTIPLICATIVE, MULTIPLICATIVE),
}

OPERATOR_WORDS = frozenset(word for word in (*_PRIORITIES, "NOT") if word.isalpha())


def parse_expression(text: str) -> Node:
    """Parse `text`, which is one expression. Raises SyntaxProblem naming the place."""
    cursor = Cursor(text)
    node = expression(cursor)
    cursor.expect_end()
    return node


def stored_text(node: Node) -> str:
    """Return the canonical text of an expression that replicas carry out: of a key, a default, a
    constraint. Raises NotReadBack if the text does not read back as the same expression.
    """
    text = canonical(node)
    try:
        is_same = parse_expression(text) == node
    except (UserError, RecursionError):  # parentheses are levels, and each operator gets them
        is_same = False
    if not is_same:
        raise not_read_back("the expression", text)
    return text


def not_read_back(what: str, text: str) -> NotReadBack:
    """The error for `what` would be stored as `text`, which reads back as something else."""
    return NotReadBack(
        f"{what} can't be stored: its text {text[:500]!r} does not read back the same; write its "
        "expressions with fewer levels or in another form"
    )


def expression(c: Cursor) -> Node:
    """Read one expression, up to the first token that can't belong to it. Raises SyntaxProblem,
    also for one that is nested too deeply.
    """
    c.deeper()
    node = _ternary(c)
    c.depth -= 1
    return node


def aliased(c: Cursor) -> Node:
    """Read an expression with an optional alias, as in SELECT's list."""
    node = expression(c)
    if c.take_words("AS"):
        return Aliased(node, c.identifier())
    return Aliased(node, c.advance().value) if c.is_alias() else node


def _operator(name: str, *arguments: Node) -> Call:
    return Call(name, arguments, operator=True)


def _ternary(c: Cursor) -> Node:
    start = c.place
    node = _operation(c, OR)
    if c.at("->"):
        return _lambda(c, node, start)
    if not c.take("?"):
        return node
    yes = expression(c)
    c.expect(":")
    return Call("if", (node, yes, expression(c)))


def _lambda(c: Cursor, left: Node, start: int) -> Node:
    is_tuple = isinstance(left, Call) and left.name == "tuple"
    parameters = left.arguments if is_tuple and isinstance(left, Call) else (left,)
    names = [each.parts[0] for each in parameters if isinstance(each, Name)]
    if not names or len(names) < len(parameters):
        c.place = start
        raise c.expected("names before `->`")
    c.advance()
    return Lambda(tuple(names), expression(c))


def _operation(c: Cursor, weakest: int) -> Node:
    """Read an operand and the operators behind it that bind as strongly as `weakest` or stronger.

    After an operator, only operators that bind as strongly or weaker go on: the right operand has
    already taken those that bind more strongly.
    """
    negated = weakest <= NOT and c.at_word("NOT")
    node = _negation(c) if negated else _unary(c)
    strongest = NOT if negated else MULTIPLICATIVE
    while (priority := _priority(c)) and weakest <= priority <= strongest:
        if priority in (OR, AND):
            node = _chain(c, node, priority)
        elif priority == IS:
            node = _is(c, node)
        elif priority == BETWEEN:
            node = _between(c, node)
        elif priority == CONCATENATION:
            node = _concatenation(c, node)
        elif (function := _binary_at(c)) is not None:
            c.advance()
            right = _operation(c, priority + 1)
            node = Call(function, (node, right), operator=function != "intDiv")
        else:
            node = _word_comparison(c, node)
        # In `a IS NULL = b` all that was read so far is the comparison's left side.
        strongest = COMPARISON if priority == IS else priority
    return node


def _priority(c: Cursor) -> int:
    """Return the priority of the operator that comes next; 0 if it is no operator."""
    token = c.current
    if token.kind == "mark":
        return _PRIORITIES.get(token.text, 0)
    word = token.upper
    if word == "NOT":
        word = c.ahead().upper
        return BETWEEN if word == "BETWEEN" else COMPARISON if word in _WORD_COMPARISONS else 0
    if word == "IN" and c.ahead().upper == "PARTITION" and _value_follows(c.ahead(2)):
        return 0  # a mutation's clause: UPDATE a = 1 IN PARTITION ID 'x'
    if word == "GLOBAL" and c.ahead().upper not in {"IN", "NOT"}:
        return 0  # GLOBAL JOIN
    return _PRIORITIES.get(word, 0)


def _binary_at(c: Cursor) -> str | None:
    token = c.current
    return _BINARY.get(token.text if token.kind == "mark" else token.upper)


def _chain(c: Cursor, first: Node, priority: int) -> Node:
    """Read `a AND b AND c`, or OR, as one call of three arguments."""
    word = c.current.upper
    nodes = [first]
    while c.take_words(word):
        nodes.append(_operation(c, priority + 1))
    return _operator(word.lower(), *nodes)


def _negation(c: Cursor) -> Node:
    count = 0
    while c.take_words("NOT"):
        count += 1
        if count > DEPTH_MAX:
            raise c.expected("fewer NOTs")
    node = _operation(c, IS)
    for _ in range(count):
        node = _operator("not", node)
    return node


def _is(c: Cursor, node: Node) -> Node:
    if c.take_words("IS", "NULL"):
        return _operator("isNull", node)
    if c.take_words("IS", "NOT", "NULL"):
        return _operator("isNotNull", node)
    if c.take_words("IS", "NOT", "DISTINCT", "FROM"):
        return _operator("isNotDistinctFrom", node, _operation(c, BETWEEN))
    if c.take_words("IS", "DISTINCT", "FROM"):
        return _operator("isDistinctFrom", node, _operation(c, BETWEEN))
    raise c.expected("IS [NOT] NULL or IS [NOT] DISTINCT FROM")


def _between(c: Cursor, node: Node) -> Node:
    negated = c.take_words("NOT")
    c.expect_words("BETWEEN")
    low = _operation(c, COMPARISON)
    c.expect_words("AND")
    high = _operation(c, COMPARISON)
    if negated:
        return _operator("or", _operator("less", node, low), _operator("greater", node, high))
    least, most = _operator("greaterOrEquals", node, low), _operator("lessOrEquals", node, high)
    return _operator("and", least, most)


def _word_comparison(c: Cursor, node: Node) -> Node:
    """Read [NOT] LIKE, ILIKE, REGEXP or [GLOBAL] IN, and its right side."""
    negated = c.take_words("NOT")
    word = c.advance().upper
    if word == "GLOBAL":
        negated = c.take_words("NOT") or negated
        c.expect_words("IN")
    if word in {"GLOBAL", "IN"}:
        return _operator("notIn" if negated else "in", node, _in_list(c))
    function = _LIKES[word]
    right = _operation(c, CONCATENATION)
    if c.at_word("ESCAPE"):
        c.not_supported("LIKE with ESCAPE")
    if function in _NEGATED:
        return _operator(_NEGATED[function] if negated else function, node, right)
    made = Call(function, (node, right))
    return _operator("not", made) if negated else made


def _value_follows(token: Token) -> bool:
    """Whether the word PARTITION before this token is the keyword and not a column."""
    if token.kind == "mark":
        return token.text in {"(", "[", "-"}
    return token.kind in {"number", "string"} or (
        token.kind == "word" and token.upper not in CLAUSE_WORDS
    )


def _in_list(c: Cursor) -> Node:
    """Read the right side of IN: `(1, 2)` as a tuple, also with one element; else an expression,
    which may begin with `(` as well: `(a + 1) * 2`.
    """
    if c.at("(") and not c.at_query():
        start = c.place
        c.advance()
        nodes = c.list_of(expression, ")")
        if not (c.at(".", "[", "::", "||") or _binary_at(c) in _ARITHMETIC):
            return _operator("tuple", *nodes)
        c.place = start
    node = _operation(c, CONCATENATION)
    is_not = isinstance(node, Call) and node.name == "not" and node.operator
    return _operator("tuple", node) if is_not else node  # IN not(a) is IN (NOT a)


def _concatenation(c: Cursor, first: Node) -> Node:
    """Read `a || b || c` as one call of three arguments."""
    nodes = [first]
    while c.take("||"):
        nodes.append(_operation(c, ADDITIVE))
    return Call("concat", tuple(nodes))


def _unary(c: Cursor) -> Node:
    minuses = 0
    while c.at("-", "+"):
        if c.advance().text == "-":
            minuses += 1
            if minuses > DEPTH_MAX:
                raise c.expected("fewer signs")
    negative_number = minuses > 0 and c.current.kind == "number"
    node = number(c, negative=True) if negative_number else primary(c, expression)
    node = _postfix(c, node)
    for _ in range(minuses - negative_number):
        node = _operator("negate", node)
    return node


def _postfix(c: Cursor, node: Node) -> Node:
    while True:
        if c.take("["):
            node = _operator("arrayElement", node, expression(c))
            c.expect("]")
        elif c.take("::"):
            node = cast_node(node, read_type(c), exact=True)
        elif c.take("."):
            node = _element(c, node)
        else:
            return node


def _element(c: Cursor, node: Node) -> Node:
    if c.current.kind == "number":
        place = c.current.text
        if not place.isdecimal() or len(place) > 9:
            raise c.expected("the place of an element in a tuple")
        c.advance()
        return _operator("tupleElement", node, Literal(int(place), place))
    name = c.identifier()
    if isinstance(node, Name):
        return Name((*node.parts, name))
    return _operator("tupleElement", node, Literal(name))
