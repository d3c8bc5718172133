"""Functions that go by the places of an array's elements: number, sum up, compare with the element
before, fill up, look one up in another array.
"""

from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.translate.base.casts import convert, unify
from rmt_pipeline.translate.base.function import (
    MANY,
    Build,
    WrongArguments,
    always,
    constant_text,
    function,
    integer,
)
from rmt_pipeline.translate.base.supertypes import least_supertype
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    PLACE,
    UINT32,
    UINT64,
    Constant,
    Typed,
    TypeProblem,
    array_of,
    from_stored,
    let,
    nullable_type,
    stored_sql,
    to_stored,
)
from rmt_pipeline.translate.functions.aggregate_call import NAN_SQL
from rmt_pipeline.translate.functions.arithmetic import arithmetic
from rmt_pipeline.translate.functions.array import (
    array,
    known_element,
    place_of_value,
    reduced,
    stored_default,
    together,
)

ELEMENTS_MAX = 1_000_000
EMPTY = (
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
    *("Float32", "Float64", "Date", "DateTime", "String"),
)


def _each_place(value: Typed, body: str) -> str:
    return f"list_transform(range(1, len({value.sql}) + 1), lambda {PLACE}: {body})"


def _enumerate_uniq(arguments: list[Typed]) -> Typed:
    """`arrayEnumerateUniq(a, …)`: for each element, the how many-th of its value it is."""
    value = together(arguments, "arrayEnumerateUniq")
    same = f"{ELEMENT} IS NOT DISTINCT FROM list_extract({value.sql}, {PLACE})"
    before = f"list_slice({value.sql}, 1, {PLACE})"
    count = f"CAST(len(list_filter({before}, lambda {ELEMENT}: {same})) AS UINTEGER)"
    return Typed(_each_place(value, count), array_of(UINT32))


def _enumerate_dense(arguments: list[Typed]) -> Typed:
    """`arrayEnumerateDense(a, …)`: for each element the number of its value, by the places at which
    the values come first.
    """
    value = together(arguments, "arrayEnumerateDense")
    first = f"list_position({value.sql}, {ELEMENT})"
    up_to = f"list_slice({value.sql}, 1, list_position({value.sql}, {value.sql}[{PLACE}]))"
    first = f"list_filter({up_to}, lambda {ELEMENT}, rmt_p: {first} = rmt_p)"
    return Typed(_each_place(value, f"CAST(len({first}) AS UINTEGER)"), array_of(UINT32))


def _running_sum(arguments: list[Typed]) -> Typed:
    value = array(arguments[0], "arrayCumSum")
    if known_element(value, "arrayCumSum").nullable:
        raise TypeProblem(f"arrayCumSum takes numbers, not {value.type.text}")
    total = reduced("arraySum", Typed(f"list_slice({value.sql}, 1, {PLACE})", value.plain))
    return Typed(_each_place(value, to_stored(total)), array_of(total.type))


def _running_sum_above_zero(arguments: list[Typed]) -> Typed:
    """`arrayCumSumNonNegative(a)`: the sum so far, which begins again where it would be negative:
    how far it is above its lowest point.
    """
    sums = _running_sum(arguments)
    lowest = f"least(0, list_min(list_slice(v, 1, {PLACE})))"
    above = f"list_transform(range(1, len(v) + 1), lambda {PLACE}: v[{PLACE}] - {lowest})"
    return Typed(f"CAST({let(sums.sql, 'v', above)} AS {sums.type.duckdb})", sums.type)


def _difference(arguments: list[Typed]) -> Typed:
    """`arrayDifference(a)`: 0, and then each element minus the one before."""
    value = array(arguments[0], "arrayDifference")
    element = known_element(value, "arrayDifference")
    if element.nullable or not element.is_computable:
        raise TypeProblem(f"arrayDifference takes numbers, not {value.type.text}")
    now, before = (
        from_stored(f"list_extract({value.sql}, {place})", element)
        for place in (PLACE, f"greatest({PLACE} - 1, 1)")
    )
    made = arithmetic("minus")([now, before])
    first = f"(CASE WHEN {PLACE} = 1 THEN 0 ELSE {to_stored(made)} END)"
    kind = array_of(made.type)
    return Typed(f"CAST({_each_place(value, first)} AS {kind.duckdb})", kind)


def _resize(arguments: list[Typed]) -> Typed:
    """`arrayResize(a, size[, x])`: cut, or filled up with x or the type's default, at the end; at
    the beginning if the size is negative.
    """
    value, size = array(arguments[0], "arrayResize"), integer(arguments[1])
    element = known_element(value, "arrayResize")
    added = stored_default(element)
    if len(arguments) > 2:
        element = least_supertype([element, arguments[2].type])
        added = to_stored(convert(arguments[2], element))
    whole = convert(value, array_of(element)).sql
    problem = f"error('arrayResize: more than {ELEMENTS_MAX} elements')"
    count = f"(CASE WHEN abs({size}) <= {ELEMENTS_MAX} THEN abs({size}) ELSE {problem} END)"
    more = f"list_transform(range({count} - len({whole})), lambda {PLACE}: {added})"
    sql = (
        f"(CASE WHEN {size} >= 0 THEN list_slice(list_concat({whole}, {more}), 1, {size}) "
        f"ELSE list_slice(list_concat({more}, {whole}), greatest(len({whole}) - {count}, 0) + 1, "
        f"greatest(len({whole}), {count})) END)"
    )
    result = array_of(element)
    return Typed(f"CAST({sql} AS {result.duckdb})", result)


