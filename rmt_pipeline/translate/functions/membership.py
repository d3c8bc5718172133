"""IN: whether a value is a member of a list, an array or a query."""

import math
from dataclasses import replace

from rmt_pipeline.translate.base.casts import convert
from rmt_pipeline.translate.base.function import WrongArguments, true_or_false
from rmt_pipeline.translate.base.typed import (
    Typed,
    TypeProblem,
    constant_sql,
    from_stored,
    struct_sql,
    to_stored,
)
from rmt_pipeline.translate.functions.aggregate_call import NAN_SQL
from rmt_pipeline.translate.functions.array import has
from rmt_pipeline.translate.functions.comparison import compare
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.from_text import parse_value


def member_constant(value: Typed, element: Typed) -> str | None:
    """Return SQL of an element of IN as a constant of the value's own type; "" if no value can be
    equal to it, None if it must be compared with `=`. Raises TypeProblem, BadValue.
    """
    known = element.constant.value if element.constant else None
    plain = value.plain
    if plain.is_float and isinstance(known, float) and math.isnan(known):
        # A member like any other, though it equals none: so DuckDB's IN takes it.
        return NAN_SQL
    if known is None or plain.is_float or isinstance(known, dict | list):
        return None
    if isinstance(known, str):
        if plain.family == "String":
            return element.sql
        if plain.family == "FixedString" or element.plain.family != "String":
            return None
        compare("equals", value, element)  # raises BadValue for text that is no such value
        try:
            return constant_sql(parse_value(plain, known), plain)
        except ValueError as problem:
            raise TypeProblem(f"IN: {problem}") from None
    if isinstance(known, int) and plain.is_integer and not plain.wide_bytes:
        inside = plain.integer_min <= known <= plain.integer_max
        return constant_sql(int(known), plain) if inside else ""
    return None


def are_members(elements: list[Typed], value: Typed) -> bool:
    """Whether IN's list has these elements, and not one that is made of them: all of them are
    tuples as deep as the value. In `((a, b), (c, d)) IN ((1, 2), (3, 4))` the list is one value, in
    `(a, b) IN ((1, 2), (3, 4))` it has two.
    """
    depth = _depth(value.type)
    return all(_depth(each.type) >= depth for each in elements)


def _depth(kind: DataType) -> int:
    """How deep tuples are in their first elements; 0 of another type."""
    plain = kind.plain
    return 1 + _depth(plain.elements[0]) if plain.family == "Tuple" and plain.elements else 0


def member_of_value(value: Typed, members: Typed) -> Typed:
    """Return `x IN array`. Another value is taken for a list of one element."""
    if members.plain.family == "Array":
        found = has([members, value])
        known = f"(CASE WHEN {value.sql} IS NOT NULL THEN {found.sql} END)"
        return true_or_false(known if value.nullable else found.sql, value)
    return member_of_list(value, [members])


def member_of_list(value: Typed, elements: list[Typed]) -> Typed:
    """Return `x IN (…)`. As in the original by default, NULLs in the list are no members."""
    present = [each for each in elements if not each.is_null_literal]
    if value.is_null_literal:
        return true_or_false("CAST(NULL AS BOOLEAN)", value)
    simple: list[str] = []
    others: list[str] = []
    for each in present:
        matching = member_constant(value, each)
        if matching is None:
            others.append(f"coalesce({compare('equals', value, each).sql}, false)")
        elif matching:
            simple.append(matching)
    tests = [f"({value.sql} IN ({', '.join(dict.fromkeys(simple))}))"] if simple else []
    sql = f"({' OR '.join([*tests, *others]) or 'false'})"
    if value.nullable and not (simple and not others):
        sql = f"(CASE WHEN {value.sql} IS NOT NULL THEN {sql} END)"
    return true_or_false(sql, value)


def member_of_query(value: Typed, sql: str, types: list[DataType]) -> Typed:
    """Return `x IN (SELECT ...)`. Rows that have a NULL are no members. Raises WrongArguments."""
    wanted = list(value.plain.elements) if value.plain.family == "Tuple" else [value.type]
    if len(types) != len(wanted):
        raise WrongArguments(f"IN compares {len(wanted)} values with {len(types)} columns")
    found = [from_stored(f"m.c{place}", each) for place, each in enumerate(types)]
    converted = [convert(one, target) for one, target in zip(found, wanted, strict=True)]
    row = to_stored(converted[0])
    if value.plain.family == "Tuple":
        stored = map(to_stored, converted)
        row = struct_sql(zip(value.plain.element_names, stored, strict=True))
    members = [f"m.c{place} IS NOT NULL" for place in range(len(types))]
    for one, other in zip(found, converted, strict=True):
        if _may_lose(one.plain, other.plain):
            same = compare("equals", one, other).sql
            is_nan = one.type.is_float and other.type.is_float  # a member like any other
            members.append(f"({same} OR isnan({one.sql}))" if is_nan else same)
    inner = f"SELECT {row} FROM ({sql}) AS m WHERE {' AND '.join(members)}"  # noqa: S608 - compiled parts
    test = f"({to_stored(value)} IN ({inner}))"
    if not value.nullable:
        return true_or_false(test, value)
    known = f"(CASE WHEN {value.sql} IS NOT NULL THEN {test} END)"  # also in no members
    return replace(true_or_false(known, value), filter_sql=test)  # DuckDB joins for that


def _may_lose(kind: DataType, target: DataType) -> bool:
    """Return whether a value may become another one when it is converted: 257 becomes 1 as a UInt8,
    and 1.5 as an Int64. The converted value must be equal then.
    """
    if kind == target:
        return False
    if kind.is_computable and target.is_computable:
        return True
    return (kind.is_date or kind.is_time) and (target.is_date or target.is_time)
