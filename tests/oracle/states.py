"""How states of aggregate functions are merged, one after the other (part of the oracle of `rows`).

A state is a value of an ordinary type: see expressions/state_types.py.
"""

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.oracle.order import order_value

_STATE = re.compile(r"AggregateFunction\((\w+)(?:\([0-9., ]*\))?(?:, (.*))?\)", re.DOTALL)
_WRAPPED = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)", re.DOTALL)

Add = Callable[[str, Sequence[Any]], Any]
"""The sum of values of a type, NULL left out."""


def is_state(type_text: str) -> bool:
    return _STATE.fullmatch(type_text) is not None


def merged_states(type_text: str, states: Sequence[Any], add: Add) -> Any:
    match = _STATE.fullmatch(type_text)
    assert match is not None, f"{type_text} has no states"
    name, arguments = match[1], match[2] or ""
    if name.endswith("If"):
        name, arguments = name[:-2], arguments.rpartition(", ")[0]
    match name:
        case "count":
            return add("UInt64", states)
        case "sum":
            return add(_sum_type(arguments), states)
        case "avg":
            return {
                "sum": add(_sum_type(arguments), [one["sum"] for one in states]),
                "count": add("UInt64", [one["count"] for one in states]),
            }
        case "groupBitAnd" | "groupBitOr" | "groupBitXor":
            return functools.reduce(_BITS[name], states)
        case "varPop" | "varSamp" | "stddevPop" | "stddevSamp":
            return {
                field: add(kind, [one[field] for one in states])
                for field, kind in (
                    ("sum", "Float64"),
                    ("squares", "Float64"),
                    ("count", "UInt64"),
                )
            }
        case "groupArray" | "quantile" | "quantiles" | "quantileExact" | "topK":
            return [item for one in states for item in one]
        case "uniqExact" | "uniq" | "uniqCombined" | "uniqHLL12" | "groupUniqArray":
            return list(dict.fromkeys(item for one in states for item in one))
        case "argMin" | "argMax":
            by_type = _second(arguments)
            some = [one for one in states if one["by"] is not None]
            return _choose(name[3:].lower(), some or states[:1], by_type, lambda one: one["by"])
        case _:
            return _one_of(name, [one for one in states if one is not None], arguments)


def _one_of(name: str, states: Sequence[Any], argument: str) -> Any:
    if not states:
        return None
    if name in ("min", "max"):
        return _choose(name, states, argument, lambda one: one)
    return states[0] if name == "any" else states[-1]


def _second(arguments: str) -> str:
    """The second of two types, which may have commas in parentheses."""
    depth = 0
    for place, character in enumerate(arguments):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            return arguments[place + 1 :].strip()
    raise AssertionError(f"{arguments} is one type")


def _choose(name: str, states: Sequence[Any], kind: str, of: Callable[[Any], Any]) -> Any:
    """The first of the extreme ones; NaN only when there is nothing else."""
    numbers = [one for one in states if of(one) == of(one)] or states  # NaN is no number
    return _EXTREMES[name](numbers, key=lambda one: order_value(kind, of(one)))


_BITS: Mapping[str, Callable[[int, int], int]] = {
    "groupBitAnd": operator.and_,
    "groupBitOr": operator.or_,
    "groupBitXor": operator.xor,
}
_EXTREMES: Mapping[str, Callable[..., Any]] = {"min": min, "max": max}


def _sum_type(argument: str) -> str:
    wrapped = _WRAPPED.fullmatch(argument)
    if wrapped is not None:
        return _sum_type(wrapped[1])
    if argument.startswith("Decimal"):
        return f"Decimal(38, {argument.rstrip(')').rpartition(', ')[2]})"
    if argument.startswith("Float"):
        return "Float64"
    return "UInt64" if argument.startswith("U") else "Int64"
