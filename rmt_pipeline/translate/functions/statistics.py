"""Quantiles, variances and their kin."""

from rmt_pipeline.translate.base.casts import convert
from rmt_pipeline.translate.base.function import WrongArguments
from rmt_pipeline.translate.base.typed import (
    FLOAT64,
    Typed,
    TypeProblem,
    array_of,
    from_stored,
    nullable_type,
    to_stored,
)
from rmt_pipeline.translate.functions.aggregate_call import (
    NAN_SQL,
    AggregateBuild,
    AggregateCall,
    or_default,
)
from rmt_pipeline.translate.functions.arithmetic import as_number


def _level(call: AggregateCall) -> float:
    if not call.parameters:
        return 0.5
    found = call.parameters[0].constant
    return _checked_level(found.value if found else None, call.name)


def _checked_level(value: object, name: str) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise WrongArguments(f"{name} takes a level between 0 and 1, not {value!r}")
    return float(value)


def _number(call: AggregateCall) -> Typed:
    value = as_number(call.arguments[0])
    if not value.type.is_computable:
        raise TypeProblem(f"{call.name} takes numbers, not {value.type.text}")
    return value


def quantile(call: AggregateCall) -> Typed:
    value = _number(call)
    sql = call.sql("quantile_cont", convert(value, FLOAT64).sql, str(_level(call)))
    if value.nullable or call.or_null:
        return Typed(sql, nullable_type(FLOAT64))
    return Typed(f"coalesce({sql}, {NAN_SQL})", FLOAT64)


def quantiles(call: AggregateCall) -> Typed:
    value = convert(_number(call), FLOAT64)
    levels = [
        _checked_level(each.constant.value if each.constant else None, call.name)
        for each in call.parameters
    ]
    if not levels:
        raise WrongArguments("quantiles takes levels, as in quantiles(0.5, 0.9)(x)")
    pieces = [call.sql("quantile_cont", value.sql, str(level)) for level in levels]
    return Typed(
        f"[{', '.join(f'coalesce({each}, {NAN_SQL})' for each in pieces)}]", array_of(FLOAT64)
    )


def quantile_exact(call: AggregateCall) -> Typed:
    value = call.first()
    listed = call.sql("list", to_stored(value), extra_filter=f"{value.sql} IS NOT NULL")
    place = f"least(CAST(floor({_level(call)} * len({listed})) AS BIGINT) + 1, len({listed}))"
    sql = f"list_extract(list_sort({listed}), {place})"
    return or_default(call, from_stored(sql, value.plain).sql, value.plain, value)


def moments(function: str) -> AggregateBuild:
    """Variance and its kin: Float64, NaN where too few rows."""

    def build(call: AggregateCall) -> Typed:
        values = [convert(as_number(each), FLOAT64) for each in call.arguments]
        sql = call.sql(function, *(each.sql for each in values))
        return Typed(f"coalesce({sql}, {NAN_SQL})", FLOAT64)

    return build
