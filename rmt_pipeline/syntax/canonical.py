"""The canonical text of an expression: one text per meaning, as the original formats it.

`id=2 or v='e'` becomes `(id = 2) OR (v = 'e')`: operators inside operators stand in parentheses,
functions keep the name they were written with. Reading the text again gives the same nodes.
"""

import math
import re
from enum import Enum, auto

from rmt_pipeline.protocol.errors import SyntaxProblem
from rmt_pipeline.syntax.cursor import CLAUSE_WORDS, NEVER_NAMES
from rmt_pipeline.syntax.nodes import (
    Aliased,
    Call,
    Changes,
    ColumnsMatcher,
    Lambda,
    Literal,
    Name,
    Node,
    OrderItem,
    Star,
    Subquery,
    WindowSpec,
)
from rmt_pipeline.types.escapes import quote_name, quote_text
from rmt_pipeline.types.to_text import float_text

_BINARY = {
    "plus": "+",
    "minus": "-",
    "multiply": "*",
    "divide": "/",
    "modulo": "%",
    "equals": "=",
    "notEquals": "!=",
    "less": "<",
    "lessOrEquals": "<=",
    "greater": ">",
    "greaterOrEquals": ">=",
    "isNotDistinctFrom": "<=>",
    "isDistinctFrom": "IS DISTINCT FROM",
    "like": "LIKE",
    "notLike": "NOT LIKE",
    "ilike": "ILIKE",
    "notILike": "NOT ILIKE",
    "in": "IN",
    "notIn": "NOT IN",
    "and": "AND",
    "or": "OR",
}
_AFTER = {"isNull": "IS NULL", "isNotNull": "IS NOT NULL"}
_BEFORE = {"negate": "-", "not": "NOT "}
# Functions that a mutation's text has as operators, however they were written, and how many
# arguments they have then.
_AS_OPERATORS = {
    **dict.fromkeys(
        _BINARY.keys() - {"isNotDistinctFrom", "isDistinctFrom", "ilike", "notILike"}, (2, 2)
    ),
    **dict.fromkeys(("and", "or"), (2, math.inf)),
    **dict.fromkeys(_BEFORE, (1, 1)),
    "array": (0, math.inf),
    "tuple": (2, math.inf),
    "arrayElement": (2, 2),
}
# What stands without parentheses in a mutation's text, as an operand of which operators. Read back,
# it is the same.
_BARE_UNDER = {
    "not": {"and", "or", "not", "->", "[]"},
    "negate": {*_BINARY, "->", "[]"},
    "tupleElement": {*_BINARY, *_BEFORE, "->", "[]"},
    **{name: {*_BINARY, *_BEFORE, "arrayElement", "->", "[]"} for name in _AFTER},
}
_RESERVED = (
    CLAUSE_WORDS | NEVER_NAMES | {"NULL", "TRUE", "FALSE", "INF", "NAN", "INTERVAL", "DISTINCT"}
)


def canonical(node: Node) -> str:
    """Return the canonical text of `node`. Raises SyntaxProblem when it is nested too deeply."""
    return _written(node, _Style.CURRENT)


def text_in_mutation(node: Node) -> str:
    """Return the text of `node` in the commands of a mutation: `isNull(n)`, `a IN 1`, `a + 1` for
    `plus(a, 1)`, `a[(k + 1)]`, and NOT and minus without parentheses around them. Raises
    SyntaxProblem.

    It is what version 18.16 writes into ZooKeeper and shows in system.mutations, and what the
    recorded answers have.
    """
    return _written(node, _Style.MUTATION)


class _Style(Enum):
    CURRENT = auto()
    MUTATION = auto()


def _written(node: Node, style: _Style) -> str:
    try:
        return _text(node, style)
    except RecursionError:
        raise SyntaxProblem("an expression is nested too deeply") from None


