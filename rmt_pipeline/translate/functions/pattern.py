"""Functions of strings: regular expressions, splitting, counting, formatting."""

import re

from rmt_pipeline.translate.base.casts import nullable_like
from rmt_pipeline.translate.base.function import (
    MANY,
    Build,
    any_text,
    constant_integer,
    constant_text,
    function,
    template,
    text,
    true_or_false,
)
from rmt_pipeline.translate.base.text_form import text_of
from rmt_pipeline.translate.base.typed import (
    STRING,
    UINT64,
    Typed,
    TypeProblem,
    array_of,
    from_stored,
    string_sql,
)
from rmt_pipeline.translate.functions.logic import checked_pattern


def _replace_regexp(*, everywhere: bool) -> Build:
    flags = "'gs'" if everywhere else "'s'"

    def build(arguments: list[Typed]) -> Typed:
        subject = text(arguments[0])
        pattern = checked_pattern(constant_text(arguments[1], "the regular expression"))
        replacement = constant_text(arguments[2], "the replacement")
        if not pattern:
            return Typed(subject, nullable_like(STRING, *arguments))
        both = f"{string_sql(pattern)}, {string_sql(replacement)}"
        sql = f"regexp_replace({subject}, {both}, {flags})"
        return Typed(sql, nullable_like(STRING, *arguments))

    return build


def _split_by_char(arguments: list[Typed]) -> Typed:
    separator = constant_text(arguments[0], "the separator")
    if len(separator.encode("utf-8", "surrogateescape")) != 1:
        raise TypeProblem(f"splitByChar takes a separator of one byte, not {separator!r}")
    return _split(f"string_split({text(arguments[1])}, {string_sql(separator)})", arguments)


def _split_by_string(arguments: list[Typed]) -> Typed:
    separator = string_sql(constant_text(arguments[0], "the separator"))
    return _split(f"string_split({text(arguments[1])}, {separator})", arguments)


def _split_by_regexp(arguments: list[Typed]) -> Typed:
    pattern = checked_pattern(constant_text(arguments[0], "the regular expression"))
    subject = text(arguments[1])
    if not pattern:
        return _split(f"string_split({subject}, '')", arguments)
    return _split(f"regexp_split_to_array({subject}, {string_sql(pattern)})", arguments)


def _split(sql: str, arguments: list[Typed]) -> Typed:
    if arguments[1].nullable:
        raise TypeProblem("an array cannot be NULL: use assumeNotNull on what is split")
    if len(arguments) > 2:
        most = constant_integer(arguments[2], "the number of pieces")
        if most > 0:
            sql = f"list_slice({sql}, 1, {most})"
    return Typed(sql, array_of(STRING))


def _join(arguments: list[Typed]) -> Typed:
    if arguments[0].plain.family != "Array":
        raise TypeProblem(f"arrayStringConcat takes an Array, not {arguments[0].type.text}")
    separator = string_sql("")
    if len(arguments) > 1:
        separator = string_sql(constant_text(arguments[1], "the separator"))
    element = text_of(from_stored("e", arguments[0].plain.elements[0]))
    pieces = f"list_transform({arguments[0].sql}, lambda e: {element})"
    return Typed(f"coalesce(array_to_string({pieces}, {separator}), '')", STRING)


def _extracted(name: str, arguments: list[Typed]) -> str:
    pattern = checked_pattern(constant_text(arguments[1], "the regular expression"))
    group = 1 if has_group(pattern) else 0
    return f"{name}({text(arguments[0])}, {string_sql(pattern)}, {group}, 's')"


def _extract(arguments: list[Typed]) -> Typed:
    return Typed(_extracted("regexp_extract", arguments), nullable_like(STRING, *arguments))


def _alpha_tokens(arguments: list[Typed]) -> Typed:
    """`alphaTokens(s)`: the runs of Latin letters."""
    sql = f"regexp_extract_all({text(arguments[0])}, '[A-Za-z]+')"
    return Typed(f"coalesce({sql}, CAST([] AS VARCHAR[]))", array_of(STRING))


def _extract_all(arguments: list[Typed]) -> Typed:
    sql = _extracted("regexp_extract_all", arguments)
    return Typed(f"coalesce({sql}, CAST([] AS VARCHAR[]))", array_of(STRING))


_GROUP = re.compile(
    r"""\\Q.*?(?:\\E|\Z) | \\.                          # quoted characters
    | \[\^?\]?(?:\\. | \[:\^?[a-z]+:\] | [^\]\\])*\]   # a class, in which `(` is one
    | (?P<group>\((?!\?) | \(\?P?<(?![=!]))""",
    re.DOTALL | re.VERBOSE,
)


