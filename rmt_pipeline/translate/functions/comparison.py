"""Comparisons of values of any two types, with the original's rules for NaN, NULL and constants."""

import math

from rmt_pipeline.protocol.errors import BadValue
from rmt_pipeline.translate.base.casts import (
    convert,
    enum_number,
    nullable_like,
    plain_condition,
    sort_sql,
)
from rmt_pipeline.translate.base.function import true_or_false
from rmt_pipeline.translate.base.supertypes import least_supertype
from rmt_pipeline.translate.base.temporal import instant, is_nanoseconds, microseconds
from rmt_pipeline.translate.base.text_form import trimmed_blob
from rmt_pipeline.translate.base.typed import (
    INT64,
    Constant,
    Typed,
    TypeProblem,
    constant_sql,
    from_stored,
    string_sql,
)
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.from_text import parse_value

OPERATORS = {
    "equals": "=",
    "notEquals": "<>",
    "less": "<",
    "lessOrEquals": "<=",
    "greater": ">",
    "greaterOrEquals": ">=",
}


def compare(function: str, left: Typed, right: Typed) -> Typed:
    """Return `left OPERATOR right` as a condition. Raises TypeProblem if the types can't be
    compared, and BadValue for a constant string that is no value of the other type.
    """
    if left.is_null_literal or right.is_null_literal:
        return true_or_false("CAST(NULL AS BOOLEAN)", left, right)
    if left.plain.family == "Tuple" and right.plain.family == "Tuple":
        return _tuples(function, left, right)
    left, right = _aligned(left, right)
    mine, theirs = sort_sql(left), sort_sql(right)
    if mine is not None and theirs is not None and function not in {"equals", "notEquals"}:
        left, right = Typed(mine, left.type), Typed(theirs, right.type)
    sql = _exactly(function, left, right) or f"({left.sql} {OPERATORS[function]} {right.sql})"
    return true_or_false(_without_nan(function, sql, left, right), left, right)


def _exactly(function: str, left: Typed, right: Typed) -> str:
    """Return the comparison of a float with a number of another kind; "" if DuckDB's own is exact.

    DuckDB takes a Float32 for as precise as it takes the other number, and an integer of 64 or 128
    bits for the nearest Float64. As that never changes the order of two numbers, only those that
    come out equal have to be compared as integers.
    """
    if not (left.plain.is_numeric and right.plain.is_numeric):
        return ""
    if left.type.is_float == right.type.is_float:
        return ""
    number, other = (left, right) if left.type.is_float else (right, left)
    is_wide = other.plain.bits >= 64
    for each in (number, other):
        known = each.constant.value if each.constant else None
        if isinstance(known, float | int) and abs(known) < 2**_EXACT_BITS:
            is_wide = False  # a number beyond is on the same side of it as the nearest Float64
    if not is_wide and number.plain.family != "Float32":
        return ""
    double, near = f"CAST({number.sql} AS DOUBLE)", f"CAST({other.sql} AS DOUBLE)"
    a, b = (double, near) if number is left else (near, double)
    if not is_wide:
        return f"({a} {OPERATORS[function]} {b})"
    whole, exact = _whole(double, other.plain), f"CAST({other.sql} AS {_integers(other.plain)})"
    c, d = (whole, exact) if number is left else (exact, whole)
    by_integers = f"{c} {OPERATORS[function]} {d}"
    if other.plain.bits > 64:  # a number that is none of DuckDB's integers is above all of them
        above = OPERATORS[function][0] == (">" if number is left else "<")
        above |= function == "notEquals"
        when = f"{whole} IS NULL AND {a} = {b}"
        by_integers = f"CASE WHEN {when} THEN {str(above).lower()} ELSE {by_integers} END"
    same = f"({a} = {b} AND {by_integers})"
    match function:
        case "equals":
            return same
        case "notEquals":
            return f"({a} <> {b} OR {by_integers})"
        case _:
            return f"({a} {OPERATORS[function][0]} {b} OR {same})"


def _integers(plain: DataType) -> str:
    return "UHUGEINT" if plain.family == "UInt128" else "HUGEINT"


