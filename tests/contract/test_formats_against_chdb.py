"""Values in TSV, CSV and JSON, and canonical texts, as ClickHouse writes them."""

import pyarrow as pa
import pytest

from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import aliased
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.from_text import parse_value
from rmt_pipeline.types.to_text import Style, column_values, formatter
from tests.support.clickhouse_oracle import ask, type_name

VALUES = (
    r"'a\tb\nc\\d\'e\rf\bg\fh\0i\"j/k\x07\x1b\x7f'",
    "'é'",
    "''",
    "' a,b '",
    *("toFloat64(1e20)", "1e21", "123456789012345680000.", "1.5e-5", "0.000001", "1e-7"),
    *("-0.0", "1/3", "nan", "inf", "-inf", "123456.789", "5e-324", "1.7976931348623157e308"),
    *("toFloat32(0.1)", "toFloat32(16777217)", "toFloat32(3.4e38)", "toFloat32(1e-7)"),
    *("toFloat32(1/3)", "toFloat32(1.1754944e-38)", "0.1 + 0.2", "1e22", "123e18"),
    *("toInt64(-5)", "toUInt64(18446744073709551615)", "toInt128(5)", "toUInt8(5)"),
    *(
        "toInt256('-57896044618658097711785492504343953926634992332820282019728792003956564819968')",
    ),
    *("toUInt128('340282366920938463463374607431768211455')", "toInt128(-1)"),
    *("toDecimal64(1.50, 4)", "toDecimal64(-0.05, 2)", "toDecimal128(100, 2)"),
    *("toDecimal256('-1.5', 10)", "toDecimal32(0, 0)", "toDecimal256('0.005', 3)"),
    *("toDate('2020-01-01')", "toDate32('1900-01-01')"),
    *("toDateTime('2020-01-01 00:00:00', 'Asia/Tokyo')", "toDateTime(0, 'UTC')"),
    *("toDateTime64('2020-01-01 00:00:00.12', 3)", "toDateTime64('1960-01-01 00:00:00.5', 9)"),
    "toDateTime64('2020-07-01 00:00:00.123456', 6, 'Europe/Berlin')",
    *("toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')", "CAST('a', 'Enum8(\\'a\\' = 1)')"),
    *("true", "toBool(0)", "toNullable(5)", "CAST(NULL, 'Nullable(String)')"),
    *("toFixedString('a', 3)", "toIPv4('1.2.3.4')", "toIPv6('::1')", "toIPv6('1.2.3.4')"),
    "toIPv6('2001:db8::8:800:200c:417a')",
    *("[1, 2]", "['a\\'b\\n', 'c\"d']", "[NULL, 'x']", "[[1], []]", "[toDate('2020-01-01')]"),
    *("[1.5, nan, inf]", "[true]", "[toFixedString('a', 3)]", "[(1, 'a')]", "[toUInt64(5)]"),
    "[toDateTime('2020-01-01 00:00:00', 'Asia/Tokyo')]",
    *("(1, 'a')", "tuple(1)", "(toNullable(1), [2])", "map('a', 1, 'b', 2)", "map(1, ['x'])"),
    *("CAST((1, 'x'), 'Tuple(a Int8, b String)')", "map('k', toNullable('v'))"),
    *("map(toDate('2020-01-01'), 1)", "map('a', map('b', [toInt64(1)]))"),
    *(
        "[toDecimal64(1.50, 4)]",
        "(toIPv4('1.2.3.4'), toUUID('00000000-0000-0000-0000-000000000000'))",
    ),
)
FORMATS: tuple[tuple[Style, str], ...] = (
    ("TSV", "TSV"),
    ("CSV", "CSV"),
    ("JSON", "JSONCompactEachRow"),
)

