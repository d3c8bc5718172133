"""Quantiles: interpolated, exact, of durations, and those that the original estimates."""

from collections.abc import Iterator
from dataclasses import replace

from rmt_pipeline.translate.base.casts import convert, nullable_like, sort_sql
from rmt_pipeline.translate.base.function import WrongArguments
from rmt_pipeline.translate.base.typed import (
    FLOAT32,
    FLOAT64,
    Typed,
    TypeProblem,
    array_of,
    from_stored,
    let,
    nullable_type,
    number_sql,
    struct_sql,
    to_stored,
)
from rmt_pipeline.translate.functions.aggregate_call import (
    NAN_SQL,
    Aggregate,
    AggregateBuild,
    AggregateCall,
    exact_quantile,
    or_default,
    quantile_level,
    quantile_levels,
)
from rmt_pipeline.translate.functions.arithmetic import as_number

APPROXIMATE = "exact, where the original approximates beyond thousands of values"
_ROUNDED = "exact, where the original rounds durations above 1,024 down to even 16s"

_NO_TIME = "CAST('nan' AS FLOAT)"


def number_argument(call: AggregateCall) -> Typed:
    """Return the first argument. Raises TypeProblem if it is not a number."""
    value = as_number(call.arguments[0])
    if not value.type.is_computable:
        raise TypeProblem(f"{call.name} takes numbers, not {value.type.text}")
    return value


def _quantile(call: AggregateCall) -> Typed:
    value = number_argument(call)
    level = quantile_level(call.name, call.parameters)
    sql = _interpolated(call, convert(value, FLOAT64), level)
    if value.nullable or call.or_null:
        return Typed(sql, nullable_type(FLOAT64))
    return Typed(f"coalesce({sql}, {NAN_SQL})", FLOAT64)


def _interpolated(call: AggregateCall, value: Typed, level: float) -> str:
    """Return SQL of a quantile of the numbers. As in the original, NaN is none."""
    number = f"NOT isnan({value.sql})"
    return call.sql("quantile_cont", value.sql, str(level), extra_filter=number)


def _quantiles(call: AggregateCall) -> Typed:
    """`quantiles(level, …)(x)`: an array of interpolated quantiles. Raises WrongArguments."""
    value = convert(number_argument(call), FLOAT64)
    pieces = [
        _interpolated(call, value, level)
        for level in quantile_levels(call.name, call.parameters)
    ]
    return Typed(
        f"[{', '.join(f'coalesce({each}, {NAN_SQL})' for each in pieces)}]", array_of(FLOAT64)
    )


def _quantile_exact(call: AggregateCall) -> Typed:
    value = call.first()
    listed = call.sql("list", to_stored(value), extra_filter=f"{value.sql} IS NOT NULL")
    return exact_quantile(call, listed, value)


def _one_quantile_exact(call: AggregateCall) -> Typed:
    """`quantileExact(level)(x)`: NaN for no numbers with a fraction."""
    value = call.first()
    if not value.type.is_float or value.nullable or call.or_null:
        return _quantile_exact(call)
    found = _quantile_exact(replace(call, or_null=True))
    return Typed(f"coalesce({found.sql}, {NAN_SQL})", value.type)


def _of_first(build: AggregateBuild) -> AggregateBuild:
    """Return the builder of a function whose second argument only chooses a sample."""
    return lambda call: build(replace(call, arguments=call.arguments[:1]))


def _in_32_bits(build: AggregateBuild) -> AggregateBuild:
    def single(call: AggregateCall) -> Typed:
        found = build(call)
        is_array = found.plain.family == "Array"
        return convert(found, array_of(FLOAT32) if is_array else FLOAT32)

    return single


def _estimates() -> Iterator[Aggregate]:
    """Quantiles that the original estimates from a sample or a digest."""
    for name, build in (
        ("quantile", _quantile),
        ("median", _quantile),
        ("quantiles", _quantiles),
    ):
        differs = "exact, where the original estimates"
        yield Aggregate(f"{name}Deterministic", _of_first(build), 2, 2, differs=differs)
        yield Aggregate(f"{name}TDigest", _in_32_bits(build), 1, 1, differs=differs)


def _quantiles_exact(call: AggregateCall) -> Typed:
    if not call.parameters:
        raise WrongArguments(f"{call.name} takes levels, as in {call.name}(0.5, 0.9)(x)")
    value = call.first()
    listed = call.sql("list", to_stored(value), extra_filter=f"{value.sql} IS NOT NULL")
    number = Typed(value.sql, value.plain)  # the type's default for no rows
    every = [
        exact_quantile(replace(call, parameters=[level], or_null=False), listed, number)
        for level in call.parameters
    ]
    kind = array_of(every[0].type)
    return Typed(
        f"CAST([{', '.join(to_stored(each) for each in every)}] AS {kind.duckdb})", kind
    )


