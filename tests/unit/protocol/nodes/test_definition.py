"""The texts of `metadata` and `columns` (spec §0.4.11, §0.4.12)."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.nodes.columns import columns_text, parse_columns
from rmt_pipeline.protocol.nodes.metadata import (
    Metadata,
    metadata_differences,
    metadata_mismatch,
    metadata_text,
    parse_metadata,
)
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition

PLAIN = TableDefinition(
    "default",
    "t",
    (Column("key", "Int64"), Column("p", "Int64")),
    Engine("MergeTree", "/clickhouse/tables/01/t", "r1"),
    order_by=("key", "p"),
    partition_by=("p", "key % 2"),
)


def test_a_definition_knows_its_name_and_columns() -> None:
    assert PLAIN.full_name == "default.t"
    assert PLAIN.column("p") == Column("p", "Int64")
    assert PLAIN.column("q") is None
    assert PLAIN.with_columns(()).columns == ()


def test_the_metadata_of_a_plain_table() -> None:
    """P4, P27."""
    assert metadata_text(PLAIN) == (
        "metadata format version: 1\n"
        "date column: \n"
        "sampling expression: \n"
        "index granularity: 8192\n"
        "mode: 0\n"
        "sign column: \n"
        "primary key: key, p\n"
        "data format version: 1\n"
        "partition key: p, key % 2\n"
        "granularity bytes: 10485760\n"
    )


def test_the_metadata_of_a_table_with_everything() -> None:
    """P4, P27. Optional lines in their one legal order."""
    engine = replace(
        PLAIN.engine,
        kind="ReplacingMergeTree",
        version_column="ver",
        is_deleted_column="gone",
        columns_to_sum=("a", "b"),
    )
    definition = replace(
        PLAIN,
        engine=engine,
        primary_key=("key",),
        sample_by="key",
        ttl="d + INTERVAL 1 DAY",
        settings=(("index_granularity", "4096"), ("index_granularity_bytes", "0")),
    )
    assert metadata_text(definition) == (
        "metadata format version: 1\n"
        "date column: \n"
        "sampling expression: key\n"
        "index granularity: 4096\n"
        "mode: 5\n"
        "sign column: \n"
        "primary key: key\n"
        "data format version: 1\n"
        "partition key: p, key % 2\n"
        "sorting key: key, p\n"
        "ttl: d + INTERVAL 1 DAY\n"
        "merge parameters format version: 2\n"
        "version column: ver\n"
        "is_deleted column: gone\n"
        "columns to sum: a,b\n"
    )


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("CollapsingMergeTree", 1),
        ("SummingMergeTree", 2),
        ("AggregatingMergeTree", 3),
        ("VersionedCollapsingMergeTree", 7),
    ],
)
def test_each_engine_has_its_mode(kind, mode: int) -> None:
    definition = replace(PLAIN, engine=replace(PLAIN.engine, kind=kind, sign_column="s"))
    metadata = parse_metadata(metadata_text(definition))
    assert (metadata.mode, metadata.sign_column) == (mode, "s")


def test_lines_that_we_never_write_are_read() -> None:
    """P4."""
    metadata = Metadata(
        "k",
        "",
        indices="i x TYPE minmax GRANULARITY 1",
        projections="p (SELECT 1)",
        constraints="c CHECK x > 0",
        graphite_hash="ab",
        index_granularity_bytes=1,
        merge_parameters_version=2,
    )
    assert parse_metadata(metadata.text) == metadata


def test_an_expression_with_a_newline_never_gets_into_the_text() -> None:
    with pytest.raises(AssertionError, match="newline"):
        _ = Metadata("k\nmode: 1", "").text


def test_texts_that_say_the_same_do_not_differ() -> None:
    """P27."""
    text = metadata_text(PLAIN)
    assert metadata_mismatch(text, parse_metadata(text)) is None


def test_a_mismatch_names_the_field_and_both_values() -> None:
    """P27."""
    other = replace(PLAIN, order_by=("p",))
    assert metadata_mismatch(metadata_text(PLAIN), metadata_text(other)) == (
        "primary key differs, and can not be altered: 'key, p' here, 'p' in ZooKeeper"
    )
    with_ttl = replace(PLAIN, ttl="d")
    assert metadata_mismatch(metadata_text(PLAIN), metadata_text(with_ttl)) == (
        "ttl differs, until an ALTER is applied: '' here, 'd' in ZooKeeper"
    )


def test_immutable_differences_come_first() -> None:
    """P27."""
    mine = Metadata("k", "p", ttl="a", mode=2)
    theirs = Metadata("k", "p", ttl="b", mode=0, sampling_expression="x")
    found = metadata_differences(mine, theirs)
    assert [(one.field, one.immutable) for one in found] == [
        ("mode", True),
        ("sampling expression", False),
        ("ttl", False),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("metadata format version: 1", "metadata format version: 2"),
        ("mode: 0", "mode: 8"),
        ("mode: 0\n", ""),
        ("granularity bytes: 10485760", "granularity bytes: many"),
        ("granularity bytes: 10485760\n", "granularity bytes: 10485760\nttl: d\n"),
        ("granularity bytes: 10485760\n", "granularity bytes: 10485760"),
    ],
)
def test_metadata_that_is_not_one_is_corrupt(old: str, new: str) -> None:
    """P4."""
    text = metadata_text(PLAIN)
    assert old in text
    with pytest.raises(Corruption):
        parse_metadata(text.replace(old, new))


COLUMNS = (
    Column("key", "Int64"),
    Column("e", "Enum8('a\\'b' = 1)", "DEFAULT", "CAST('x\ty', 'String')"),
    Column("`odd` \\'name'\n", "LowCardinality(String)", comment="it's\tso"),
    Column("m", "UInt8", "MATERIALIZED", "key % 2", "c", "ZSTD(3)", "d + toIntervalDay(1)"),
    Column("eph", "String", "EPHEMERAL", ""),
)
COLUMNS_TEXT = (
    "columns format version: 1\n"
    "5 columns:\n"
    "`key` Int64\n"
    r"`e` Enum8(\'a\\\'b\' = 1)" + "\tDEFAULT\t" + r"CAST(\'x\ty\', \'String\')" + "\n"
    r"`\`odd\` \\'name'\n` LowCardinality(String)" + "\tCOMMENT " + r"\'it\\\'s\\tso\'" + "\n"
    r"`m` UInt8" + "\tMATERIALIZED\tkey % 2\tCOMMENT " + r"\'c\'"
    "\tCODEC(ZSTD(3))\tTTL d + toIntervalDay(1)\n"
    "`eph` String\tEPHEMERAL\t\n"
)


def test_the_text_of_columns() -> None:
    """P4."""
    assert columns_text(COLUMNS) == COLUMNS_TEXT
    assert parse_columns(COLUMNS_TEXT) == COLUMNS


def test_a_tab_before_a_comment_is_read_too() -> None:
    """P4. The original writes a space there."""
    text = "columns format version: 1\n1 columns:\n`a` Int8\tCOMMENT\t\\'x\\'\n"
    assert parse_columns(text) == (Column("a", "Int8", comment="x"),)


@pytest.mark.parametrize(
    "lines",
    [
        "2 columns:\n`a` Int8\n",
        "1 column:\n`a` Int8\n",
        "x columns:\n`a` Int8\n",
        "1 columns:\na Int8\n",
        "1 columns:\n`a`\n",
        "1 columns:\n`a` \n",
        "1 columns:\n`` Int8\n",
        "1 columns:\n`a` Int8\tDEFAULT\n",
        "1 columns:\n`a` Int8\tCOMMENT x\n",
        "1 columns:\n`a` Int8\tSTATISTICS(minmax)\n",
        "2 columns:\n`a` Int8\n`a` Int8\n",
        "1 columns:\n`a` Int8",
    ],
)
def test_columns_that_are_not_ones_are_corrupt(lines: str) -> None:
    """P4."""
    with pytest.raises(Corruption):
        parse_columns("columns format version: 1\n" + lines)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("2 columns:\n`a` Int8\n", "2 columns announced, 1 described"),
        ("2 rows:\n`a` Int8\n", "does not say how many columns follow"),
        ("2 columns:\n`a` Int8\n`a` Int8\n", "two columns have the same name"),
        ("1 columns:\n`a` Int8\t\tx\n", "which is not understood"),
    ],
)
def test_what_is_wrong_with_columns_is_said(lines: str, message: str) -> None:
    with pytest.raises(Corruption, match=message):
        parse_columns("columns format version: 1\n" + lines)
