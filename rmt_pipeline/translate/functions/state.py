"""-State, -Merge and finalizeAggregation: states of aggregate functions in queries."""

from collections.abc import Mapping
from dataclasses import replace

from rmt_pipeline.translate.base.casts import plain_condition
from rmt_pipeline.translate.base.function import Function, WrongArguments, function
from rmt_pipeline.translate.base.typed import (
    FLOAT64,
    UINT64,
    Typed,
    TypeProblem,
    constant_sql,
    nullable_type,
    struct_sql,
    to_stored,
)
from rmt_pipeline.translate.functions.aggregate_call import (
    NAN_SQL,
    AggregateBuild,
    AggregateCall,
    or_default,
)
from rmt_pipeline.types.aggregate_state import NoState, aggregate_type
from rmt_pipeline.types.data_type import DataType

Builds = Mapping[str, AggregateBuild]
"""How each aggregate function is built."""


def build_state(name: str, builds: Builds, call: AggregateCall) -> Typed:
    """`nameState(…)`. Raises TypeProblem for what has no state."""
    arguments = [plain_condition(each) for each in call.arguments]
    try:
        made = aggregate_type(name, [each.type for each in arguments])
    except NoState as problem:
        raise TypeProblem(str(problem)) from None
    call = replace(call, arguments=arguments)
    return Typed(_state_sql(name, made.elements[-1], builds, call), made)


def _state_sql(name: str, state: DataType, builds: Builds, call: AggregateCall) -> str:
    or_null = replace(call, or_null=True)
    match name:
        case "count" | "sum" | "groupArray":
            return builds[name](call).sql
        case "uniqExact":
            return f"list_sort({builds['groupUniqArray'](call).sql})"
        case "avg":
            total = f"coalesce({builds['sum'](or_null).sql}, 0)"
            count = builds["count"](call).sql
            return _struct(state, sum=total, count=count)
        case "argMin" | "argMax":
            value, by = call.arguments
            of_value = (*call.filters, f"{value.sql} IS NOT NULL")
            only_by = replace(or_null, arguments=[by], filters=of_value)
            extreme = builds[name.removeprefix("arg").lower()](only_by).sql
            return _struct(state, value=builds[name](or_null).sql, by=extreme)
        case _:
            return builds[name](or_null).sql


def _struct(state: DataType, **fields: str) -> str:
    return f"CAST({struct_sql(fields.items())} AS {state.duckdb})"


def build_merge(name: str, builds: Builds, call: AggregateCall) -> Typed:
    """`nameMerge(state)`. Raises TypeProblem for what is not a state of `name`."""
    if len(call.arguments) != 1:
        raise WrongArguments(
            f"{call.name} takes one state, not {len(call.arguments)} arguments"
        )
    value = call.arguments[0]
    if value.type.family != "AggregateFunction" or value.type.names[0] != name:
        raise TypeProblem(
            f"{call.name} takes a state, AggregateFunction({name}, …), not {value.type.text}"
        )
    *arguments, state = value.type.elements
    stored = to_stored(value)
    whole = replace(call, arguments=[Typed(stored, state)])
    match name:
        case "count":
            return builds["sum"](whole)
        case "sum":
            return builds["sum"](whole)
        case "avg":
            total, count = (
                builds["sum"](replace(call, arguments=[_field(stored, state, field)])).sql
                for field in ("sum", "count")
            )
            return _average(total, count, arguments[0])
        case "uniqExact":
            together = f"list_distinct(flatten({call.sql('list', stored)}))"
            return Typed(f"CAST(coalesce(len({together}), 0) AS UBIGINT)", UINT64)
        case "groupArray":
            together = f"flatten({call.sql('list', stored)})"
            return Typed(f"CAST(coalesce({together}, []) AS {state.duckdb})", state)
        case "argMin" | "argMax":
            fields = [_field(stored, state, field) for field in ("value", "by")]
            made = builds[name](replace(call, arguments=fields, or_null=True))
        case _:
            made = builds[name](replace(whole, or_null=True))
    return or_default(call, made.sql, _result_type(arguments), Typed("", arguments[0]))


def _finalize(arguments: list[Typed]) -> Typed:
    (value,) = arguments
    if value.type.family != "AggregateFunction":
        raise TypeProblem(f"finalizeAggregation takes a state, not {value.type.text}")
    name = value.type.names[0]
    *types, state = value.type.elements
    stored = to_stored(value)
    match name:
        case "count" | "sum" | "groupArray":
            return Typed(stored, state)
        case "uniqExact":
            return Typed(f"CAST(len({stored}) AS UBIGINT)", UINT64)
        case "avg":
            total, count = (_field(stored, state, field).sql for field in ("sum", "count"))
            return _average(total, count, types[0])
        case "argMin" | "argMax":
            found = _field(stored, state, "value").sql
        case _:
            found = stored
    result = _result_type(types)
    if types[0].nullable:
        return Typed(found, nullable_type(result))
    return Typed(f"coalesce({found}, {constant_sql(result.default, result)})", result)


def _field(stored: str, state: DataType, name: str) -> Typed:
    kind = state.elements[state.names.index(name)]
    return Typed(f"struct_extract({stored}, '{name}')", kind)


def _result_type(arguments: list[DataType]) -> DataType:
    """Of min, max, any, argMin, …: the type of the first argument, without NULL."""
    return arguments[0].plain


def _average(total: str, count: str, argument: DataType) -> Typed:
    nothing = "CAST(NULL AS DOUBLE)" if argument.nullable else NAN_SQL
    sql = f"(CASE WHEN {count} > 0 THEN CAST({total} AS DOUBLE) / {count} ELSE {nothing} END)"
    return Typed(sql, nullable_type(FLOAT64, argument.nullable))


FUNCTIONS: list[Function] = [function("finalizeAggregation", _finalize, 1)]