def _whole(double: str, plain: DataType) -> str:
    """Return SQL of a whole Float64 as an integer to compare with; NULL if there is none."""
    cast = f"TRY_CAST({double} AS {_integers(plain)})"
    if plain.family != "Int128":
        return cast
    least = f"CAST('{plain.integer_min}' AS HUGEINT)"  # which DuckDB makes of no Float64
    return f"(CASE WHEN {double} = CAST({least} AS DOUBLE) THEN {least} ELSE {cast} END)"


_EXACT_BITS = 53  # of the integers that a Float64 holds


def _without_nan(function: str, sql: str, left: Typed, right: Typed) -> str:
    """Return the comparison `sql` with NaN as in the original, where only `!=` is true for it. For
    DuckDB NaN is the greatest number, and equal to itself.
    """
    if function == "notEquals":
        checked = [each for each in (left, right) if _may_be_nan(each)]
        if len(checked) < 2:  # DuckDB, too, takes NaN and a number for different
            return sql
        return f"({sql} OR isnan({checked[0].sql}))"
    risky = {
        "less": [right],
        "lessOrEquals": [right],
        "greater": [left],
        "greaterOrEquals": [left],
    }
    checked = [each for each in risky.get(function, [left]) if _may_be_nan(each)]
    if function == "equals" and not (_may_be_nan(left) and _may_be_nan(right)):
        return sql
    for each in checked:
        sql = f"({sql} AND NOT isnan({each.sql}))"
    return sql


def _may_be_nan(value: Typed) -> bool:
    if not value.type.is_float:
        return False
    constant = value.constant.value if value.constant else None
    return not isinstance(constant, float | int) or math.isnan(constant)


