"""Comparisons, logic, functions for NULL, and choices between values."""

from dataclasses import replace

from rmt_pipeline.translate.base.casts import convert, sort_sql, unify
from rmt_pipeline.translate.base.function import (
    MANY,
    Build,
    WrongArguments,
    condition,
    constant_text,
    function,
    may_fail,
    text,
    true_or_false,
)
from rmt_pipeline.translate.base.supertypes import least_supertype
from rmt_pipeline.translate.base.typed import (
    BOOL,
    ELEMENT,
    NULL_TYPE,
    UINT8,
    Constant,
    Typed,
    any_nullable,
    constant_sql,
    from_stored,
    nullable_type,
    string_sql,
    to_stored,
)
from rmt_pipeline.translate.functions.arithmetic import as_number
from rmt_pipeline.translate.functions.array import extreme_element
from rmt_pipeline.translate.functions.comparison import OPERATORS, compare
from rmt_pipeline.types.data_type import DataType


def _comparison(name: str) -> Build:
    return lambda arguments: compare(name, arguments[0], arguments[1])


def _connective(word: str) -> Build:
    def joined(tests: list[str]) -> str:
        sql = tests[-1]
        for test in reversed(tests[:-1]):
            sql = _both(word, test, sql) if may_fail(sql) else f"{test} {word} {sql}"
        return f"({sql})"

    def build(arguments: list[Typed]) -> Typed:
        found = _logical(joined([condition(each) for each in arguments]), arguments)
        if word == "OR" or not any(each.filter_sql for each in arguments):
            return found
        tests = [each.filter_sql or condition(each) for each in arguments]
        return replace(found, filter_sql=joined(tests))

    return build


def _both(word: str, first: str, second: str) -> str:
    """Return SQL of `first AND second`, or OR, that does not compute `second` if `first` decides,
    as in `isNumber AND toInt32(s) > 1`. DuckDB would compute them in any order.
    """
    decided = "false" if word == "AND" else "true"
    open_still = f"({first}) IS DISTINCT FROM {decided}"
    return f"(CASE WHEN {open_still} THEN ({first} {word} {second}) ELSE {decided} END)"


def _logical(sql: str, arguments: list[Typed]) -> Typed:
    """Return the SQL as a Bool if one of the arguments is Bool, else as a condition (UInt8)."""
    if any(each.plain.family == "Bool" for each in arguments):
        return Typed(sql, nullable_type(BOOL, any_nullable(arguments)))
    return true_or_false(sql, *arguments)


def _xor(arguments: list[Typed]) -> Typed:
    sql = condition(arguments[0])
    for each in arguments[1:]:
        sql = f"({sql} <> {condition(each)})"
    return _logical(sql, arguments)


def _is_condition(sql: str) -> Typed:
    """Return a condition that is never NULL, in a form that DuckDB does not push down to its
    Parquet reader.

    The reader of DuckDB 2.0.0 has a fault: if some rows of a row group are NULL and all others have
    one and the same text, not stored as a dictionary, it takes all of them for NULL.
    """
    return Typed(f"coalesce({sql}, false)", UINT8, is_condition=True)


def _distinct(word: str) -> Build:
    """Return the builder of IS [NOT] DISTINCT FROM, for which NULL is a value like any other."""

    def build(arguments: list[Typed]) -> Typed:
        left, right = arguments
        if left.is_null_literal or right.is_null_literal:
            return _is_condition(f"{left.sql} IS {word} {right.sql}")
        equal = compare("equals", left, right).sql
        both = f"({left.sql} IS NULL AND {right.sql} IS NULL)"
        same = f"(coalesce({equal}, false) OR {both})"
        sql = same if word == "NOT DISTINCT FROM" else f"(NOT {same})"
        return Typed(sql, UINT8, is_condition=True)

    return build


