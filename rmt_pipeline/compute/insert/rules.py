"""optimize_on_insert: the engine's rules, applied to the rows of one insert (spec §2.2, §17)."""

import pyarrow as pa

from rmt_pipeline.compute import units
from rmt_pipeline.compute.merge.plan import engine_rules, key_parts, sorting_key
from rmt_pipeline.compute.merge.rules import rules_for
from rmt_pipeline.compute.rows.order import Flags, RowIndexes
from rmt_pipeline.compute.rows.windows import Sorted
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.table import TableDefinition

_GROUP = "\0partition"


class InsertRules:
    """What a merge of the rows alone would leave of them; all of them without an engine that
    merges rows. Raises UserError for a definition whose engine names what the table does not have.
    """

    def __init__(self, definition: TableDefinition) -> None:
        columns = stored_columns(definition)
        self._shape = units.Shape(
            columns=columns,
            key=key_parts(sorting_key(definition), columns),
            rules=engine_rules(definition, cleanup=False),
        )
        self.keeps_rows = self._shape.keeps_rows

    def apply(
        self, table: pa.Table, starts: Flags, partitions: RowIndexes
    ) -> tuple[pa.Table, RowIndexes]:
        """The rows that are left of sorted ones, and the number of the partition of each.

        `starts[i]`: whether row i has another key or partition than the row before. Raises
        IncorrectData for values that the engine refuses.
        """
        rules = rules_for(self._shape)
        if rules is None:
            return table, partitions
        numbered = table.append_column(_GROUP, pa.array(partitions))
        left = rules.merge(Sorted(numbered, None, starts))
        found = left.column(_GROUP).to_numpy()
        return left.select(table.column_names).combine_chunks(), found
