"""DEFAULT and MATERIALIZED expressions: in which order, and their values."""

from collections.abc import Collection, Sequence
from functools import cached_property

import pyarrow as pa

from rmt_pipeline.compute.rows.computed import compiled, evaluated
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import parse_type


class DefaultExpressions:
    """The columns of a table whose values may be computed from others of the row."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(each for each in columns if each.default_kind != "ALIAS")
        self._expressions = {
            column.name: column
            for column in columns
            if column.default and column.default_kind != "ALIAS"
        }

    def __contains__(self, name: object) -> bool:
        return name in self._expressions

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
