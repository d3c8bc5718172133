"""Decides which changes of a key column's type leave every row where it is.

The partition of a row, its place in the order, and which of two versions is later were decided with
the old type. A change is safe if every old value keeps its meaning and its order in the new type.
"""

from rmt_pipeline.protocol.alter.definition import KeyUse
from rmt_pipeline.types.data_type import DataType

_SAME_NUMBERS = frozenset(
    {("Date", "UInt16"), ("UInt16", "Date"), ("DateTime", "UInt32"), ("UInt32", "DateTime")}
)


def is_key_safe(before: DataType, after: DataType, use: KeyUse) -> bool:
    """Whether the type of a column with this use may change from `before` to `after`."""
    match use:
        case "version":
            return (
                before.text == after.text or _is_wider(before, after)
            ) and before.nullable == after.nullable
        case "sum":
            return before.text == after.text or after.is_numeric
        case "partition":
            return _same_values(before, after) or _is_enum_as_number(before, after)
        case "order":
            numbers = (before.text, after.text) in _SAME_NUMBERS
            zones = before.plain.family == after.plain.family == "DateTime"
            same_digits = before.plain.numbers == after.plain.numbers
            zones |= before.plain.family == after.plain.family == "DateTime64" and same_digits
            alike = (numbers or zones) and before.nullable == after.nullable
            return alike or is_key_safe(before, after, "partition")
        case "expression":
            return _same_values(before, after)
        case "":
            return True
        case _:
            return before.text == after.text


def _is_wider(before: DataType, after: DataType) -> bool:
    both = before.is_integer and after.is_integer
    return both and before.is_signed == after.is_signed and after.bits >= before.bits


def _is_enum_as_number(before: DataType, after: DataType) -> bool:
    """Whether an Enum becomes the integer of its numbers, which the order and the partition's id
    are made of already.
    """
    pairs = {"Enum8": "Int8", "Enum16": "Int16"}
    return pairs.get(before.family) == after.family


def _same_values(before: DataType, after: DataType) -> bool:
    """Whether every old value is a value of the new type and means the same."""
    if before.nullable != after.nullable:
        return False
    one, other = before.plain, after.plain
    if one.text == other.text:
        return True
    if one.family != other.family or one.names != other.names:
        return False
    if one.is_enum:
        return set(one.values) <= set(other.values)
    is_nested = bool(one.elements) and len(one.elements) == len(other.elements)
    return is_nested and all(map(_same_values, one.elements, other.elements))
