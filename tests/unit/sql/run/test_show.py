"""Definitions as statements, LIKE patterns, and the paths that a query names."""

import pytest

from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.sql.define.show_create import create_query, engine_text
from rmt_pipeline.sql.run.show import _matching
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.statements.nodes import CreateTable, Pattern, SelectStatement
from rmt_pipeline.syntax.statements.parse import parse

TABLE = TableDefinition(
    database="d",
    name="my table",
    columns=(
        Column("key", "Int64", comment="it's"),
        Column("a`b", "String", default_kind="DEFAULT", default="'x'", codec="ZSTD(3)"),
    ),
    engine=Engine("ReplacingMergeTree", "/t", "r1", version_column="ver"),
    order_by=("key", "-ver"),
    partition_by=("key % 8",),
    primary_key=("key",),
    sample_by="key",
    comment="all of it",
    settings=(("index_granularity", "1024"), ("storage_policy", "fast")),
)


def test_a_definition_is_shown_as_the_original_shows_it():
    assert create_query(TABLE, lines=True) == (
        "CREATE TABLE d.`my table`\n"
        "(\n"
        "    `key` Int64 COMMENT 'it\\'s',\n"
        "    `a\\`b` String DEFAULT 'x' CODEC(ZSTD(3))\n"
        ")\n"
        "ENGINE = ReplicatedReplacingMergeTree('/t', 'r1', ver)\n"
        "PARTITION BY key % 8\n"
        "PRIMARY KEY key\n"
        "ORDER BY (key, -ver)\n"
        "SAMPLE BY key\n"
        "SETTINGS index_granularity = 1024, storage_policy = 'fast'\n"
        "COMMENT 'all of it'"
    )
    assert engine_text(TABLE).startswith(
        "ReplicatedReplacingMergeTree('/t', 'r1', ver) PARTITION BY key % 8 PRIMARY KEY"
    )


def _parsed(key):
    return tuple(map(parse_expression, key))


@pytest.mark.parametrize("lines", [True, False])
def test_a_shown_definition_can_be_parsed_again(lines):
    statement = parse(create_query(TABLE, lines=lines))
    assert isinstance(statement, CreateTable)
    syntax = statement.syntax
    assert (statement.table.database, statement.table.name) == ("d", "my table")
    assert syntax.order_by == _parsed(TABLE.order_by)
    assert syntax.partition_by == _parsed(TABLE.partition_by)
    assert syntax.primary_key == _parsed(TABLE.primary_key)
    assert syntax.settings == TABLE.settings
    assert [column.name for column in syntax.columns] == ["key", "a`b"]
    assert syntax.columns[1].codec == "ZSTD(3)"
    assert syntax.comment == TABLE.comment


NAMES = ["a", "ab", "a_b", "A", "a%"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (None, NAMES),
        (Pattern("a%"), ["a", "ab", "a_b", "a%"]),
        (Pattern("a_b"), ["a_b"]),
        (Pattern("a_"), ["ab", "a%"]),
        (Pattern("a\\_b"), ["a_b"]),
        (Pattern("a\\%"), ["a%"]),
        (Pattern("A", ignore_case=True), ["a", "A"]),
        (Pattern("a%", negated=True), ["A"]),
    ],
)
def test_names_are_chosen_by_like(pattern, found):
    assert _matching(NAMES, pattern) == found


def test_engines_are_those_of_the_system_table():
    statement = parse("SHOW ENGINES LIKE 'Replicated%'")
    assert isinstance(statement, SelectStatement)
    assert statement.text == (
        "SELECT * FROM (SELECT * FROM system.table_engines) WHERE name LIKE 'Replicated%'"
        " ORDER BY name"
    )
