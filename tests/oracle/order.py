"""How values of a type are ordered, value by value (part of the oracle of `rows`)."""

import re
from typing import Any

_ENUM = re.compile(r"Enum(?:8|16)\((.*)\)", re.DOTALL)
_ELEMENT = re.compile(r"'((?:[^'\\]|\\.)*)' = (-?\d+)(?:, )?", re.DOTALL)
_UUID = re.compile(
    r"(?:(?:Nullable|LowCardinality|SimpleAggregateFunction)\((?:\w+, )?)*UUID\)*"
)


def order_value(type_text: str, value: Any) -> Any:
    """What the value is ordered by: an Enum's number, a UUID's halves, else the value itself.

    `type_text` is canonical. Values of nested types are ordered by their elements as they are.
    """
    if value is None:
        return None
    enum = _ENUM.search(type_text)
    if enum is not None and not type_text.startswith(("Array", "Tuple", "Map")):
        numbers = {
            re.sub(r"\\(.)", r"\1", name): int(number)
            for name, number in _ELEMENT.findall(enum[1])
        }
        return numbers[value]
    if _UUID.fullmatch(type_text):
        first, second = value.replace("-", "")[:16], value.replace("-", "")[16:]
        return int(second, 16), int(first, 16)
    return value
