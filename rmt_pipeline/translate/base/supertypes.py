"""The least type that holds the values of several types, by the original's rules."""

from collections.abc import Sequence

from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.translate.base.typed import (
    FLOAT32,
    FLOAT64,
    NULL_TYPE,
    STRING,
    TypeProblem,
    array_of,
    nullable_type,
    tuple_of,
)
from rmt_pipeline.types.data_type import DataType


class NoCommonType(TypeProblem):
    """No type holds all the values that meet in an array, `if` or UNION. One of them must be
    cast.
    """

    code = "NO_COMMON_TYPE"


def least_supertype(types: Sequence[DataType]) -> DataType:
    """Return the least type that holds values of all `types`, Nullable if one of them is. Raises
    NoCommonType, which names them.
    """
    known = [each for each in types if each.plain.family != "Nothing"]
    if not known:
        return NULL_TYPE if types else DataType("Nothing")
    nullable = any(each.nullable for each in types)
    plains = [each.plain for each in known]
    common = plains[0]
    if any(each != common for each in plains[1:]):
        found = _common(plains)
        if found is None:
            names = ", ".join(dict.fromkeys(each.text for each in plains))
            raise NoCommonType(
                f"there is no type that holds values of {names}; cast one of them"
            )
        common = found
    return nullable_type(common, nullable)


def _common(plains: list[DataType]) -> DataType | None:
    if all(each.is_numeric or each.family == "Bool" for each in plains):
        return _numbers(
            [parse_type("UInt8") if not each.is_numeric else each for each in plains]
        )
    if all(each.is_string or each.is_enum for each in plains):
        return STRING
    if all(each.date_like for each in plains):
        return _times(plains)
    families = {each.family for each in plains}
    if families == {"Array"}:
        return array_of(least_supertype([each.elements[0] for each in plains]))
    if families == {"Map"}:
        return DataType(
            "Map",
            elements=(
                least_supertype([each.elements[0] for each in plains]),
                least_supertype([each.elements[1] for each in plains]),
            ),
        )
    if families == {"Tuple"} and len({len(each.elements) for each in plains}) == 1:
        columns = zip(*(each.elements for each in plains), strict=True)
        names = plains[0].names if len({each.names for each in plains}) == 1 else ()
        return tuple_of([least_supertype(list(column)) for column in columns], names)
    return None


def _numbers(plains: list[DataType]) -> DataType | None:
    if any(each.is_decimal for each in plains):
        return _decimals(plains)
    integers = [each for each in plains if each.is_integer]
    if any(each.is_float for each in plains):
        narrow = all(each.family != "Float64" for each in plains) and all(
            each.bits <= 16 for each in integers
        )
        return FLOAT32 if narrow else FLOAT64
    signed = max((each.bits for each in integers if each.is_signed), default=0)
    unsigned = max((each.bits for each in integers if not each.is_signed), default=0)
    if not signed:
        return parse_type(f"UInt{unsigned}")
    bits = max(signed, unsigned * 2)
    if unsigned == 64 and signed <= 64:
        return None  # refused as in the original: no signed type of 64 bits holds both
    return parse_type(f"Int{bits}") if bits <= 256 else None


def _decimals(plains: list[DataType]) -> DataType | None:
    if any(each.is_float for each in plains):
        return FLOAT64
    scale = max(each.numbers[1] for each in plains if each.is_decimal)
    digits = scale
    for each in plains:
        if each.is_decimal:
            digits = max(digits, each.numbers[0] - each.numbers[1] + scale)
        else:
            digits = max(digits, len(str(each.integer_max)) + scale)
    if digits > 76:
        return None
    same = {each.numbers for each in plains}
    if len(same) == 1:
        return plains[0]
    width = next(width for width in (9, 18, 38, 76) if digits <= width)
    return DataType("Decimal", (width, scale))


def _times(plains: list[DataType]) -> DataType:
    """The zone is that of the finest DateTime64, or else of the first DateTime, whether these name
    one or not; of several that are as fine, the first one's.
    """
    fine = [each for each in plains if each.family == "DateTime64"]
    if fine:
        return max(fine, key=lambda each: each.numbers)
    families = {each.family for each in plains}
    if families >= {"Date32", "DateTime"}:
        return DataType("DateTime64", (0,))
    return next((each for each in plains if each.is_time), DataType("Date32"))
