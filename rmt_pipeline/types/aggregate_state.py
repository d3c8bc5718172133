"""The states of aggregate functions, which are of ordinary types that every reader of the files
understands (docs/decisions/0011).

    AggregateFunction(f, T)             state
    sum                                 the sum's type: Int64, UInt64, Float64, Decimal(38, S)
    count                               UInt64
    avg                                 Tuple(sum …, count UInt64)
    min, max, any, anyLast              Nullable(T), NULL for no rows
    argMin, argMax (T, U)               Tuple(value Nullable(T), by Nullable(U))
    groupBitAnd, -Or, -Xor              T
    uniq…, groupUniqArray               Array(T), each value once
    groupArray, quantile…, topK         Array(T), every value
    varPop, varSamp, stddevPop, -Samp   Tuple(sum Float64, squares Float64, count UInt64)

`fIf` has one more type, that of its condition, and the same state as `f`.
"""

from collections.abc import Mapping, Sequence

from rmt_pipeline.types.data_type import DataType

_RULES: Mapping[str, str] = {
    **{name: name for name in ("sum", "count", "avg", "min", "max", "any", "anyLast")},
    **{name: name for name in ("argMin", "argMax")},
    **{name: name for name in ("groupBitAnd", "groupBitOr", "groupBitXor")},
    **dict.fromkeys(("uniqExact", "uniq", "uniqCombined", "uniqCombined64"), "uniqExact"),
    **dict.fromkeys(("uniqHLL12", "groupUniqArray"), "uniqExact"),
    **dict.fromkeys(("groupArray", "quantile", "quantiles", "quantileExact"), "groupArray"),
    "topK": "groupArray",
    **dict.fromkeys(("varPop", "varSamp", "stddevPop", "stddevSamp"), "varPop"),
}
"""The functions, each with the one whose states are merged in the same way."""
_SAME = {"median": "quantile", "medianExact": "quantileExact"}
_WITH_PARAMETERS = frozenset(
    {"groupArray", "groupUniqArray", "quantile", "quantiles", "quantileExact", "topK"}
)


class NoState(ValueError):
    """There is no state of the aggregate function for these arguments; the message says why."""


def state_function(function: str) -> str:
    """Return the name of the function in a state's type: `quantile` for `median`, `sumIf` for
    itself.
    """
    plain = without_if(function)
    return _SAME.get(plain, plain) + function[len(plain) :]


def without_if(function: str) -> str:
    """Return the name without If: `sum` for `sumIf`."""
    return function.removesuffix("If")


def merge_rule(function: str) -> str:
    """Return the function whose states are merged in the same way: `uniqExact` for `uniqIf`."""
    return _RULES[without_if(function)]


def aggregate_type(
    function: str, arguments: Sequence[DataType], parameters: Sequence[str] = ()
) -> DataType:
    """Return the type AggregateFunction(function(parameters…), arguments…), whose last element is
    the type of the state.

    Raises NoState.
    """
    function = state_function(function)
    plain = without_if(function)
    if plain not in _RULES:
        known = ", ".join(_RULES)
        raise NoState(f"AggregateFunction has no {function!r}; it has {known}")
    if parameters and plain not in _WITH_PARAMETERS:
        raise NoState(f"{function} takes no parameters, such as ({', '.join(parameters)})")
    _check_number(function, arguments)
    for each in arguments:
        if each.plain.elements or each.plain.wide_bytes or each.family == "AggregateFunction":
            raise NoState(f"a state of {each.text} is not supported: nested, or above 64 bits")
    values = arguments
    if function != plain:
        values = arguments[:-1]
        if not arguments[-1].plain.is_integer:
            raise NoState(
                f"{function} takes its condition last, a UInt8, not {arguments[-1].text}"
            )
    names = (function, *parameters)
    return DataType(
        "AggregateFunction", names=names, elements=(*arguments, _state(plain, values))
    )


def _check_number(function: str, arguments: Sequence[DataType]) -> None:
    plain = without_if(function)
    most = (2 if plain.startswith("arg") else 1) + (plain != function)
    least = most - (plain == "count")
    if not least <= len(arguments) <= most:
        raise NoState(f"{function} takes {most} types, not {len(arguments)}")


def _state(function: str, arguments: Sequence[DataType]) -> DataType:
    if function in {"quantile", "quantiles"}:
        _sum(arguments[0])  # raises NoState unless they are numbers
    match _RULES[function]:
        case "count":
            return DataType("UInt64")
        case "sum":
            total = _sum(arguments[0])
            return _nullable(total) if arguments[0].nullable else total
        case "avg":
            return _tuple(sum=_sum(arguments[0]), count=DataType("UInt64"))
        case "varPop":
            _sum(arguments[0])
            of = DataType("Float64")
            return _tuple(sum=of, squares=of, count=DataType("UInt64"))
        case "groupBitAnd" | "groupBitOr" | "groupBitXor":
            if not arguments[0].plain.is_integer:
                raise NoState(f"{function} takes integers, not {arguments[0].text}")
            return arguments[0].plain
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