# Each is its own canonical text, or comes with it.
EXPRESSIONS = (
    *("(id = 2) OR (v = 'e')", "(a AND b AND c) OR d", "a AND (b AND c)", "NOT (a = b)"),
    *("toYYYYMM(create_time)", "a + (b * c)", "(a + b) * c", "(a - b) - c", "a % b"),
    *("-x", "a - -5", "a + (-b)", "concat(a, b, c)", "intDiv(a, b)", "a != b", "a IS NULL"),
    *("a IS NOT NULL", "(a IS NULL) = b", "a IN (1, 2)", "a IN (1)", "a NOT IN (1, 2)"),
    *("a IN tuple(1, 2)", "a IN [1, 2]", "(a, b) IN ((1, 2), (3, 4))", "a LIKE 'x'"),
    *("a NOT LIKE 'x'", "a ILIKE 'x'", "match(a, 'x')", "if(a, b, c)", "multiIf(a, b, c)"),
    *("caseWithExpression(x, 1, 2, 3)", "CAST(x, 'Int32')", "CAST('1', 'Int8')"),
    *("toIntervalDay(1)", "toIntervalDay(a + 1)", "now() - toIntervalMinute(5)", "[a, b]"),
    *("(1, 2)", "tuple(1)", "arr[1]", "arr[-1]", "t.1", "(a.1).2", "(f(x)).1", "t.a"),
    *("arrayMap(x -> (x + 1), a)", "arrayMap((x, y) -> (x + y), a, b)", "toYear(x)"),
    *(
        "substring(x, 1, 2)",
        "position(s, 'a')",
        "trimBoth(s, 'x')",
        "plus(x, toIntervalDay(1))",
    ),
    *("dateDiff('day', a, b)", "quantile(0.5)(x)", "countDistinct(x)", "sumIf(x, y)"),
    *("sum(x) OVER (PARTITION BY a ORDER BY b ASC)", "sum(x) OVER w", "'it\\'s'", "'a\\nb'"),
    *("'\\\\%'", "1.5", "100000.", "1e25", "-0.", "18446744073709551615", "inf", "NULL"),
    *("true", "`a b`", "x", "a <=> b", "a IS DISTINCT FROM b", "(a, b) = (1, 2)"),
    *("a AND (NOT b)", "-(-a)", "NOT (NOT a)", "[1, [2]]", "((1, 2), 3)", "a IN (NULL, 1)"),
    *("plus(1, 2)", "and(a, b, c)", "LOWER(s)", "a + 1 AS y", "(a AS b) + 1", "-(5)"),
    *("lag(x) OVER (ORDER BY b DESC ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)", "`from`"),
    "((a >= 1) AND (a <= 2)) AND b",
)
WRITTEN = (
    *("id=2 or v='e'", "not x and not y", "a between 1 and 2", "a not between 1 and 2"),
    *("not a between 1 and 2", "a == b", "a <> b", "a mod b", "a div b", "a||b||c"),
    *(
        "case when a then b else c end",
        "case when a then b end",
        "case x when 1 then 2 else 3 end",
    ),
    *("cast(x as Int32)", "x::Nullable(String)", "1::Int8", "-1::Int8", "1.5::Decimal(9,2)"),
    *("x::Enum8('a'=1)", "x::DateTime('UTC')", "interval 1 day", "interval '1 day'"),
    *("interval a+1 day", "date '2020-01-01'", "timestamp '2020-01-01 00:00:00'"),
    *("extract(year from x)", "substring(x from 1 for 2)", "position('a' in s)", "trim(s)"),
    *("trim(leading 'x' from s)", "dateAdd(day,1,x)", "DATE_SUB(x, interval 1 day)"),
    *("timestampdiff(day,a,b)", "count(distinct x)", "sum(x) filter (where y)", "x as y"),
    *("'it''s'", "'\\x41'", "0x1F", "0b11", "1_000", "1.", '"x"', "`a``b`", "a.b.c.1"),
    *("- - a", "not a is null", "a < b < c", "a = (b = c)", "a or b and c", "a -1", "a * -1"),
    *("18446744073709551616", "x'41'", "not not a", "-a*b", "a is not distinct from b"),
)


@pytest.mark.parametrize("expression", VALUES)
def test_a_value_is_written_as_clickhouse_writes_it(expression: str) -> None:
    data_type = parse_type(type_name(expression))
    raw = ask(f"SELECT {expression}", "TSVRaw")
    array = pa.array([parse_value(data_type, None if raw == "\\N" else raw)], data_type.arrow)
    for style, output in FORMATS:
        right = ask(f"SELECT {expression} AS x", output)
        right = right[1:-1] if style == "JSON" else right
        write = formatter(data_type, style)
        assert write(column_values(array)[0]) == right
        assert write(array.to_pylist()[0]) == right


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_canonical_text_is_its_own(text: str) -> None:
    assert canonical(aliased(Cursor(text))) == text
    assert formatted(text) == text


@pytest.mark.parametrize("text", WRITTEN)
def test_a_text_becomes_the_canonical_one(text: str) -> None:
    assert canonical(aliased(Cursor(text))) == formatted(text)


def formatted(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    answer = ask(f"SELECT formatQuerySingleLine('SELECT {quoted}')", "TSVRaw")
    return answer.removeprefix("SELECT ")
