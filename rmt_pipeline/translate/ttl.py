"""Checks the TTL clauses of tables and columns, and makes rules and the original's text of them
(§0.4.11).

TTL d + INTERVAL 1 MONTH [DELETE] [WHERE condition], d + INTERVAL 1 DAY RECOMPRESS CODEC(ZSTD(9))
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from rmt_pipeline.protocol.errors import (
    BadTtl,
    IllegalColumn,
)
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.protocol.ttl import TtlRule
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.expression import not_read_back, parse_expression
from rmt_pipeline.syntax.nodes import Node
from rmt_pipeline.syntax.ttl import TtlElement, parse_ttl
from rmt_pipeline.syntax.types import NamedType
from rmt_pipeline.translate.expression import Expression, compile_node

_CODEC = re.compile(
    r"\s*CODEC\s*\(\s*(\w+)\s*(?:\(\s*(\d+)\s*\)\s*)?\)\s*", re.ASCII | re.IGNORECASE
)
_LEVELS = {"ZSTD": range(1, 23), "LZ4HC": range(1, 13), "LZ4": range(0), "NONE": range(0)}


def table_ttl(
    elements: Sequence[TtlElement], columns: Sequence[NamedType]
) -> tuple[TtlRule, ...]:
    """Return the rules for the elements of a table's TTL; `ttl_text` gives their canonical text.

    `columns` are the stored ones. Raises SyntaxProblem, UnknownColumn, UnknownFunction,
    NotImplementedStatement, or BadTtl: for an expression that gives no time, an unknown codec, or
    rules that contradict each other.
    """
    rules = tuple(_rule(element, columns) for element in elements)
    deletes = [rule.text for rule in rules if rule.kind == "delete"]
    if len(deletes) > 1:
        raise BadTtl(
            f"TTL {deletes[0]} and TTL {deletes[1]}: rows are deleted by one TTL without WHERE at "
            "most; take the earlier of the two with least(), or give one of them a WHERE"
        )
    keys = [rule.key for rule in rules]
    twins = [key for key in keys if keys.count(key) > 1]
    if twins:
        raise BadTtl(f"TTL {twins[0]} is there twice")
    return rules


def ttl_text(rules: Sequence[TtlRule]) -> str:
    """Return the text of a table's rules as its metadata has it; "" if there are none. Raises
    NotReadBack if other rules are read from it.
    """
    text = ", ".join(rule.text for rule in rules)
    read = [
        (canonical(one.time), "" if one.where is None else canonical(one.where), one.codec)
        for one in (parse_ttl(text) if text else ())
    ]
    codecs = {rule: f"CODEC({rule.codec})" if rule.codec else "" for rule in rules}
    if read != [(rule.expression, rule.where, codecs[rule]) for rule in rules]:
        raise not_read_back("the TTL", text)
    return text


def column_ttl(
    name: str, time: Node, columns: Sequence[NamedType], key_columns: frozenset[str]
) -> TtlRule:
    """Return the rule for the TTL of one column. Raises as `table_ttl`, and IllegalColumn for one
    of the `key_columns`, which the table's keys or its engine use and which can have no TTL.
    """
    if name in key_columns:
        raise IllegalColumn(
            f"column {name} can have no TTL: the table's keys or its engine use its values"
        )
    return TtlRule("column", _time(time, columns).stored, column=name)


def rules_of(definition: TableDefinition) -> tuple[TtlRule, ...]:
    """Return the rules of a table: its own, then those of its columns."""
    if not definition.ttl and not any(column.ttl for column in definition.columns):
        return ()
    return _rules_of(definition.ttl, definition.columns)


@lru_cache(maxsize=256)
def _rules_of(text: str, columns: tuple[Column, ...]) -> tuple[TtlRule, ...]:
    stored = [each for each in columns if each.is_stored]
    of_table = table_ttl(parse_ttl(text), stored) if text else ()
    of_columns = (
        column_ttl(column.name, parse_expression(column.ttl), stored, frozenset())
        for column in stored
        if column.ttl
    )
    return (*of_table, *of_columns)


def _rule(element: TtlElement, columns: Sequence[NamedType]) -> TtlRule:
    time = _time(element.time, columns).stored
    if element.codec:
        return TtlRule("recompress", time, codec=_codec(element.codec))
    if element.where is None:
        return TtlRule("delete", time)
    condition = compile_node(element.where, columns)
    if not condition.condition_sql:
        raise BadTtl(f"TTL … WHERE {condition.canonical} is {condition.type}, no condition")
    return TtlRule("where", time, where=condition.stored)


def _time(time: Node, columns: Sequence[NamedType]) -> Expression:
    expression = compile_node(time, columns)
    if not expression.columns_used:
        raise BadTtl(f"TTL {expression.canonical} uses no column of the table")
    if not expression.type.date_like or expression.type.nullable:
        raise BadTtl(
            f"TTL {expression.canonical} is {expression.type}; it must be a Date or DateTime that "
            "is never NULL"
        )
    return expression


def _codec(text: str) -> str:
    """Return the codec of CODEC(…) as the original writes it. Raises BadTtl."""
    match = _CODEC.fullmatch(text)
    name = match[1].upper() if match is not None else ""
    levels = _LEVELS.get(name)
    if match is None or levels is None:
        raise BadTtl(
            f"TTL … RECOMPRESS {text}: there is CODEC(ZSTD(1…22)), LZ4, LZ4HC and NONE"
        )
    if match[2] is None:
        return "ZSTD(1)" if name == "ZSTD" else name
    if int(match[2]) not in levels:
        raise BadTtl(f"TTL … RECOMPRESS {text}: {name} has no level {match[2]}")
    return f"{name}({match[2]})"
