"""Whole answers in each text format, as ClickHouse writes them; without `statistics`."""

import io
import re
from collections.abc import Iterator

import pytest

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.sql.formats.rows import Rows
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run.session import Session
from tests.support.clickhouse_oracle import ask
from tests.support.local_session import local_session

COLUMNS = (
    "toUInt8(1) AS a",
    r"""'x\'<>&|"y\n\tz' AS `b c`""",
    "CAST(NULL, 'Nullable(String)') AS n",
    "[1, 2] AS r",
    r"['p\'q<'] AS rs",
    "toDate('2020-01-01') AS d",
    "toDateTime('2020-01-01 00:00:00', 'UTC') AS dt",
    "[toDateTime('2020-01-01 00:00:00', 'UTC')] AS dts",
    "toDateTime64('2020-01-01 00:00:00.5', 3, 'UTC') AS dt64",
    "(1, 't') AS tu",
    "toUInt64(18446744073709551615) AS u",
    "nan AS f",
    "map('k', 1) AS m",
    "true AS bo",
    "toDecimal32(1.50, 2) AS de",
    "toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0') AS uu",
    "CAST('a', 'Enum8(\\'a\\' = 1)') AS e",
)
ONE = f"SELECT {', '.join(COLUMNS)}"
SEVERAL = "SELECT toUInt8(number) AS n, concat('s', toString(number)) AS s FROM numbers(3)"
NONE = "SELECT toUInt8(number) AS n, toString(number) AS s FROM numbers(0)"
_STRING_FORMATS = (
    "JSONStrings",
    "JSONCompactStrings",
    *("JSONCompactStringsEachRow", "JSONCompactStringsEachRowWithNames"),
    *("JSONCompactStringsEachRowWithNamesAndTypes", "JSONStringsEachRow"),
)
FORMATS = (
    *("TSV", "TSVRaw", "TSVRawWithNames", "TSVRawWithNamesAndTypes", "TSVWithNames"),
    *("TSVWithNamesAndTypes", "TSKV", "CSV", "CSVWithNames", "CSVWithNamesAndTypes"),
    *("JSONCompact", "JSONColumns", "JSONCompactColumns", "JSONColumnsWithMetadata"),
    *("JSONCompactEachRow", "JSONCompactEachRowWithNames"),
    *("JSONCompactEachRowWithNamesAndTypes", "JSONEachRow", "JSONObjectEachRow"),
    *_STRING_FORMATS,
    *("Markdown", "SQLInsert", "Values", "XML"),
)
_STATISTICS = re.compile(
    r',\n\n\t"statistics":\n\t\{[^}]*\}|\t<statistics>.*?</statistics>\n', re.DOTALL
)


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Iterator[Session]:
    with local_session(tmp_path_factory.mktemp("formats")) as opened:
        yield opened


def ours(session: Session, query: str, format_name: str) -> str:
    answer = session.execute(f"{query} SETTINGS output_format_json_quote_64bit_integers = 1")
    assert isinstance(answer, Rows)
    out = io.BytesIO()
    write_rows(answer, format_name, out)
    return out.getvalue().decode().removesuffix("\n")


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("query", [ONE, SEVERAL, NONE], ids=["one row", "several", "none"])
def test_an_answer_is_written_as_by_clickhouse(session, format_name, query):
    wanted = _STATISTICS.sub("", ask(query, format_name))
    assert ours(session, query, format_name) == wanted


@pytest.mark.parametrize(
    ("format_name", "query"),
    [
        ("JSON", SEVERAL),
        ("JSON", NONE),
        ("RawBLOB", "SELECT toString(number), 'x\\t' FROM numbers(3)"),
    ],
)
def test_a_flat_answer_is_written_as_by_clickhouse(session, format_name, query):
    """Later versions than 24 indent tuples and maps in JSON; RawBLOB is of Strings here."""
    wanted = _STATISTICS.sub("", ask(query, format_name))
    assert ours(session, query, format_name) == wanted


@pytest.mark.parametrize(
    "format_name", [*FORMATS, "JSON", "Pretty", "PrettyCompact", "Vertical"]
)
def test_totals_are_written_as_by_clickhouse(session, format_name):
    query = (
        "SELECT toString(number % 2) AS k, toInt32(sum(number)) AS n FROM numbers(5) GROUP BY k"
        " WITH TOTALS ORDER BY k"
    )
    wanted = _STATISTICS.sub("", ask(query, format_name)).rstrip("\n")
    assert ours(session, query, format_name).rstrip("\n") == wanted


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM (SELECT count() FROM numbers(3) WITH TOTALS)", "in a subquery"),
        ("SELECT count() FROM numbers(3) WITH TOTALS UNION ALL SELECT 1", "and UNION"),
        ("SELECT number FROM numbers(3) WITH TOTALS", "WITH TOTALS without GROUP BY"),
    ],
)
def test_totals_where_there_can_be_none_are_refused(session, query, message):
    with pytest.raises(UserError, match=message):
        session.execute(query)


@pytest.mark.parametrize(
    ("columns", "clauses"),
    [
        ("number % 3 AS k, count() AS c", "GROUP BY k WITH TOTALS HAVING c > 3"),
        (
            "nullIf(number % 3, 1) AS k, sum(number)",
            "GROUP BY k WITH TOTALS HAVING sum(number) < 15 ORDER BY k",
        ),
        ("number % 3 AS k, count()", "WHERE 0 GROUP BY k WITH TOTALS"),
        (
            "number % 2 AS k, number % 3 AS j, count()",
            "GROUP BY k, j WITH ROLLUP WITH TOTALS ORDER BY k, j, count()",
        ),
        (
            "DISTINCT toString(number % 3) AS k, k = '', max(number) + 1 AS m",
            "GROUP BY k WITH TOTALS ORDER BY m LIMIT 1",
        ),
    ],
)
def test_totals_are_of_the_groups_that_having_leaves(session, columns, clauses):
    query = f"SELECT {columns} FROM numbers(10) {clauses}"
    assert ours(session, query, "TSV") == ask(query, "TSV").removesuffix("\n")


def test_raw_blob_refuses_what_is_no_string(session):
    with pytest.raises(UserError, match="n is UInt8"):
        ours(session, SEVERAL, "RawBLOB")
