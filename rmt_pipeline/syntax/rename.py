"""Rewrites expressions: with a column's new name, TTL clauses too, or with other expressions in
place of names.
"""

from collections.abc import Mapping
from dataclasses import replace

from rmt_pipeline.syntax.expression import stored_text
from rmt_pipeline.syntax.nodes import Aliased, Call, Lambda, Name, Node, names_in
from rmt_pipeline.syntax.ttl import TtlElement, parse_ttl


def with_renamed(text: str, column: str, renamed_to: str) -> str:
    """Return the canonical text of an expression, or of TTL clauses, with the column's new name. A
    lambda's parameter of the same name is another thing and keeps it. Raises NotReadBack.
    """
    return ", ".join(_clause(one, column, renamed_to) for one in parse_ttl(text))


def _clause(element: TtlElement, column: str, to: str) -> str:
    """Return the text of one TTL clause. A plain expression is parsed as a clause with
    only a time.
    """
    text = stored_text(_renamed(element.time, column, to))
    if element.codec:
        return f"{text} RECOMPRESS {element.codec}"
    if element.where is None:
        return text
    return f"{text} WHERE {stored_text(_renamed(element.where, column, to))}"


def _renamed(node: Node, column: str, to: str) -> Node:
    match node:
        case Name(parts):
            if ".".join(parts) == column:
                return Name((to,))
            if parts[0] == column:  # an element of a named tuple
                return Name((to, *parts[1:]))
            return node
        case Call():
            return replace(
                node,
                arguments=tuple(_renamed(one, column, to) for one in node.arguments),
                parameters=tuple(_renamed(one, column, to) for one in node.parameters),
            )
        case Lambda():
            if column in node.parameters:
                return node
            return replace(node, body=_renamed(node.body, column, to))
        case Aliased():
            return replace(node, node=_renamed(node.node, column, to))
        case _:
            return node


def with_expressions(node: Node, expressions: Mapping[str, Node]) -> Node:
    """Return the expression with `expressions` in place of their names, also of those in other
    ones. Where one of them has its own name, a column is meant.
    """
    match node:
        case Name((name,)) if name in expressions:
            others = {one: what for one, what in expressions.items() if one != name}
            return with_expressions(expressions[name], others)
        case Call():
            arguments = tuple(with_expressions(one, expressions) for one in node.arguments)
            return replace(node, arguments=arguments)
        case Lambda():
            parameters = set(node.parameters)  # they hide columns, also those of an expression
            seen = {
                name: one
                for name, one in expressions.items()
                if not parameters & {name, *names_in(one)}
            }
            return replace(node, body=with_expressions(node.body, seen))
        case Aliased():
            others = {one: what for one, what in expressions.items() if one != node.alias}
            return replace(node, node=with_expressions(node.node, others))
        case _:
            return node
