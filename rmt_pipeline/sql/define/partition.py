"""Finds the id of the partition that a statement names."""

from collections.abc import Sequence

import pyarrow as pa

from rmt_pipeline.compute.insert.partition import NO_KEY, partition_id
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.protocol.errors import BadValue, UserError
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.sql.define.constants import constant_value
from rmt_pipeline.syntax.mutation import Partition, PartitionId
from rmt_pipeline.syntax.nodes import Call, Literal, Node
from rmt_pipeline.translate.mutation_rules import InvalidPartition, check_partition
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.escapes import quote_text
from rmt_pipeline.types.to_text import column_values

DAYS_MAX = 2**16 - 1  # the largest Date, in days since the epoch


def partition_id_of(partition: Partition, definition: TableDefinition) -> str:
    """Return the id of the partition that a statement names by its id or by its value of the key.

    Raises BadValue if the value does not fit the key, and InvalidPartition for too many or too few
    values and for text that can't be an id.
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
    example = _form(key.names, key.types)
    right = (
        f"Say, for example, PARTITION {example}, or PARTITION ID '…' with what "
        "system.parts.partition_id shows"
    )
    if len(elements) != len(key.names):
        given = "one value" if len(elements) == 1 else f"{len(elements)} values"
        raise InvalidPartition(
            f"{refusal} ({wanted}): it has {given}, and the key has {len(key.names)}. {right}"
        )
    try:
        values = [
            _as_in_arrow(_value_of(element, kind), kind)
            for element, kind in zip(elements, key.types, strict=True)
        ]
    except (UserError, ValueError) as error:
        raise BadValue(f"{refusal} ({wanted}): {error}. {right}") from error
    return partition_id(values, key.types)


def _value_of(element: Node, kind: DataType) -> object:
    """Return the value of one element of the key. Raises ValueError for a number where the key is
    text, as the first versions of the original do; and for a number such as 20240131 where the key
    has a date: toDate would take it for seconds, and so for a partition of 1970.
    """
    if (
        kind.is_string
        and isinstance(element, Literal)
        and isinstance(element.value, int | float)
    ):
        raise ValueError(f"{element.text} is a number, and the key is a {kind.plain.text}")
    if (
        kind.plain.family in ("Date", "Date32")
        and isinstance(element, Literal)
        and isinstance(element.value, int)
        and element.value > DAYS_MAX
    ):
        raise ValueError(
            f"{element.value} is no date; a number is one as days since 1970-01-01"
        )
    return constant_value(element, kind)


def _form(names: Sequence[str], kinds: Sequence[DataType]) -> str:
    """Return an example of a value of a key with these names and types."""
    forms = [_form_of(name, kind) for name, kind in zip(names, kinds, strict=True)]
    return forms[0] if len(forms) == 1 else f"({', '.join(forms)})"


_EXAMPLES = {
    "toYYYYMM": "202401",
    "toYYYYMMDD": "20240101",
    "toYYYYMMDDhhmmss": "20240101000000",
    "toYear": "2024",
    "toISOYear": "2024",
    "toUnixTimestamp": "1704067200",
    "Date": "'2024-01-01'",
    "Date32": "'2024-01-01'",
    "DateTime": "'2024-01-01 00:00:00'",
    "DateTime64": "'2024-01-01 00:00:00'",
    "Bool": "true",
    "FixedString": "'x'",
    "UUID": "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'",
    "IPv4": "'192.0.2.1'",
    "IPv6": "'2001:db8::1'",
}
"""Examples of values by the key's function, else by its type. 2024 began on a Monday, so that its
first moment is unchanged by every function that rounds times.
"""


def _form_of(name: str, kind: DataType) -> str:
    plain = kind.plain
    if plain.family.startswith("Enum"):
        return quote_text(plain.values[0][0])
    if plain.family == "Tuple":
        return f"({', '.join(_form_of('', one) for one in plain.elements)})"
    known = _EXAMPLES.get(name.partition("(")[0]) or _EXAMPLES.get(plain.family)
    is_number = plain.family.startswith(("Int", "UInt", "Float", "Decimal"))
    return known or ("1" if is_number else "'text'")


def _as_in_arrow(value: object, kind: DataType) -> object:
    """Return the value in the form that a part's rows give it, in which times are integers."""
    return column_values(pa.array([value], kind.arrow))[0]