def has_group(pattern: str) -> bool:
    """Whether a regular expression has a capturing group, with or without a name."""
    return any(found["group"] for found in _GROUP.finditer(pattern))


_COUNTED = (
    "CAST((CASE WHEN {1} = '' THEN 0 "
    "ELSE (strlen({0}) - strlen(replace({0}, {1}, ''))) // strlen({1}) END) AS UBIGINT)"
)


def _substring_index(arguments: list[Typed]) -> Typed:
    """`substringIndex(s, separator, n)`: the text before the n-th separator; for a negative n, the
    text after the n-th separator from the end.
    """
    separator = constant_text(arguments[1], "the separator")
    count = constant_integer(arguments[2], "the number of pieces")
    if len(separator) != 1:
        raise TypeProblem(
            f"substringIndex takes a separator of one character, not {separator!r}"
        )
    pieces = f"string_split({text(arguments[0])}, {string_sql(separator)})"
    kept = f"list_slice({pieces}, 1, {count})"
    if count <= 0:
        kept = f"list_slice({pieces}, greatest(len({pieces}) + 1 - {-count}, 1), len({pieces}))"
    sql = f"array_to_string({kept}, {string_sql(separator)})"
    return Typed(sql, nullable_like(STRING, arguments[0]))


def _any_found(arguments: list[Typed]) -> Typed:
    needles = arguments[1]
    if needles.plain.family != "Array" or not needles.plain.elements[0].is_string:
        raise TypeProblem(
            f"multiSearchAny takes an Array(String) to look for, not {needles.type.text}"
        )
    haystack = text(arguments[0])
    found = f"list_transform({needles.sql}, lambda e: contains({haystack}, e))"
    # In an empty text nothing is found, not even an empty needle.
    sql = (
        f"(CASE WHEN {haystack} IS NULL THEN NULL WHEN {haystack} = '' THEN false "
        f"ELSE coalesce(list_bool_or({found}), false) END)"
    )
    return true_or_false(sql, arguments[0])


def _count_matches(arguments: list[Typed]) -> Typed:
    pattern = string_sql(checked_pattern(constant_text(arguments[1], "the regular expression")))
    sql = f"CAST(len(regexp_extract_all({text(arguments[0])}, {pattern}, 0, 's')) AS UBIGINT)"
    return Typed(sql, nullable_like(UINT64, *arguments))


def _format(arguments: list[Typed]) -> Typed:
    """`format('{} {1}', a, b)`: the values joined as the constant pattern says. Raises
    TypeProblem.
    """
    pattern = constant_text(arguments[0], "the pattern")
    values = [any_text(each) for each in arguments[1:]]
    pieces, literal, place, following = [], "", 0, 0
    while place < len(pattern):
        pair = pattern[place : place + 2]
        if pair in {"{{", "}}"}:
            literal += pair[0]
            place += 2
            continue
        if pattern[place] not in "{}":
            literal += pattern[place]
            place += 1
            continue
        end = pattern.find("}", place)
        inner = pattern[place + 1 : end] if pattern[place] == "{" and end > place else "?"
        number = int(inner) if inner.isascii() and inner.isdigit() and len(inner) < 4 else None
        if inner == "":
            number, following = following, following + 1
        if number is None or number >= len(values):
            raise TypeProblem(f"cannot read the pattern {pattern!r} for {len(values)} values")
        pieces += [string_sql(literal), values[number]]
        literal, place = "", end + 1
    pieces.append(string_sql(literal))
    return Typed(f"({' || '.join(pieces)})", nullable_like(STRING, *arguments))


def _translate(arguments: list[Typed]) -> Typed:
    source = constant_text(arguments[1], "the characters to replace")
    target = constant_text(arguments[2], "the characters to put in their place")
    sql = f"translate({text(arguments[0])}, {string_sql(source)}, {string_sql(target)})"
    return Typed(sql, nullable_like(STRING, *arguments))


FUNCTIONS = (
    function("replaceRegexpAll", _replace_regexp(everywhere=True), 3),
    function("replaceRegexpOne", _replace_regexp(everywhere=False), 3),
    function("splitByChar", _split_by_char, 2, 3),
    function("splitByString", _split_by_string, 2, 3),
    function("splitByRegexp", _split_by_regexp, 2, 3),
    function("arrayStringConcat", _join, 1, 2),
    function("countSubstrings", template(_COUNTED, UINT64, text), 2),
    function("countMatches", _count_matches, 2),
    function("substringIndex", _substring_index, 3),
    function("multiSearchAny", _any_found, 2),
    function("extract", _extract, 2),
    function("extractAll", _extract_all, 2),
    function("alphaTokens", _alpha_tokens, 1),
    function("format", _format, 1, MANY),
    function("translate", _translate, 3),
)
