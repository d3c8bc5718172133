"""The states of aggregate functions as ordinary types, which any reader of the files understands
(docs/decisions/0011).

    AggregateFunction(f, T)             state
    sum, sumWithOverflow                what sum gives: Int64, UInt64, Float64, Decimal(38, S)
    count                               UInt64
    avg                                 Tuple(sum …, count UInt64)
    min, max, any, anyLast              Nullable(T), NULL of no rows
    argMin, argMax (T, U)               Tuple(value Nullable(T), by Nullable(U))
    uniqExact, groupArray               Array(T)
"""

from collections.abc import Sequence

from rmt_pipeline.types.data_type import DataType

_ARGUMENTS = {
    **dict.fromkeys(("sum", "avg", "min", "max", "any", "anyLast"), (1, 1)),
    **dict.fromkeys(("uniqExact", "groupArray"), (1, 1)),
    **dict.fromkeys(("argMin", "argMax"), (2, 2)),
    "count": (0, 1),
}


class NoState(ValueError):
    """Why an aggregate function has no state for these arguments."""


def aggregate_type(function: str, arguments: Sequence[DataType]) -> DataType:
    """AggregateFunction(function, arguments…); its last element is the state. Raises NoState."""
    if function not in _ARGUMENTS:
        known = ", ".join(_ARGUMENTS)
        raise NoState(f"AggregateFunction has no {function!r}; it has {known}")
    least, most = _ARGUMENTS[function]
    if not least <= len(arguments) <= most:
        raise NoState(f"{function} takes {most} types, not {len(arguments)}")
    for each in arguments:
        if each.plain.elements or each.plain.wide_bytes or each.family == "AggregateFunction":
            raise NoState(f"a state of {each.text} is not supported: nested, or above 64 bits")
    state = _state(function, arguments)
    return DataType("AggregateFunction", names=(function,), elements=(*arguments, state))


def _state(function: str, arguments: Sequence[DataType]) -> DataType:
    match function:
        case "count":
            return DataType("UInt64")
        case "sum":
            total = _sum(arguments[0])
            return _nullable(total) if arguments[0].nullable else total
        case "avg":
            return _tuple(sum=_sum(arguments[0]), count=DataType("UInt64"))
        case "argMin" | "argMax":
            value, by = (_nullable(each.plain) for each in arguments)
            return _tuple(value=value, by=by)
        case "uniqExact" | "groupArray":
            return DataType("Array", elements=(arguments[0].plain,))
        case _:
            return _nullable(arguments[0].plain)


def _sum(argument: DataType) -> DataType:
    plain = argument.plain
    if plain.is_float:
        return DataType("Float64")
    if plain.is_decimal:
        return DataType("Decimal", (38, plain.numbers[1]))
    if not plain.is_integer:
        raise NoState(f"numbers can be added up, not {argument.text}")
    return DataType("Int64" if plain.is_signed else "UInt64")


def _nullable(plain: DataType) -> DataType:
    return DataType("Nullable", elements=(plain,))


def _tuple(**fields: DataType) -> DataType:
    return DataType("Tuple", elements=tuple(fields.values()), names=tuple(fields))
