"""The partition that a statement names."""

from collections.abc import Sequence

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
from rmt_pipeline.types.escapes import quote_text
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
    right = f"Say, for example, PARTITION {_form(key.types)}, or PARTITION ID (system.parts)"
    if len(elements) != len(key.names):
        raise InvalidPartition(f"{refusal} ({wanted}): it has {len(elements)} values. {right}")
    try:
        values = [
            _as_in_arrow(constant_value(element, kind), kind)
            for element, kind in zip(elements, key.types, strict=True)
        ]
    except (UserError, ValueError) as error:
        raise BadValue(f"{refusal} ({wanted}): {error}. {right}") from error
    return partition_id(values, key.types)


def _form(kinds: Sequence[DataType]) -> str:
    """How a value of such a key is written."""
    forms = [_form_of(kind) for kind in kinds]
    return forms[0] if len(forms) == 1 else f"({', '.join(forms)})"


def _form_of(kind: DataType) -> str:
    match kind.family:
        case "Nullable" | "LowCardinality":
            return _form_of(kind.elements[0])
        case "Date" | "Date32":
            return "'2019-05-01'"
        case "DateTime" | "DateTime64":
            return "'2019-05-01 12:00:00'"
        case "Enum8" | "Enum16":
            return quote_text(kind.values[0][0])
        case family if family.startswith(("Int", "UInt", "Float", "Decimal")):
            return "1"
        case _:
            return "'text'"


def _as_in_arrow(value: object, kind: DataType) -> object:
    """As a part's rows give it: times are integers there."""
    return column_values(pa.array([value], kind.arrow))[0]
