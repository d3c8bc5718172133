"""TTL clauses: what they mean, their canonical text, and what is refused by name."""

import re

import pytest

from rmt_pipeline.protocol.errors import (
    BadTtl,
    IllegalColumn,
    NotImplementedStatement,
    SyntaxProblem,
    UnknownColumn,
    UserError,
)
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.protocol.ttl import TtlRule
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.ttl import parse_ttl
from rmt_pipeline.translate.ttl import column_ttl, rules_of, table_ttl, ttl_text

COLUMNS = (
    Column("k", "Int64"),
    Column("d", "DateTime"),
    Column("day", "Date"),
    Column("delete", "Date"),
    Column("maybe", "Nullable(Date)"),
    Column("s", "String"),
)


@pytest.mark.parametrize(
    ("given", "canonical", "kinds"),
    [
        ("d + INTERVAL 1 DAY", "d + toIntervalDay(1)", ["delete"]),
        ("d+toIntervalDay(1) DELETE", "d + toIntervalDay(1)", ["delete"]),
        ("day delete where k=1 and s in ('a,b')", None, ["where"]),
        ("delete", "`delete`", ["delete"]),
        ("delete DELETE WHERE k = 1", "`delete` WHERE k = 1", ["where"]),
        ("day WHERE k = 1, d", "day WHERE k = 1, d", ["where", "delete"]),
        (
            "d + INTERVAL 1 MONTH, d + INTERVAL 1 DAY RECOMPRESS CODEC( zstd( 9 ) )",
            "d + toIntervalMonth(1), d + toIntervalDay(1) RECOMPRESS CODEC(ZSTD(9))",
            ["delete", "recompress"],
        ),
        ("d RECOMPRESS CODEC(ZSTD)", "d RECOMPRESS CODEC(ZSTD(1))", ["recompress"]),
        ("d RECOMPRESS CODEC(NONE)", "d RECOMPRESS CODEC(NONE)", ["recompress"]),
    ],
)
def test_a_ttl_is_read_and_written_in_one_text(given, canonical, kinds):
    rules = table_ttl(parse_ttl(given), COLUMNS)
    assert [rule.kind for rule in rules] == kinds
    text = ttl_text(rules)
    assert text == (canonical or text)
    assert table_ttl(parse_ttl(text), COLUMNS) == rules


def test_a_rule_has_its_condition_and_its_codec():
    where, recompress = table_ttl(
        parse_ttl("d WHERE k > 1, d RECOMPRESS CODEC(LZ4HC(3))"), COLUMNS
    )
    assert where == TtlRule("where", "d", where="k > 1")
    assert recompress == TtlRule("recompress", "d", codec="LZ4HC(3)")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("k", BadTtl, "TTL k is Int64; it must be a Date or DateTime"),
        ("maybe", BadTtl, "TTL maybe is Nullable(Date)"),
        ("toDate('2020-01-01')", BadTtl, "uses no column"),
        ("d + rand()", UserError, "rand"),
        ("now() + k", UserError, "now"),
        ("nosuch", UnknownColumn, "nosuch"),
        ("d, day", BadTtl, "TTL d and TTL day"),
        ("d WHERE k, d WHERE k", BadTtl, "d WHERE k is there twice"),
        ("d WHERE s", BadTtl, "is String, no condition"),
        ("d,", SyntaxProblem, "expected an expression, found the end"),
        ("", SyntaxProblem, "expected an expression, found the end"),
        ("d DELETE k", SyntaxProblem, "expected the end, found k"),
        ("d RECOMPRESS CODEC(ZSTD(3)) WHERE k", SyntaxProblem, "expected the end, found WHERE"),
        ("d RECOMPRESS CODEC(ZSTD(23))", BadTtl, "no level 23"),
        ("d RECOMPRESS CODEC(Delta, LZ4)", BadTtl, "there is CODEC(ZSTD(1…22))"),
        ("d RECOMPRESS ZSTD", SyntaxProblem, "expected CODEC, found ZSTD"),
        ("d TO DISK 'x'", NotImplementedStatement, "TO DISK"),
        ("d TO VOLUME 'x'", NotImplementedStatement, "TO DISK"),
        ("d GROUP BY k SET s = max(s)", NotImplementedStatement, "GROUP BY"),
    ],
)
def test_a_ttl_that_cannot_be_is_refused(text, error, message):
    with pytest.raises(error, match=re.escape(message)):
        table_ttl(parse_ttl(text), COLUMNS)


def test_a_column_of_a_key_has_no_ttl():
    rule = column_ttl("s", parse_expression("d+interval 1 week"), COLUMNS, frozenset({"k"}))
    assert rule == TtlRule("column", "d + toIntervalWeek(1)", column="s")
    with pytest.raises(IllegalColumn, match="column k can have no TTL"):
        column_ttl("k", parse_expression("d"), COLUMNS, frozenset({"k"}))


def test_a_table_has_its_own_rules_and_those_of_its_columns():
    *others, last = COLUMNS
    definition = TableDefinition(
        database="default",
        name="t",
        columns=(*others, Column(last.name, last.type, ttl="day")),
        engine=Engine("MergeTree", "/t", "r1"),
        order_by=("k",),
        ttl="d WHERE k = 1",
    )
    assert [rule.key for rule in rules_of(definition)] == ["d WHERE k = 1", "s: day"]
    assert rules_of(definition.with_columns(COLUMNS))[0].removes_rows