def case(branches: list[tuple[str, Typed]], otherwise: Typed) -> Typed:
    """Return a CASE, in which a condition that is NULL counts as false. All values
    become one type.
    """
    values = [*(value for _, value in branches), otherwise]
    if all(value.is_condition for value in values):
        results, result_type = values, least_supertype([value.type for value in values])
    else:
        result_type = least_supertype([value.type for value in values])
        results = unify(values, result_type)
    whens = " ".join(
        f"WHEN {when} THEN {result.sql}"
        for (when, _), result in zip(branches, results[:-1], strict=True)
    )
    sql = f"(CASE {whens} ELSE {results[-1].sql} END)"
    is_condition = all(value.is_condition for value in values)
    return Typed(sql, result_type, is_condition=is_condition)


def _multi_if(arguments: list[Typed]) -> Typed:
    if len(arguments) % 2 == 0:
        raise WrongArguments("multiIf takes pairs of condition and value, and a last value")
    pairs = zip(arguments[:-1:2], arguments[1:-1:2], strict=True)
    return case([(condition(when), value) for when, value in pairs], arguments[-1])


def _case_with_expression(arguments: list[Typed]) -> Typed:
    """`CASE x WHEN a THEN …`, in which a NULL is equal to NULL."""
    subject, *rest = arguments
    pairs = zip(rest[:-1:2], rest[1:-1:2], strict=True)
    return case([(_same(subject, when), value) for when, value in pairs], rest[-1])


def _same(subject: Typed, when: Typed) -> str:
    if subject.nullable and when.nullable:
        return _distinct("NOT DISTINCT FROM")([subject, when]).sql
    return compare("equals", subject, when).sql  # the subject, which may be long, only once


def _coalesce(arguments: list[Typed]) -> Typed:
    used: list[Typed] = []
    for argument in arguments:
        if argument.is_null_literal:
            continue
        used.append(argument)
        if not argument.nullable:
            break
    if not used:
        return Typed("NULL", NULL_TYPE, Constant(None))
    if len(used) == 1:
        return used[0]
    common = least_supertype([each.type for each in used])
    last_is_certain = not used[-1].nullable
    result = nullable_type(common.plain, not last_is_certain)
    sql = ", ".join(each.sql for each in unify(used, common))
    return Typed(f"coalesce({sql})", result)


def _null_if(arguments: list[Typed]) -> Typed:
    left, right = arguments
    equal = compare("equals", left, right).sql
    value = convert(left, left.plain) if left.is_condition else left
    sql = f"(CASE WHEN {equal} THEN NULL ELSE {value.sql} END)"
    return Typed(sql, nullable_type(left.type.plain))


