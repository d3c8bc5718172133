"""The partition that a statement names."""

import pyarrow as pa

from rmt_pipeline.compute.insert.partition import NO_KEY, partition_id
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.protocol.errors import BadValue, UserError
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.sql.define.constants import constant_value
from rmt_pipeline.syntax.mutation import Partition, PartitionId
from rmt_pipeline.syntax.nodes import Call
from rmt_pipeline.translate.mutation_rules import InvalidPartition, check_partition
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.to_text import column_values


def partition_id_of(partition: Partition, definition: TableDefinition) -> str:
    """The id of the partition that a statement names, by its id or by the value of its key.

    Raises BadValue when the value does not fit the key, InvalidPartition for too many or too few
    values, and for what can't be the id of any partition.
    """
    if isinstance(partition, PartitionId):
        check_partition(partition.id, f"PARTITION {partition}")
        return partition.id
    node = partition.value
    is_tuple = isinstance(node, Call) and node.name.lower() == "tuple"
    elements = node.arguments if is_tuple and isinstance(node, Call) else (node,)
    if not definition.partition_by:
        if not is_tuple or elements:
            raise InvalidPartition(
                f"{definition.full_name} has no PARTITION BY: its one partition is tuple(),"
                f" not {partition}"
            )
        return NO_KEY
    key = KeyColumns(definition.partition_by, definition.columns)
    if len(key.names) == 1 and len(elements) != 1:
        elements = (node,)
    wanted = ", ".join(
        f"{name} {kind}" for name, kind in zip(key.names, key.types, strict=True)
    )
    refusal = (
        f"PARTITION {partition} is no value of the partition key of {definition.full_name}"
    )
    if len(elements) != len(key.names):
        raise InvalidPartition(f"{refusal} ({wanted}): it has {len(elements)} values")
    try:
        values = [
            _as_in_arrow(constant_value(element, kind), kind)
            for element, kind in zip(elements, key.types, strict=True)
        ]
    except (UserError, ValueError) as error:
        raise BadValue(f"{refusal} ({wanted}): {error}") from error
    return partition_id(values, key.types)


def _as_in_arrow(value: object, kind: DataType) -> object:
    """As a part's rows give it: times are integers there."""
    return column_values(pa.array([value], kind.arrow))[0]
