"""The list of SELECT: `*` and COLUMNS written out, aliases, titles, and the columns that names
mean.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.syntax.nodes import (
    Aliased,
    Call,
    Changes,
    ColumnsMatcher,
    Lambda,
    Literal,
    Name,
    Node,
    Star,
)
from rmt_pipeline.syntax.rename import with_expressions
from rmt_pipeline.translate.base.typed import Typed
from rmt_pipeline.translate.functions.logic import checked_pattern
from rmt_pipeline.translate.names import unknown_column, with_elements
from rmt_pipeline.translate.select.sources import Ambiguous, Field, From, nested_column
from rmt_pipeline.translate.select.titles import title


@dataclass(slots=True)
class Starred:
    """The columns that `*` and COLUMNS stand for. Their nodes are named ("", place), which no name
    in a query can be.
    """

    fields: list[Field] = field(default_factory=list)

    def add(self, found: Field) -> Node:
        self.fields.append(found)
        return Aliased(Name(("", str(len(self.fields) - 1))), found.name)

    def get(self, parts: tuple[str, ...]) -> Field | None:
        return None if parts[0] else self.fields[int(parts[1])]


def written_out(items: Sequence[Node], source: From, starred: Starred) -> list[Node]:
    """Return the list with `*` and COLUMNS replaced by their columns. Raises UserError if it is
    empty.
    """
    found: list[Node] = []
    for item in items:
        match item:
            case Star():
                found += _star(item, source, starred)
            case ColumnsMatcher():
                shown = [each for each in source.fields if each.in_star and not each.of_key]
                chosen = matching(item.pattern, [each.name for each in shown])
                matched = [one for one, is_one in zip(shown, chosen, strict=True) if is_one]
                found += _changed(item.changes, matched, starred)
            case _:
                found.append(_with_columns(item, source, starred))
    if not found:
        raise UserError("the list of SELECT is empty")
    return found


def _with_columns(node: Node, source: From, starred: Starred) -> Node:
    """Return the expression with `f(*)` written out, but not `count(*)`."""
    match node:
        case Aliased():
            return replace(node, node=_with_columns(node.node, source, starred))
        case Call() if node.arguments and node.name.lower() != "count":
            arguments: list[Node] = []
            for each in node.arguments:
                if isinstance(each, Star | ColumnsMatcher):
                    arguments += written_out([each], source, starred)
                else:
                    arguments.append(_with_columns(each, source, starred))
            return replace(node, arguments=tuple(arguments))
        case _:
            return node


def _star(star: Star, source: From, starred: Starred) -> list[Node]:
    fields = [
        each
        for each in source.fields
        if each.in_star
        and (star.qualifier in each.qualifiers if star.qualifier else not each.of_key)
    ]
    if not fields:
        if not source.sql:
            return [Aliased(Literal(0, "0"), "dummy")]
        raise unknown_column((*star.qualifier, "*"), [each.name for each in source.fields])
    return _changed(star.changes, fields, starred)


def _changed(changes: Changes, fields: Sequence[Field], starred: Starred) -> list[Node]:
    """Return the columns with what EXCEPT, REPLACE and APPLY make of them."""
    names = {each.name for each in fields}
    replaced = dict(changes.replaced)
    for name in (*changes.without, *replaced):
        if name not in names:
            raise unknown_column((name,), sorted(names))
    found: list[Node] = []
    for each in fields:
        if each.name in changes.without:
            continue
        in_place = replaced.get(each.name)
        node = starred.add(each) if in_place is None else Aliased(in_place, each.name)
        for function in changes.applied:
            node = _applied(function, node)
        found.append(node)
    return found


def _applied(function: Call | Lambda, column: Node) -> Node:
    if isinstance(function, Call):
        return replace(function, arguments=(column,))
    (parameter,) = function.parameters
    return with_expressions(function.body, {parameter: column})


def matching(pattern: str, names: list[str]) -> list[bool]:
    """Return for each name whether the regular expression matches a part of it. As for the function
    `match`, the cost of matching is bounded. Raises UserError for a bad pattern.
    """
    try:
        from pyarrow import compute as pc  # noqa: PLC0415  start-up

        found = pc.match_substring_regex(pa.array(names, pa.string()), checked_pattern(pattern))
    except pa.ArrowInvalid as problem:
        raise UserError(f"COLUMNS({pattern!r}) is no regular expression: {problem}") from None
    return [bool(each) for each in found.to_pylist()]


def titles_of(items: Sequence[Node]) -> list[str]:
    """Return the titles of the result's columns. A second `id`, from another table, is called
    `u.id`.
    """
    titles: list[str] = []
    for item in items:
        name = title(item)
        if name in titles and isinstance(item, Name):
            name = ".".join(item.parts)
        titles.append(name)
    return titles


def bare(node: Node) -> Node:
    """Return an expression of the list without its alias."""
    return node.node if isinstance(node, Aliased) else node


def present(*nodes: Node | None) -> tuple[Node, ...]:
    """Return the nodes that are not None: the clauses that a SELECT has."""
    return tuple(node for node in nodes if node is not None)


def aliases_in(nodes: Sequence[Node]) -> dict[str, Node]:
    """Return the aliases of the list, also those inside its expressions, `f(x AS y)`, with what
    they name.
    """
    found: dict[str, Node] = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if isinstance(node, Aliased):
            found[node.alias] = node.node
            stack.append(node.node)
        elif isinstance(node, Call):
            stack += node.arguments
    return found


def calls_in(node: Node, name: str) -> Iterator[Call]:
    """Yield the calls of a function in an expression, but not those in subqueries and lambdas."""
    stack = [node]
    while stack:
        each = stack.pop()
        if isinstance(each, Aliased):
            stack.append(each.node)
        elif isinstance(each, Call):
            if each.name == name:
                yield each
            stack += each.arguments


def find_column(
    parts: tuple[str, ...], fields: Sequence[Field], *, leftmost: bool = False
) -> Typed | None:
    """Return the column that the parts name, or the element of a tuple; None if there is none.
    Raises Ambiguous if several tables have it, unless the `leftmost` is meant.
    """
    for length in range(len(parts), 0, -1):
        *qualifier, name = parts[:length]
        found = [
            each
            for each in fields
            if each.name == name
            and (tuple(qualifier) in each.qualifiers if qualifier else not each.of_key)
        ]
        shown = [each for each in found if each.in_star] or found
        if len({each.value.sql for each in shown}) > 1 and not leftmost:
            raise Ambiguous(
                f"the column {'.'.join(parts)!r} is in several tables; write its table before it"
            )
        if shown:
            return with_elements(shown[0].value, parts[length:])
    whole = ".".join(parts)
    dotted = next((each for each in fields if each.name == whole), None)
    return dotted.value if dotted else nested_column(whole, fields)
