r"""Whole statements through a session and through ClickHouse itself: the same rows come out.

Also what a language consists of: every escape and every kind of token, one by one.
"""

import json
import string
from collections.abc import Iterator

import pytest

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.sql.run.session import Session
from tests.support.clickhouse_oracle import ClickHouseRefused, ask, connection
from tests.support.local_session import create, local_session, rows


@pytest.fixture
def session(tmp_path) -> Iterator[Session]:
    with local_session(tmp_path) as opened:
        yield opened


@pytest.fixture
def texts(session) -> Session:
    """With a table `texts` of one String, here and in ClickHouse."""
    create(session, "CREATE TABLE texts (s String) ENGINE = ReplicatedMergeTree ORDER BY s")
    connection().query("CREATE OR REPLACE TABLE texts (s String) ENGINE = MergeTree ORDER BY s")
    return session


# A backslash before each character that is printed, and before white space; `\x` has its own test.
ESCAPES = [f"'a\\{character}b'" for character in string.printable if character not in "x'"]


def test_a_string_means_the_same_in_values_and_in_select_as_in_clickhouse(texts):
    inserted = ", ".join(f"({each})" for each in [*ESCAPES, r"'it''s'", r"'\'\\'", r"'\x41'"])
    statement = f"INSERT INTO texts VALUES {inserted}"
    connection().query(statement)
    texts.execute(statement)
    wanted = ask("SELECT hex(s) FROM texts ORDER BY s").split("\n")
    assert rows(texts, "SELECT hex(s) FROM texts ORDER BY s") == [(each,) for each in wanted]
    selected = ", ".join(f"hex({each})" for each in ESCAPES)
    assert [*rows(texts, f"SELECT {selected}")[0]] == ask(f"SELECT {selected}").split("\t")


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "1_000",
            "1.5_5",
            "1_0.5",
            "1.e5",
            "5.",
            "0x1F",
            "0x1F_F",
            "0b11",
            "1e5_0",
            "1.5e3_0",
        ),
        *("x'41'", "X'4'", "b'01000001'", "1 #!x\n+1", "1 # x\n+1", "1 -- x\n+1", "1/*x*/+1"),
        *("(1, (2, 3)).2.1", "[(1, 2)][1].2", "1 AS a$b", "1 ? 2 : 3"),
        *("1 AS `a\\tb`", '1 AS "a""b"', "1 AS `a``b`", "'it''s'", "1<>2", "1 <=> 1"),
    ],
)
def test_a_token_means_the_same_as_in_clickhouse(session, expression):
    query = f"SELECT toString(tuple({expression}))"
    assert rows(session, query) == [(ask(query, "TSVRaw"),)]


@pytest.mark.parametrize(
    "expression",
    [
        "1 #\n+1",
        "1 #\t+1",
        "1 #x\n+1",
        "9._5",
        "1e",
        "1e+",
        "0b12",
        r"'\x4'",
        "é",
        "1 ! = 1",
    ],
)
def test_what_clickhouse_cannot_read_is_refused(session, expression):
    with pytest.raises(ClickHouseRefused):
        ask(f"SELECT {expression}")
    with pytest.raises(UserError):
        session.execute(f"SELECT {expression}")


@pytest.mark.parametrize("name", ["1a", "2024_data", "1_"])
def test_a_name_may_begin_with_a_digit(session, name):
    create(
        session,
        f"CREATE TABLE {name} ({name} Int8) ENGINE = ReplicatedMergeTree ORDER BY {name}",
    )
    session.execute(f"INSERT INTO {name} ({name}) VALUES (7)")
    assert rows(session, f"SELECT {name} FROM {name} WHERE {name} = 7") == [(7,)]
    assert ask(f"SELECT {name} FROM (SELECT 7 AS {name})") == "7"


# --- FINAL reads the columns that the query means, however it names them ---

REPLACING = "(k Int32, w Int32, v String, x Nullable(Int32), m Int32 MATERIALIZED w + 1)"


@pytest.fixture
def replaced(session) -> Session:
    create(
        session,
        f"CREATE TABLE t {REPLACING} ENGINE = ReplicatedReplacingMergeTree(w) ORDER BY k",
    )
    connection().query(
        f"CREATE OR REPLACE TABLE t {REPLACING} ENGINE = ReplacingMergeTree(w) ORDER BY k"
    )
    for inserted in ("(1, 1, 'old', NULL), (2, 1, 'two', 5)", "(1, 2, 'new', 7)"):
        statement = f"INSERT INTO t (k, w, v, x) VALUES {inserted}"
        connection().query(statement)
        session.execute(statement)
    return session


@pytest.mark.parametrize(
    "query",
    [
        "SELECT Columns('^v') FROM t FINAL ORDER BY k",
        "SELECT columns('x|v') FROM t FINAL ORDER BY k",
        "SELECT COLUMNS('^[vx]') FROM t AS a FINAL ORDER BY k",
        "SELECT * FROM t FINAL ORDER BY k",
        "SELECT t.* FROM t FINAL ORDER BY k",
        "SELECT * EXCEPT (k) FROM t FINAL ORDER BY k",
        "SELECT * REPLACE (w * 2 AS w) FROM t FINAL ORDER BY k",
        "SELECT count(*), count() FROM t FINAL",
        "SELECT sum(cityHash64(*)) FROM t FINAL",
        'SELECT "v", `x` FROM t FINAL ORDER BY k',
        "SELECT `\\x76` FROM t FINAL ORDER BY k",
        "SELECT a.v FROM t AS a FINAL ORDER BY a.k",
        "SELECT m, v FROM t FINAL ORDER BY k",
        "SELECT k FROM t FINAL WHERE v = 'new'",
        "SELECT k FROM t FINAL ORDER BY v",
        "SELECT any(v) FROM t FINAL GROUP BY x ORDER BY x",
        "SELECT v FROM (SELECT * FROM t FINAL) ORDER BY v",
        "SELECT v FROM (SELECT k AS k, v FROM t FINAL) AS s JOIN t AS r USING (k, v) ORDER BY v",
        "SELECT k, row_number() OVER (PARTITION BY x ORDER BY v) AS n FROM t FINAL ORDER BY k",
        "SELECT arrayMap(e -> concat(v, e), ['1']) AS r FROM t FINAL ORDER BY k",
        "WITH v AS renamed SELECT renamed FROM t FINAL ORDER BY k",
    ],
)
def test_final_has_the_columns_that_the_query_means(replaced, query):
    wanted = ask(query, "JSONCompactEachRow")
    found = rows(replaced, query)
    assert [[None if value is None else str(value) for value in row] for row in found] == [
        [None if value is None else str(value) for value in row] for row in _lines(wanted)
    ]


