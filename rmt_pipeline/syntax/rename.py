"""An expression after a column that it uses was renamed."""

from dataclasses import replace

from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.nodes import Aliased, Call, Lambda, Name, Node


def with_renamed(text: str, column: str, renamed_to: str) -> str:
    """The canonical text of the same expression over the column's new name. What a lambda calls by
    that name is its own.
    """
    return canonical(_renamed(parse_expression(text), column, renamed_to))


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
