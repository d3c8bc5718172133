"""Aggregate functions whose answer is made of arrays: `sumMap`, `groupArrayInsertAt`, `retention`,
`histogram`, and the combinator -ForEach.

Each collects what the rows give in one list and computes on that.
"""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.translate.base.casts import convert
from rmt_pipeline.translate.base.function import (
    WrongArguments,
    condition,
    constant_integer,
    integer,
)
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    FLOAT64,
    PLACE,
    UINT8,
    UINT64,
    Typed,
    TypeProblem,
    array_of,
    from_stored,
    let,
    nullable_type,
    stored_sql,
    string_sql,
    struct_sql,
    to_stored,
    tuple_of,
)
from rmt_pipeline.translate.functions.aggregate_call import NAN_SQL, AggregateCall
from rmt_pipeline.translate.functions.array import (
    array,
    extreme_element,
    known_element,
    reduced,
)
from rmt_pipeline.translate.histogram import BINS_MAX
from rmt_pipeline.translate.in_python import HISTOGRAM
from rmt_pipeline.types.data_type import DataType

ELEMENTS_MAX = 1_000_000

# Parameters of lambdas: no column has these names.
LISTS, ENTRIES, KEY = '"\u00b7lists"', '"\u00b7entries"', '"\u00b7key"'


def sum_map(call: AggregateCall) -> Typed:
    """`sumMap(keys, values, …)`: the keys in their order, and for each the sum of its values, as a
    tuple of arrays. Keys are left out whose sums are all 0, or, of Nullable values, whose values
    are all NULL. Raises TypeProblem; when it is
    computed, an error for a row whose arrays have different lengths.
    """
    if call.distinct:
        raise NotImplementedStatement(f"{call.name}: DISTINCT of rows is not supported")
    columns = [array(each, call.name) for each in call.arguments]
    key = known_element(columns[0], call.name)
    if key.nullable or key.is_enum or not key.is_comparable or key.plain.family == "UUID":
        raise TypeProblem(f"{call.name} cannot sort keys of type {key.text}")
    lengths = " AND ".join(f"len({columns[0].sql}) = len({each.sql})" for each in columns[1:])
    problem = string_sql(f"{call.name}: the arrays of keys and values have different lengths")
    keys = f"(CASE WHEN {lengths} THEN {columns[0].sql} ELSE error({problem}) END)"
    fields = [f"c{place}" for place in range(len(columns))]
    lists = (call.sql("list", sql) for sql in (keys, *(each.sql for each in columns[1:])))
    joined = [f"flatten(coalesce({each}, []))" for each in lists]
    same = f"lambda {PLACE}: {LISTS}.c0[{PLACE}] = {KEY}"
    places = f"list_filter(range(1, len({LISTS}.c0) + 1), {same})"
    totals, is_something = list[Typed](), list[str]()
    for field, column in zip(fields[1:], columns[1:], strict=True):
        values = f"list_transform({places}, lambda {PLACE}: {LISTS}.{field}[{PLACE}])"
        kind = column.plain
        totals.append(reduced("arraySum", Typed(f"CAST({values} AS {kind.duckdb})", kind)))
        is_there = f"list_count({values}) > 0"
        is_something.append(
            is_there if kind.elements[0].nullable else f"{to_stored(totals[-1])} <> 0"
        )
    sums = [(field, to_stored(one)) for field, one in zip(fields[1:], totals, strict=True)]
    entry = struct_sql([("c0", KEY), *sums, ("some", " OR ".join(is_something))])
    entries = f"list_transform(list_sort(list_distinct({LISTS}.c0)), lambda {KEY}: {entry})"
    result = tuple_of(array_of(each) for each in (key, *(each.type for each in totals)))
    pieces = struct_sql(
        (name, f"list_transform({ENTRIES}, lambda {ELEMENT}: {ELEMENT}.{field})")
        for name, field in zip(result.element_names, fields, strict=True)
    )
    kept = let(f"list_filter({entries}, lambda {ELEMENT}: {ELEMENT}.some)", ENTRIES, pieces)
    together = struct_sql(zip(fields, joined, strict=True))
    return Typed(f"CAST({let(together, LISTS, kept)} AS {result.duckdb})", result)


def group_array_insert_at(call: AggregateCall) -> Typed:
    """`groupArrayInsertAt(default, size)(x, place)`: an array with each x at its place, from 0; the
    first x of a place stays. Raises WrongArguments, TypeProblem.
    """
    value, kind = call.first(), call.first().plain
    default = stored_sql(kind.default, kind)
    if call.parameters:
        default = to_stored(convert(call.parameters[0], kind))
    one = struct_sql((("v", to_stored(value)), ("p", integer(call.arguments[1]))))
    listed = call.sql("list", one, extra_filter=f"{value.sql} IS NOT NULL")
    size = f"coalesce(list_max(list_transform({LISTS}, lambda {ELEMENT}: {ELEMENT}.p)) + 1, 0)"
    if len(call.parameters) > 1:
        size = str(constant_integer(call.parameters[1], f"the size of {call.name}"))
        if not 0 < int(size) <= ELEMENTS_MAX:
            raise WrongArguments(f"{call.name} takes a size from 1 to {ELEMENTS_MAX}")
    problem = string_sql(f"{call.name}: more than {ELEMENTS_MAX} places")
    checked = f"(CASE WHEN {size} <= {ELEMENTS_MAX} THEN {size} ELSE error({problem}) END)"
    found = f"list_extract(list_filter({LISTS}, lambda {ELEMENT}: {ELEMENT}.p = {PLACE}), 1).v"
    filled = f"list_transform(range({checked}), lambda {PLACE}: coalesce({found}, {default}))"
    result = array_of(kind)
    return Typed(
        f"CAST({let(f'coalesce({listed}, [])', LISTS, filled)} AS {result.duckdb})", result
    )


