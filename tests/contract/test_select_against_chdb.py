"""SELECT against ClickHouse itself: names, types as they print, rows and their order."""

import re
import socket
from functools import lru_cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from rmt_pipeline.protocol.errors import UnknownTable, UserError
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.nodes import NamedTable
from rmt_pipeline.translate.connection import open_connection, user_error
from rmt_pipeline.translate.evaluate import in_stored_form
from rmt_pipeline.translate.functions.registry import all_names, real_name
from rmt_pipeline.translate.select.query import TranslatedQuery, translate_query
from rmt_pipeline.translate.select.sources import Relation
from rmt_pipeline.types.to_text import column_values, escape, formatter
from tests.support.clickhouse_oracle import ClickHouseRefused, ask, create_table
from tests.support.function_cases import CASES
from tests.support.queries import parse_query

T = tuple(
    Column(name, data_type)
    for name, data_type in (
        ("id", "Int64"),
        ("v", "String"),
        ("p", "Int32"),
        ("d", "Date"),
        ("ts", "DateTime"),
        ("f", "Float64"),
        ("n", "Nullable(Int64)"),
        ("e", "Enum8('b' = 1, 'a' = 2)"),
        ("arr", "Array(Int64)"),
        ("dec", "Decimal(9, 2)"),
        ("u", "UInt64"),
        ("lc", "LowCardinality(String)"),
        ("big", "Int128"),
        ("b", "Bool"),
    )
)
T_ROWS = """
(1, 'a', 1, '2020-01-01', '2020-01-01 10:00:00', 1.5, NULL, 'a', [1, 2], 1.5,
 18446744073709551615, 'x', 5, true),
(2, 'b', 1, '2020-02-01', '2020-02-01 11:00:00', nan, 5, 'b', [], 2.25, 1, 'y', -5, false),
(3, 'c', 2, '2021-01-01', '2021-01-01 12:30:00', -2, 7, 'a', [3], -1, 0, 'x',
 170141183460469231731687303715884105727, true),
(4, 'a', 2, '2021-01-01', '2021-01-01 23:59:59', 100, NULL, 'b', [4, 4], 0, 7, 'z', 0, false)
"""
U = (Column("id", "Int64"), Column("w", "String"), Column("k", "Nullable(Int32)"))
U_ROWS = "(1, 'one', 1), (3, 'three', NULL), (5, 'five', 5), (3, 'drei', 3)"

