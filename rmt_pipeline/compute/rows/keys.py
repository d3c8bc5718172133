"""The values of a key's expressions for each row.

Most keys are plain columns: these are taken as they are, and nothing needs to be compiled.
"""

from collections.abc import Sequence

import pyarrow as pa

from rmt_pipeline.compute.rows.computed import compiled, evaluated
from rmt_pipeline.compute.rows.order_values import has_own_order, order_values
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.escapes import quote_name


class KeyColumns:
    """One key: PARTITION BY or ORDER BY. Raises UserError for expressions that can't be computed.

    `names` are the expressions' canonical texts, `types` their types, `inputs` the columns that
    they use. `leading_columns` are the names of the plain columns with which the key begins, as far
    as their order is that of the stored values.
    """

    def __init__(self, expressions: Sequence[str], columns: Sequence[Column]) -> None:
        known = {quote_name(column.name): column for column in columns}
        self.names = tuple(expressions)
        self._plain = tuple(known.get(text) for text in expressions)
        self._computed = tuple(
            compiled(text, columns) for text in expressions if text not in known
        )
        types: list[DataType] = []
        inputs: list[str] = []
        computed = iter(self._computed)
        for column in self._plain:
            if column is not None:
                types.append(parse_type(column.type))
                inputs.append(column.name)
            else:
                expression = next(computed)
                types.append(expression.type)
                inputs += expression.columns_used
        self.types = tuple(types)
        self.inputs = tuple(dict.fromkeys(inputs))
        self.leading_columns = self._leading()

    def arrays(self, table: pa.Table) -> list[pa.Array]:
        """The key's values for each row of a table of one chunk, in the stored form."""
        computed = iter(evaluated(self._computed, table))
        return [
            next(computed) if column is None else _one_chunk(table.column(column.name))
            for column in self._plain
        ]

    def ordered(self, table: pa.Table) -> list[pa.Array]:
        """As `arrays`, but values whose order is the key's; see `order_values`."""
        pairs = zip(self.arrays(table), self.types, strict=True)
        return [order_values(array, kind) for array, kind in pairs]

    def _leading(self) -> tuple[str, ...]:
        names: list[str] = []
        for column, kind in zip(self._plain, self.types, strict=True):
            if column is None or has_own_order(kind):
                break
            names.append(column.name)
        return tuple(names)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
