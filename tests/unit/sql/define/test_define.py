"""CREATE TABLE, checked: what becomes a definition, and what is refused by name."""

import re

import pytest

from rmt_pipeline.protocol.errors import (
    BadTtl,
    BadTypeOfField,
    DuplicateColumn,
    IllegalColumn,
    NotImplementedStatement,
    NotReadBack,
    UnknownColumn,
    UnknownEngine,
    UnknownFunction,
    UnknownSetting,
    UnknownType,
    UserError,
)
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.sql.define.table import define_table
from rmt_pipeline.syntax.statements.nodes import CreateTable
from rmt_pipeline.syntax.statements.parse import parse

COLUMNS = (
    "k Int64, s String, f Float64, d DateTime, n Nullable(Int64), m Map(String, Int8),"
    " sign Int8, ver UInt32, del UInt8, v Int64"
)
MERGE_TREE = "ReplicatedMergeTree('/t', 'r')"


def define(text: str) -> TableDefinition:
    statement = parse(text)
    assert isinstance(statement, CreateTable)
    return define_table(statement.table, statement.syntax, "default")


def table(rest: str = "ORDER BY k", engine: str = MERGE_TREE, columns: str = COLUMNS):
    return define(f"CREATE TABLE t ({columns}) ENGINE = {engine} {rest}")


def test_a_definition_has_canonical_types_and_expressions():
    definition = define(
        "CREATE TABLE d.t (`a b` decimal(9,2), x INT default `a b`+1, e Enum('q'=1))"
        f" ENGINE = {MERGE_TREE} PARTITION BY (toYYYYMM(toDate(x)),x%8) ORDER BY (x,-x)"
    )
    assert definition.full_name == "d.t"
    assert definition.columns == (
        Column("a b", "Decimal(9, 2)"),
        Column("x", "Int32", "DEFAULT", "`a b` + 1"),
        Column("e", "Enum8('q' = 1)"),
    )
    assert definition.partition_by == ("toYYYYMM(toDate(x))", "x % 8")
    assert definition.order_by == ("x", "-x")
    assert definition.engine == Engine("MergeTree", "/t", "r")


def test_null_makes_a_column_nullable():
    (column, *_) = table(columns="a Int8 NULL, k Int8").columns
    assert column.type == "Nullable(Int8)"


def test_a_default_without_a_type_gives_the_type():
    assert table(columns="k Int64, x DEFAULT toDate(k)").columns[1].type == "Date"


def test_without_order_by_the_primary_key_sorts():
    definition = table("PRIMARY KEY (k, s)")
    assert (definition.order_by, definition.primary_key) == (("k", "s"), ("k", "s"))


def test_order_by_may_be_empty_when_it_says_so():
    assert table("ORDER BY tuple()").order_by == ()


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("ReplicatedMergeTree", Engine("MergeTree", "", "")),
        ("ReplicatedMergeTree()", Engine("MergeTree", "", "")),
        ("ReplicatedReplacingMergeTree(ver)", Engine("ReplacingMergeTree", "", "", "ver")),
        (
            "ReplicatedReplacingMergeTree('/p', 'r', ver, del)",
            Engine("ReplacingMergeTree", "/p", "r", "ver", "del"),
        ),
        (
            "ReplicatedAggregatingMergeTree('/p', 'r')",
            Engine("AggregatingMergeTree", "/p", "r"),
        ),
        (
            "ReplicatedCollapsingMergeTree('/p', 'r', sign)",
            Engine("CollapsingMergeTree", "/p", "r", sign_column="sign"),
        ),
        (
            "ReplicatedVersionedCollapsingMergeTree('/p', 'r', sign, ver)",
            Engine("VersionedCollapsingMergeTree", "/p", "r", "ver", sign_column="sign"),
        ),
        (
            "ReplicatedSummingMergeTree('/p', 'r', s)",
            Engine("SummingMergeTree", "/p", "r", columns_to_sum=("s",)),
        ),
        (
            "ReplicatedSummingMergeTree('/p', 'r', (v, f))",
            Engine("SummingMergeTree", "/p", "r", columns_to_sum=("v", "f")),
        ),
        (
            "ReplicatedSummingMergeTree('/p', 'r', v)",
            Engine("SummingMergeTree", "/p", "r", columns_to_sum=("v",)),
        ),
    ],
)
def test_every_engine_is_understood_with_its_columns(engine, expected):
    found = table(engine=engine).engine
    if not expected.zookeeper_path:
        assert found.zookeeper_path == "/clickhouse/tables/{shard}/{database}/{table}"
        assert found.replica == "{replica}"
        found = Engine(found.kind, "", "", found.version_column)
    assert found == expected


