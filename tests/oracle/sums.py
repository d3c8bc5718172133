"""How SummingMergeTree and AggregatingMergeTree fold the rows of one key (spec §17.3, §17.4)."""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from functools import reduce
from math import isnan
from typing import Any

from rmt_pipeline.protocol.errors import UnknownFunction
from tests.oracle.order import order_value
from tests.oracle.states import is_state, merged_states

Row = Mapping[str, Any]
Columns = Sequence[tuple[str, str]]

_WRAPPED = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)")
_INTEGER = re.compile(r"(U?)Int(8|16|32|64|128|256)")
_DECIMAL = re.compile(r"Decimal\((\d+), ?(\d+)\)")
_ARRAY = re.compile(r"Array\((.*)\)")
_SIMPLE = re.compile(r"SimpleAggregateFunction\((\w+), ?(.*)\)")
_MAP_KEY_ENDINGS = ("ID", "Key", "Type")
_EXACT = Context(prec=100)  # Decimal256 has 76 digits, and the usual context only 28
_DECIMAL_BITS = ((9, 32), (18, 64), (38, 128), (76, 256))


def summed(
    group: Sequence[Row], columns: Columns, not_summed: frozenset[str], chosen: Sequence[str]
) -> Row | None:
    """The one row for the rows of a key; None when everything that is summed is zero or NULL.

    `not_summed`: columns of the sorting and partition keys. `chosen`: the engine's argument;
    empty is all that can be summed.
    """
    types = dict(columns)
    maps = _maps(columns, not_summed)
    in_maps = {name for one in maps for name in one}
    row = dict(group[0])
    sums: list[str] = []
    never_zero = False
    for name, type_text in columns:
        if name in not_summed or name in in_maps:
            continue
        if _is_aggregated(type_text):
            row[name] = _aggregate(type_text, [each[name] for each in group])
            never_zero = True
        elif is_summable(type_text) and (not chosen or name in chosen):
            row[name] = _add_all(type_text, [each[name] for each in group])
            sums.append(name)
    for names in maps:
        row.update(_sum_map(names, group, types))
        never_zero = True
    zero = all(row[name] is None or row[name] == 0 for name in sums)
    return None if sums and zero and not never_zero else row


def aggregated(group: Sequence[Row], columns: Columns, key: frozenset[str]) -> Row:
    """The one row for the rows of a key: functions applied, all else from the first row."""
    row = dict(group[0])
    for name, type_text in columns:
        if name not in key and _is_aggregated(type_text):
            row[name] = _aggregate(type_text, [each[name] for each in group])
    return row


def _is_aggregated(type_text: str) -> bool:
    return _SIMPLE.fullmatch(type_text) is not None or is_state(type_text)


def _aggregate(type_text: str, values: Sequence[Any]) -> Any:
    if is_state(type_text):
        return merged_states(type_text, values, _add_all)
    return _simple(type_text, values)


def is_summable(type_text: str) -> bool:
    """Integers, floats and decimals, also Nullable; not Bool, dates or enums."""
    plain = _plain(type_text)
    return bool(_INTEGER.fullmatch(plain) or _DECIMAL.fullmatch(plain)) or plain in (
        "Float32",
        "Float64",
    )


def _plain(type_text: str) -> str:
    match = _WRAPPED.fullmatch(type_text)
    return type_text if match is None else _plain(match[1])


def _add_all(type_text: str, values: Sequence[Any]) -> Any:
    """The sum in the column's own type, NULLs left out; NULL when there is nothing else."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    plain = _plain(type_text)
    if plain == "Float32":
        return reduce(lambda total, value: _float32(total + value), present)
    if plain == "Float64":
        return reduce(lambda total, value: total + value, present)
    decimal = _DECIMAL.fullmatch(plain)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        bits = next(bits for digits, bits in _DECIMAL_BITS if precision <= digits)
        units = sum(int(value.scaleb(scale, _EXACT)) for value in present)
        return Decimal(_wrap(units, bits, signed=True)).scaleb(-scale, _EXACT)
    integer = _INTEGER.fullmatch(plain)
    assert integer is not None, f"{type_text} can't be summed"
    return _wrap(sum(present), int(integer[2]), signed=not integer[1])


def _wrap(number: int, bits: int, *, signed: bool) -> int:
    """What is left of a number in so many bits: sums overflow silently, as in the original."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def _float32(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _maps(columns: Columns, not_summed: frozenset[str]) -> list[tuple[str, ...]]:
    """Nested structures `…Map` that are summed by key; each as its columns, keys included.

    The engine's argument says nothing about them.
    """
    nested: dict[str, list[tuple[str, str]]] = {}
    for name, type_text in columns:
        table = name.partition(".")[0]
        if "." in name and table.endswith("Map") and _ARRAY.fullmatch(type_text):
            nested.setdefault(table, []).append((name, type_text))
    return [
        tuple(name for name, _ in members)
        for members in nested.values()
        if len(members) >= 2
        and not any(name in not_summed for name, _ in members)
        and len(_map_keys(members)) < len(members)
        and _map_is_summable(members)
    ]


def _map_keys(members: Sequence[tuple[str, str]]) -> list[str]:
    """The first column, and those whose names say that they are keys as well."""
    names = [name for name, _ in members]
    return names[:1] + [name for name in names[1:] if name.endswith(_MAP_KEY_ENDINGS)]