def _weighted(call: AggregateCall) -> tuple[str, Typed]:
    """Return SQL of the sorted list of a weighted quantile's values, in the stored form, with their
    weights, and the value. Raises TypeProblem for a weight that is no whole number.
    """
    value, weight = call.first(), call.arguments[1]
    if not weight.type.is_integer or weight.plain.wide_bytes:
        raise TypeProblem(f"{call.name} takes whole numbers as weights, not {weight.type.text}")
    stored = to_stored(value)
    key = sort_sql(value) or stored
    up_to = f"CAST({weight.sql} AS HUGEINT)"
    counted = f"{value.sql} IS NOT NULL AND {weight.sql} IS NOT NULL"
    if value.type.is_float:  # NaN is no number
        counted += f" AND NOT isnan({value.sql})"
    row = struct_sql((("key", key), ("value", stored), ("up_to", up_to)))
    return f"list_sort({call.sql('list', row, extra_filter=counted)})", value


_UP_TO = "ceil({level} * {total})"
_UP_TO_TIMING = "least(floor({level} * {total}) + 1, {total})"
"""SQL of the weight up to which the values are passed over."""


def _at_weight(listed: str, level: float, up_to: str) -> str:
    """Return SQL of the first value with which the weights come to that share of all of them."""
    total = "list_sum(list_transform(v, lambda e: e.up_to))"
    wanted = up_to.format(level=number_sql(level), total=total)
    more = struct_sql((("key", "e.key"), ("value", "e.value"), ("up_to", "a.up_to + e.up_to")))
    first = "list_reduce(v, lambda a, e: CASE WHEN a.up_to >= w THEN a ELSE " + more + " END)"
    found = let(wanted, "w", f"{first}.value")  # once, and not for each value again
    return let(listed, "v", f"CASE WHEN len(v) > 0 THEN {found} END")


def _quantile_weighted(up_to: str) -> AggregateBuild:
    """Return the builder of `quantileExactWeighted(level)(x, w)`: as if x were there w times."""

    def build(call: AggregateCall) -> Typed:
        listed, value = _weighted(call)
        sql = _at_weight(listed, quantile_level(call.name, call.parameters), up_to)
        return or_default(call, from_stored(sql, value.plain).sql, value.plain, value)

    return build


def _quantiles_weighted(up_to: str) -> AggregateBuild:
    def build(call: AggregateCall) -> Typed:
        listed, value = _weighted(call)
        number = Typed(value.sql, value.plain)  # the type's default for no rows
        found = (
            from_stored(_at_weight(listed, level, up_to), value.plain).sql
            for level in quantile_levels(call.name, call.parameters)
        )
        every = [to_stored(or_default(call, sql, value.plain, number)) for sql in found]
        kind = array_of(value.plain)
        return Typed(f"CAST([{', '.join(every)}] AS {kind.duckdb})", kind)

    return build


def _timing(of_numbers: AggregateBuild) -> AggregateBuild:
    """Return the builder of `quantileTiming` and the like, quantiles of durations up to 30 s."""

    def build(call: AggregateCall) -> Typed:
        number = convert(number_argument(call), FLOAT64)
        sql = f"CAST(greatest(0, least(trunc({number.sql}), 30000)) AS DOUBLE)"
        if number.nullable:  # a NULL is left out by these functions
            sql = f"(CASE WHEN {number.sql} IS NOT NULL THEN {sql} END)"
        duration = Typed(sql, nullable_like(FLOAT64, number))
        found = of_numbers(replace(call, arguments=[duration, *call.arguments[1:]]))
        count = call.sql("count", number.sql)
        if found.plain.family == "Array":
            nothing = f"[{', '.join([_NO_TIME] * len(call.parameters))}]"
            kind = array_of(FLOAT32)
            sql = f"(CASE WHEN {count} > 0 THEN {convert(found, kind).sql} ELSE {nothing} END)"
            return Typed(sql, kind)
        missing = "NULL" if found.nullable else _NO_TIME
        sql = f"(CASE WHEN {count} > 0 THEN CAST({found.sql} AS FLOAT) ELSE {missing} END)"
        return Typed(sql, nullable_type(FLOAT32, found.nullable))

    return build


def quantile_aggregates() -> Iterator[Aggregate]:
    """The aggregate functions of this module."""
    for name, build in (
        ("quantile", _quantile),
        ("median", _quantile),
        ("quantiles", _quantiles),
    ):
        yield Aggregate(name, build, 1, 1, differs=APPROXIMATE)
    yield from _estimates()
    for name, exact, of_durations in (
        ("quantile", _one_quantile_exact, _quantile_exact),
        ("median", _one_quantile_exact, _quantile_exact),
        ("quantiles", _quantiles_exact, _quantiles_exact),
    ):
        yield Aggregate(f"{name}Exact", exact, 1, 1)
        yield Aggregate(f"{name}Timing", _timing(of_durations), 1, 1, differs=_ROUNDED)
    for name, weighted in (
        ("quantile", _quantile_weighted),
        ("median", _quantile_weighted),
        ("quantiles", _quantiles_weighted),
    ):
        timing = _timing(weighted(_UP_TO_TIMING))
        yield Aggregate(f"{name}ExactWeighted", weighted(_UP_TO), 2, 2)
        yield Aggregate(f"{name}TimingWeighted", timing, 2, 2, differs=_ROUNDED)
