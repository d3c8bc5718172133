"""Functions of arrays, tuples and maps. Those that take a lambda are in `lambdas`."""

from rmt_pipeline.translate.base.casts import (
    UUID_HALF,
    convert,
    sort_sql,
    unify,
    uuid_halves,
)
from rmt_pipeline.translate.base.casts_number import wrap
from rmt_pipeline.translate.base.function import (
    MANY,
    Build,
    WrongArguments,
    constant_integer,
    function,
    integer,
    true_or_false,
)
from rmt_pipeline.translate.base.supertypes import least_supertype
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    FLOAT64,
    INT64,
    PLACE,
    UINT8,
    UINT32,
    UINT64,
    Constant,
    Typed,
    TypeProblem,
    array_of,
    constant_sql,
    from_stored,
    nullable_type,
    string_sql,
    struct_sql,
    to_stored,
    tuple_of,
)
from rmt_pipeline.translate.functions.comparison import compare
from rmt_pipeline.types.data_type import DataType


def array(value: Typed, name: str) -> Typed:
    """Return the value if it is an Array. Raises TypeProblem, which names the function `name`."""
    if value.plain.family != "Array":
        raise TypeProblem(f"{name} takes an Array, not {value.type.text}")
    return value


_DIFFERENT = "error('arrays that belong together have different lengths')"


def of_one_length(sql: str, *others: str) -> str:
    """Return SQL of an array; when it is computed, an error if others have not its length."""
    same = " AND ".join(f"len({sql}) = len({each})" for each in others if each != sql)
    return f"(CASE WHEN {same} THEN {sql} ELSE {_DIFFERENT} END)" if same else sql


def one_length(*arrays: str) -> str:
    """Return SQL of the length of arrays; when it is computed, an error if it is not that of all.
    Each array is in it only once: lambdas in each other would make it very long.
    """
    lengths = [f"len({each})" for each in dict.fromkeys(arrays)]
    if len(lengths) == 1:
        return lengths[0]
    same = f"CASE WHEN x <> y THEN {_DIFFERENT} ELSE x END"
    return f"list_reduce([{', '.join(lengths)}], lambda x, y: {same})"


def _element_of(value: Typed) -> DataType:
    return value.plain.elements[0]


def known_element(value: Typed, name: str) -> DataType:
    """Return the type of an array's elements. Raises TypeProblem for `[]`, which has none."""
    if _element_of(value).plain.family == "Nothing":
        raise TypeProblem(f"{name}: the array [] has no type; cast it")
    return _element_of(value)


def make_array(arguments: list[Typed]) -> Typed:
    """`array(…)`, `[…]`: an array of the least type that holds all elements."""
    element = least_supertype([each.type for each in arguments])
    values = unify(arguments, element)
    result = array_of(element)
    sql = f"[{', '.join(to_stored(each) for each in values)}]"
    if element.plain.family != "Nothing":
        sql = f"CAST({sql} AS {result.duckdb})"
    constants = [each.constant for each in values]
    known = all(each is not None for each in constants) and element.plain.family != "Nothing"
    constant = Constant([each.value for each in constants if each]) if known else None
    return Typed(sql, result, constant)


def make_tuple(arguments: list[Typed]) -> Typed:
    """`tuple(…)`, `(…, …)`. Raises TypeProblem for an empty one."""
    result = tuple_of(each.type for each in arguments)
    if not arguments:
        raise TypeProblem("tuple() has no elements, so it is no value")
    fields = zip(result.element_names, arguments, strict=True)
    sql = struct_sql((name, to_stored(each)) for name, each in fields)
    constants = [each.constant for each in arguments]
    constant = None
    if all(each is not None for each in constants):
        names = zip(result.element_names, constants, strict=True)
        constant = Constant({name: each.value for name, each in names if each})
    return Typed(sql, result, constant)


def make_map(arguments: list[Typed]) -> Typed:
    """`map(key, value, …)`. Raises WrongArguments, TypeProblem."""
    if len(arguments) % 2:
        raise WrongArguments("map takes pairs of key and value")
    keys, values = arguments[::2], arguments[1::2]
    key = least_supertype([each.type for each in keys])
    value = least_supertype([each.type for each in values])
    if key.nullable:
        raise TypeProblem(f"a map's key cannot be {key.text}: a key is never NULL")
    result = DataType("Map", elements=(key, value))
    if not arguments:
        raise TypeProblem("map() has no type; cast it, as in CAST(map(), 'Map(String, Int64)')")
    all_keys = ", ".join(to_stored(each) for each in unify(keys, key))
    all_values = ", ".join(to_stored(each) for each in unify(values, value))
    return Typed(f"CAST(map([{all_keys}], [{all_values}]) AS {result.duckdb})", result)


