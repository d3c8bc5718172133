"""Where an old part has the columns of now (spec §8.4)."""

from dataclasses import replace

import pytest

from rmt_pipeline.compute.rows.conform import is_current
from rmt_pipeline.protocol.alter.history import (
    AlterRecord,
    StoredColumn,
    history_of,
    stored_as,
)
from rmt_pipeline.protocol.alter.texts import definition_of_texts, same_columns, split_key
from rmt_pipeline.protocol.errors import Corruption, MetadataMismatch
from rmt_pipeline.protocol.nodes.columns import columns_text
from rmt_pipeline.protocol.nodes.metadata import metadata_text
from rmt_pipeline.protocol.table import Column, ColumnChange, Engine, TableDefinition
from tests.unit.protocol.alter.altering import TABLE, alter

PART = (("id", "Int64"), ("a", "String"), ("b", "Int32"))


def table(columns: str, *history: ColumnChange) -> TableDefinition:
    """`id Int64, …` as a definition."""
    pairs = (one.strip().split(" ", 1) for one in columns.split(","))
    return TableDefinition(
        "default",
        "t",
        tuple(Column(name, kind) for name, kind in pairs),
        Engine("MergeTree", "/t", "r1"),
        ("id",),
        metadata_version=9,
        history=history,
    )


def found(definition: TableDefinition, version: int = 0) -> dict[str, str]:
    return {one.column: one.name for one in stored_as(definition, PART, version)}


def test_a_column_that_was_dropped_and_added_again_is_not_the_old_one() -> None:
    """P33."""
    now = table("id Int64, a String", ColumnChange(3, "a"))
    assert found(now, version=2) == {"id": "id"}
    assert found(now, version=3) == {"id": "id", "a": "a"}


def test_names_are_followed_through_every_renaming_since() -> None:
    """P33."""
    now = table("id Int64, c String", ColumnChange(3, "a", "x"), ColumnChange(5, "x", "c"))
    assert found(now) == {"id": "id", "c": "a"}
    assert found(now, version=5) == {"id": "id"}


def test_two_columns_that_changed_their_names_are_not_mixed_up() -> None:
    """P33."""
    swap = [ColumnChange(3, *pair) for pair in (("a", "t"), ("b", "a"), ("t", "b"))]
    assert found(table("id Int64, a Int32, b String", *swap)) == {
        "id": "id",
        "a": "b",
        "b": "a",
    }


def test_a_part_that_is_newer_than_we_know_is_read_by_its_names() -> None:
    """Spec §16.8 U9."""
    now = replace(table("id Int64, a String, z Date"), metadata_version=2)
    assert found(now, version=7) == {"id": "id", "a": "a"}


def test_a_part_is_current_when_its_files_are_just_the_columns_of_now() -> None:
    assert is_current(table("id Int64, a String, b Int32"), PART, 0)
    assert not is_current(table("id Int64, a String, b Int64"), PART, 0)
    assert not is_current(table("id Int64, a String"), PART, 0)
    assert not is_current(table("id Int64, a String, b Int32, c Date"), PART, 0)
    swap = [ColumnChange(3, *pair) for pair in (("a", "t"), ("b", "a"), ("t", "b"))]
    assert not is_current(table("id Int64, a String, b Int32", *swap), PART, 0)


OLD = "Enum8('a' = 1, 'b' = 2)"
GROWN = "Enum8('z' = -5, 'a' = 1, 'b' = 2)"


@pytest.mark.parametrize("around", ["{}", "Nullable({})", "Array({})", "Tuple({}, String)"])
def test_a_part_stays_current_when_an_enum_gets_further_elements(around: str) -> None:
    """Spec §8.1: no mutation follows such an ALTER, so nothing rewrites the part."""

    def is_read(stored: str, now: str) -> bool:
        column = Column("e", around.format(now))
        definition = TABLE.with_columns((column,))
        return is_current(definition, [("e", around.format(stored))], 0)

    assert is_read(OLD, GROWN)
    assert not is_read(GROWN, OLD)
    assert not is_read(OLD, "Enum8('a' = 2, 'b' = 1, 'c' = 3)")
    assert not is_read(OLD, "Enum16('a' = 1, 'b' = 2)")
    assert not is_read(OLD, "Int8")
    assert not is_read("String", GROWN)