@pytest.mark.parametrize(
    ("engine", "error", "message"),
    [
        ("ReplicatedMergTree('/p', 'r')", UnknownEngine, "did you mean ReplicatedMergeTree"),
        ("Set", UnknownEngine, "there is no engine Set"),
        ("ReplicatedGraphiteMergeTree('/p', 'r', 'x')", NotImplementedStatement, "Graphite"),
        ("ReplicatedMergeTree('/p')", UserError, "both a path in ZooKeeper and the name"),
        (
            "ReplicatedMergeTree('/p', 'r', k)",
            UserError,
            "takes after path and replica: nothing",
        ),
        ("ReplicatedMergeTree(d, (k), 8192)", UserError, "it was given d, k, 8192"),
        (
            "ReplicatedReplacingMergeTree('/p', 'r', nosuch)",
            UnknownColumn,
            "nosuch, version of",
        ),
        ("ReplicatedReplacingMergeTree('/p', 'r', s)", BadTypeOfField, "s, the version of"),
        ("ReplicatedReplacingMergeTree('/p', 'r', n)", BadTypeOfField, "is Nullable(Int64)"),
        ("ReplicatedReplacingMergeTree('/p', 'r', ver, v)", BadTypeOfField, "v, is_deleted of"),
        (
            "ReplicatedReplacingMergeTree('/p', 'r', del, del)",
            BadTypeOfField,
            "not the version",
        ),
        ("ReplicatedCollapsingMergeTree('/p', 'r')", UserError, "sign; it was given nothing"),
        ("ReplicatedCollapsingMergeTree('/p', 'r', v)", BadTypeOfField, "it must be Int8"),
        (
            "ReplicatedSummingMergeTree('/p', 'r', (v, k))",
            UserError,
            "k is summed, so it can be",
        ),
        ("ReplicatedSummingMergeTree('/p', 'r', v + 1)", UserError, "found v + 1"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(engine, error, message):
    with pytest.raises(error, match=re.escape(message)):
        table(engine=engine)


@pytest.mark.parametrize(
    ("rest", "error", "message"),
    [
        ("", UserError, "ORDER BY is missing"),
        ("ORDER BY nosuch", UnknownColumn, "nosuch"),
        ("ORDER BY k PARTITION BY nosuch", UnknownColumn, "nosuch"),
        ("ORDER BY nosuch(k)", UnknownFunction, "nosuch"),
        ("ORDER BY n", IllegalColumn, "ORDER BY n is Nullable(Int64)"),
        ("ORDER BY k PARTITION BY n", IllegalColumn, "allow_nullable_key"),
        ("ORDER BY m", BadTypeOfField, "which has no order"),
        ("ORDER BY (k, 1)", IllegalColumn, "uses no column"),
        ("ORDER BY k PARTITION BY f", BadTypeOfField, "PARTITION BY f is Float64"),
        ("ORDER BY k PARTITION BY rand() % 8", UserError, "rand"),
        ("ORDER BY (k, s) PRIMARY KEY s", UserError, "prefix of ORDER BY (k, s)"),
        ("ORDER BY k SAMPLE BY k", BadTypeOfField, "it must be unsigned"),
        ("ORDER BY k SAMPLE BY ver", UserError, "must be in the primary key (k)"),
        ("ORDER BY k SETTINGS nosuch = 1", UnknownSetting, "nosuch"),
        ("ORDER BY k SETTINGS index_granularity = 'x'", UserError, "index_granularity"),
        ("ORDER BY k TTL k", BadTtl, "TTL k is Int64"),
    ],
)
def test_a_key_or_setting_that_cannot_be_is_refused(rest, error, message):
    with pytest.raises(error, match=re.escape(message)):
        table(rest)


def test_ttl_of_table_and_columns_is_kept_and_shown():
    definition = table(
        "ORDER BY k TTL d + INTERVAL 1 DAY DELETE, d RECOMPRESS CODEC(ZSTD(9))",
        columns="k Int64, d DateTime, v Int64 DEFAULT 7 TTL d + INTERVAL 1 HOUR",
    )
    assert definition.ttl == "d + toIntervalDay(1), d RECOMPRESS CODEC(ZSTD(9))"
    assert definition.columns[2].ttl == "d + toIntervalHour(1)"
    assert f"TTL {definition.ttl}" in create_query(definition)
    assert define(create_query(definition)) == definition


@pytest.mark.parametrize(
    ("engine", "column", "error", "message"),
    [
        ("ReplicatedMergeTree('/t', 'r')", "k Int64 TTL d", IllegalColumn, "column k"),
        (
            "ReplicatedReplacingMergeTree('/t', 'r', v)",
            "v UInt8 TTL d",
            IllegalColumn,
            "column v",
        ),
        ("ReplicatedMergeTree('/t', 'r')", "a Int64 ALIAS 1 TTL d", BadTtl, "a is not stored"),
    ],
)
def test_a_column_that_others_count_on_has_no_ttl(engine, column, error, message):
    rest = [one for one in ("k Int64", "d DateTime") if one.split()[0] != column.split()[0]]
    with pytest.raises(error, match=message):
        table(engine=engine, columns=", ".join([column, *rest]))


def test_a_key_may_be_nullable_when_the_table_says_so():
    assert table("ORDER BY n SETTINGS allow_nullable_key = 1").order_by == ("n",)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ("", UserError, "at least one column"),
        ("k Int64, k String", DuplicateColumn, "column k is declared 2 times"),
        ("k Int65", UnknownType, "Int65"),
        ("k Int64, x Int64 DEFAULT nosuch + 1", UnknownColumn, "nosuch"),
        ("k Int64, x Int64 DEFAULT x + 1", UserError, "uses the column itself"),
        ("k Int64, x Int64 DEFAULT y, y Int64 DEFAULT x", UserError, "use each other"),
        ("k Int64, x Map(String, Int8) DEFAULT k", UserError, "k"),
        ("s String, k Int64 ALIAS length(s)", UnknownColumn, "k"),
        (
            "k Int64, x DateTime DEFAULT now() TTL x + INTERVAL 1 DAY",
            BadTtl,
            "x has a TTL, and is",
        ),
        ("k Int64, x String DEFAULT currentUser()", UserError, "this is of a session"),
        ("k Int64, x Array(Int8) DEFAULT rand()", UserError, "rand()"),
        ("k Int64, x Int64 CODEC(Squeeze)", UserError, "there is no codec Squeeze"),
        ("k Int64, x Nullable(Int64) NOT NULL", BadTypeOfField, "NOT NULL"),
        ("k EPHEMERAL 1", UserError, "at least one column that is stored"),
        ("k Int64, x EPHEMERAL", UserError, "column x needs a type"),
        ("k Int64, x DEFAULT NULL", UnknownType, "no column can hold it"),
    ],
)
def test_a_column_that_cannot_be_is_refused(columns, error, message):
    with pytest.raises(error, match=re.escape(message)):
        table(columns=columns)


WITH_EVERYTHING = (
    f"CREATE TABLE t ({COLUMNS}, x String DEFAULT concat(s, '\\'') CODEC(ZSTD(1)))"
    " ENGINE = ReplicatedReplacingMergeTree('/p', 'r', ver, del) ORDER BY intHash32(k)"
    " PARTITION BY (toYYYYMM(d), k % 8) SETTINGS index_granularity = 100 COMMENT 'it''s'"
)
WITH_PRIMARY_KEY = (
    f"CREATE TABLE t ({COLUMNS}) ENGINE = {MERGE_TREE} ORDER BY (k, s) PRIMARY KEY k"
)
SUMMING = (
    f"CREATE TABLE t ({COLUMNS}) ENGINE = ReplicatedSummingMergeTree('/p', 'r', (v, f))"
    " ORDER BY tuple()"
)


@pytest.mark.parametrize("text", [WITH_EVERYTHING, WITH_PRIMARY_KEY, SUMMING])
def test_a_definition_shown_and_created_again_is_the_same(text):
    definition = define(text)
    assert define(create_query(definition, lines=True)) == definition


@pytest.mark.parametrize(
    "kind", ["gin", "GIN(0)", "inverted(0)", "full_text", "text(tokenizer = 'array')"]
)
def test_an_index_may_have_the_type_of_any_version(kind):
    """Full-text indices were renamed again and again."""
    definition = table(columns=f"{COLUMNS}, INDEX i s TYPE {kind}")
    assert define(create_query(definition)) == definition


@pytest.mark.parametrize(
    "key",
    ["-k IN (1, 2)", "k > 5 AND v < 3", "k + 1 IS NULL", "((k, v))", "k + v BETWEEN 1 AND 2"],
)
def test_a_key_whose_text_begins_with_a_parenthesis_is_read_again(key):
    """Such as by a server that makes the table from the records of a Replicated database."""
    definition = table(f"ORDER BY {key} PARTITION BY {key}")
    assert define(create_query(definition)) == definition


SUM = " + ".join(["v"] * 80)  # has 79 levels of parentheses as it is stored


@pytest.mark.parametrize(
    ("rest", "columns"),
    [
        (f"ORDER BY k TTL d + toIntervalDay({SUM})", COLUMNS),
        (f"ORDER BY k TTL d WHERE {SUM} = 0", COLUMNS),
        (f"ORDER BY ({SUM})", COLUMNS),
        (f"ORDER BY k PARTITION BY {SUM}", COLUMNS),
        ("ORDER BY k", f"{COLUMNS}, x Int64 DEFAULT {SUM}"),
        ("ORDER BY k", f"{COLUMNS}, x Int64 TTL d + toIntervalDay({SUM})"),
        ("ORDER BY k", f"{COLUMNS}, INDEX x {SUM} TYPE minmax"),
        ("ORDER BY k", f"{COLUMNS}, CONSTRAINT x CHECK {SUM} = 0"),
    ],
)
def test_what_nobody_could_read_again_is_refused(rest, columns):
    """Merges and servers that start read it."""
    with pytest.raises(NotReadBack, match="can't be stored"):
        table(rest, columns=columns)