def _text(node: Node, style: _Style) -> str:
    match node:
        case Literal():
            return literal_text(node)
        case Name():
            return ".".join(identifier_text(part) for part in node.parts)
        case Aliased():
            return f"{_text(node.node, style)} AS {identifier_text(node.alias)}"
        case Lambda():
            names = ", ".join(identifier_text(name) for name in node.parameters)
            left = names if len(node.parameters) == 1 else f"({names})"
            return f"{left} -> {_operand(node.body, style, '->')}"
        case Star():
            qualifier = "".join(f"{identifier_text(part)}." for part in node.qualifier)
            return f"{qualifier}*{_changes(node.changes, style)}"
        case ColumnsMatcher():
            return f"COLUMNS({quote_text(node.pattern)}){_changes(node.changes, style)}"
        case Subquery():
            return "(SELECT ...)"
        case Call():
            return _call(node, style)


def literal_text(literal: Literal) -> str:
    """Return the literal as a statement writes it. Parsed again, it gives the same literal."""
    value = literal.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, int):
        return str(value)
    text = float_text(value)
    # A Float64 that looks like an integer must not be read back as one.
    return text if not math.isfinite(value) or set(text) & {".", "e"} else f"{text}."


def identifier_text(name: str) -> str:
    """Return the name, in backticks if the parser could take it for something else."""
    return quote_name(name, _RESERVED)


def _call(call: Call, style: _Style) -> str:
    if _is_operator(call, style):
        text = _operator(call, style)
        if text is not None:
            return text
    arguments = ", ".join(_text(each, style) for each in call.arguments)
    parameters = ""
    if call.parameters:
        parameters = f"({', '.join(_text(each, style) for each in call.parameters)})"
    name = call.name
    if style is _Style.MUTATION and name.lower() == "substring":
        name = "substring"
    text = f"{_function_name(name)}{parameters}({arguments})"
    return text if call.over is None else f"{text} OVER {_window(call.over, style)}"


def _function_name(name: str) -> str:
    plain = name.isascii() and name.isidentifier() and name.upper() not in NEVER_NAMES - {"IN"}
    return name if plain or name in _BINARY else identifier_text(name)


def _is_operator(call: Call, style: _Style) -> bool:
    if call.over is not None:
        return False
    if style is _Style.CURRENT or call.operator or call.parameters:
        return call.operator
    if call.name == "tupleElement":
        place = call.arguments[1] if len(call.arguments) == 2 else None
        return isinstance(place, Literal) and type(place.value) is int
    least, most = _AS_OPERATORS.get(call.name, (1, 0))
    return least <= len(call.arguments) <= most


def _operator(call: Call, style: _Style) -> str | None:
    arguments = call.arguments
    match call.name:
        case "array":
            return f"[{', '.join(_text(each, style) for each in arguments)}]"
        case "tuple":
            if len(arguments) < 2:
                return None
            return f"({', '.join(_text(each, style) for each in arguments)})"
        case "arrayElement":
            place = arguments[1]
            is_operand = style is _Style.MUTATION
            inside = _operand(place, style, "[]") if is_operand else _text(place, style)
            return f"{_operand(arguments[0], style, call.name)}[{inside}]"
        case "tupleElement":
            place = arguments[1]
            assert isinstance(place, Literal)
            shown = (
                identifier_text(place.value) if isinstance(place.value, str) else place.value
            )
            left = arguments[0]
            bare = isinstance(left, Name) or (isinstance(left, Call) and left.name == "tuple")
            return f"{_text(left, style) if bare else f'({_text(left, style)})'}.{shown}"
        case "in" | "notIn":
            left_side = _operand(arguments[0], style, call.name)
            right_side = _in_list(arguments[1], style, _width(arguments[0]))
            return f"{left_side} {_BINARY[call.name]} {right_side}"
        case _:
            pass
    if call.name in _AFTER and style is not _Style.MUTATION:
        return f"{_operand(arguments[0], style, call.name)} {_AFTER[call.name]}"
    if call.name in _BEFORE:
        return _with_sign_before(call.name, arguments[0], style)
    if call.name in _BINARY:
        return f" {_BINARY[call.name]} ".join(
            _operand(each, style, call.name) for each in arguments
        )
    return None