def array_element(arguments: list[Typed]) -> Typed:
    """`a[1]`, `a[-1]`, `m['key']`: an element, or the type's default if there is none."""
    value, place = arguments
    if value.plain.family == "Map":
        key, element = value.plain.elements
        wanted = to_stored(convert(place, key))
        sql = f"element_at({value.sql}, {wanted})[1]"
        absent = f"map_contains({value.sql}, {wanted})"
    else:
        array(value, "[ ]")
        element = known_element(value, "[ ]")
        sql = f"list_extract({value.sql}, {integer(place)})"
        absent = f"abs({integer(place)}) BETWEEN 1 AND len({value.sql})"
    if element.nullable:
        return from_stored(sql, nullable_type(element, place.nullable))
    kind = nullable_type(element, place.nullable)
    # A NULL place gives NULL, or the default of a type that can't be NULL.
    known = f"WHEN {place.sql} IS NULL THEN NULL " if kind.nullable else ""
    return from_stored(
        f"(CASE {known}WHEN {absent} THEN {sql} ELSE {stored_default(element)} END)", kind
    )


def stored_default(data_type: DataType) -> str:
    """Return SQL of a type's default in the stored form: NULL for a Nullable, else 0, '', …"""
    plain = data_type.plain
    if data_type.nullable:
        return f"CAST(NULL AS {plain.duckdb})"
    return to_stored(Typed(constant_sql(plain.default, plain), plain))


def tuple_element(arguments: list[Typed]) -> Typed:
    """`t.1`, `t.name`: an element of a tuple; for an array of tuples, the array of
    their elements.
    """
    value, place = arguments
    if value.plain.family == "Array" and _element_of(value).family == "Tuple":
        inside = tuple_element([from_stored(ELEMENT, _element_of(value)), place])
        elements = f"list_transform({value.sql}, lambda {ELEMENT}: {to_stored(inside)})"
        return from_stored(elements, array_of(inside.type))
    if value.plain.family != "Tuple":
        raise TypeProblem(f"{value.type.text} is no tuple: it has no elements")
    known = place.constant.value if place.constant else None
    names = value.plain.element_names
    if isinstance(known, str):
        if known not in names:
            raise TypeProblem(f"{value.type.text} has no element {known!r}")
        number = names.index(known)
    elif isinstance(known, int) and 1 <= known <= len(names):
        number = known - 1
    else:
        raise TypeProblem(f"{value.type.text} has no element {known!r}")
    sql = f"struct_extract({value.sql}, {string_sql(names[number])})"
    return from_stored(sql, value.plain.elements[number])


def has(arguments: list[Typed]) -> Typed:
    """`has(array, x)`: whether x is one of the elements. A NULL is found if one of them is NULL."""
    value, wanted = array(arguments[0], "has"), arguments[1]
    if wanted.is_null_literal:
        found = f"(len({value.sql}) > list_count({value.sql}))"
    else:
        found = f"list_contains({_equal_to(value, wanted, 'has')}, true)"
    return Typed(found, UINT8, is_condition=True)


def place_of_value(value: Typed, wanted: Typed) -> str:
    """Return SQL of the first place at which an array has a value, 0 if it has it nowhere."""
    return f"coalesce(list_position({_equal_to(value, wanted, 'has')}, true), 0)"


def _equal_to(value: Typed, wanted: Typed, name: str) -> str:
    """Return SQL of a list that says which elements are equal to a value; NULL is equal to NULL."""
    element = from_stored(ELEMENT, known_element(value, name))
    same = f"coalesce({compare('equals', element, wanted).sql}, false)"
    if element.nullable and wanted.nullable:
        same = f"({same} OR ({ELEMENT} IS NULL AND {wanted.sql} IS NULL))"
    return f"list_transform({value.sql}, lambda {ELEMENT}: {same})"


