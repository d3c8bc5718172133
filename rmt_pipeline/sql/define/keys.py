"""The keys of a CREATE TABLE: ORDER BY, PRIMARY KEY, PARTITION BY, SAMPLE BY, checked."""

from collections.abc import Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import BadTypeOfField, IllegalColumn, UserError
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.nodes import Node
from rmt_pipeline.syntax.statements.definition import TableSyntax
from rmt_pipeline.translate.expression import Expression, compile_node


@dataclass(frozen=True, slots=True)
class TableKeys:
    """Canonical texts. `primary_key` is None when it is the sorting key."""

    order_by: tuple[str, ...]
    partition_by: tuple[str, ...]
    primary_key: tuple[str, ...] | None
    sample_by: str
    columns: frozenset[str]
    """Every column that any of them uses."""


def keys_of(
    syntax: TableSyntax, columns: Sequence[Column], settings: TableSettings
) -> TableKeys:
    """Raises UnknownColumn, UnknownFunction, SyntaxProblem, IllegalColumn, BadTypeOfField.

    A table without ORDER BY is refused, so that nobody forgets it: `tuple()` says it is meant.
    """
    given = syntax.order_by if syntax.order_by is not None else syntax.primary_key
    if given is None:
        raise UserError("ORDER BY is missing; to keep rows unsorted write ORDER BY tuple()")
    order_by = _key("ORDER BY", given, columns, settings)
    partition_by = _key("PARTITION BY", syntax.partition_by or (), columns, settings)
    for expression in partition_by:
        if expression.type.is_float:
            raise BadTypeOfField(
                f"PARTITION BY {expression.canonical} is {expression.type}: a float makes no"
                " partitions, round it to an integer"
            )
    primary_key = None
    if syntax.primary_key is not None:
        primary_key = _primary_key(
            _key("PRIMARY KEY", syntax.primary_key, columns, settings), order_by
        )
    sample_by = _sample_by(syntax.sample_by, columns, primary_key or _texts(order_by))
    used = frozenset(name for each in (*order_by, *partition_by) for name in each.columns_used)
    return TableKeys(_texts(order_by), _texts(partition_by), primary_key, sample_by, used)


def _key(
    clause: str, nodes: Sequence[Node], columns: Sequence[Column], settings: TableSettings
) -> list[Expression]:
    found = []
    for node in nodes:
        expression = compile_node(node, columns)
        if expression.is_constant:
            raise IllegalColumn(f"{clause} {expression.canonical} uses no column of the table")
        if not expression.type.is_comparable:
            raise BadTypeOfField(
                f"{clause} {expression.canonical} is {expression.type}, which has no order"
            )
        if expression.type.nullable and not settings.allow_nullable_key:
            raise IllegalColumn(
                f"{clause} {expression.canonical} is {expression.type}: a key is not Nullable,"
                " unless SETTINGS allow_nullable_key = 1"
            )
        found.append(expression)
    return found


def _primary_key(key: Sequence[Expression], order_by: Sequence[Expression]) -> tuple[str, ...]:
    texts = _texts(key)
    if texts != _texts(order_by)[: len(texts)]:
        raise UserError(
            f"PRIMARY KEY ({', '.join(texts)}) must be a prefix of ORDER BY"
            f" ({', '.join(_texts(order_by))})"
        )
    return texts


def _sample_by(node: Node | None, columns: Sequence[Column], primary_key: Sequence[str]) -> str:
    if node is None:
        return ""
    expression = compile_node(node, columns)
    if not expression.type.is_integer or expression.type.is_signed:
        raise BadTypeOfField(
            f"SAMPLE BY {expression.canonical} is {expression.type}; it must be unsigned"
        )
    if expression.canonical not in primary_key:
        raise UserError(
            f"SAMPLE BY {expression.canonical} must be in the primary key"
            f" ({', '.join(primary_key)})"
        )
    return expression.canonical


def _texts(key: Sequence[Expression]) -> tuple[str, ...]:
    return tuple(expression.canonical for expression in key)