def _assume_not_null(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    if not value.nullable or value.is_null_literal:
        return value
    plain = value.plain
    default = constant_sql(plain.default, plain)
    return Typed(f"coalesce({value.sql}, {default})", plain)


def _to_nullable(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    return Typed(value.sql, nullable_type(value.type.plain), value.constant, value.is_condition)


def _is_zero_or_null(arguments: list[Typed]) -> Typed:
    value = arguments[0]
    sql = f"(NOT coalesce({condition(value)}, false))"
    return Typed(sql, UINT8, is_condition=True)


def _like(operator: str, *, negated: bool) -> Build:
    """Return the builder of LIKE, ILIKE or their negation. The original's escape is a backslash;
    ESCAPE is left out if the pattern has none, because DuckDB is faster without.
    """

    def build(arguments: list[Typed]) -> Typed:
        subject, pattern = text(arguments[0]), text(arguments[1])
        known = arguments[1].constant.value if arguments[1].constant else None
        escape = " ESCAPE '\\'"
        if isinstance(known, str):
            known = _kept_backslashes(known)
            pattern = string_sql(known)
            escape = escape if "\\" in known else ""
        sql = f"({subject} {operator} {pattern}{escape})"
        return true_or_false(f"(NOT {sql})" if negated else sql, *arguments)

    return build


def _kept_backslashes(pattern: str) -> str:
    """Return the pattern with each backslash that escapes nothing doubled: in the original it is a
    character like any other.
    """
    pieces: list[str] = []
    place = 0
    while place < len(pattern):
        if pattern[place] != "\\":
            pieces.append(pattern[place])
        elif pattern[place + 1 : place + 2] in {"%", "_", "\\"}:
            pieces.append(pattern[place : place + 2])
            place += 1
        else:
            pieces.append("\\\\")
        place += 1
    return "".join(pieces)


def _match(arguments: list[Typed]) -> Typed:
    pattern = string_sql(checked_pattern(constant_text(arguments[1], "the regular expression")))
    sql = f"regexp_matches({text(arguments[0])}, {pattern}, 's')"
    return true_or_false(sql, *arguments)


def checked_pattern(pattern: str) -> str:
    """Return the regular expression. Raises WrongArguments if it is too long to be
    compiled fast.
    """
    if len(pattern) > 10_000:
        raise WrongArguments(
            f"the regular expression has {len(pattern)} characters; the most is 10000"
        )
    return pattern


def _type_name(arguments: list[Typed]) -> Typed:
    name = arguments[0].type.text
    if arguments[0].is_null_literal:
        name = "Nullable(Nothing)"
    return Typed(string_sql(name), DataType("String"), Constant(name))


def _least_or_greatest(name: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        arguments = [as_number(each) for each in arguments]
        common = least_supertype([each.type for each in arguments])
        unified = unify(arguments, common)
        values = [each.sql for each in unified]
        nullable = any(each.nullable for each in arguments)  # a NULL among others is ignored
        if sort_sql(unified[0]) is not None:
            listed = ", ".join(to_stored(each) for each in unified)
            known = f"list_filter([{listed}], lambda {ELEMENT}: {ELEMENT} IS NOT NULL)"
            sql = extreme_element("min" if name == "least" else "max", known, common)
            return from_stored(sql, nullable_type(common.plain, nullable))
        return Typed(f"{name}({', '.join(values)})", nullable_type(common.plain, nullable))

    return build


FUNCTIONS = (
    *(function(name, _comparison(name), 2) for name in OPERATORS),
    function("and", _connective("AND"), 2, MANY),
    function("or", _connective("OR"), 2, MANY),
    function("not", lambda it: _logical(f"(NOT {condition(it[0])})", it), 1),
    function("xor", _xor, 2, MANY),
    function("isNull", lambda it: _is_condition(f"{it[0].sql} IS NULL"), 1),
    function("isNotNull", lambda it: _is_condition(f"{it[0].sql} IS NOT NULL"), 1),
    function("isZeroOrNull", _is_zero_or_null, 1),
    function("isDistinctFrom", _distinct("DISTINCT FROM"), 2),
    function("isNotDistinctFrom", _distinct("NOT DISTINCT FROM"), 2),
    function("if", lambda it: case([(condition(it[0]), it[1])], it[2]), 3),
    function("multiIf", _multi_if, 3, MANY),
    function("caseWithExpression", _case_with_expression, 4, MANY),
    function("caseWithExpr", _case_with_expression, 4, MANY),
    function("coalesce", _coalesce, 1, MANY),
    function("ifNull", _coalesce, 2),
    function("nullIf", _null_if, 2),
    function(
        "assumeNotNull",
        _assume_not_null,
        1,
        differs="a NULL gives the type's default; the original says that it may give anything",
    ),
    function("toNullable", _to_nullable, 1),
    *(function(name, lambda it: it[0], 1) for name in ("identity", "materialize")),
    function("toTypeName", _type_name, 1),
    function("like", _like("LIKE", negated=False), 2),
    function("notLike", _like("LIKE", negated=True), 2),
    function("ilike", _like("ILIKE", negated=False), 2),
    function("notILike", _like("ILIKE", negated=True), 2),
    function("match", _match, 2),
    function("least", _least_or_greatest("least"), 1, MANY),
    function("greatest", _least_or_greatest("greatest"), 1, MANY),
)