def _map_is_summable(members: Sequence[tuple[str, str]]) -> bool:
    keys = _map_keys(members)
    return all(
        _is_map_key(_element(type_text)) if name in keys else is_summable(_element(type_text))
        for name, type_text in members
    )


def _is_map_key(type_text: str) -> bool:
    plain = _plain(type_text)
    if "Nullable(" in type_text or plain.startswith("DateTime64"):
        return False
    return bool(_INTEGER.fullmatch(plain)) or plain.startswith(
        ("String", "FixedString", "Date", "Enum", "UUID", "Bool", "IPv")
    )


def _element(type_text: str) -> str:
    match = _ARRAY.fullmatch(type_text)
    assert match is not None
    return match[1]


def _sum_map(names: Sequence[str], group: Sequence[Row], types: Mapping[str, str]) -> Row:
    """Arrays as maps: values added key by key, in order of the keys, keys of zero left out.

    With several key columns the original leaves a single row as it is, and a value that is there
    once; it takes a key out when one more value makes zero of it.
    """
    keys = _map_keys([(name, types[name]) for name in names])
    values = [name for name in names if name not in keys]
    if len(keys) > 1 and len(group) == 1:
        return {name: group[0][name] for name in names}
    totals: dict[tuple[Any, ...], list[Any]] = {}
    for row in group:
        rows = zip(
            zip(*(row[name] for name in keys), strict=True),
            zip(*(row[name] for name in values), strict=True),
            strict=True,
        )
        for key, numbers in rows:
            before = totals.get(key)
            if before is None:
                totals[key] = list(numbers)
                continue
            totals[key] = _add_each(before, numbers, values, types)
            if len(keys) > 1 and not any(totals[key]):
                del totals[key]
    kinds = [_element(types[name]) for name in keys]
    kept = sorted(
        (
            (key, total)
            for key, total in totals.items()
            if len(keys) > 1
            or any(
                number is not None and (number != 0 or "Nullable(" in types[name])
                for name, number in zip(values, total, strict=True)
            )
        ),
        key=lambda one: tuple(map(order_value, kinds, one[0])),
    )
    result: dict[str, Any] = {}
    for index, name in enumerate(keys):
        result[name] = [key[index] for key, _ in kept]
    for index, name in enumerate(values):
        result[name] = [total[index] for _, total in kept]
    return result


def _add_each(
    left: Sequence[Any], right: Sequence[Any], names: Sequence[str], types: Mapping[str, str]
) -> list[Any]:
    return [
        _add_all(_element(types[name]), [mine, theirs])
        for name, mine, theirs in zip(names, left, right, strict=True)
    ]


def _simple(type_text: str, values: Sequence[Any]) -> Any:
    """Apply a SimpleAggregateFunction; NULLs are left out, NULL when nothing else is there."""
    match = _SIMPLE.fullmatch(type_text)
    assert match is not None
    name, argument = match[1], match[2]
    function = SIMPLE_FUNCTIONS.get(name)
    if function is None:
        raise UnknownFunction(
            f"{name} is not a function of SimpleAggregateFunction here; there are "
            f"{', '.join(SIMPLE_FUNCTIONS)}"
        )
    present = [value for value in values if value is not None]
    return function(present, argument) if present else None


def _numbers(values: Sequence[Any]) -> Sequence[Any]:
    """Without NaN, unless there is nothing else."""
    numbers = [value for value in values if not (isinstance(value, float) and isnan(value))]
    return numbers or values


def _concatenate(values: Sequence[Any], _type: str) -> list[Any]:
    return [item for value in values for item in value]


def _unique(values: Sequence[Any], _type: str) -> list[Any]:
    """In order of first appearance, so that every replica has the same array."""
    return list(dict.fromkeys(item for value in values for item in value))


def _sum_of_maps(values: Sequence[Any], argument: str) -> Any:
    """`Map(K, V)`: values added key by key, sorted by key, keys of zero left out."""
    value_type = argument.removesuffix(")").rpartition(",")[2].strip()
    totals: dict[Any, Any] = {}
    for value in values:
        for key, number in value.items():
            known = [totals[key]] if key in totals else []
            totals[key] = _add_all(value_type, [*known, number])
    return {key: totals[key] for key in sorted(totals) if totals[key]}


SIMPLE_FUNCTIONS: Mapping[str, Callable[[Sequence[Any], str], Any]] = {
    "any": lambda values, _: values[0],
    "anyLast": lambda values, _: values[-1],
    "min": lambda values, kind: min(_numbers(values), key=lambda one: order_value(kind, one)),
    "max": lambda values, kind: max(_numbers(values), key=lambda one: order_value(kind, one)),
    "sum": lambda values, argument: _add_all(argument, values),
    "sumWithOverflow": lambda values, argument: _add_all(argument, values),
    "groupBitAnd": lambda values, _: reduce(lambda left, right: left & right, values),
    "groupBitOr": lambda values, _: reduce(lambda left, right: left | right, values),
    "groupBitXor": lambda values, _: reduce(lambda left, right: left ^ right, values),
    "groupArrayArray": _concatenate,
    "groupUniqArrayArray": _unique,
    "sumMap": _sum_of_maps,
}