CASES_FILE = Path(__file__).parent.parent / "support" / "select_cases.txt"
QUERIES = [
    line
    for line in CASES_FILE.read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
# Of a session, as ClickHouse answers; its version and user are its own.
SESSION = {
    "currentDatabase": "default",
    "currentUser": "default",
    "hostName": socket.gethostname(),
    "version": "1.2",
    "uptime": "0",
}
AS_RECORDED = frozenset({"toTime"})  # as in 18.16 (tests/golden), and not as in newer versions
# Written as operators or special forms, which the cases of functions are full of.
OPERATORS = frozenset(
    {
        *("plus", "minus", "multiply", "divide", "modulo", "negate", "concat", "like", "ilike"),
        *("equals", "notEquals", "less", "lessOrEquals", "greater", "greaterOrEquals", "in"),
        *(
            "and",
            "or",
            "not",
            "notLike",
            "notILike",
            "isNull",
            "isNotNull",
            "array",
            "tuple",
            "CAST",
        ),
        *("arrayElement", "tupleElement", "caseWithExpression", "isDistinctFrom"),
    }
)


@lru_cache(maxsize=1)
def database() -> duckdb.DuckDBPyConnection:
    connection = open_connection()
    connection.register("table_t", create_table("t", T, T_ROWS))
    connection.register("table_u", create_table("u", U, U_ROWS))
    return connection


def resolve(source: NamedTable) -> Relation:
    if source.table not in {"t", "u"}:
        raise UnknownTable(f"there is no table {source.database}.{source.table}")
    return Relation(f'"table_{source.table}"', T if source.table == "t" else U)


def lines(query: TranslatedQuery) -> list[str]:
    try:
        found = database().sql(query.sql).to_arrow_table()
    except duckdb.Error as problem:
        raise user_error(problem, query.sql) from None
    columns = [_texts(found.column(place), query, place) for place in range(len(query.columns))]
    rows = ["\t".join(row) for row in zip(*columns, strict=True)]
    return ["\t".join(escape(column.name) for column in query.columns), *rows]


def _texts(array: pa.ChunkedArray, query: TranslatedQuery, place: int) -> list[str]:
    data_type = query.columns[place].type
    write = formatter(data_type, "TSV")
    return [write(value) for value in column_values(in_stored_form(array, data_type))]


def ours(query: str) -> list[str] | None:
    try:
        return lines(translate_query(parse_query(query), resolve, SESSION))
    except UserError:
        return None


def theirs(query: str) -> list[str] | None:
    try:
        return ask(query, "TSVWithNames").split("\n")
    except ClickHouseRefused:
        return None


def same_rows(found: list[str] | None, right: list[str] | None, *, ordered: bool) -> bool:
    if found is None or right is None or ordered:
        return found == right
    return found[0] == right[0] and sorted(found[1:]) == sorted(right[1:])


def says_an_order(query: str) -> bool:
    """Whether all its rows are ordered: ORDER BY at the end of a UNION is the last SELECT's own,
    and whose rows come first is left to the threads.
    """
    outermost = re.sub(r"\(.*\)", "", query.lower())
    return "order by" in query.lower() and " union " not in outermost


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_as_clickhouse_does(query: str) -> None:
    database()
    found, right = ours(query), theirs(query)
    if not same_rows(found, right, ordered=says_an_order(query)):
        assert found == right


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (
            "select runningDifference(neighbor(id, 1)) from t",
            "runningDifference; .* a subquery",
        ),
        (
            "select neighbor(runningDifference(id), 1) from t",
            "inside of neighbor; .* a subquery",
        ),
        ("select sum(rowNumberInAllBlocks()) over () from t", "inside of sum; .* a subquery"),
        ("select runningDifference(id) as x, neighbor(x, 1) from t", "neighbor.* a subquery"),
        ("select runningDifference(id) as x from t where x > 1", "QUALIFY: runningDifference"),
        ("select sumIfArray(arr, 1) from t", "as in sumArrayIf"),
        ("select minArrayArray([arr]) from t", "-Array once"),
        ("select sumArrayOrNull(arr) from t", "no -OrNull.*ARRAY JOIN"),
        ("select sumArray(2)(arr) from t", "sumArray takes no parameters"),
        ("select groupArrayArray(0)(arr) from t", "takes one size above 0, not 0"),
        ("select sumMapDistinct(arr, arr) from t", "DISTINCT of rows is not supported"),
        (
            "select leadInFrame(id) over (order by id) from t",
            "UNBOUNDED FOLLOWING, or use lead",
        ),
        ("select count() from t any right join u on t.id > u.id", "equalities"),
        ("select n from t order by n nulls first with fill", "leave NULLS FIRST out"),
        (
            "select d from t order by d with fill step interval 1 month",
            "of DAY, WEEK for Date, not MONTH",
        ),
    ],
)
def test_a_query_that_cannot_be_right_is_refused_with_the_remedy(
    query: str, words: str
) -> None:
    with pytest.raises(UserError, match=words) as refused:
        lines(translate_query(parse_query(query), resolve, SESSION))
    assert "SELECT CAST" not in str(refused.value)


def test_every_name_of_the_allow_list_is_compared() -> None:
    texts = [*QUERIES, *(text for group in CASES.values() for text in group)]
    called = {real_name(name) for text in texts for name in re.findall(r"(\w+)\s*\(", text)}
    assert sorted(set(all_names()) - called - OPERATORS - AS_RECORDED) == []
