"""What a type may not be: the original's restrictions, each with its reason."""

from collections.abc import Callable

from rmt_pipeline.types.data_type import DATES, FLOATS, INTEGER_BITS, DataType


def decimal_rule(made: DataType) -> str | None:
    precision, scale = made.numbers
    if not 1 <= precision <= 76:
        return f"a Decimal has 1 to 76 digits, not {precision}"
    if not 0 <= scale <= precision:
        return (
            f"a Decimal({precision}) has 0 to {precision} digits after the point, not {scale}"
        )
    return None


def fixed_string_rule(made: DataType) -> str | None:
    if not 1 <= made.numbers[0] <= 0xFFFFFF:
        return f"a FixedString has 1 to {0xFFFFFF} bytes, not {made.numbers[0]}"
    return None


def _nullable(made: DataType) -> str | None:
    inside = made.elements[0]
    if inside.family in {"Nullable", "LowCardinality", "Array", "Map", "Tuple"}:
        hint = (
            "; write LowCardinality(Nullable(...))" if inside.family == "LowCardinality" else ""
        )
        return f"{inside.text} cannot be inside Nullable{hint}"
    return None


def _low_cardinality(made: DataType) -> str | None:
    inside = made.elements[0]
    plain = inside.elements[0] if inside.family == "Nullable" else inside
    allowed = {*INTEGER_BITS, *FLOATS, *DATES, "String", "FixedString", "DateTime", "UUID"}
    if plain.family not in allowed | {"IPv4", "IPv6"}:
        return f"LowCardinality holds numbers, strings, dates and times, not {inside.text}"
    return None


def _map(made: DataType) -> str | None:
    key = made.elements[0]
    if key.nullable:
        return f"a map's key cannot be {key.text}: a key is never NULL"
    return None


def _any(made: DataType) -> str | None:
    del made
    return None


RULES: dict[str, Callable[[DataType], str | None]] = {
    "Nullable": _nullable,
    "LowCardinality": _low_cardinality,
    "Map": _map,
    "Array": _any,
}
