"""Functions of windows: they need OVER."""

from rmt_pipeline.translate.base.casts import convert
from rmt_pipeline.translate.base.function import integer
from rmt_pipeline.translate.base.typed import FLOAT64, UINT64, Typed, constant_sql
from rmt_pipeline.translate.functions.aggregate_call import (
    AggregateBuild,
    AggregateCall,
    or_default,
)


def rank(function: str) -> AggregateBuild:
    def build(call: AggregateCall) -> Typed:
        return Typed(f"CAST({call.sql(function)} AS UBIGINT)", UINT64)

    return build


def ratio(function: str) -> AggregateBuild:
    return lambda call: Typed(call.sql(function), FLOAT64)


def ntile(call: AggregateCall) -> Typed:
    return Typed(f"CAST({call.sql('ntile', integer(call.arguments[0]))} AS UBIGINT)", UINT64)


def neighbour(function: str) -> AggregateBuild:
    def build(call: AggregateCall) -> Typed:
        value = call.first()
        offset = integer(call.arguments[1]) if len(call.arguments) > 1 else "1"
        plain = value.plain
        default = constant_sql(None if value.nullable else plain.default, plain)
        if len(call.arguments) > 2:
            default = convert(call.arguments[2], plain).sql
        return Typed(call.sql(function, value.sql, offset, default), value.type)

    return build


def nth_value(call: AggregateCall) -> Typed:
    value = call.first()
    sql = call.sql("nth_value", value.sql, integer(call.arguments[1]))
    return or_default(call, sql, value.plain, value)
