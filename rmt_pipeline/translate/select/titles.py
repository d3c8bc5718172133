"""The titles of a result's columns, in which operators are written as calls.

`id + 1` is titled `plus(id, 1)`, as in the original.
"""

from rmt_pipeline.syntax.canonical import canonical, literal_text
from rmt_pipeline.syntax.nodes import Aliased, Call, Lambda, Literal, Name, Node, Star


def title(node: Node) -> str:
    """Return the title of an expression's column: its alias, its column's name, or its text with
    operators as calls.
    """
    match node:
        case Aliased():
            return node.alias
        case Name():
            return node.parts[-1]
        case _:
            return _text(node)


def _text(node: Node) -> str:
    match node:
        case Literal():
            return literal_text(node)
        case Name():
            return ".".join(node.parts)
        case Aliased():
            return node.alias
        case Lambda():
            return f"lambda(tuple({', '.join(node.parameters)}), {_text(node.body)})"
        case Call():
            return _call(node)
        case _:
            return canonical(node)


def _call(call: Call) -> str:
    if call.over is not None:
        return canonical(call)
    shown = [each for each in call.arguments if not isinstance(each, Star)]  # count(*)
    arguments = ", ".join(_text(each) for each in shown)
    if call.operator and call.name in {"array", "tuple"} and _is_constant(call):
        opening, closing = "[]" if call.name == "array" else "()"
        return f"{opening}{arguments}{closing}"
    parameters = ""
    if call.parameters:
        parameters = f"({', '.join(_text(each) for each in call.parameters)})"
    return f"{call.name}{parameters}({arguments})"


def _is_constant(node: Node) -> bool:
    if isinstance(node, Call) and node.name in {"array", "tuple"}:
        return all(_is_constant(each) for each in node.arguments)
    return isinstance(node, Literal)
