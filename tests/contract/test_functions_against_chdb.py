"""Each function of the allow-list, row by row, against ClickHouse itself.

`DIFFERENT` is the one table of answers that are not the original's, each with its reason. An
expression that differs must be in it, and an entry that no expression needs must go.
"""

import re
from functools import lru_cache

import pyarrow as pa
import pytest

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.translate.evaluate import evaluate
from rmt_pipeline.translate.expression import Expression, compile_expression
from rmt_pipeline.types.to_text import column_values, formatter
from tests.support.clickhouse_oracle import ClickHouseRefused, ask, create_table
from tests.support.edge_rows import COLUMNS, VALUES
from tests.support.function_cases import CASES

REFUSED = "refused"
_BYTES = "a piece that cuts through a character is no text: refused; there broken bytes"
_DIGITS = "a Decimal with more digits than its type has is refused; there it may have more"
_FLOATS = "a float too large for 128 bits is refused; there the answer depends on the machine"
_WIDE = "128 bits do not wrap: what leaves them is refused"
_ROUND = "rounding out of the type's range is refused; there it wraps"
_DIVIDE = "the quotient of the numbers; there they are cut to the result's type first"
_GCD = "gcd with zero is the other number; this version of the original refuses it"
_NULLABLE = "text that is no value is refused; there it becomes NULL where NULL can be"
_FIXED = (
    "a FixedString is taken as the String of its bytes; there it is refused, or keeps zeros"
)
_OFFSET = "the place 0 gives an empty string, as up to 24.x; there it is refused for columns"
_LIBM = "another library of functions: the last digit, or the last power of two"
_COMPACT = "YYYYMMDD is that day; there it is a number of seconds for these functions"
_ENDS = "before the first or after the last Date or DateTime"
_TRUNC = "a Date or DateTime as up to 24.x; there dateTrunc keeps DateTime64 and Date32"
_NANO = "out of range of nanoseconds is refused; there it wraps"
_BELOW = "below a second before 1970, rounded down; there towards zero"
_INTEGERS = "U?Int(8|16|32|64|128)"

DIFFERENT: tuple[tuple[str, str], ...] = (
    (rf"to{_INTEGERS}\([fg]\)", _FLOATS),
    (r"f % 3", "the exact remainder; there -inf for 1.8e308"),
    (r"dec [-+] 1|dec [*] 2|dec [+] i8", _DIGITS),
    (r"(round|roundBankers|floor|ceil|ceiling)\(dec(, 1)?\)", _DIGITS),
    (r"dec % 3", "the remainder of decimals is refused; there it is of their digits"),
    (r"(negate|abs)\(i128\)|i128 [-+] 1|i128 [*] 3", _WIDE),
    (r"(gcd|lcm)\((i8|u8|i32|i64|u64), 6\)", _GCD),
    (r"(round|roundBankers)\((i8|u8|i32|i64|u64), -1\)", _ROUND),
    (r"floor\(i(8|32|64), -1\)|ceil\((i8|u8|i32|i64|u64), -1\)", _ROUND),
    (r"intDiv(OrZero)?\((i8, u8|i8, u64|u8, i8|i32, u64|i64, u64|u64, i(8|32|64))\)", _DIVIDE),
    (r"(substring|left|right)\(s, -?[12].*\)(?<!left\(s, 2\))", _BYTES),
    (r"substring\(s, -20, 15\)|reverse\((s|fs)\)|(left|right)Pad\((s|fs), 5.*\)", _BYTES),
    (r"substring\(fs, (2|2, 3|-2)\)|right\(fs, (2|-1)\)", _BYTES),
    (r"ascii\((s|fs)\)", "the code point of a character beyond ASCII; there its first byte"),
    (r"substring\((s|ns|lc|num|fs), 0\)", _OFFSET),
    (r"CAST\((s|ns|lc), 'Nullable\(Int32\)'\)", _NULLABLE),
    (
        r"to(Int8|UInt8|Float64|Date|DateTime)\(ns\)|to(Decimal32|DateTime64)\(ns, .\)",
        _NULLABLE,
    ),
    (r"(lower|upper|reverse)UTF8\(fs\)|(substring|left|right)UTF8\(fs, .*\)", _FIXED),
    (r"position(UTF8|CaseInsensitive|CaseInsensitiveUTF8)?\(fs, .*\)", _FIXED),
    (r"(startsWithUTF8|endsWithUTF8|substringIndex|multiSearchAny)\(fs, .*\)", _FIXED),
    (r"(repeat|countSubstrings|extract|extractAll|editDistance)\(fs, .*\)", _FIXED),
    (
        r"(alphaTokens|appendTrailingCharIfAbsent|encodeURLComponent)\(fs.*\)|if\(fs = .*",
        _FIXED,
    ),
    (r"to(Int8|UInt8|Int32OrNull|Int8OrNull)\(fs\)|toDecimal32\(fs, 2\)", _FIXED),
    (r"CAST\(fs, 'Nullable\(Int32\)'\)", _FIXED),
    (r"toDateTime(64)?Or(Null|Zero)\(dt(, 3)?\)", _COMPACT),
    (r"toStartOfDay\(tk\)|toStartOfDay\(t[sk], 'Europe/Berlin'\)", _ENDS),
    (r"toStartOfISOYear\(t64\)|toDate\(t64\)|toDateTime\(d, 'Asia/Tokyo'\)", _ENDS),
    (r"toStartOfInterval\(tk, interval 3 day\)|t[sk] < d|d < ts", _ENDS),
    (r"date(Trunc|_trunc)\('(month|week|hour)', t(64|9)\)", _TRUNC),
    (r"monthName\(t64\)|toDateTime64\(t9, 3\)", _BELOW),
    (r"dateDiff\('hour', tk, ts\)", "the hours between; there nine more, Tokyo's offset"),
    (r"add(Hours|Minutes)\(t9, .*\)|t9 [+] interval 1 day", _NANO),
    (r"fromUnixTimestamp64Nano\(i64\)", _NANO),
    (r"makeDate\(2020, u8, 31\)", "a month that is none is refused; there it gives 1970"),
    (r"toRelativeHourNum\(t64\)", "0 before 1970; there 23 for its last hour, and 0 earlier"),
    (r"toDateTime64\(f, 3\)", "infinity is no time: refused; there the years 0 and 9999"),
    (r"parseDateTimeBestEffortOrNull\(dt\)", "ISO 8601 alone, not 20210103"),
    (r"toDateTime64OrNull\(s, 3\)", "an empty string is no time: NULL; there 1970"),
    (r"arrayAvg\(arr\)", "of the exact sum; there of a sum that has wrapped"),
    (r"n \? 1 : 2", "a Nullable condition may be any integer; there UInt8 alone"),
    (r"atan\(f\)|exp10\(g\)|hypot\(f, 1\)", _LIBM),
)