def _aligned(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Return both values in forms that DuckDB compares as the original does. Raises TypeProblem."""
    if left.is_condition and right.is_condition:
        return left, right
    left, right = plain_condition(left), plain_condition(right)
    left, right = _read_constant(left, right.type), _read_constant(right, left.type)
    a, b = left.plain, right.plain
    if a.is_numeric and b.is_numeric:
        return _numbers(left, right)
    if a == b or {a.family, b.family} in ({"Enum8", "String"}, {"Enum16", "String"}):
        return left, right
    found = _of_kinds(left, right) or _of_kinds(right, left, swapped=True)
    if found is None:
        raise TypeProblem(
            f"cannot compare {left.type.text} with {right.type.text}; cast one of them"
        )
    return found


def _of_kinds(
    left: Typed, right: Typed, *, swapped: bool = False
) -> tuple[Typed, Typed] | None:
    """Return values of two different kinds in a form that can be compared; None if there is no rule
    for them in this order. `swapped` says that the arguments were exchanged, and exchanges the
    result back.
    """
    a, b = left.plain, right.plain
    pair: tuple[Typed, Typed] | None = None
    if a.family == "Bool" and b.is_numeric:
        pair = _as_number(left), right
    elif a.is_string and b.is_string:
        pair = _strings(left, right)
    elif a.is_enum and b.is_enum:
        pair = Typed(enum_number(left), INT64), Typed(enum_number(right), INT64)
    elif a.is_enum and b.is_numeric:
        number = Typed(enum_number(left), nullable_like(DataType("Int16"), left))
        pair = _numbers(number, right)
    elif a.date_like and b.date_like:
        pair = _times(left, right)
    elif a.is_time and b.is_integer:
        pair = _seconds(left), _seconds(right)
    elif a.family == b.family and a.family in {"Array", "Map"}:
        common = least_supertype([a, b])
        pair = convert(left, common), convert(right, common)
    return (pair[1], pair[0]) if pair is not None and swapped else pair


def _read_constant(value: Typed, other: DataType) -> Typed:
    """Return a constant string as a value of the other side's type: a date, number, enum, ...
    Raises BadValue.
    """
    plain = other.plain
    is_constant_text = value.constant is not None and value.plain.family == "String"
    if not is_constant_text or plain.family in {"String", "Nothing"} or value.constant is None:
        return value
    written = value.constant.value
    if not isinstance(written, str):
        return value
    if plain.family == "FixedString":
        return value
    try:
        read = parse_value(plain, written)
    except ValueError as problem:
        raise BadValue(f"cannot compare with a constant: {problem}") from None
    return Typed(constant_sql(read, plain), plain, Constant(read))


def _numbers(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    a, b = left.plain, right.plain
    if a.wide_bytes == 32 or b.wide_bytes == 32:
        if a == b:
            return left, right
        raise TypeProblem(f"cannot compare {a.text} with {b.text}: 256 bits are only stored")
    if not (a.is_integer and b.is_integer) or a == b:
        return left, right
    for value, other in ((left, b), (right, a)):
        known = value.constant.value if value.constant else None
        if isinstance(known, int) and other.integer_min <= known <= other.integer_max:
            typed = Typed(constant_sql(_stored(known, other), other), other, value.constant)
            return (typed, right) if value is left else (left, typed)
    if a.is_signed == b.is_signed or max(a.bits, b.bits) < 64:
        return left, right
    if "UInt128" in {a.family, b.family}:
        raise TypeProblem("cannot compare UInt128 with a signed number; cast one of them")
    wide = "CAST({0} AS HUGEINT)"
    return (
        Typed(wide.format(left.sql), left.type),
        Typed(wide.format(right.sql), right.type),
    )


def _stored(number: int, plain: DataType) -> object:
    return plain.wide_to_bytes(number) if plain.wide_bytes else number


def _as_number(value: Typed) -> Typed:
    if value.plain.family == "Bool":
        return Typed(f"CAST({value.sql} AS UTINYINT)", DataType("UInt8"))
    return value


def _strings(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Return a FixedString and another string without the zero bytes at their ends, which do not
    count.
    """

    def blob(value: Typed) -> Typed:
        raw = value.sql if value.plain.family == "FixedString" else f"encode({value.sql})"
        return Typed(trimmed_blob(raw), DataType("FixedString", (1,)))

    return blob(left), blob(right)


def _times(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Return dates and times that can be compared. A date compared with a time is its midnight in
    the time's zone.
    """
    zone = next((each.plain.zone for each in (left, right) if each.type.is_time), "")
    if left.type.is_date and right.type.is_date:
        return left, right
    exact = any(is_nanoseconds(each.type) for each in (left, right))

    def moment(value: Typed) -> Typed:
        if value.type.is_date:
            clock = instant(f"CAST({value.sql} AS TIMESTAMP)", zone)
            return Typed(f"epoch_ns({clock})" if exact else clock, INT64)
        if exact:
            ticks = f"epoch_ns({value.sql})"
            coarse = f"(epoch_us({value.sql}) * 1000)"
            return Typed(ticks if is_nanoseconds(value.type) else coarse, INT64)
        return Typed(value.sql, value.type)

    return moment(left), moment(right)


def _seconds(value: Typed) -> Typed:
    if value.type.is_integer:
        return Typed(f"(CAST({value.sql} AS BIGINT) * 1000000)", INT64)
    return Typed(microseconds(value), INT64)


def _tuples(function: str, left: Typed, right: Typed) -> Typed:
    a, b = left.plain, right.plain
    if len(a.elements) != len(b.elements):
        raise TypeProblem(
            f"cannot compare {a.text} with {b.text}: different numbers of elements"
        )
    pairs = [
        (_element(left, place), _element(right, place)) for place in range(len(a.elements))
    ]
    if function == "equals":
        parts = [compare("equals", x, y).sql for x, y in pairs]
        return true_or_false(f"({' AND '.join(parts)})", *_all(pairs))
    if function == "notEquals":
        parts = [compare("notEquals", x, y).sql for x, y in pairs]
        return true_or_false(f"({' OR '.join(parts)})", *_all(pairs))
    strict = function.replace("OrEquals", "")
    sql = compare(function, *pairs[-1]).sql
    for x, y in reversed(pairs[:-1]):
        sql = f"({compare(strict, x, y).sql} OR ({compare('equals', x, y).sql} AND {sql}))"
    return true_or_false(sql, *_all(pairs))


def _all(pairs: list[tuple[Typed, Typed]]) -> list[Typed]:
    return [each for pair in pairs for each in pair]


def _element(value: Typed, place: int) -> Typed:
    plain = value.plain
    name = plain.element_names[place]
    sql = f"struct_extract({value.sql}, {string_sql(name)})"
    found = from_stored(sql, plain.elements[place])
    constant = value.constant.value if value.constant else None
    if isinstance(constant, dict):
        known = constant[name]
        return Typed(constant_sql(known, plain.elements[place]), found.type, Constant(known))
    return found
