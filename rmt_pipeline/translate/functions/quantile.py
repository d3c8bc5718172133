"""Quantiles: interpolated, exact, of durations, and those that the original estimates."""

from collections.abc import Iterator
from dataclasses import replace

from rmt_pipeline.translate.base.casts import convert, nullable_like
from rmt_pipeline.translate.base.function import WrongArguments
from rmt_pipeline.translate.base.typed import (
    FLOAT32,
    FLOAT64,
    Typed,
    TypeProblem,
    array_of,
    nullable_type,
    to_stored,
)
from rmt_pipeline.translate.functions.aggregate_call import (
    NAN_SQL,
    Aggregate,
    AggregateBuild,
    AggregateCall,
    exact_quantile,
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


def _timing(of_numbers: AggregateBuild) -> AggregateBuild:
    """Return the builder of `quantileTiming` and the like, quantiles of durations up to 30 s."""

    def build(call: AggregateCall) -> Typed:
        number = convert(number_argument(call), FLOAT64)
        sql = f"CAST(greatest(0, least(trunc({number.sql}), 30000)) AS DOUBLE)"
        if number.nullable:  # a NULL is left out by these functions
            sql = f"(CASE WHEN {number.sql} IS NOT NULL THEN {sql} END)"
        found = of_numbers(
            replace(call, arguments=[Typed(sql, nullable_like(FLOAT64, number))])
        )
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
    for name, exact, timing in (
        ("quantile", _one_quantile_exact, _quantile_exact),
        ("median", _one_quantile_exact, _quantile_exact),
        ("quantiles", _quantiles_exact, _quantiles_exact),
    ):
        yield Aggregate(f"{name}Exact", exact, 1, 1)
        yield Aggregate(f"{name}Timing", _timing(timing), 1, 1, differs=_ROUNDED)
