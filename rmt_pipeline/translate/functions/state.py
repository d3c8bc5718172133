"""States of aggregate functions in queries: -State, -Merge and finalizeAggregation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rmt_pipeline.translate.base.casts import convert, plain_condition
from rmt_pipeline.translate.base.function import (
    Function,
    WrongArguments,
    constant_integer,
    function,
)
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    FLOAT64,
    INT64,
    UINT64,
    Constant,
    Typed,
    TypeProblem,
    array_of,
    constant_sql,
    nullable_type,
    struct_sql,
    to_stored,
)
from rmt_pipeline.translate.functions.aggregate_call import (
    NAN_SQL,
    AggregateBuild,
    AggregateCall,
    exact_quantile,
    or_default,
    quantile_level,
    quantile_levels,
)
from rmt_pipeline.translate.functions.arithmetic import as_number
from rmt_pipeline.types.aggregate_state import (
    NoState,
    aggregate_type,
    merge_rule,
    state_function,
    without_if,
)
from rmt_pipeline.types.data_type import DataType

Builds = Mapping[str, AggregateBuild]
"""The builders of the aggregate functions, by name."""


def build_state(
    name: str, builds: Builds, call: AggregateCall, typed: Sequence[Typed]
) -> Typed:
    """Return `nameState(…)`. `name` may end in If: then `call` has the condition as a filter, and
    it is the last of `typed`, the arguments that the state's type names. Raises TypeProblem if
    there is no state for the function or its arguments.
    """
    types = [plain_condition(each).type for each in typed]
    parameters = [
        str(each.constant.value if each.constant else each.sql) for each in call.parameters
    ]
    try:
        made = aggregate_type(name, types, parameters)
    except NoState as problem:
        raise TypeProblem(str(problem)) from None
    arguments = [plain_condition(each) for each in call.arguments]
    call = replace(call, arguments=arguments, parameters=[])
    state = made.elements[-1]
    plain = without_if(made.names[0])
    return Typed(_state_sql(plain, state, builds, call), made)


def _state_sql(name: str, state: DataType, builds: Builds, call: AggregateCall) -> str:
    or_null = replace(call, or_null=True)
    match rule := merge_rule(name):
        case "count" | "sum" | "groupArray" | "groupBitAnd" | "groupBitOr" | "groupBitXor":
            return builds[rule](call).sql
        case "uniqExact":
            return f"list_sort({builds['groupUniqArray'](call).sql})"
        case "avg":
            total = f"coalesce({builds['sum'](or_null).sql}, 0)"
            count = builds["count"](call).sql
            return _struct(state, sum=total, count=count)
        case "varPop":
            number = convert(as_number(call.arguments[0]), FLOAT64).sql
            total, squares = (
                f"coalesce({call.sql('sum', each)}, 0)"
                for each in (number, f"{number} * {number}")
            )
            count = call.sql("count", number)
            return _struct(state, sum=total, squares=squares, count=count)
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
    """Return `nameMerge(state)`. Raises TypeProblem if the argument is no state of `name`,
    WrongArguments.
    """
    if len(call.arguments) != 1:
        raise WrongArguments(
            f"{call.name} takes one state, not {len(call.arguments)} arguments"
        )
    value = call.arguments[0]
    name = state_function(name)
    if value.type.family != "AggregateFunction" or value.type.names[0] != name:
        raise TypeProblem(
            f"{call.name} takes a state, AggregateFunction({name}, …), not {value.type.text}"
        )
    *arguments, state = value.type.elements
    stored = to_stored(value)
    whole = replace(call, arguments=[Typed(stored, state)])
    name = without_if(name)
    match merge_rule(name):
        case "count" | "sum":
            return builds["sum"](whole)
        case "groupBitAnd" | "groupBitOr" | "groupBitXor":
            return builds[name](whole)
        case "avg":
            total, count = (
                builds["sum"](replace(call, arguments=[_field(stored, state, field)])).sql
                for field in ("sum", "count")
            )
            return _average(total, count, arguments[0])
        case "varPop":
            total, squares, count = (
                builds["sum"](replace(call, arguments=[_field(stored, state, field)])).sql
                for field in state.names
            )
            return _variance(name, total, squares, count, arguments[0])
        case "uniqExact":
            together = f"list_distinct(flatten({call.sql('list', stored)}))"
            return _of_values(replace(call, name=name), together, state, arguments[0])
        case "groupArray":
            together = f"flatten({call.sql('list', stored)})"
            return _of_values(replace(call, name=name), together, state, arguments[0])
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
    name, *texts = value.type.names
    *types, state = value.type.elements
    stored = to_stored(value)
    name = without_if(name)
    match merge_rule(name):
        case "count" | "sum" | "groupBitAnd" | "groupBitOr" | "groupBitXor":
            return Typed(stored, state)
        case "uniqExact" | "groupArray":
            parameters = [_number(text) for text in texts]
            call = AggregateCall(name, [], parameters)
            return _of_values(call, stored, state, types[0])
        case "varPop":
            total, squares, count = (_field(stored, state, field).sql for field in state.names)
            return _variance(name, total, squares, count, types[0])
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
    """Return the result's type of min, max, any, argMin, …: the first argument's,
    without Nullable.
    """
    return arguments[0].plain


def _number(text: str) -> Typed:
    value = float(text)
    kind = INT64 if value.is_integer() else FLOAT64
    return Typed(text, kind, constant=Constant(int(value) if kind is INT64 else value))


def _of_values(call: AggregateCall, values: str, state: DataType, argument: DataType) -> Typed:
    """Return the result of the function `call.name` for the list `values`, which is NULL if there
    is no state.
    """
    name, parameters = call.name, call.parameters
    listed = f"CAST(coalesce({values}, []) AS {state.duckdb})"
    match name:
        case "groupArray" | "groupUniqArray":
            most = constant_integer(parameters[0], "the size") if parameters else 0
            return Typed(f"list_slice({listed}, 1, {most})" if most > 0 else listed, state)
        case "topK":
            most = constant_integer(parameters[0], "how many") if parameters else 10
            top = f"list_aggregate({listed}, 'approx_top_k', {most})"
            return Typed(f"CAST(coalesce({top}, []) AS {state.duckdb})", state)
        case "quantileExact":
            return exact_quantile(call, listed, Typed("", argument))
        case "quantile":
            sql = _interpolated(listed, quantile_level(name, parameters))
            if argument.nullable:
                return Typed(sql, nullable_type(FLOAT64))
            return Typed(f"coalesce({sql}, {NAN_SQL})", FLOAT64)
        case "quantiles":
            found = [
                _interpolated(listed, level) for level in quantile_levels(name, parameters)
            ]
            known = ", ".join(f"coalesce({each}, {NAN_SQL})" for each in found)
            return Typed(f"[{known}]", array_of(FLOAT64))
        case _:
            return Typed(f"CAST(len({listed}) AS UBIGINT)", UINT64)


def _interpolated(listed: str, level: float) -> str:
    numbers = f"list_filter(CAST({listed} AS DOUBLE[]), lambda {ELEMENT}: NOT isnan({ELEMENT}))"
    return f"list_aggregate({numbers}, 'quantile_cont', {level})"


def _variance(name: str, total: str, squares: str, count: str, argument: DataType) -> Typed:
    """Return a variance or standard deviation from the sums of the values and of their squares, as
    the original does.
    """
    less = "1" if name.endswith("Samp") else "0"
    number = f"CAST({count} AS DOUBLE)"
    spread = f"{squares} - {total} * {total} / {number}"
    spread = f"greatest(nullif({spread}, {NAN_SQL}), 0.0::DOUBLE)"  # as std::max(0, NaN): 0
    sql = f"{spread} / ({number} - {less})"
    if name.startswith("stddev"):
        sql = f"sqrt({sql})"
    nothing = "CAST(NULL AS DOUBLE)" if argument.nullable else NAN_SQL
    return Typed(
        f"(CASE WHEN {count} > {less} THEN {sql} WHEN {count} > 0 THEN {NAN_SQL} "
        f"ELSE {nothing} END)",
        nullable_type(FLOAT64, argument.nullable),
    )


def _average(total: str, count: str, argument: DataType) -> Typed:
    nothing = "CAST(NULL AS DOUBLE)" if argument.nullable else NAN_SQL
    sql = f"(CASE WHEN {count} > 0 THEN CAST({total} AS DOUBLE) / {count} ELSE {nothing} END)"
    return Typed(sql, nullable_type(FLOAT64, argument.nullable))


FUNCTIONS: list[Function] = [function("finalizeAggregation", _finalize, 1)]
