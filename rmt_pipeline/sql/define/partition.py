"""The partition that a statement names."""

from rmt_pipeline.compute.insert.partition import NO_KEY, partition_id
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.protocol.errors import BadValue, UserError
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.sql.define.constants import constant_value
from rmt_pipeline.syntax.mutation import Partition, PartitionId
from rmt_pipeline.syntax.nodes import Call
from rmt_pipeline.translate.mutation_rules import check_partition


def partition_id_of(partition: Partition, definition: TableDefinition) -> str:
    """The id of the partition that a statement names, by its id or by the value of its key.

    Raises BadValue when the value does not fit the key, UserError when there is no key, or for what
    can't be the id of any partition.
    """
    if isinstance(partition, PartitionId):
        check_partition(partition.id, f"PARTITION {partition}")
        return partition.id
    node = partition.value
    is_tuple = isinstance(node, Call) and node.name.lower() == "tuple"
    elements = node.arguments if is_tuple and isinstance(node, Call) else (node,)
    if not definition.partition_by:
        if not is_tuple or elements:
            raise UserError(
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
        raise BadValue(f"{refusal} ({wanted}): it has {len(elements)} values")
    try:
        values = [
            constant_value(element, kind)
            for element, kind in zip(elements, key.types, strict=True)
        ]
    except (UserError, ValueError) as error:
        raise BadValue(f"{refusal} ({wanted}): {error}") from error
    return partition_id(values, key.types)
