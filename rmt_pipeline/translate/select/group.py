"""GROUP BY: its keys, and which columns expressions may use after grouping."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.syntax.nodes import Aliased, Call, Lambda, Name, Node
from rmt_pipeline.translate.base.casts import plain_condition
from rmt_pipeline.translate.base.typed import Typed, from_stored, to_stored
from rmt_pipeline.translate.compiler import Compiler
from rmt_pipeline.translate.functions.array import stored_default
from rmt_pipeline.translate.functions.registry import find_aggregate, find_function, real_name

GroupKeys = list[tuple[Node, Typed]]


class NotAnAggregate(UserError):
    """A column is used beside aggregate functions without being in GROUP BY."""

    code = "NOT_AN_AGGREGATE"


def aggregated_names(aliases: Mapping[str, Node]) -> frozenset[str]:
    """Return the aliases whose expressions call an aggregate function, directly or through other
    aliases.
    """
    known = {name for name, node in aliases.items() if _calls_aggregate(node)}
    names = {name: _names_in(node) for name, node in aliases.items()}
    while True:
        more = {name for name in aliases if name not in known and names[name] - {name} & known}
        if not more:
            return frozenset(known)
        known |= more


def is_aggregate(node: Node, aggregated: frozenset[str]) -> bool:
    """Whether `node` calls an aggregate function, itself or through one of the aliases
    `aggregated`.
    """
    return _calls_aggregate(node) or bool(_names_in(node) & aggregated)


def _walk(node: Node) -> list[Node]:
    found: list[Node] = []
    stack = [node]
    while stack:
        each = stack.pop()
        found.append(each)
        match each:
            case Call():
                stack += each.arguments
                if each.over is not None:
                    stack += [*each.over.partition_by, *(x.node for x in each.over.order_by)]
            case Aliased():
                stack.append(each.node)
            case Lambda():
                stack.append(each.body)
            case _:
                pass
    return found


def _calls_aggregate(node: Node) -> bool:
    for each in _walk(node):
        if isinstance(each, Call) and each.over is None:
            name = real_name(each.name)
            if find_function(name) is None and find_aggregate(name) is not None:
                return True
    return False


def _names_in(node: Node) -> set[str]:
    return {
        each.parts[0] for each in _walk(node) if isinstance(each, Name) and len(each.parts) == 1
    }


def named_by_alias(node: Node, aliases: Mapping[str, Node]) -> Node:
    """Return the expression that `node` stands for if it is an alias, also through
    several aliases.
    """
    for _ in aliases:
        if not isinstance(node, Name) or len(node.parts) > 1:
            break
        found = aliases.get(node.parts[0])
        if found is None or found == node:
            break
        node = found
    return node


def compile_keys(nodes: Sequence[Node], compiler: Compiler) -> GroupKeys:
    """Return each key with its compiled value. The elements of a tuple are keys of their own."""
    keys: GroupKeys = []
    for node in nodes:
        is_tuple = isinstance(node, Call) and node.name == "tuple"
        parts = node.arguments if is_tuple and isinstance(node, Call) else (node,)
        keys += [(part, plain_condition(compiler.compile(part))) for part in parts]
    return keys


def group_by_sql(keys: GroupKeys, modifier: str) -> str:
    """Return DuckDB's clause GROUP BY; `modifier` is ROLLUP, CUBE or ""."""
    terms = list(dict.fromkeys(to_stored(value) for _, value in keys))
    inner = ", ".join(terms) or "()"
    if modifier:
        return f"GROUP BY {modifier} ({inner})"
    # DuckDB would take a constant number for a place in the list.
    constant = bool(keys) and all(value.constant is not None for _, value in keys)
    return "GROUP BY (SELECT 1)" if constant else f"GROUP BY {inner}"


def after_grouping(
    plain: Compiler,
    keys: GroupKeys,
    alias: Callable[[tuple[str, ...], Compiler], Typed | None],
    name_of: Callable[[tuple[str, ...]], str],
    *,
    summed: bool,
    totals: bool = False,
) -> Compiler:
    """Return a compiler for expressions after grouping: they may use the keys, and other columns
    only inside aggregate functions.

    `alias` compiles an alias with a given compiler, and returns None for a name that is no alias.
    `name_of` gives the name of a column for messages. `summed` is True for ROLLUP and CUBE, which
    add rows in which a key is summed up; `totals` for the row of WITH TOTALS, in which all are.
    """
    grouped = {to_stored(value) for _, value in keys}

    def lookup(parts: tuple[str, ...]) -> Typed:
        found = alias(parts, compiler)
        if found is not None:
            return found
        value = plain.lookup(parts)
        if to_stored(value) not in grouped:
            raise NotAnAggregate(
                f"the column {name_of(parts)!r} is neither in GROUP BY nor under an aggregate "
                "function"
            )
        return _grouped(value, summed=summed, totals=totals)

    known = {
        node: _grouped(value, summed=summed, totals=totals)
        for node, value in keys
        if value.constant is None
    }
    compiler = replace(
        plain,
        aggregates="",
        lookup=lookup,
        bound={**plain.bound, **known},
        inside_bound=plain.bound,
        inside=plain.lookup,
    )
    return compiler


def _grouped(value: Typed, *, summed: bool, totals: bool) -> Typed:
    """Return the value of a key after grouping. In rows in which ROLLUP or CUBE sums it up, a key
    that can't be NULL has its type's default.
    """
    stored = to_stored(value)
    if totals:
        nothing = f"CAST(NULL AS {value.type.duckdb})"
        return from_stored(
            nothing if value.nullable else stored_default(value.type), value.type
        )
    if summed and not value.nullable:
        default = stored_default(value.type)
        stored = f"(CASE WHEN GROUPING({stored}) = 1 THEN {default} ELSE {stored} END)"
    return from_stored(stored, value.type)
