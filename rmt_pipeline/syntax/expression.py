"""ClickHouse expressions: tokens to nodes, with the original's priorities of operators.

From weak to strong: `->`, `? :`, OR, AND, NOT, IS NULL, BETWEEN, comparison with LIKE and IN,
`||`, `+ -`, `* / % DIV MOD`, unary minus, then `. [ ] ::`. All are left-associative.
"""

from collections.abc import Callable

from rmt_pipeline.syntax.cursor import CLAUSE_WORDS, DEPTH_MAX, Cursor
from rmt_pipeline.syntax.lexer import Token
from rmt_pipeline.syntax.nodes import Aliased, Call, Lambda, Literal, Name, Node
from rmt_pipeline.syntax.primary import primary
from rmt_pipeline.syntax.special_forms import cast_node, number
from rmt_pipeline.syntax.types import read_type

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
_MULTIPLICATIVE = {"*": "multiply", "/": "divide", "%": "modulo"}
_WORD_MULTIPLICATIVE = {"DIV": "intDiv", "MOD": "modulo"}
_LIKES = {"LIKE": "like", "ILIKE": "ilike", "REGEXP": "match", "RLIKE": "match"}
_NEGATED = {"like": "notLike", "ilike": "notILike"}


def parse_expression(text: str) -> Node:
    """The one expression that `text` is. Raises SyntaxProblem naming the place."""
    cursor = Cursor(text)
    node = expression(cursor)
    cursor.expect_end()
    return node


def expression(c: Cursor) -> Node:
    """One expression, from where the cursor stands up to what can't belong to it. Raises
    SyntaxProblem, also for one that is nested too deeply.
    """
    c.deeper()
    node = _ternary(c)
    c.depth -= 1
    return node


def aliased(c: Cursor) -> Node:
    """An expression with an optional alias, as in SELECT's list."""
    node = expression(c)
    if c.take_words("AS"):
        return Aliased(node, c.identifier())
    return Aliased(node, c.advance().value) if c.is_alias() else node


def _operator(name: str, *arguments: Node) -> Call:
    return Call(name, arguments, operator=True)


def _ternary(c: Cursor) -> Node:
    start = c.place
    node = _or(c)
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


def _or(c: Cursor) -> Node:
    return _chain(c, "OR", "or", _and)


def _and(c: Cursor) -> Node:
    return _chain(c, "AND", "and", _not)


def _chain(c: Cursor, word: str, function: str, read: Callable[[Cursor], Node]) -> Node:
    nodes = [read(c)]
    while c.take_words(word):
        nodes.append(read(c))
    return nodes[0] if len(nodes) == 1 else _operator(function, *nodes)


def _not(c: Cursor) -> Node:
    count = 0
    while c.take_words("NOT"):
        count += 1
        if count > DEPTH_MAX:
            raise c.expected("fewer NOTs")
    node = _is_null(c)
    for _ in range(count):
        node = _operator("not", node)
    return node


def _is_null(c: Cursor) -> Node:
    node = _between(c)
    while c.at_word("IS"):
        if c.take_words("IS", "NULL"):
            node = _operator("isNull", node)
        elif c.take_words("IS", "NOT", "NULL"):
            node = _operator("isNotNull", node)
        elif c.take_words("IS", "NOT", "DISTINCT", "FROM"):
            node = _operator("isNotDistinctFrom", node, _between(c))
        elif c.take_words("IS", "DISTINCT", "FROM"):
            node = _operator("isDistinctFrom", node, _between(c))
        else:
            raise c.expected("IS [NOT] NULL or IS [NOT] DISTINCT FROM")
        # In `a IS NULL = b` the comparison takes all that was read so far as its left side.
        node = _comparison_rest(c, node)
    return node


def _between(c: Cursor) -> Node:
    node = _comparison(c)
    while True:
        if c.take_words("BETWEEN"):
            low, high = _bounds(c)
            least, most = ("greaterOrEquals", "lessOrEquals")
            node = _operator("and", _operator(least, node, low), _operator(most, node, high))
        elif c.take_words("NOT", "BETWEEN"):
            low, high = _bounds(c)
            node = _operator(
                "or", _operator("less", node, low), _operator("greater", node, high)
            )
        else:
            return node


def _bounds(c: Cursor) -> tuple[Node, Node]:
    low = _comparison(c)
    c.expect_words("AND")
    return low, _comparison(c)


def _comparison(c: Cursor) -> Node:
    return _comparison_rest(c, _concatenation(c))


def _comparison_rest(c: Cursor, node: Node) -> Node:
    while True:
        if c.at(*_COMPARISONS):
            function = _COMPARISONS[c.advance().text]
            node = _operator(function, node, _concatenation(c))
            continue
        found = _word_comparison(c, node)
        if found is None:
            return node
        node = found


def _word_comparison(c: Cursor, node: Node) -> Node | None:
    """LIKE, ILIKE, REGEXP, [GLOBAL] IN, each with NOT; None when something else comes."""
    negated = c.at_word("NOT")
    word = c.ahead(int(negated)).upper
    if word not in {*_LIKES, "IN", "GLOBAL"}:
        return None
    if word == "IN" and c.ahead().upper == "PARTITION" and _value_follows(c.ahead(2)):
        return None  # of a mutation: UPDATE a = 1 IN PARTITION ID 'x'
    if word == "GLOBAL" and c.ahead(int(negated) + 1).upper not in {"IN", "NOT"}:
        return None  # GLOBAL JOIN
    for _ in range(1 + negated):
        c.advance()
    if word == "GLOBAL":
        negated = c.take_words("NOT") or negated
        c.expect_words("IN")
    if word in {"GLOBAL", "IN"}:
        return _operator("notIn" if negated else "in", node, _in_list(c))
    function = _LIKES[word]
    right = _concatenation(c)
    if c.at_word("ESCAPE"):
        c.not_supported("LIKE with ESCAPE")
    if function in _NEGATED:
        return _operator(_NEGATED[function] if negated else function, node, right)
    made = Call(function, (node, right))
    return _operator("not", made) if negated else made


def _value_follows(token: Token) -> bool:
    """Whether `partition` before this token is the keyword and not a column."""
    if token.kind == "mark":
        return token.text in {"(", "[", "-"}
    return token.kind in {"number", "string"} or (
        token.kind == "word" and token.upper not in CLAUSE_WORDS
    )


def _in_list(c: Cursor) -> Node:
    """`(1, 2)` as a tuple, also with one element; anything else as it is."""
    if c.at("(") and not c.at_query():
        start = c.place
        c.advance()
        nodes = c.list_of(expression, ")")
        if not c.at(".", "[", "::"):
            return _operator("tuple", *nodes)
        c.place = start
    return _concatenation(c)


def _concatenation(c: Cursor) -> Node:
    nodes = [_additive(c)]
    while c.take("||"):
        nodes.append(_additive(c))
    return nodes[0] if len(nodes) == 1 else Call("concat", tuple(nodes))


def _additive(c: Cursor) -> Node:
    node = _multiplicative(c)
    while c.at(*_ADDITIVE):
        function = _ADDITIVE[c.advance().text]
        node = _operator(function, node, _multiplicative(c))
    return node


def _multiplicative(c: Cursor) -> Node:
    node = _unary(c)
    while True:
        if c.at(*_MULTIPLICATIVE):
            function = _MULTIPLICATIVE[c.advance().text]
        elif c.at_word(*_WORD_MULTIPLICATIVE):
            function = _WORD_MULTIPLICATIVE[c.advance().upper]
        else:
            return node
        node = Call(function, (node, _unary(c)), operator=function != "intDiv")


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
