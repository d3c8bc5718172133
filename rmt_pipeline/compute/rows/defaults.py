"""DEFAULT and MATERIALIZED expressions: in which order, and their values.

One like `now()` or `rand()` is computed once, when rows are inserted, and stored with them: what a
part has is the same on every replica. Rows of a part that lacks the column are never given a value
by it, nor is a value that expired or was cleared: each replica, and each reading, would give them
another. They have the default of the type.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from rmt_pipeline.compute.rows.computed import compiled, evaluated, gives_another_each_time
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import parse_type


class DefaultExpressions:
    """The columns of a table whose values may be computed from others of the row.

    `inserted`: the rows come in just now, so expressions that give another value each time count.
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
        """`names` so that each comes after those that its expression uses.

        Raises UserError for expressions that wait for each other.
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
        """The values of column `name`, in its stored form, from the others in `table`."""
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
    """The columns with the time in the place of `now()` and its kin, so that one insert has one."""
    return tuple(
        replace(column, default=_text_at(column.default, now_s))
        if gives_another_each_time(column)
        else column
        for column in columns
    )


def _text_at(default: str, now_s: float) -> str:
    from rmt_pipeline.translate.moment import at  # noqa: PLC0415  start-up: slow

    return at(default, now_s)