def _index_of(arguments: list[Typed]) -> Typed:
    value, wanted = array(arguments[0], "indexOf"), arguments[1]
    if wanted.is_null_literal:
        return Typed(f"CAST(coalesce(list_position({value.sql}, NULL), 0) AS UBIGINT)", UINT64)
    return Typed(f"CAST({place_of_value(value, wanted)} AS UBIGINT)", UINT64)


def _count_equal(arguments: list[Typed]) -> Typed:
    value, wanted = array(arguments[0], "countEqual"), arguments[1]
    equal = _equal_to(value, wanted, "countEqual")
    sql = f"len(list_filter({equal}, lambda {ELEMENT}: {ELEMENT}))"
    return Typed(f"CAST({sql} AS UBIGINT)", UINT64)


def _has_any_or_all(name: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        common = least_supertype([array(each, name).type for each in arguments])
        left, right = unify(arguments, common)
        has_null, wants_null = (
            f"len({each.sql}) > list_count({each.sql})" for each in (left, right)
        )
        wanted, wants_nan = right.sql, "false"
        if common.plain.elements[0].is_float:  # NaN equals none
            wanted = f"list_filter({right.sql}, lambda {ELEMENT}: NOT isnan({ELEMENT}))"
            wants_nan = f"len({wanted}) < list_count({right.sql})"
        if name == "hasAny":
            sql = f"(list_has_any({left.sql}, {wanted}) OR ({has_null} AND {wants_null}))"
        else:
            nulls = f"(NOT {wants_null} OR {has_null})"
            sql = f"(list_has_all({left.sql}, {wanted}) AND {nulls} AND NOT {wants_nan})"
        return Typed(sql, UINT8, is_condition=True)

    return build


def concat(arguments: list[Typed]) -> Typed:
    """`arrayConcat(a, b, …)`: the elements of the arrays one after another, of the least type that
    holds all.
    """
    common = least_supertype([array(each, "arrayConcat").type for each in arguments])
    sql = unify(arguments, common)[0].sql
    for each in unify(arguments, common)[1:]:
        sql = f"list_concat({sql}, {each.sql})"
    return Typed(sql, common)


def _push(*, at_end: bool) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        value, added = array(arguments[0], "arrayPush"), arguments[1]
        element = least_supertype([_element_of(value), added.type])
        whole = convert(value, array_of(element))
        single = f"[{to_stored(convert(added, element))}]"
        pieces = (whole.sql, single) if at_end else (single, whole.sql)
        return Typed(f"list_concat({pieces[0]}, {pieces[1]})", array_of(element))

    return build


def _pop(*, at_end: bool) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        value = array(arguments[0], "arrayPop")
        cut = f"1, len({value.sql}) - 1" if at_end else f"2, len({value.sql})"
        return Typed(f"list_slice({value.sql}, {cut})", value.type)

    return build


def _slice(arguments: list[Typed]) -> Typed:
    value = array(arguments[0], "arraySlice")
    offset, size = integer(arguments[1]), f"len({value.sql})"
    start = f"(CASE WHEN {offset} > 0 THEN {offset} ELSE {size} + {offset} + 1 END)"
    end = size
    if len(arguments) > 2:
        length = integer(arguments[2])
        end = (
            f"(CASE WHEN {length} >= 0 THEN {start} + {length} - 1 ELSE {size} + {length} END)"
        )
    sql = f"list_slice({value.sql}, greatest({start}, 1), {end})"
    nothing = f"{offset} = 0 OR {end} < greatest({start}, 1)"
    sql = f"(CASE WHEN {nothing} THEN list_slice({value.sql}, 2, 1) ELSE {sql} END)"
    return Typed(sql, value.type)


def _sort(*, descending: bool) -> Build:
    order = "'DESC', 'NULLS LAST'" if descending else "'ASC', 'NULLS LAST'"

    def build(arguments: list[Typed]) -> Typed:
        value = array(arguments[0], "arraySort")
        element = known_element(value, "arraySort")
        if element.is_enum or not element.is_comparable:
            raise TypeProblem(f"cannot sort values of type {element.text}")
        if element.plain.family == "UUID":
            halves = f"list_transform({value.sql}, lambda rmt_u: {uuid_halves('rmt_u')})"
            whole = f"lambda rmt_u: substring(rmt_u, {UUID_HALF + 1})"
            return Typed(f"list_transform(list_sort({halves}, {order}), {whole})", value.type)
        if descending and element.is_float:  # NaN comes behind the numbers
            turned = f"list_transform({value.sql}, lambda {ELEMENT}: -{ELEMENT})"
            back = f"lambda {ELEMENT}: -{ELEMENT}"
            sql = f"list_transform(list_sort({turned}, 'ASC', 'NULLS LAST'), {back})"
            return Typed(sql, value.type)
        return Typed(f"list_sort({value.sql}, {order})", value.type)

    return build


def _simple(sql: str, name: str) -> Build:
    """Return the builder of a function from an array to an array of the same type."""

    def build(arguments: list[Typed]) -> Typed:
        value = array(arguments[0], name)
        return Typed(sql.format(value.sql), value.type)

    return build


def _distinct(arguments: list[Typed]) -> Typed:
    """`arrayDistinct(a)`: the first occurrences in their order, which DuckDB's list_distinct does
    not keep, without NULLs.
    """
    value = array(arguments[0], "arrayDistinct")
    first = f"{ELEMENT} IS NOT NULL AND list_position({value.sql}, {ELEMENT}) = {PLACE}"
    kept = f"list_filter({value.sql}, lambda {ELEMENT}, {PLACE}: {first})"
    return Typed(kept, array_of(_element_of(value).plain))


def together(arguments: list[Typed], name: str) -> Typed:
    """Return the one array, or one of the elements at each place of several."""
    arrays = [array(each, name) for each in arguments]
    if len(arrays) == 1:
        return arrays[0]
    first, *others = (each.sql for each in arrays)
    whole = of_one_length(first, *others)
    return Typed(f"list_zip({', '.join([whole, *others])})", arrays[0].plain)


def _unique_count(arguments: list[Typed]) -> Typed:
    """`arrayUniq(a, …)`: how many different elements, or different ones at one place, there are."""
    value = together(arguments, "arrayUniq")
    has_null = f"(CASE WHEN list_count({value.sql}) < len({value.sql}) THEN 1 ELSE 0 END)"
    return Typed(f"CAST(list_unique({value.sql}) + {has_null} AS UINTEGER)", UINT32)


def _reduce(name: str) -> Build:
    """Return the builder of arraySum, arrayAvg, arrayMin or arrayMax without a lambda."""

    def build(arguments: list[Typed]) -> Typed:
        return reduced(name, array(arguments[0], name))

    return build


def extreme_element(function: str, known: str, element: DataType) -> str:
    """Return SQL of the least or greatest element of the list `known` in the stored form, NULL if
    it is empty. NaN counts only if nothing else is there.
    """
    key = sort_sql(from_stored(ELEMENT, element.plain))
    if key is None and element.plain.is_float:
        key = f"isnan({ELEMENT})" if function == "min" else f"NOT isnan({ELEMENT})"
    if key is None:
        return f"list_{function}({known})"
    keyed = struct_sql((("key", key), ("value", ELEMENT)))
    return f"list_{function}(list_transform({known}, lambda {ELEMENT}: {keyed})).value"


def reduced(name: str, value: Typed) -> Typed:
    """Return arrayMin, arrayMax, arraySum or arrayAvg of an array, with the original's result type.
    Raises TypeProblem.
    """
    element = known_element(value, name).plain
    if name in {"arrayMin", "arrayMax"}:
        known = f"list_filter({value.sql}, lambda {ELEMENT}: {ELEMENT} IS NOT NULL)"
        sql = extreme_element(name[5:].lower(), known, element)
        if _element_of(value).nullable:
            return from_stored(sql, nullable_type(element))
        default = stored_default(element)
        return from_stored(f"coalesce({sql}, {default})", element)
    if not element.is_computable or element.wide_bytes:
        raise TypeProblem(f"{name} takes numbers up to 64 bits, not {element.text}")
    if name == "arrayAvg":
        sql = f"(list_sum(CAST({value.sql} AS DOUBLE[])) / len({value.sql}))"
        return Typed(f"(CASE WHEN len({value.sql}) = 0 THEN 0 ELSE {sql} END)", FLOAT64)
    if element.is_float:
        return Typed(f"coalesce(list_sum(CAST({value.sql} AS DOUBLE[])), 0)", FLOAT64)
    if element.is_decimal:
        result = DataType("Decimal", (38, element.numbers[1]))
        return Typed(f"CAST(coalesce(list_sum({value.sql}), 0) AS {result.duckdb})", result)
    result = INT64 if element.is_signed else UINT64
    total = f"CAST(coalesce(list_sum({value.sql}), 0) AS HUGEINT)"
    return Typed(wrap(total, result), result)


def _range(arguments: list[Typed]) -> Typed:
    bounds = [integer(each) for each in arguments]
    start, end = ("0", bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
    step = constant_integer(arguments[2], "the step") if len(arguments) > 2 else 1
    if step == 0:
        raise TypeProblem("range: the step is zero")
    size = f"(({end}) - ({start})) // {abs(step)}"
    problem = "error('range: more than 1000000 elements')"
    checked = f"(CASE WHEN {size} <= 1000000 THEN {end} ELSE {problem} END)"
    negative = any(each.type.is_signed for each in arguments)
    element = INT64 if negative else least_supertype([each.type for each in arguments]).plain
    sql = f"CAST(range({start}, {checked}, ({step})) AS {element.duckdb}[])"
    return Typed(sql, array_of(element))


def _flatten(arguments: list[Typed]) -> Typed:
    value = array(arguments[0], "arrayFlatten")
    sql, data_type = value.sql, value.plain
    while data_type.elements[0].family == "Array":
        sql, data_type = f"flatten({sql})", data_type.elements[0]
    return Typed(sql, data_type)


def _enumerate(arguments: list[Typed]) -> Typed:
    value = array(arguments[0], "arrayEnumerate")
    sql = f"CAST(range(1, len({value.sql}) + 1) AS UINTEGER[])"
    return Typed(sql, array_of(UINT32))


def _map_part(name: str, place: int) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        value = arguments[0]
        if value.plain.family != "Map":
            raise TypeProblem(f"{name} takes a Map, not {value.type.text}")
        part = "map_keys" if place == 0 else "map_values"
        return Typed(f"{part}({value.sql})", array_of(value.plain.elements[place]))

    return build


def _map_contains(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    if value.plain.family != "Map":
        raise TypeProblem(f"mapContains takes a Map, not {value.type.text}")
    key = to_stored(convert(arguments[1], value.plain.elements[0]))
    return true_or_false(f"map_contains({value.sql}, {key})", arguments[1])


FUNCTIONS = (
    function("array", make_array, 0, MANY),
    function("tuple", make_tuple, 0, MANY),
    function("map", make_map, 0, MANY, differs="a key given twice is refused"),
    function("arrayElement", array_element, 2),
    function("tupleElement", tuple_element, 2),
    function("has", has, 2),
    function("indexOf", _index_of, 2),
    function("countEqual", _count_equal, 2),
    function("hasAny", _has_any_or_all("hasAny"), 2),
    function("hasAll", _has_any_or_all("hasAll"), 2),
    function("arrayConcat", concat, 1, MANY),
    function("arrayPushBack", _push(at_end=True), 2),
    function("arrayPushFront", _push(at_end=False), 2),
    function("arrayPopBack", _pop(at_end=True), 1),
    function("arrayPopFront", _pop(at_end=False), 1),
    function("arraySlice", _slice, 2, 3),
    function("arraySort", _sort(descending=False), 1),
    function("arrayReverseSort", _sort(descending=True), 1),
    function("arrayReverse", _simple("list_reverse({0})", "arrayReverse"), 1),
    function("arrayDistinct", _distinct, 1),
    function(
        "arrayCompact",
        _simple(
            f"list_filter({{0}}, lambda {ELEMENT}, {PLACE}: {PLACE} = 1 "
            f"OR {ELEMENT} IS DISTINCT FROM list_extract({{0}}, {PLACE} - 1))",
            "arrayCompact",
        ),
        1,
    ),
    function("arrayUniq", _unique_count, 1, MANY),
    *(
        function(name, _reduce(name), 1)
        for name in ("arraySum", "arrayAvg", "arrayMin", "arrayMax")
    ),
    function("range", _range, 1, 3),
    function("arrayFlatten", _flatten, 1),
    function("flatten", _flatten, 1),
    function("arrayEnumerate", _enumerate, 1),
    function("mapKeys", _map_part("mapKeys", 0), 1),
    function("mapValues", _map_part("mapValues", 1), 1),
    function("mapContains", _map_contains, 2),
)