def _with_sign_before(operator: str, node: Node, style: _Style) -> str:
    text = _text(node, style)
    is_negative = isinstance(node, Literal) and re.match("-[0-9]", text)
    if operator == "negate" and style is _Style.MUTATION and is_negative:
        return f"- {text}"  # `--3` would be a comment
    return f"{_BEFORE[operator]}{_operand(node, style, operator)}"


def _in_list(node: Node, style: _Style, width: int) -> str:
    """Return the text of what IN has at its right. In mutations one element stands without the
    parentheses of the list: a constant, or a tuple, where there is one of as many, `width`, at the
    left. `a IN 1`, `(a, b) IN (1, 2)`.
    """
    if isinstance(node, Call) and node.name == "tuple" and node.operator:
        elements = ", ".join(_text(each, style) for each in node.arguments)
        only = node.arguments[0] if len(node.arguments) == 1 else None
        bare = isinstance(only, Literal) and isinstance(only.value, int | float | str)
        bare = bare or (only is not None and width > 1 and _width(only) == width)
        return elements if bare and style is _Style.MUTATION else f"({elements})"
    return _text(node, style)


def _width(node: Node) -> int:
    """The number of elements of a tuple that is written out in parentheses; else 0."""
    is_tuple = isinstance(node, Call) and node.name == "tuple" and node.operator
    return len(node.arguments) if isinstance(node, Call) and is_tuple else 0


def _operand(node: Node, style: _Style, operator: str) -> str:
    """Return the text of an operand of `operator`: in parentheses if it is an operator itself."""
    text = _text(node, style)
    if isinstance(node, Call) and _is_operator(node, style):
        whole = node.name in {"array", "arrayElement"} or (
            node.name == "tuple" and len(node.arguments) != 1
        )
        if style is _Style.MUTATION:
            whole = whole or operator in _BARE_UNDER.get(node.name, ())
        return _positive(text, operator) if whole else f"({text})"
    if isinstance(node, Aliased | Lambda):
        return f"({text})"
    return _positive(text, operator)


def _positive(text: str, operator: str) -> str:
    """Return the operand's text so that a minus before it stays an operator: `-(5)` negates, `-5`
    is a number, `-(5[1])` negates an element.
    """
    return f"({text})" if operator in _BEFORE and text[0] in "-0123456789" else text


def _changes(changes: Changes, style: _Style) -> str:
    text = ""
    if changes.without:
        text += f" EXCEPT ({', '.join(identifier_text(name) for name in changes.without)})"
    if changes.replaced:
        pairs = [
            f"{_text(node, style)} AS {identifier_text(name)}"
            for name, node in changes.replaced
        ]
        text += f" REPLACE ({', '.join(pairs)})"
    for applied in changes.applied:
        shown = _text(applied, style)
        if isinstance(
            applied, Call
        ):  # its parameters, without the arguments that it has not yet
            shown = shown.removesuffix("()")
        text += f" APPLY ({shown})"
    return text


def _window(spec: WindowSpec, style: _Style) -> str:
    if spec.base and not (spec.partition_by or spec.order_by or spec.frame):
        return identifier_text(spec.base)
    pieces = [identifier_text(spec.base)] if spec.base else []
    if spec.partition_by:
        pieces.append(
            f"PARTITION BY {', '.join(_text(each, style) for each in spec.partition_by)}"
        )
    if spec.order_by:
        pieces.append(
            f"ORDER BY {', '.join(_order_text(item, style) for item in spec.order_by)}"
        )
    if spec.frame:
        pieces.append(spec.frame)
    return f"({' '.join(pieces)})"


def _order_text(item: OrderItem, style: _Style) -> str:
    direction = "DESC" if item.descending else "ASC"
    return f"{_text(item.node, style)} {direction}{' NULLS FIRST' if item.nulls_first else ''}"
