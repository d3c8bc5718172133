"""DEFAULT and MATERIALIZED expressions: the order in which to compute them, and their values.

An expression with `now()`, `rand()` or the like is computed once, when rows are inserted, and its
values are stored with them, so that they are the same on every replica. It is not used for rows of
a part that lacks the column, nor for values that expired or were cleared: each replica, and each
read, would give them other values. These have the default of the type.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

import pyarrow as pa

from rmt_pipeline.compute.rows.computed import compiled, evaluated, gives_another_each_time
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.nodes import Aliased, Call, Lambda, Literal, Node
from rmt_pipeline.syntax.types import parse_type

_DAYS_AGO = {"today": 0, "yesterday": 1}


class DefaultExpressions:
    """The columns of a table that have a DEFAULT or MATERIALIZED expression.

    `inserted` says that it is for rows that are inserted now, so that expressions which give
    another value each time are used too.
    """

    def __init__(self, columns: Sequence[Column], *, inserted: bool = False) -> None:
        self._columns = tuple(each for each in columns if each.default_kind != "ALIAS")
        self._expressions = {
            column.name: column
            for column in columns
            if column.default and column.default_kind != "ALIAS"
        }
        self._inserted = inserted

    def __contains__(self, name: object) -> bool:
        column = self._expressions.get(name) if isinstance(name, str) else None
        return column is not None and (self._inserted or not gives_another_each_time(column))

    def in_order(self, names: Collection[str]) -> list[str]:
        """`names` in such an order that each comes after those that its expression uses.

        Raises UserError for expressions that use each other.
        """
        waiting = dict.fromkeys(names)
        ordered: list[str] = []
        while waiting:
            ready = [name for name in waiting if not self._inputs[name] & waiting.keys()]
            if not ready:
                raise UserError(
                    f"the defaults of {', '.join(waiting)} use each other; give one of them a value"
                )
            for name in ready:
                ordered.append(name)
                del waiting[name]
        return ordered

    def evaluate(self, name: str, table: pa.Table) -> pa.Array:
        """The values of column `name`, in its stored form, computed from other columns
        of `table`.
        """
        column = self._expressions[name]
        expression = compiled(column.default, self._columns)
        if expression.type != parse_type(column.type):
            text = f"CAST({column.default} AS {column.type})"
            expression = compiled(text, self._columns)
        return evaluated([expression], table)[0]

    @cached_property
    def _inputs(self) -> dict[str, frozenset[str]]:
        return {
            name: frozenset(compiled(column.default, self._columns).columns_used)
            for name, column in self._expressions.items()
        }


def at_moment(columns: Sequence[Column], now_s: float) -> tuple[Column, ...]:
    """The columns with the time in the place of `now()` and similar functions in their defaults, so
    that all rows of an insert get the same time.
    """
    return tuple(
        replace(column, default=_text_at(column.default, now_s))
        if gives_another_each_time(column)
        else column
        for column in columns
    )


def _text_at(default: str, now_s: float) -> str:
    """The canonical text of the expression with `now()` and the like as constants of the same type.
    `now_s` is in seconds since the epoch.
    """
    return canonical(_at(parse_expression(default), datetime.fromtimestamp(now_s, UTC)))


def _at(node: Node, now: datetime) -> Node:
    match node:
        case Call():
            arguments = tuple(_at(one, now) for one in node.arguments)
            return _call(replace(node, arguments=arguments), now)
        case Lambda():
            return replace(node, body=_at(node.body, now))
        case Aliased():
            return replace(node, node=_at(node.node, now))
        case _:
            return node


def _call(call: Call, now: datetime) -> Node:
    from rmt_pipeline.translate.functions.registry import real_name  # noqa: PLC0415  start-up: slow

    name = real_name(call.name)
    if name in _DAYS_AGO:
        day = now - timedelta(days=_DAYS_AGO[name])
        return Call("toDate", (Literal(f"{day:%Y-%m-%d}"),))
    if name == "now":
        time = Call("toDateTime", (Literal(f"{now:%Y-%m-%d %H:%M:%S}"),))
        return Call("toTimeZone", (time, *call.arguments)) if call.arguments else time
    if name == "now64":
        digits = call.arguments or (Literal(3, "3"),)
        text = Literal(f"{now:%Y-%m-%d %H:%M:%S.%f}")
        time = Call("toDateTime64", (text, Literal(6, "6")))  # a moment, whatever zone follows
        return Call("toDateTime64", (time, *digits))
    return call