def test_columns_without_values_and_names_that_a_part_never_had_are_no_matter() -> None:
    now = table("id Int64, a String, b Int32", ColumnChange(3, "zz"), ColumnChange(4, "y", "x"))
    now = replace(now, columns=(*now.columns, Column("al", "String", "ALIAS", "a")))
    assert found(now) == {"id": "id", "a": "a", "b": "b"}
    assert is_current(now, PART, 0)
    named_so = replace(now, columns=(*now.columns[:2], Column("b", "Int32", "ALIAS", "a")))
    assert found(named_so) == {"id": "id", "a": "a"}


def test_a_column_keeps_the_type_that_the_part_has() -> None:
    [_, column] = stored_as(table("id Int64, a UInt8"), PART, 0)
    assert column == StoredColumn("a", "a", "String")


RECORD = AlterRecord(
    created_s=1_700_000_000,
    replica="r1",
    request_id="0d9c",
    commands="RENAME COLUMN a TO `b\tc`, DROP COLUMN d",
    changes=(ColumnChange(4, "a", "b\tc"), ColumnChange(4, "d")),
)


def test_the_record_of_an_alter_reads_back() -> None:
    """P4."""
    text = RECORD.encode()
    assert AlterRecord.decode(text, 4) == RECORD
    assert text.decode().splitlines()[-2:] == ["rename\ta\tb\\tc", "drop\td"]
    assert history_of([RECORD]) == RECORD.changes


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"alter format version: 2\n",
        RECORD.encode() + b"more\n",
        RECORD.encode().replace(b"drop\td", b"drop\t"),
        RECORD.encode().replace(b"drop\td", b"rename\td"),
        RECORD.encode().replace(b"drop\td", b"drop\td\te"),
        RECORD.encode().replace(b"drop\td", b"move\td\te"),
        RECORD.encode().replace(b"changes: 2", b"changes: 3"),
        RECORD.encode().replace(b"drop", b"\xff"),
    ],
)
def test_any_other_bytes_are_no_record(text: bytes) -> None:
    """P4."""
    with pytest.raises(Corruption):
        AlterRecord.decode(text, 4)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("a", ("a",)),
        ("a, f(b, [1, 2]), (c, d)", ("a", "f(b, [1, 2])", "(c, d)")),
        ("concat(a, ', ('), `b,c`", ("concat(a, ', (')", "`b,c`")),
        (r"concat(a, '\', x'), b", (r"concat(a, '\', x')", "b")),
    ],
)
def test_a_key_is_split_where_its_expressions_end(text: str, parts: tuple[str, ...]) -> None:
    assert split_key(text) == parts


@pytest.mark.parametrize("text", ["a,", "f(a", "a)", "'a", ", a"])
def test_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(Corruption):
        split_key(text)


@pytest.mark.parametrize(
    "text",
    [
        "ADD COLUMN o Int32 AFTER a, MODIFY ORDER BY (a, o)",
        "DROP COLUMN n, MODIFY COLUMN b DEFAULT 'y'",
        "ADD COLUMN d Date, MODIFY TTL d + INTERVAL 1 DAY",
    ],
)
def test_what_is_in_zookeeper_gives_other_replicas_the_same_definition(text: str) -> None:
    """P34."""
    altered = alter(text).definition
    texts = metadata_text(altered), columns_text(altered.columns)
    later = (*altered.history, ColumnChange(5, "a"))
    assert definition_of_texts(TABLE, *texts, 4, later) == altered


def test_keys_that_an_alter_leaves_alone_stay_as_they_were_said() -> None:
    """A primary key that was said is said by SHOW CREATE TABLE afterwards, too."""
    said = replace(TABLE, order_by=("a", "b"), primary_key=("a", "b"))
    altered = alter("ADD COLUMN x Int8", table=said).definition
    texts = metadata_text(altered), columns_text(altered.columns)
    applied = definition_of_texts(said, *texts, 4, altered.history)
    assert (applied.order_by, applied.primary_key) == (("a", "b"), ("a", "b"))


def test_an_alter_of_what_can_not_be_altered_is_not_applied() -> None:
    """P27."""
    other = replace(TABLE, partition_by=("b",))
    with pytest.raises(MetadataMismatch, match="partition key differs"):
        definition_of_texts(TABLE, metadata_text(other), columns_text(TABLE.columns), 4, ())


def test_replicas_may_differ_in_their_comments() -> None:
    columns = (replace(TABLE.columns[0], comment="mine"), *TABLE.columns[1:])
    assert same_columns(TABLE.columns, columns)
    assert not same_columns(TABLE.columns, columns[1:])