def retention(call: AggregateCall) -> Typed:
    """`retention(c1, c2, …)`: whether c1 was true for some row; and for each further condition,
    whether it was too, for that or another row. Rows with a NULL do not count.
    """
    tests = [condition(each) for each in call.arguments]
    known = " AND ".join(f"{each} IS NOT NULL" for each in tests)
    met = [
        f"coalesce({call.sql('bool_or', each, extra_filter=known)}, false)" for each in tests
    ]
    pieces = ", ".join(f"CAST({met[0]} AND {each} AS UTINYINT)" for each in met)
    return Typed(f"[{pieces}]", array_of(UINT8))


def histogram(call: AggregateCall) -> Typed:
    """`histogram(n)(x)`: at most n triples: bounds, and how many values are between them, about.
    Raises WrongArguments, TypeProblem.
    """
    if len(call.parameters) != 1:
        raise WrongArguments(f"{call.name} takes the number of bins: {call.name}(5)(x)")
    most = constant_integer(call.parameters[0], f"the number of bins of {call.name}")
    if not 1 <= most <= BINS_MAX:
        raise WrongArguments(f"{call.name} makes 1 to {BINS_MAX} bins, not {most}")
    value = call.first()
    if not (value.plain.is_integer or value.plain.is_float):
        raise TypeProblem(f"{call.name} takes numbers, not {value.type.text}")
    number, problem = f"CAST({value.sql} AS DOUBLE)", string_sql(f"{call.name}: inf or NaN")
    finite = f"CASE WHEN NOT isfinite({number}) THEN error({problem}) ELSE {number} END"
    listed = call.sql("list", finite)
    known = f"list_filter(coalesce({listed}, []), lambda {ELEMENT}: {ELEMENT} IS NOT NULL)"
    result = array_of(tuple_of([FLOAT64] * 3))
    return Typed(f"CAST({HISTOGRAM}({known}, {most}) AS {result.duckdb})", result)


def for_each(name: str, call: AggregateCall) -> Typed:
    """`sumForEach(a)`: an array with the sum of all first elements, of all second ones, … Raises
    WrongArguments, TypeProblem, NotImplementedStatement.
    """
    if len(call.arguments) != 1 or call.parameters or call.distinct:
        raise WrongArguments(f"{call.name} takes one array, without parameters and DISTINCT")
    value = array(call.first(), call.name)
    element = known_element(value, call.name)
    long_enough = f"list_filter({LISTS}, lambda {KEY}: len({KEY}) >= {PLACE})"
    here = f"list_transform({long_enough}, lambda {KEY}: {KEY}[{PLACE}])"
    one = _of_list(name, Typed(f"CAST({here} AS {value.plain.duckdb})", value.plain), element)
    if one is None:
        raise NotImplementedStatement(
            f"{call.name} is not implemented; use ARRAY JOIN and arrayEnumerate(a) AS place, and "
            f"{name} with GROUP BY place"
        )
    longest = f"list_max(list_transform({LISTS}, lambda {KEY}: len({KEY})))"
    places = f"range(1, coalesce({longest}, 0) + 1)"
    each = f"list_transform({places}, lambda {PLACE}: {to_stored(one)})"
    result = array_of(one.type)
    listed = f"coalesce({call.sql('list', value.sql)}, [])"
    return Typed(f"CAST({let(listed, LISTS, each)} AS {result.duckdb})", result)


def _of_list(name: str, values: Typed, element: DataType) -> Typed | None:
    """Return the aggregate function `name` of a list's elements, None if that is not one of those
    that are implemented.
    """
    known = f"list_filter({values.sql}, lambda {ELEMENT}: {ELEMENT} IS NOT NULL)"
    count = f"CAST(len({known}) AS UBIGINT)"
    match name:
        case "count":
            return Typed(count, UINT64)
        case "sum" | "avg":
            return _total_of_list(name, known, element)
        case "min" | "max":
            return _extreme_of_list(name, known, element)
        case "any" | "anyLast":
            return from_stored(f"list_extract({known}, {1 if name == 'any' else -1})", element)
        case "uniq" | "uniqExact":
            return Typed(f"CAST(list_unique({known}) AS UBIGINT)", UINT64)
        case "groupArray":
            return Typed(known, array_of(element.plain))
        case _:
            return None


def _total_of_list(name: str, known: str, element: DataType) -> Typed:
    total = reduced("arraySum", Typed(known, array_of(element.plain)))
    if name == "sum":
        some = f"(CASE WHEN len({known}) > 0 THEN {total.sql} END)"
        kind = nullable_type(total.type, element.nullable)
        return Typed(some if element.nullable else total.sql, kind)
    sql = f"(CAST({total.sql} AS DOUBLE) / nullif(len({known}), 0))"
    if element.nullable:
        return Typed(sql, nullable_type(FLOAT64))
    return Typed(f"coalesce({sql}, {NAN_SQL})", FLOAT64)


def _extreme_of_list(name: str, known: str, element: DataType) -> Typed:
    if not element.is_comparable:
        raise TypeProblem(f"{name}ForEach cannot order values of type {element.text}")
    return from_stored(extreme_element(name, known, element), element)
