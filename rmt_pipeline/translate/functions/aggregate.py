"""Aggregate and window functions, for SELECT only.

For no rows the original gives a type's default where other databases give NULL: `max` of an empty
column of numbers is 0. A combinator at the end of a name changes the function: `sumIf(x,
condition)`, `sumDistinct(x)`, `maxOrNull(x)`.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.translate.base.casts import (
    convert,
    nullable_like,
    plain_condition,
    sort_sql,
)
from rmt_pipeline.translate.base.casts_number import unscaled, unscaled_to_decimal, wrap
from rmt_pipeline.translate.base.function import (
    MANY,
    WrongArguments,
    condition,
    constant_integer,
    constant_text,
    integer,
)
from rmt_pipeline.translate.base.nothing_least import with_nothing_least
from rmt_pipeline.translate.base.text_form import text_of
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    FLOAT64,
    INT64,
    INT128,
    STRING,
    UINT64,
    UINT128,
    Typed,
    TypeProblem,
    any_nullable,
    array_of,
    constant_sql,
    from_stored,
    nullable_type,
    string_sql,
    to_stored,
)
from rmt_pipeline.translate.functions.aggregate_call import (
    NAN_SQL,
    Aggregate,
    AggregateBuild,
    AggregateCall,
    or_default,
)
from rmt_pipeline.translate.functions.arithmetic import as_number, decimal_bits
from rmt_pipeline.translate.functions.array import extreme_element, reduced
from rmt_pipeline.translate.functions.chains import sequence, window_funnel
from rmt_pipeline.translate.functions.collected import (
    for_each,
    group_array_insert_at,
    histogram,
    retention,
    sum_map,
)
from rmt_pipeline.translate.functions.quantile import (
    APPROXIMATE,
    number_argument,
    quantile_aggregates,
)
from rmt_pipeline.translate.functions.state import build_merge, build_state
from rmt_pipeline.types.data_type import DataType

UP_TO_MAX = 100  # as in the original

# Functions that need a window.


def rank(function: str) -> AggregateBuild:
    """Return the builder of `row_number()`, `rank()` and the like, which count from 1."""

    def build(call: AggregateCall) -> Typed:
        return Typed(f"CAST({call.sql(function)} AS UBIGINT)", UINT64)

    return build


def _ratio(function: str) -> AggregateBuild:
    return lambda call: Typed(call.sql(function), FLOAT64)


def ntile(call: AggregateCall) -> Typed:
    """`ntile(n)`: the number, from 1, of the one of n groups of equal size that a row is in."""
    return Typed(f"CAST({call.sql('ntile', integer(call.arguments[0]))} AS UBIGINT)", UINT64)


def neighbour(function: str) -> AggregateBuild:
    """Return the builder of `lagInFrame` or `leadInFrame`: the value that many rows before or
    after. Where there is no such row it is the third argument, or the type's default. Raises
    NotImplementedStatement for a frame that ends before the partition on that side.
    """
    end = {"lagInFrame": "UNBOUNDED PRECEDING", "leadInFrame": "UNBOUNDED FOLLOWING"}.get(
        function
    )

    def build(call: AggregateCall) -> Typed:
        frame = _FRAME.search(call.over)
        by_default = not frame and ("ORDER BY" not in call.over or function == "lagInFrame")
        if end and not by_default and not (frame and end in frame[0]):
            raise NotImplementedStatement(
                f"{call.name} sees only the rows of its frame: give OVER a frame with {end}, or "
                f"use {call.name.removesuffix('InFrame')}"
            )
        value = call.first()
        offset = integer(call.arguments[1]) if len(call.arguments) > 1 else "1"
        plain = value.plain
        default = constant_sql(None if value.nullable else plain.default, plain)
        if len(call.arguments) > 2:
            default = convert(call.arguments[2], plain).sql
        plain_name = function.removesuffix("InFrame")
        return Typed(call.sql(plain_name, value.sql, offset, default), value.type)

    return build


_FRAME = re.compile(r"(?:ROWS|RANGE) BETWEEN [^()]*\)$")


def nth_value(call: AggregateCall) -> Typed:
    """`nth_value(x, n)`: x of the n-th row of the frame; the type's default if it has
    fewer rows.
    """
    value = call.first()
    sql = call.sql("nth_value", value.sql, integer(call.arguments[1]))
    return or_default(call, sql, value.plain, value)


# Statistics.


def _stable(function: str) -> AggregateBuild:
    """Return the builder of a variance or the like, computed so that large numbers lose no digits:
    a Float64, NaN if there are too few rows.
    """

    def build(call: AggregateCall) -> Typed:
        values = [convert(as_number(each), FLOAT64) for each in call.arguments]
        return _moment(call, call.sql(function, *(each.sql for each in values)))

    return build


def _moment(call: AggregateCall, sql: str) -> Typed:
    """Return a Float64 that is NaN where `sql` is NULL; but NULL, as other functions give it, for
    no rows if an argument is Nullable, and with -OrNull.
    """
    known = f"coalesce({sql}, {NAN_SQL})"
    if not (call.or_null or any_nullable(call.arguments)):
        return Typed(known, FLOAT64)
    present = " AND ".join(f"{each.sql} IS NOT NULL" for each in call.arguments)
    count = replace(call, distinct=False).sql("count", "*", extra_filter=present)
    return Typed(f"(CASE WHEN {count} > 0 THEN {known} END)", nullable_type(FLOAT64))


def _moments(function: str) -> AggregateBuild:
    """Return the builder of a variance or the like as the original computes it, from sums: its last
    digits are those of the original.
    """

    def build(call: AggregateCall) -> Typed:
        if call.distinct:
            return _stable(function)(call)
        x, *others = (convert(as_number(each), FLOAT64).sql for each in call.arguments)
        y = others[0] if others else x
        both = f"{x} IS NOT NULL AND {y} IS NOT NULL"

        def total(sql: str) -> str:
            return call.sql("sum", sql, extra_filter=both)

        n = f"CAST({call.sql('count', x, extra_filter=both)} AS DOUBLE)"
        if function == "corr":
            spread = " * ".join(
                f"({n} * {total(f'{each} * {each}')} - {total(each)} * {total(each)})"
                for each in (x, y)
            )
            sql = f"({n} * {total(f'{x} * {y}')} - {total(x)} * {total(y)}) / sqrt({spread})"
            return _moment(call, sql)
        spread = f"({total(f'{x} * {y}')} - {total(x)} * {total(y)} / {n})"
        if not others:
            spread = f"greatest(nullif({spread}, {NAN_SQL}), 0)"  # as std::max(0, NaN): 0
        divisor = f"({n} - 1)" if function.endswith("samp") else n
        sql = f"(CASE WHEN {divisor} > 0 THEN {spread} / {divisor} END)"
        if function.startswith("stddev"):
            sql = f"sqrt({sql})"
        return _moment(call, sql)

    return build


def _count(call: AggregateCall) -> Typed:
    if not call.arguments:
        if call.distinct:
            raise WrongArguments("count(DISTINCT) needs an expression")
        return _counted(call, call.sql("count", "*"))
    if len(call.arguments) > 1 or call.distinct:
        return _uniq(replace(call, distinct=True))
    value = call.arguments[0]
    return _counted(call, call.sql("count", value.sql) if not value.is_null_literal else "0")


def _counted(call: AggregateCall, sql: str) -> Typed:
    """Return a number of values; with -OrNull it is NULL if there is no row, or only rows with a
    NULL, and 0 if there are others, but an -If inside of it leaves none.
    """
    number = f"CAST({sql} AS UBIGINT)"
    if not call.or_null:
        return Typed(number, UINT64)
    present = " AND ".join(
        f"{each.sql} IS NOT NULL" for each in call.arguments if each.nullable
    )
    those = replace(call, distinct=False, filters=call.before_or_null)
    rows = those.sql("count", "*", extra_filter=present)
    return Typed(f"(CASE WHEN {rows} > 0 THEN {number} END)", nullable_type(UINT64))


def _uniq(call: AggregateCall) -> Typed:
    values = [to_stored(plain_condition(each)) for each in call.arguments]
    one, present = values[0], ""
    if len(values) > 1:
        one = f"({', '.join(values)})"
        present = " AND ".join(f"{each} IS NOT NULL" for each in values)
    return _counted(call, replace(call, distinct=True).sql("count", one, extra_filter=present))


def _sum(call: AggregateCall) -> Typed:
    value = as_number(call.arguments[0])
    plain = value.plain
    if not value.type.is_computable:
        raise TypeProblem(f"{call.name} takes numbers up to 128 bits, not {value.type.text}")
    if plain.is_float:
        return or_default(call, call.sql("sum", f"CAST({value.sql} AS DOUBLE)"), FLOAT64, value)
    if plain.is_decimal:
        result = DataType("Decimal", (38, plain.numbers[1]))
        return or_default(
            call, f"CAST({call.sql('sum', value.sql)} AS {result.duckdb})", result, value
        )
    if plain.wide_bytes:
        result = INT128 if plain.is_signed else UINT128
        if not plain.is_signed:
            raise TypeProblem(
                f"{call.name} of {plain.text} is not supported; cast to Decimal(38, 0)"
            )
        return or_default(call, call.sql("sum", value.sql), result, value)
    result = INT64 if plain.is_signed else UINT64
    total = call.sql("sum", value.sql)
    return or_default(call, wrap(f"CAST({total} AS HUGEINT)", result), result, value)


def _sum_of_floats(call: AggregateCall) -> Typed:
    number = convert(number_argument(call), FLOAT64)
    return or_default(call, call.sql("kahan_sum", number.sql), FLOAT64, number)


def _sum_with_overflow(call: AggregateCall) -> Typed:
    total, plain = _sum(call), call.first().plain
    if plain.is_float:
        return convert(total, plain)
    if plain.wide_bytes or not (plain.is_integer or plain.is_decimal):
        return total
    kind = nullable_like(plain, total)
    if plain.is_integer:
        return Typed(wrap(f"CAST({total.sql} AS HUGEINT)", plain), kind)
    bits = decimal_bits(plain)
    digits = unscaled(total)
    if bits < 128:
        digits = f"CAST({wrap(digits, DataType(f'Int{bits}'))} AS HUGEINT)"
    return Typed(unscaled_to_decimal(digits, plain), kind)


def _uniq_up_to(call: AggregateCall) -> Typed:
    """`uniqUpTo(n)(x)`: how many values there are; n + 1 if they are more than n."""
    if len(call.parameters) != 1:
        raise WrongArguments(f"{call.name} takes one number, as in {call.name}(10)(x)")
    most = constant_integer(call.parameters[0], f"the number of {call.name}")
    if not 0 <= most <= UP_TO_MAX:
        raise WrongArguments(f"{call.name} takes a number up to {UP_TO_MAX}, not {most}")
    found = _uniq(call)
    least = f"(CASE WHEN {found.sql} > {most} THEN {most + 1} ELSE {found.sql} END)"
    return Typed(f"CAST({least} AS UBIGINT)", found.type)


def _avg(call: AggregateCall) -> Typed:
    value = as_number(call.arguments[0])
    plain = value.plain
    if plain.is_computable and not plain.is_float and not plain.wide_bytes:
        # of the exact sum: one of floats would lose digits
        total = f"CAST({call.sql('sum', value.sql)} AS DOUBLE)"
        sql = f"({total} / nullif({call.sql('count', value.sql)}, 0))"
    else:
        sql = call.sql("avg", convert(value, FLOAT64).sql)
    if value.nullable or call.or_null:
        return Typed(sql, nullable_type(FLOAT64))
    return Typed(f"coalesce({sql}, {NAN_SQL})", FLOAT64)


def _extreme(function: str) -> AggregateBuild:
    def build(call: AggregateCall) -> Typed:
        value = call.first()
        if not value.type.is_comparable:
            raise TypeProblem(f"{call.name} needs values with an order, not {value.type.text}")
        own = _extreme_key(function, value)
        if own is not None:
            sql = call.sql(f"arg_{function}", value.sql, own)
        elif value.type.is_float:  # NaN is ignored; to DuckDB it is the largest number
            known = f"(CASE WHEN NOT isnan({value.sql}) THEN {value.sql} END)"
            sql = f"coalesce({call.sql(function, known)}, {call.sql(function, value.sql)})"
        else:
            sql = call.sql(function, value.sql)
        return or_default(call, sql, value.plain, value)

    return build


def _extreme_key(function: str, value: Typed) -> str | None:
    """Return SQL of what the least or greatest value is found by; None if that is the value itself.
    NULL and NaN in arrays and tuples are neither, if there is anything else.
    """
    is_nested = value.plain.family in {"Array", "Tuple"}
    least = with_nothing_least(value) if function == "max" and is_nested else None
    return least or sort_sql(value)


def _any(function: str, *, nulls: bool = False) -> AggregateBuild:
    """Return the builder of `any` or `anyLast`; with `nulls` a NULL is a value, too."""

    def build(call: AggregateCall) -> Typed:
        value = call.first()
        if nulls:
            if call.over and call.filters:
                raise NotImplementedStatement(f"{call.name} over a window is not supported")
            sql = call.sql(f"{function}_value" if call.over else function, value.sql)
            return or_default(call, sql, value.plain, value)
        if call.over and function != "mode":
            when = " AND ".join(call.filters)
            known = f"CASE WHEN {when} THEN {value.sql} END" if when else value.sql
            sql = f"{function}_value({known} IGNORE NULLS){call.over}"
            return or_default(call, sql, value.plain, value)
        sql = call.sql(function, value.sql, extra_filter=f"{value.sql} IS NOT NULL")
        return or_default(call, sql, value.plain, value)

    return build


def _arg_extreme(function: str) -> AggregateBuild:
    def build(call: AggregateCall) -> Typed:
        wanted, by = (plain_condition(each) for each in call.arguments)
        key = _extreme_key(function.removeprefix("arg_"), by) or by.sql
        present = f"{wanted.sql} IS NOT NULL"
        sql = call.sql(function, wanted.sql, key, extra_filter=present)
        if by.type.is_float:  # NaN is ignored; to DuckDB it is the largest number
            number = f"{present} AND NOT isnan({by.sql})"
            known = call.sql(function, wanted.sql, key, extra_filter=number)
            sql = f"coalesce({known}, {sql})"
        both = Typed("", nullable_like(wanted.type, wanted, by))
        return or_default(call, sql, wanted.plain, both)

    return build


def _group_array(*, distinct: bool) -> AggregateBuild:
    def build(call: AggregateCall) -> Typed:
        value = call.first()
        stored = to_stored(value)
        listed = replace(call, distinct=distinct or call.distinct)
        sql = listed.sql("list", stored, extra_filter=f"{value.sql} IS NOT NULL")
        result = array_of(value.plain)
        sql = f"CAST(coalesce({sql}, []) AS {result.duckdb})"
        return Typed(_at_most(call, sql), result)

    return build


def _at_most(call: AggregateCall, listed: str) -> str:
    """Return SQL of so many first elements of a list as the call's parameter says, if it has one.
    Raises TypeProblem, WrongArguments.
    """
    if not call.parameters:
        return listed
    most = constant_integer(call.parameters[0], f"the size of {call.name}")
    if most <= 0 or len(call.parameters) > 1:
        raise WrongArguments(f"{call.name} takes one size above 0, not {most}")
    return f"list_slice({listed}, 1, {most})"


def _top(call: AggregateCall) -> Typed:
    value = call.first()
    most = constant_integer(call.parameters[0], "how many") if call.parameters else 10
    result = array_of(value.plain)
    sql = call.sql(
        "approx_top_k", to_stored(value), str(most), extra_filter=f"{value.sql} IS NOT NULL"
    )
    return Typed(f"CAST(coalesce({sql}, []) AS {result.duckdb})", result)


def _bits(function: str) -> AggregateBuild:
    def build(call: AggregateCall) -> Typed:
        value = as_number(call.arguments[0])
        if not value.type.is_integer or value.plain.wide_bytes:
            raise TypeProblem(
                f"{call.name} takes integers up to 64 bits, not {value.type.text}"
            )
        sql = call.sql(function, f"CAST({value.sql} AS {value.plain.duckdb})")
        nothing = (
            value.plain.integer_max
            if function == "bit_and" and not value.plain.is_signed
            else 0
        )
        nothing = -1 if function == "bit_and" and value.plain.is_signed else nothing
        if value.nullable or call.or_null:
            return Typed(sql, nullable_type(value.plain))
        return Typed(f"CAST(coalesce({sql}, {nothing}) AS {value.plain.duckdb})", value.plain)

    return build


def _group_concat(call: AggregateCall) -> Typed:
    separator = ""
    if call.parameters:
        separator = constant_text(call.parameters[0], "the separator")
    value = call.first()
    sql = call.sql("string_agg", text_of(value), string_sql(separator))
    return or_default(call, sql, STRING, value)


def _windows() -> list[Aggregate]:
    return [
        Aggregate("row_number", rank("row_number"), 0, 0, windows_only=True),
        Aggregate("rank", rank("rank"), 0, 0, windows_only=True),
        Aggregate("dense_rank", rank("dense_rank"), 0, 0, windows_only=True),
        Aggregate("denseRank", rank("dense_rank"), 0, 0, windows_only=True),
        Aggregate("percent_rank", _ratio("percent_rank"), 0, 0, windows_only=True),
        Aggregate("cume_dist", _ratio("cume_dist"), 0, 0, windows_only=True),
        Aggregate("ntile", ntile, 1, 1, windows_only=True),
        Aggregate("nth_value", nth_value, 2, 2, windows_only=True),
        *(
            Aggregate(name, neighbour(name), 1, 3, windows_only=True)
            for name in ("lagInFrame", "leadInFrame", "lag", "lead")
        ),
    ]


def _anys() -> Iterator[Aggregate]:
    names = {"first": ("any", "any_value", "first_value"), "last": ("anyLast", "last_value")}
    for which, of in names.items():
        for name in of:
            yield Aggregate(name, _any(which), 1, 1)
            yield Aggregate(f"{name}_respect_nulls", _any(which, nulls=True), 1, 1)


def _aggregates() -> dict[str, Aggregate]:
    made = [
        Aggregate("count", _count, 0, MANY),
        Aggregate("sum", _sum, 1, 1),
        Aggregate("sumWithOverflow", _sum_with_overflow, 1, 1),
        Aggregate("sumKahan", _sum_of_floats, 1, 1, differs="summed by another method"),
        Aggregate("sumMap", sum_map, 2, MANY),
        Aggregate("avg", _avg, 1, 1),
        Aggregate("min", _extreme("min"), 1, 1),
        Aggregate("max", _extreme("max"), 1, 1),
        *_anys(),
        Aggregate("anyHeavy", _any("mode"), 1, 1, differs="the most frequent value"),
        Aggregate("argMin", _arg_extreme("arg_min"), 2, 2),
        Aggregate("argMax", _arg_extreme("arg_max"), 2, 2),
        Aggregate("uniqExact", _uniq, 1, MANY),
        *(
            Aggregate(name, _uniq, 1, MANY, differs=APPROXIMATE)
            for name in ("uniq", "uniqCombined", "uniqCombined64", "uniqHLL12")
        ),
        Aggregate("groupArray", _group_array(distinct=False), 1, 1),
        Aggregate(
            "groupUniqArray", _group_array(distinct=True), 1, 1, differs="in another order"
        ),
        Aggregate("groupArrayInsertAt", group_array_insert_at, 2, 2),
        Aggregate("retention", retention, 1, MANY),
        Aggregate("histogram", histogram, 1, 1),
        Aggregate("windowFunnel", window_funnel, 1, MANY),
        Aggregate("sequenceMatch", sequence(count=False), 1, MANY),
        Aggregate("sequenceCount", sequence(count=True), 1, MANY),
        Aggregate("uniqUpTo", _uniq_up_to, 1, MANY),
        Aggregate("topK", _top, 1, 1, differs="approximates too, in its own way"),
        *quantile_aggregates(),
        *(
            Aggregate(f"{name}{ending}", build(sql), arguments, arguments)
            for ending, build in (("", _moments), ("Stable", _stable))
            for arguments, name, sql in (
                *((1, "varPop", "var_pop"), (1, "varSamp", "var_samp")),
                *((1, "stddevPop", "stddev_pop"), (1, "stddevSamp", "stddev_samp")),
                *((2, "covarPop", "covar_pop"), (2, "covarSamp", "covar_samp")),
                (2, "corr", "corr"),
            )
        ),
        *(
            Aggregate(sql.upper(), _moments(sql), 1, 1)
            for sql in ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
        ),
        Aggregate("groupBitAnd", _bits("bit_and"), 1, 1),
        Aggregate("groupBitOr", _bits("bit_or"), 1, 1),
        Aggregate("groupBitXor", _bits("bit_xor"), 1, 1),
        Aggregate("groupConcat", _group_concat, 1, 1),
        *_windows(),
    ]
    return {each.name: each for each in made}


AGGREGATES = _aggregates()
_BUILDS = {name: aggregate.build for name, aggregate in AGGREGATES.items()}
_BY_LOWER = {
    name.lower(): name
    for name in ("count", "sum", "avg", "min", "max", "any_value", "corr", "first_value")
} | {"last_value": "last_value", "median": "median", "std": "stddevPop", "variance": "varSamp"}


def running_accumulate(arguments: list[Typed]) -> Typed:
    """`runningAccumulate(state)`: what the states of this row and of all before it make together.
    Raises TypeProblem.
    """
    kind = arguments[0].type
    if kind.family != "AggregateFunction":
        raise TypeProblem(f"runningAccumulate takes a state, not {kind.text}")
    over = " OVER (ROWS UNBOUNDED PRECEDING)"
    call = AggregateCall("runningAccumulate", arguments, [], over=over)
    return build_merge(kind.names[0], _BUILDS, call)


_COMBINATORS = ("Distinct", "OrNull", "OrDefault", "If", "State", "Merge", "Array", "ForEach")


def find_aggregate(name: str) -> tuple[Aggregate, tuple[str, ...]] | None:
    """Return the aggregate function of that name and its combinators, the last one first; None if
    there is none.
    """
    combinators: list[str] = []
    while True:
        found = AGGREGATES.get(name) or AGGREGATES.get(_BY_LOWER.get(name.lower(), ""))
        if found is not None:
            return found, tuple(combinators)
        ending = next((each for each in _COMBINATORS if name.endswith(each)), None)
        if ending is None or len(combinators) == len(_COMBINATORS):
            return None
        combinators.append(ending)
        name = name[: -len(ending)]


def build_aggregate(
    aggregate: Aggregate, combinators: tuple[str, ...], call: AggregateCall
) -> Typed:
    """Compile a call with its combinators. Raises WrongArguments, TypeProblem,
    NotImplementedStatement.
    """
    if {"State", "Merge"} <= set(combinators):
        raise NotImplementedStatement(
            f"{call.name}: states of states are not supported; INSERT the states, and let a "
            "merge or -Merge join them"
        )
    state = next((each for each in combinators if each in {"State", "Merge"}), None)
    inner: tuple[str, ...] = ()
    if state is not None:
        place = combinators.index(state)
        combinators, inner = combinators[:place], combinators[place + 1 :]
    call = _combined(combinators, call)
    if {"Array", "ForEach"} & {*combinators, *inner}:
        return _of_arrays(aggregate, combinators, call, bare=state is None)
    name = f"{aggregate.name}If" if "If" in inner else aggregate.name
    if state == "Merge":
        return build_merge(name, _BUILDS, call)
    whole = call
    call = _combined(inner, call)
    if not aggregate.least <= len(call.arguments) <= aggregate.most:
        raise WrongArguments(
            f"{call.name} takes {aggregate.least} arguments, not {len(call.arguments)}"
        )
    if aggregate.windows_only and not call.over:
        raise WrongArguments(f"{call.name} is a function of windows: it needs OVER (...)")
    if any(each.is_null_literal for each in call.arguments) and aggregate.name != "count":
        raise TypeProblem(f"{call.name}(NULL): NULL has no type here; cast it")
    if state == "State":
        return build_state(name, _BUILDS, call, whole.arguments)
    return aggregate.build(call)


def _of_arrays(
    aggregate: Aggregate, combinators: tuple[str, ...], call: AggregateCall, *, bare: bool
) -> Typed:
    """Compile a call with -Array or -ForEach, which `bare` says is one without -State and -Merge.
    Raises WrongArguments, TypeProblem, NotImplementedStatement.
    """
    if not bare or call.over or call.or_null:
        raise NotImplementedStatement(
            f"{call.name}: -Array and -ForEach go with no -OrNull, -State, -Merge or OVER here; "
            "ARRAY JOIN the array"
        )
    if "ForEach" not in combinators:
        _check_elements(aggregate, combinators, call)
        return _of_elements(aggregate, call)
    if combinators[-1] != "ForEach" or "Array" in combinators:
        raise NotImplementedStatement(
            f"{call.name}: -ForEach comes first and without -Array, as in "
            f"{aggregate.name}ForEachIf"
        )
    return for_each(aggregate.name, call)


def _check_elements(
    aggregate: Aggregate, combinators: tuple[str, ...], call: AggregateCall
) -> None:
    before = combinators[combinators.index("Array") + 1 :]
    if {"If", "Array"} & set(before):
        raise NotImplementedStatement(
            f"{call.name}: write -If after -Array, as in {aggregate.name}ArrayIf, and -Array "
            "once; to choose elements, ARRAY JOIN the array"
        )
    if len(call.arguments) != 1 or call.distinct:
        raise WrongArguments(f"{call.name} takes one array, without DISTINCT")
    if call.parameters and aggregate.name not in {"groupArray", "groupUniqArray"}:
        raise WrongArguments(f"{call.name} takes no parameters; leave out the first brackets")


def _of_elements(aggregate: Aggregate, call: AggregateCall) -> Typed:
    """Compile `sumArray(a)` and the like: the function of all elements of all arrays. Raises
    TypeProblem, NotImplementedStatement.
    """
    value = call.first()
    if value.plain.family != "Array":
        raise TypeProblem(f"{call.name} takes an Array, not {value.type.text}")
    if aggregate.name in _OF_LISTS:
        return _of_list(aggregate.name, value.plain.elements[0].plain, call)
    element = value.plain.elements[0]
    known = f"list_filter({value.sql}, lambda {ELEMENT}: {ELEMENT} IS NOT NULL)"
    present = Typed(f"CAST(list_count({value.sql}) AS UBIGINT)", UINT64)
    match aggregate.name:
        case "count":
            return _sum(replace(call, arguments=[present]))
        case "sum":
            return _sum_of_elements(call, value)
        case "avg":
            total, count = _sum_of_elements(call, value), replace(call, arguments=[present])
            sql = f"CAST({total.sql} AS DOUBLE) / nullif({_sum(count).sql}, 0)"
            if total.nullable:
                return Typed(sql, nullable_type(FLOAT64))
            return Typed(f"coalesce({sql}, {NAN_SQL})", FLOAT64)
        case "min" | "max":
            sql = extreme_element(aggregate.name, known, element)
            return aggregate.build(replace(call, arguments=[from_stored(sql, element)]))
        case "any" | "anyLast":
            place = 1 if aggregate.name == "any" else -1
            one = from_stored(f"list_extract({known}, {place})", element)
            return aggregate.build(replace(call, arguments=[one]))
        case _:
            raise NotImplementedStatement(
                f"{call.name} is not implemented; ARRAY JOIN the array and use {aggregate.name}"
            )


def _sum_of_elements(call: AggregateCall, value: Typed) -> Typed:
    """The sum of all elements; NULL if they are Nullable and none has a value."""
    total = reduced("arraySum", value)
    if Typed("", value.plain.elements[0]).nullable:
        some = f"(CASE WHEN list_count({value.sql}) > 0 THEN {total.sql} END)"
        total = Typed(some, nullable_type(total.type))
    return _sum(replace(call, arguments=[total]))


_OF_LISTS = frozenset(
    {"groupArray", "groupUniqArray", "uniq", "uniqExact", "uniqCombined", "uniqCombined64"}
)


def _of_list(name: str, element: DataType, call: AggregateCall) -> Typed:
    """Compile `groupArrayArray(a)`, `uniqArray(a)` and the like. NULLs are left out."""
    joined = f"flatten(coalesce({call.sql('list', call.first().sql)}, []))"
    result = array_of(element)
    every = f"CAST(list_filter({joined}, lambda e: e IS NOT NULL) AS {result.duckdb})"
    if name == "groupArray":
        return Typed(_at_most(call, every), result)
    if name == "groupUniqArray":
        return Typed(_at_most(call, f"list_distinct({every})"), result)
    return Typed(f"CAST(list_unique({every}) AS UBIGINT)", UINT64)


def _combined(combinators: tuple[str, ...], call: AggregateCall) -> AggregateCall:
    for combinator in combinators:
        match combinator:
            case "If":
                if not call.arguments:
                    raise WrongArguments(f"{call.name} needs a condition as its last argument")
                when = condition(call.arguments[-1])
                call = replace(
                    call, arguments=call.arguments[:-1], filters=(*call.filters, when)
                )
            case "Distinct":
                call = replace(call, distinct=True)
            case "OrNull":
                call = replace(call, or_null=True, before_or_null=call.filters)
            case _:
                pass
    return call
