"""Statements from text: what is understood, and what is refused by name."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import NotImplementedStatement, RmtError, SyntaxProblem
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.mutation import PartitionId, PartitionValue
from rmt_pipeline.syntax.statements.definition import ColumnSyntax, TableSyntax
from rmt_pipeline.syntax.statements.nodes import (
    Answer,
    AttachTable,
    CreateDatabase,
    CreateTable,
    DescribeTable,
    DetachTable,
    DropDatabase,
    DropTable,
    ExchangeTables,
    ExistsDatabase,
    ExistsTable,
    FromFile,
    FromQuery,
    InlineRows,
    Insert,
    Optimize,
    Pattern,
    RenameDatabase,
    RenameTables,
    SelectStatement,
    SetSettings,
    ShowCreateTable,
    ShowDatabases,
    ShowSettings,
    ShowTables,
    SystemRestoreReplica,
    SystemSwitch,
    SystemSyncReplica,
    SystemWaitLoadingParts,
    TableName,
    UndropTable,
    Use,
    ValuesText,
)
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.syntax.statements.split import split
from rmt_pipeline.syntax.ttl import parse_ttl
from rmt_pipeline.syntax.types import parse_type
from tests.support.queries import parse_query

T = TableName(None, "t")
U = TableName(None, "u")
P, X = parse_type, parse_expression


def syntax(text: str) -> TableSyntax:
    statement = parse(text)
    assert isinstance(statement, CreateTable)
    return statement.syntax


def insert(text: str) -> Insert:
    statement = parse(text)
    assert isinstance(statement, Insert)
    return statement


def test_a_table_is_read_with_every_clause():
    assert parse(
        "CREATE TABLE IF NOT EXISTS d.t (k Int64, `v v` String)"
        " ENGINE = ReplicatedReplacingMergeTree('/t/{shard}', '{replica}', ver)"
        " PARTITION BY (a, b % 8) ORDER BY (k, -v) PRIMARY KEY k SAMPLE BY k"
        " TTL d + INTERVAL 1 DAY DELETE WHERE k = 1, d"
        " SETTINGS index_granularity = 1024, x = 'y' COMMENT 'it''s'"
    ) == CreateTable(
        TableName("d", "t"),
        TableSyntax(
            columns=(ColumnSyntax("k", P("Int64")), ColumnSyntax("v v", P("String"))),
            engine="ReplicatedReplacingMergeTree",
            engine_arguments=(X("'/t/{shard}'"), X("'{replica}'"), X("ver")),
            partition_by=(X("a"), X("b % 8")),
            order_by=(X("k"), X("-v")),
            primary_key=(X("k"),),
            sample_by=X("k"),
            ttl=parse_ttl("d + INTERVAL 1 DAY DELETE WHERE k = 1, d"),
            settings=(("index_granularity", "1024"), ("x", "y")),
            comment="it's",
        ),
        if_not_exists=True,
    )


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a Int8", ColumnSyntax("a", P("Int8"))),
        ("a Array(Nullable(Int8))", ColumnSyntax("a", P("Array(Nullable(Int8))"))),
        ("e Enum8('a,)' = 1, 'b' = 2)", ColumnSyntax("e", P("Enum8('a,)' = 1, 'b' = 2)"))),
        ("n.a Array(Int8)", ColumnSyntax("n.a", P("Array(Int8)"))),
        ("a Int8 NULL", ColumnSyntax("a", P("Int8"), nullable=True)),
        ("a Int8 NOT NULL", ColumnSyntax("a", P("Int8"), nullable=False)),
        (
            "a Int8 DEFAULT b + 1 COMMENT 'c' CODEC(Delta, ZSTD(3)) TTL d + toIntervalDay(1)",
            ColumnSyntax(
                "a",
                P("Int8"),
                default_kind="DEFAULT",
                default=X("b + 1"),
                comment="c",
                codec="Delta, ZSTD(3)",
                ttl=X("d + toIntervalDay(1)"),
            ),
        ),
        (
            "a MATERIALIZED if(b, (1, 2), c)",
            ColumnSyntax("a", default_kind="MATERIALIZED", default=X("if(b, (1, 2), c)")),
        ),
        ("a Int8 EPHEMERAL", ColumnSyntax("a", P("Int8"), default_kind="EPHEMERAL")),
        (
            "a Int8 ALIAS comment",
            ColumnSyntax("a", P("Int8"), default_kind="ALIAS", default=X("comment")),
        ),
        ("index String", ColumnSyntax("index", P("String"))),
        ("index Enum8('TYPE' = 1)", ColumnSyntax("index", P("Enum8('TYPE' = 1)"))),
        (
            "constraint Int8 DEFAULT 1",
            ColumnSyntax("constraint", P("Int8"), None, "DEFAULT", X("1")),
        ),
    ],
)
def test_a_column_is_read_with_every_clause(text, column):
    read = syntax(f"CREATE TABLE t (x Int8, {text}, z Int8) ENGINE = E ORDER BY x")
    assert read.columns[1] == column
    assert [each.name for each in read.columns[::2]] == ["x", "z"]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a", ("a",)),
        ("(a)", ("a",)),
        ("(a, b)", ("a", "b")),
        ("tuple()", ()),
        ("()", ()),
        ("tuple(a, f(b, c))", ("a", "f(b, c)")),
        ("(a + 1) * 2", ("(a + 1) * 2",)),
        ("(a ASC, b)", ("a", "b")),
        ("tuple", ("tuple",)),
    ],
)
def test_a_key_is_a_list_of_expressions(text, keys):
    assert syntax(f"CREATE TABLE t (a Int8) ENGINE = E ORDER BY {text}").order_by == tuple(
        map(X, keys)
    )


def test_a_key_that_was_not_given_is_not_an_empty_one():
    assert syntax("CREATE TABLE t (a Int8) ENGINE = E").order_by is None


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("ATTACH TABLE t", AttachTable(T)),
        ("RENAME TABLE t TO d.u", RenameTables(((T, TableName("d", "u")),))),
        ("RENAME t TO u, u TO t", RenameTables(((T, U), (U, T)))),
        ("RENAME TABLE IF EXISTS t TO u", RenameTables(((T, U),), True)),
        ("UNDROP TABLE t", UndropTable(T)),
        ("UNDROP TABLE t UUID 'x'", UndropTable(T, "x")),
        ("EXCHANGE TABLES t AND u", ExchangeTables(T, U)),
        ("RENAME DATABASE d TO e", RenameDatabase("d", "e")),
        ("DETACH TABLE IF EXISTS t PERMANENTLY SYNC", DetachTable(T, True, True, True)),
        (
            "DROP TABLE a, d.b SYNC",
            DropTable((TableName(None, "a"), TableName("d", "b")), False, True),
        ),
        ("drop table if exists t no delay", DropTable((T,), True, True)),
        ("CREATE DATABASE IF NOT EXISTS d ENGINE = Atomic", CreateDatabase("d", True)),
        ("DROP DATABASE IF EXISTS d", DropDatabase("d", True)),
        ("USE d", Use("d")),
        ("SHOW DATABASES", ShowDatabases()),
        ("SHOW TABLES", ShowTables()),
        (
            "SHOW TABLES FROM d NOT LIKE 'a%' LIMIT 3 FORMAT CSV",
            ShowTables("d", Pattern("a%", negated=True), 3, Answer("CSV")),
        ),
        ("SHOW CREATE TABLE d.t", ShowCreateTable(TableName("d", "t"))),
        ("SHOW CREATE t", ShowCreateTable(T)),
        ("SHOW SETTINGS ILIKE '%Insert%'", ShowSettings(Pattern("%Insert%", ignore_case=True))),
        ("DESCRIBE TABLE t", DescribeTable(T)),
        ("desc t format TSV", DescribeTable(T, Answer("TSV"))),
        ("EXISTS TABLE d.t", ExistsTable(TableName("d", "t"))),
        ("EXISTS t", ExistsTable(T)),
        ("EXISTS DATABASE d", ExistsDatabase("d")),
        (
            "SET a = 1, b = 'x', c = -2, d = true",
            SetSettings((("a", "1"), ("b", "x"), ("c", "-2"), ("d", "1"))),
        ),
        ("OPTIMIZE TABLE t", Optimize(T)),
        (
            "OPTIMIZE TABLE t PARTITION 201905 FINAL",
            Optimize(T, PartitionValue(X("201905")), True),
        ),
        (
            "OPTIMIZE TABLE t PARTITION (1, 'a') FINAL DEDUPLICATE BY a, b SETTINGS s = 2",
            Optimize(
                T,
                PartitionValue(X("(1, 'a')")),
                True,
                True,
                ("a", "b"),
                settings=(("s", "2"),),
            ),
        ),
        (
            "OPTIMIZE TABLE t PARTITION ID 'all' DEDUPLICATE",
            Optimize(T, PartitionId("all"), False, True),
        ),
        (
            "OPTIMIZE TABLE t PARTITION tuple() FINAL CLEANUP",
            Optimize(T, PartitionValue(X("tuple()")), True, cleanup=True),
        ),
        ("SYSTEM SYNC REPLICA d.t", SystemSyncReplica(TableName("d", "t"))),
        ("SYSTEM SYNC REPLICA t STRICT", SystemSyncReplica(T, "STRICT")),
        (
            "SYSTEM SYNC REPLICA t LIGHTWEIGHT FROM 'r1', 'r2'",
            SystemSyncReplica(T, "LIGHTWEIGHT", ("r1", "r2")),
        ),
        ("SYSTEM STOP MERGES", SystemSwitch(False, Background.MERGES)),
        (
            "SYSTEM STOP TTL MERGES t",
            SystemSwitch(False, Background.TTL_MERGES, TableName(None, "t")),
        ),
        ("SYSTEM WAIT LOADING PARTS t", SystemWaitLoadingParts(TableName(None, "t"))),
        ("SYSTEM RESTORE REPLICA d.t", SystemRestoreReplica(TableName("d", "t"))),
        (
            "SYSTEM START REPLICATED SENDS d.t",
            SystemSwitch(True, Background.REPLICATED_SENDS, TableName("d", "t")),
        ),
    ],
)
def test_a_statement_is_understood(text, statement):
    assert parse(text) == statement
    assert parse(f"{text} ;\n-- a comment") == statement


@pytest.mark.parametrize(
    ("text", "query", "answer"),
    [
        ("SELECT 1", "SELECT 1", Answer()),
        ("SELECT 1 FORMAT TSV", "SELECT 1", Answer("TSV")),
        (
            "SELECT 1 SETTINGS a = 1, b = 'c' FORMAT CSV",
            "SELECT 1",
            Answer("CSV", (("a", "1"), ("b", "c"))),
        ),
        ("SELECT 1 FORMAT CSV SETTINGS a = 1", "SELECT 1", Answer("CSV", (("a", "1"),))),
        ("WITH 1 AS x SELECT x", "WITH 1 AS x SELECT x", Answer()),
        ("(SELECT 1) UNION ALL (SELECT 2)", "(SELECT 1) UNION ALL (SELECT 2)", Answer()),
        ("SELECT format, settings FROM t", "SELECT format, settings FROM t", Answer()),
        (
            "SELECT a FROM (SELECT 1 AS a SETTINGS x = 1)",
            "SELECT a FROM (SELECT 1 AS a SETTINGS x = 1)",
            Answer(),
        ),
        ("SELECT ')' -- (\n, 1", "SELECT ')' -- (\n, 1", Answer()),
    ],
)
def test_a_query_is_cut_from_its_tail(text, query, answer):
    assert parse(text) == SelectStatement(parse_query(query), answer)


def test_an_insert_of_values_points_at_its_rows():
    source = (
        "SELECT 1; INSERT INTO d.t (a, `b c`) SETTINGS x = 1 VALUES (1, 'a'), (2, ';'); USE d"
    )
    piece = list(split(source))[1]
    statement = parse(piece)
    assert isinstance(statement, Insert)
    assert (statement.table, statement.columns) == (TableName("d", "t"), ("a", "b c"))
    assert statement.settings == (("x", "1"),)
    assert isinstance(statement.source, ValuesText)
    rows = statement.source
    assert rows.source[rows.start : rows.stop].strip() == "(1, 'a'), (2, ';')"


@pytest.mark.parametrize(
    ("text", "format_name", "rows"),
    [
        ("INSERT INTO t FORMAT CSV\n1,'a\n2,b", "CSV", "1,'a\n2,b"),
        ('INSERT INTO t FORMAT JSONEachRow {"a": 1}', "JSONEachRow", '{"a": 1}'),
        ("INSERT INTO t (a) FORMAT TSV\n\\N\t`\n", "TSV", "\\N\t`\n"),
        ("INSERT INTO t FORMAT Parquet", "Parquet", ""),
    ],
)
def test_rows_in_a_format_are_taken_as_they_are(text, format_name, rows):
    source = insert(text).source
    assert isinstance(source, InlineRows)
    assert source.format == format_name
    assert source.source[source.start : source.stop] == rows


def test_an_insert_can_take_a_file_or_a_query():
    assert insert("INSERT INTO t FROM INFILE 'a.csv'").source == FromFile("a.csv")
    file = insert("INSERT INTO t FROM INFILE 'a' COMPRESSION 'GZIP' SETTINGS s = 1 FORMAT CSV")
    assert (file.source, file.settings) == (FromFile("a", "CSV", "gzip"), (("s", "1"),))
    assert insert("INSERT INTO t (a) SELECT 1 SETTINGS s = 1").source == FromQuery(
        parse_query("SELECT 1")
    )
    assert insert("INSERT INTO t (SELECT 1)").source == FromQuery(parse_query("(SELECT 1)"))
    assert insert("INSERT INTO t (*) VALUES (1)").columns is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "ALTER TABLE t FORGET PARTITION 1",
            "ALTER TABLE t FORGET PARTITION is .*: its block numbers would start again",
        ),
        ("ALTER TABLE t APPLY DELETED MASK", "APPLY DELETED MASK is not implemented$"),
        ("TRUNCATE ALL TABLES FROM d", "TRUNCATE ALL"),
        ("KILL TRANSACTION WHERE 1", "KILL TRANSACTION"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "CREATE MATERIALIZED VIEW is"),
        ("CREATE VIEW v AS SELECT 1", "CREATE VIEW is"),
        ("CREATE OR REPLACE VIEW v AS SELECT 1", "CREATE OR REPLACE VIEW is"),
        ("CREATE TEMPORARY TABLE t (a Int8)", "CREATE TEMPORARY TABLE is"),
        ("CREATE DICTIONARY d (a Int8) PRIMARY KEY a", "CREATE DICTIONARY is"),
        ("CREATE SETTINGS PROFILE p", "CREATE SETTINGS PROFILE is"),
        ("CREATE NAMED COLLECTION c AS a = 1", "CREATE NAMED COLLECTION is"),
        ("DROP ROW POLICY p ON t", "DROP ROW POLICY is"),
        ("GRANT SELECT ON t TO u", "^GRANT is"),
        ("WATCH v", "^WATCH is"),
        ("UPDATE t SET a = 1 WHERE 1", "^UPDATE is"),
        ("BACKUP TABLE t TO Disk('d', 'b')", "BACKUP TABLE is"),
        ("ALTER TABLE t MODIFY QUERY SELECT 1", "ALTER TABLE t MODIFY QUERY is"),
        ("ALTER TABLE t ADD STATISTICS a TYPE tdigest", "ADD STATISTICS is"),
        ("SYSTEM RELOAD DICTIONARY d", "SYSTEM RELOAD DICTIONARY"),
        ("SHOW GRANTS", "SHOW GRANTS"),
        ("CREATE TABLE t (a Int8) ENGINE = E ORDER BY a DESC", "DESC"),
        ("SELECT 1 INTO OUTFILE 'x'", "INTO OUTFILE"),
        ("EXPLAIN SYNTAX SELECT 1", "EXPLAIN SYNTAX"),
        ("EXPLAIN ALTER TABLE t DROP COLUMN c", "EXPLAIN ALTER"),
    ],
)
def test_a_statement_of_the_original_that_is_missing_is_refused_by_name(text, name):
    with pytest.raises(NotImplementedStatement, match=name):
        parse(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("FOO BAR", "line 1, column 1: expected a statement, found FOO"),
        (
            "CREATE TABLE t (a Int8,\n b) ENGINE = E",
            r"line 2, column 3: expected a type",
        ),
        (
            "CREATE TABLE t (a Int8) ENGINE = E ORDER BY a ORDER BY b",
            "expected ORDER only once",
        ),
        ("CREATE TABLE t (a Int8) ENGINE = E ORDER BY", "expected an expression"),
        ("CREATE TABLE t (a Int8 5) ENGINE = E", "column 24: unexpected 5 in the .* column a"),
        ("CREATE TABLE t (a Array(Int8) ENGINE = E", "unexpected ENGINE in the definition"),
        ("DROP TABLE", "expected the name of a table, found the end"),
        ("DROP TABLE t t", "expected the end, found t"),
        ("INSERT INTO t", "expected VALUES, SELECT, FORMAT or FROM INFILE"),
        ("INSERT INTO t (a, b VALUES (1)", r"expected `,` or `\)`, found VALUES"),
        ("SELECT (1", r"expected `,` or `\)`, found the end"),
        ("SELECT 1)", r"expected SETTINGS, FORMAT or the end of the statement, found \)"),
        ("SELECT [1)", r"expected `,` or `\]`, found \)"),
        ("SELECT 1 SETTINGS a = ", "expected a value for the setting a"),
        ("SET a", "expected `=`"),
        ("ALTER TABLE t FROBNICATE", "expected a command of ALTER TABLE, found FROBNICATE"),
        ("SHOW TABLES LIKE x", "expected a string in single quotes, found x"),
        ("OPTIMIZE TABLE t PARTITION", "expected an expression"),
        ("   ", "there is no statement"),
        ("SELECT 1; SELECT 2", "column 11: one statement was expected"),
    ],
)
def test_a_mistake_is_pointed_at(text, what):
    with pytest.raises(SyntaxProblem, match=what):
        parse(text)


def test_a_position_counts_in_the_whole_text():
    second = list(split("SELECT 1;\n\nDROP TABLE 5"))[1]
    with pytest.raises(SyntaxProblem, match="line 3, column 12"):
        parse(second)


WORDS = (
    *("CREATE TABLE", "IF NOT EXISTS", "d.t", "(a Int64 DEFAULT 1,", "b Array(", "String))"),
    *(
        "ENGINE = E('p')",
        "ORDER BY",
        "(a,",
        "b)",
        "PARTITION BY",
        "SETTINGS x = 1",
        "INSERT INTO",
    ),
    *("VALUES (", "FORMAT CSV", "FROM INFILE", "SELECT", "WITH", "UNION", "OPTIMIZE", "FINAL"),
    *(
        "DEDUPLICATE BY",
        "SYSTEM SYNC REPLICA",
        "SHOW",
        "LIKE",
        "'a%'",
        "DROP",
        "ALTER",
        "DELETE",
    ),
    *(
        "WHERE",
        "UPDATE",
        ";",
        "'",
        '"',
        "`",
        "--",
        "/*",
        "*/",
        "\n",
        "\n\n",
        "[",
        "]",
        "{",
        "}",
    ),
    *("#", "# ", "0x1F", "\\", "§", ".", "::", ",", ")"),
)


@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join) | st.text())
def test_any_text_is_statements_or_a_named_error(text):
    with suppress(RmtError):
        for piece in split(text):
            with suppress(RmtError):
                parse(piece)