@lru_cache(maxsize=1)
def edge_rows() -> pa.Table:
    return create_table("edge", COLUMNS, VALUES)


def ours(text: str) -> list[str]:
    """Each row's answer in TSV; REFUSED where computing it is an error."""
    try:
        expression = compile_expression(text, COLUMNS, allow_nondeterministic=True)
    except UserError:
        return [REFUSED] * edge_rows().num_rows
    try:
        return _formatted(expression, edge_rows())
    except UserError:
        return [_one(expression, place) for place in range(edge_rows().num_rows)]


def _formatted(expression: Expression, rows: pa.Table) -> list[str]:
    write = formatter(expression.type, "TSV")
    return [write(value) for value in column_values(evaluate([expression], rows)[0])]


def _one(expression: Expression, place: int) -> str:
    try:
        return _formatted(expression, edge_rows().slice(place, 1))[0]
    except UserError:
        return REFUSED


def theirs(text: str) -> list[str]:
    count = edge_rows().num_rows
    try:
        return ask(f"SELECT {text} FROM edge ORDER BY k").split("\n")
    except ClickHouseRefused:
        return [_asked(text, place) for place in range(count)]


def _asked(text: str, place: int) -> str:
    try:
        return ask(f"SELECT {text} FROM edge WHERE k = {place}")
    except ClickHouseRefused:
        return REFUSED


def reason_for(text: str) -> str | None:
    return next((why for pattern, why in DIFFERENT if re.fullmatch(pattern, text)), None)


@pytest.mark.parametrize("group", CASES)
def test_answers_are_clickhouses_own(group: str) -> None:
    unexplained = {}
    for text in CASES[group]:
        if reason_for(text) is None:
            found, right = ours(text), theirs(text)
            if found != right:
                unexplained[text] = list(zip(found, right, strict=True))
    assert unexplained == {}


@pytest.mark.parametrize("group", CASES)
def test_what_is_listed_as_different_does_differ(group: str) -> None:
    alike = [text for text in CASES[group] if reason_for(text) and ours(text) == theirs(text)]
    assert alike == []


def test_each_entry_of_the_table_is_needed() -> None:
    every = [text for group in CASES.values() for text in group]
    unused = [p for p, _ in DIFFERENT if not any(re.fullmatch(p, text) for text in every)]
    assert unused == []