def _intersect(arguments: list[Typed]) -> Typed:
    """`arrayIntersect(a, b, …)`: the values that are in all, in the order of the first."""
    common = least_supertype([array(each, "arrayIntersect").type for each in arguments])
    first, *others = unify(arguments, common)
    found = [f"list_position({first.sql}, {ELEMENT}) = {PLACE}"]
    found += [f"coalesce(list_position({each.sql}, {ELEMENT}), 0) > 0" for each in others]
    sql = f"list_filter({first.sql}, lambda {ELEMENT}, {PLACE}: {' AND '.join(found)})"
    return Typed(sql, common)


def _never_empty(arguments: list[Typed]) -> Typed:
    value = array(arguments[0], "emptyArrayToSingle")
    default = stored_default(known_element(value, "emptyArrayToSingle"))
    return Typed(
        f"(CASE WHEN len({value.sql}) = 0 THEN [{default}] ELSE {value.sql} END)", value.plain
    )


def _replicate(arguments: list[Typed]) -> Typed:
    value = array(arguments[1], "replicate")
    sql = f"list_transform({value.sql}, lambda {PLACE}: {to_stored(arguments[0])})"
    return Typed(sql, array_of(arguments[0].type))


_REDUCED = {"sum": "arraySum", "avg": "arrayAvg", "min": "arrayMin", "max": "arrayMax"}


def _reduce(arguments: list[Typed]) -> Typed:
    """`arrayReduce('sum', a)`: an aggregate function of the elements. Raises WrongArguments for one
    that is not among those that are implemented.
    """
    name = constant_text(arguments[0], "the function of arrayReduce")
    value = array(arguments[1], "arrayReduce")
    element = known_element(value, "arrayReduce")
    known = f"list_filter({value.sql}, lambda {ELEMENT}: {ELEMENT} IS NOT NULL)"
    if name == "count":
        return Typed(f"CAST(len({known}) AS UBIGINT)", UINT64)
    if name in {"uniq", "uniqExact"}:
        return Typed(f"CAST(list_unique({known}) AS UBIGINT)", UINT64)
    if name not in _REDUCED or element.nullable:
        raise WrongArguments(
            "arrayReduce takes sum, avg, min, max of numbers, and count, uniq, uniqExact, not "
            f"{name} of {value.type.text}; ARRAY JOIN the array"
        )
    found = reduced(_REDUCED[name], value)
    if name != "avg":
        return found
    sql = f"(CASE WHEN len({value.sql}) > 0 THEN {found.sql} ELSE {NAN_SQL} END)"
    return Typed(sql, found.type)


def _transform(arguments: list[Typed]) -> Typed:
    """`transform(x, from, to[, default])`: the element of `to` at the place at which `from` has x.
    Where it has none: the default, or x itself.
    """
    value, keys, values = arguments[0], arguments[1], arguments[2]
    element = known_element(array(values, "transform"), "transform")
    otherwise = arguments[3] if len(arguments) > 3 else value
    kind = least_supertype([element, otherwise.type])
    place = place_of_value(array(keys, "transform"), value)
    there = convert(from_stored(f"list_extract({values.sql}, {place})", element), kind)
    problem = "error('transform: the arrays have different lengths')"
    sql = (
        f"(CASE WHEN len({keys.sql}) <> len({values.sql}) THEN {problem} "
        f"WHEN {place} > 0 THEN {there.sql} ELSE {convert(otherwise, kind).sql} END)"
    )
    return Typed(sql, nullable_type(kind, value.nullable and len(arguments) < 4))


def _empty(name: str) -> Build:
    kind = array_of(parse_type(name))
    return always(stored_sql([], kind), kind, Constant([]))


_ORDER = "in the order of the first array; there in any"
FUNCTIONS = (
    function("arrayEnumerateUniq", _enumerate_uniq, 1, MANY),
    function("arrayEnumerateDense", _enumerate_dense, 1, MANY),
    function("arrayCumSum", _running_sum, 1),
    function("arrayCumSumNonNegative", _running_sum_above_zero, 1),
    function("arrayDifference", _difference, 1),
    function("arrayResize", _resize, 2, 3),
    function("arrayIntersect", _intersect, 1, MANY, differs=_ORDER),
    function("arrayReduce", _reduce, 2),
    function("replicate", _replicate, 2),
    function("transform", _transform, 3, 4),
    function("emptyArrayToSingle", _never_empty, 1),
    *(function(f"emptyArray{name}", _empty(name), 0) for name in EMPTY),
)