def _lines(text: str) -> list[list[object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO texts VALUES ({deep})",
        "ALTER TABLE texts DELETE WHERE {deep}",
        "ALTER TABLE texts UPDATE s = {deep} WHERE 1",
        "DELETE FROM texts WHERE {deep}",
        "ALTER TABLE texts ADD COLUMN deep Int64 DEFAULT {deep}",
        "KILL MUTATION WHERE {deep}",
        "SELECT {deep}",
        "OPTIMIZE TABLE texts PARTITION {deep}",
        "CREATE TABLE deep (a Int64 DEFAULT {deep}) ENGINE = ReplicatedMergeTree ORDER BY a",
    ],
)
@pytest.mark.parametrize("deep", ["+".join("1" * 3000), f"{'(' * 300}1{')' * 300}"])
def test_what_is_nested_too_deeply_is_refused_by_name(texts, statement, deep):
    with pytest.raises(UserError):
        texts.execute(statement.format(deep=deep))


# --- what tools ask first ---

INFO = "(a Int32, b Nullable(String) DEFAULT 'x' COMMENT 'c', e Array(UInt8))"
INFORMATION = [
    (
        "SELECT column_name, ordinal_position, column_default, is_nullable, data_type,"
        " column_comment, column_type, table_schema, table_catalog FROM information_schema.columns"
        " WHERE table_name = 'info' ORDER BY ordinal_position"
    ),
    (
        "SELECT COLUMN_NAME, IS_NULLABLE FROM INFORMATION_SCHEMA.COLUMNS"
        " WHERE TABLE_SCHEMA = currentDatabase() AND TABLE_NAME = 'info' ORDER BY COLUMN_NAME"
    ),
    (
        "SELECT table_catalog, table_schema, table_name, table_type, table_rows, table_comment"
        " FROM information_schema.tables WHERE table_name = 'info'"
    ),
    "SELECT TABLE_ROWS FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_NAME = 'info'",
    (
        "SELECT table_type, table_rows FROM information_schema.tables"
        " WHERE table_schema = 'system' AND table_name = 'one'"
    ),
    (
        "SELECT catalog_name, schema_name, schema_owner, sql_path FROM information_schema.schemata"
        " WHERE schema_name IN ('default', 'system') ORDER BY schema_name"
    ),
    "SELECT count() FROM INFORMATION_SCHEMA.SCHEMATA WHERE SCHEMA_NAME = 'nowhere'",
    "SELECT count() > 0 FROM system.build_options WHERE name = 'VERSION_FULL'",
    (
        "SELECT name, value FROM system.build_options WHERE name IN ('SYSTEM', 'SYSTEM_PROCESSOR')"
        " ORDER BY name"
    ),
    "SELECT count() > 100 FROM system.settings",
    "SELECT name FROM system.settings WHERE name IN ('max_block_size', 'max_threads') ORDER BY 1",
    "SELECT count() > 100 FROM system.functions",
    (
        "SELECT name, is_input, is_output FROM system.formats WHERE name IN ('CSV', 'TSV', 'Null',"
        " 'Pretty', 'PrettyMonoBlock', 'PrettyCompactNoEscapes', 'JSONEachRow', 'Parquet', 'XML',"
        " 'TabSeparatedWithNames', 'RowBinary', 'Values') ORDER BY name"
    ),
    (
        "SELECT name, supports_settings, supports_sort_order, supports_ttl, supports_replication,"
        " supports_deduplication FROM system.table_engines WHERE name LIKE '%MergeTree' AND name"
        " NOT LIKE '%Graphite%' AND name NOT LIKE '%Coalescing%' AND name NOT LIKE 'Shared%'"
        " ORDER BY name"
    ),
]


@pytest.mark.parametrize("query", INFORMATION)
def test_what_tools_ask_first_answers_as_clickhouse_does(session, query):
    create(
        session,
        f"CREATE TABLE info {INFO} ENGINE = ReplicatedMergeTree ORDER BY a COMMENT 'about it'",
    )
    connection().query(
        f"CREATE OR REPLACE TABLE info {INFO} ENGINE = MergeTree ORDER BY a COMMENT 'about it'"
    )
    for execute in (session.execute, connection().query):
        execute("INSERT INTO info (a) VALUES (1), (2)")
    found = [[None if x is None else str(x) for x in row] for row in rows(session, query)]
    wanted = _lines(ask(query, "JSONCompactEachRow"))
    assert found == [[None if x is None else str(x) for x in row] for row in wanted]


@pytest.mark.parametrize(
    "query", ["SELECT * FROM information_schema.nothing", "SELECT * FROM system.nothing"]
)
def test_a_system_table_that_is_none_is_refused_with_those_that_are(session, query):
    with pytest.raises(UserError, match=r"there is no table .*\.nothing; there are: "):
        session.execute(query)
