"""Blocks: nothing lost, nothing twice, one partition each, in order; and staged as parts."""

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.compute.inputs.conform import conform
from rmt_pipeline.compute.insert import blocks as module
from rmt_pipeline.compute.insert.blocks import (
    Block,
    blocks_of,
    key_columns_of,
    stage,
    stage_all,
)
from rmt_pipeline.protocol.errors import (
    BadValue,
    DiskFull,
    TooManyPartitions,
    ViolatedConstraint,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.store import parquet
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.hashes.rows import RowHashes, hash_table
from rmt_pipeline.store.manifest import KeyBound, Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import GivenRows, StagedPart, Staging
from rmt_pipeline.system import RandomIds
from tests.support.fake_disk import FakeDisk
from tests.support.parts import CountedIds

COLUMNS = (
    Column("id", "Int64"),
    Column("name", "String"),
    Column("part", "Int16"),
    Column("price", "Float64"),
)


def table_of(
    order_by: tuple[str, ...] = ("name", "id"),
    partition_by: tuple[str, ...] = ("part",),
    columns: tuple[Column, ...] = COLUMNS,
) -> TableDefinition:
    engine = Engine("MergeTree", "/t", "r1")
    return TableDefinition("d", "t", columns, engine, order_by, partition_by)


def blocks(
    rows: list[dict[str, Any]] | pa.Table,
    definition: TableDefinition | None = None,
    **options: Any,
) -> list[Block]:
    definition = definition or table_of()
    query = QuerySettings(**options)
    return list(blocks_of(conform(rows, definition.columns, settings=query), definition, query))


def row(number: int, name: str = "a", part: int = 1) -> dict[str, Any]:
    return {"id": number, "name": name, "part": part, "price": 0.5}


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-3, 3),
            "name": st.sampled_from(["", "a", "b", "aa", "é"]),
            "part": st.integers(-1, 2),
            "price": st.sampled_from([0.5, 1.5]),
        }
    ),
    max_size=30,
)


def total(tables: list[pa.Table]) -> RowHashes:
    """Of the rows in any order: the content hash does not add up and is left out."""
    hashes = RowHashes(0, 0, dict.fromkeys([column.name for column in COLUMNS], 0), 0)
    for table in tables:
        hashes += hash_table(table)
    return RowHashes(hashes.rows, hashes.row_hash, hashes.column_hashes, 0)


@settings(max_examples=150)
@given(ROWS, st.integers(1, 40))
def test_blocks_conserve_the_rows_and_are_sorted_partitions(
    rows: list[dict[str, Any]], rows_max: int
) -> None:
    found = blocks(rows, max_insert_block_size=rows_max)
    assert total([block.table for block in found]) == total(
        list(conform(rows, COLUMNS, settings=QuerySettings()))
    )
    for block in found:
        assert 0 < block.table.num_rows <= rows_max
        assert {str(part) for part in block.table["part"].to_pylist()} == {block.partition_id}
        keys = [(r["name"].encode(), r["id"]) for r in block.table.to_pylist()]
        assert keys == sorted(keys)


@given(ROWS)
def test_rows_with_equal_keys_stay_in_their_order(rows: list[dict[str, Any]]) -> None:
    for number, each in enumerate(rows):
        each["price"] = float(number)
    for block in blocks(rows):
        stored = [(r["name"].encode(), r["id"], r["price"]) for r in block.table.to_pylist()]
        assert stored == sorted(stored)


@given(ROWS, st.integers(1, 7))
def test_how_the_rows_arrive_does_not_change_the_blocks(
    rows: list[dict[str, Any]], rows_at_once: int
) -> None:
    """Block ids are made of the blocks: a retry must give the same (spec §2.3)."""
    query = QuerySettings(max_insert_block_size=10)
    whole = list(conform(rows, COLUMNS, settings=query))
    pieces = [
        table.slice(start, rows_at_once)
        for table in whole
        for start in range(0, table.num_rows, rows_at_once)
    ]
    one, other = (list(blocks_of(each, table_of(), query)) for each in (whole, pieces))
    assert [block.table for block in one] == [block.table for block in other]


def test_partitions_come_in_the_order_of_their_first_rows() -> None:
    found = blocks([row(1, part=5), row(2, part=-1), row(3, part=5), row(4, part=2)])
    assert [block.partition_id for block in found] == ["5", "-1", "2"]


def test_without_a_partition_key_there_is_one_partition() -> None:
    (block,) = blocks([row(2), row(1)], table_of(partition_by=()))
    assert (block.partition_id, block.partition) == ("all", "tuple()")
    assert block.table["id"].to_pylist() == [1, 2]


def test_without_a_sorting_key_rows_stay_as_they_came() -> None:
    (block,) = blocks([row(2), row(1)], table_of(order_by=()))
    assert block.table["id"].to_pylist() == [2, 1]


def test_a_partition_key_of_several_columns() -> None:
    found = blocks(
        [row(1, "a", 1), row(2, "b", 1), row(3, "a", 1), row(4, "a", 2)],
        table_of(partition_by=("name", "part")),
    )
    assert [block.partition for block in found] == ["('a',1)", "('b',1)", "('a',2)"]
    assert [block.table["id"].to_pylist() for block in found] == [[1, 3], [2], [4]]


def test_many_values_in_many_key_columns_do_not_overflow() -> None:
    columns = tuple(Column(f"k{n}", "Int64") for n in range(8))
    definition = table_of(("k0",), tuple(column.name for column in columns), columns)
    rows = [{column.name: number**3 for column in columns} for number in range(1000)]
    assert len(blocks(rows, definition, max_partitions_per_insert_block=0)) == 1000


def test_too_many_partitions_are_refused_with_their_count() -> None:
    rows = [row(number, part=number) for number in range(101)]
    with pytest.raises(
        TooManyPartitions,
        match=r"rows of 101 partitions; max_partitions_per_insert_block is 100\. Insert fewer",
    ):
        blocks(rows)
    assert len(blocks(rows[:100])) == 100
    assert len(blocks(rows, max_partitions_per_insert_block=0)) == 101
    assert len(blocks(rows, throw_on_max_partitions_per_insert_block=False)) == 101


def test_nan_in_a_key_is_refused_with_its_row() -> None:
    rows = [row(1), row(2), {**row(3), "price": float("nan")}]
    for definition in (
        table_of(order_by=("price",)),
        table_of(order_by=("id",), partition_by=("price",)),
    ):
        with pytest.raises(BadValue, match=r"^row 3: price is NaN, and price is part of a key"):
            blocks(rows, definition)
    assert len(blocks(rows)) == 1


def test_null_in_a_key_is_refused_with_its_row() -> None:
    columns = (Column("id", "Nullable(Int64)"), Column("x", "Nullable(Float64)"))
    for key in ("id", "x"):
        rows = [{"id": 1, "x": 1.0}] * 7 + [{key: None}]
        definition = table_of((key,), (), columns)
        with pytest.raises(BadValue, match=f"^row 8: {key} is NULL"):
            blocks([{"id": 1, "x": 1.0, **each} for each in rows], definition)


@pytest.mark.parametrize(("wrong", "shown"), [(0.5, "0.5"), (None, "NULL")])
def test_a_row_for_which_a_check_does_not_hold_is_refused_with_its_place(wrong, shown) -> None:
    columns = (Column("id", "Int64"), Column("x", "Nullable(Float64)"))
    checks = ("c CHECK id < 100", "`a CHECK b` CHECK x > 1", "d ASSUME id < 0")
    definition = replace(table_of(("id",), (), columns), constraints=checks)
    good = [{"id": 99 - number, "x": 1.5} for number in range(7)]
    assert len(blocks(good, definition)) == 1
    violated = rf"^row 8: the CONSTRAINT `a CHECK b` CHECK x > 1 is violated by x = {shown};"
    with pytest.raises(ViolatedConstraint, match=violated):
        blocks([*good, {"id": 7, "x": wrong}], definition)


def test_what_violates_a_check_is_shown_without_python() -> None:
    columns = (Column("id", "Int64"), Column("x", "Decimal(9, 2)"), Column("s", "String"))
    checks = ("c CHECK x > 0 AND s != 'b'",)
    definition = replace(table_of(("id",), (), columns), constraints=checks)
    with pytest.raises(ViolatedConstraint, match=r"violated by x = -1\.00, s = 'a'; nothing"):
        blocks([{"id": 1, "x": Decimal("-1.00"), "s": "a"}], definition)


def test_rows_are_counted_over_all_blocks() -> None:
    rows = [row(number) for number in range(25)] + [{**row(0), "price": float("nan")}]
    with pytest.raises(BadValue, match=r"^row 26: price"):
        blocks(rows, table_of(order_by=("price",)), max_insert_block_size=10)


def test_small_tables_are_joined_up_to_the_limits() -> None:
    tables = list(conform([row(1)] * 10, COLUMNS, settings=QuerySettings())) * 3

    def sizes(**options: int) -> list[int]:
        query = QuerySettings(**options)
        return [block.table.num_rows for block in blocks_of(tables, table_of(), query)]

    assert sizes() == [30]
    assert sizes(max_insert_block_size=12) == [12, 12, 6]
    assert sizes(min_insert_block_size_rows=10) == [10, 10, 10]
    assert sizes(min_insert_block_size_rows=7, max_insert_block_size=8) == [8, 8, 8, 6]
    assert sizes(min_insert_block_size_bytes=1) == [10, 10, 10]
    assert sizes(min_insert_block_size_rows=0, min_insert_block_size_bytes=0) == [10, 10, 10]
    assert sizes(min_insert_block_size_rows=0) == sizes(min_insert_block_size_bytes=0) == [30]
    assert sizes(min_insert_block_size_rows=20, min_insert_block_size_bytes=0) == [20, 10]
    assert sizes(max_insert_block_size=2**64 - 1) == [30]


def test_no_rows_are_no_block() -> None:
    assert blocks([]) == []
    assert blocks(pa.table({"id": pa.array([], pa.int64())})) == []


# Staging


@pytest.fixture
def store(tmp_path: Path) -> PartStore:
    return PartStore(LocalDisk(tmp_path), ids=CountedIds())


def staged(block: Block, store: PartStore) -> Any:
    return stage(block, store, insert_id="i1", run_id="run", created_s=77)


def test_a_block_is_staged_with_all_that_is_known_of_it(store: PartStore) -> None:
    (block,) = blocks([row(3, "b"), row(1, "a"), row(2, "b")])
    manifest = staged(block, store).manifest
    assert (manifest.rows, manifest.partition_id, manifest.partition) == (3, "1", "1")
    assert (manifest.insert_id, manifest.run_id, manifest.created_s) == ("i1", "run", 77)
    assert manifest.key_bounds == (
        KeyBound("part", 1, 1),
        KeyBound("name", "a", "b"),
        KeyBound("id", 1, 3),
    )
    assert [(c.name, c.type) for c in manifest.columns] == [(c.name, c.type) for c in COLUMNS]
    hashes = hash_table(block.table)
    assert manifest.row_hash == hashes.row_hash
    assert manifest.column_hashes == hashes.column_hashes
    assert manifest.content_hash == hashes.content_hash
    assert manifest.bytes_on_disk > 0
    assert manifest.bytes_uncompressed == block.table.nbytes
    assert "pyarrow" in manifest.engine_version


def test_a_staged_block_reads_back_as_its_rows(store: PartStore) -> None:
    (block,) = blocks([row(number % 7, chr(97 + number % 5)) for number in range(5000)])
    part = PartName.parse("1_1_1_0")
    store.publish(staged(block, store), part)
    store.verify(part)
    (file,) = store.files(part)
    read = pa.Table.from_batches(parquet.read_batches(file))
    assert read.schema.equals(block.table.schema)
    assert hash_table(read).content_hash == store.manifest(part).content_hash


def test_the_same_rows_make_the_same_bytes(store: PartStore) -> None:
    (block,) = blocks([row(number % 7) for number in range(5000)])
    assert staged(block, store).manifest.files == staged(block, store).manifest.files


def test_bounds_are_text_where_json_has_no_value(store: PartStore) -> None:
    columns = (
        Column("day", "Date"),
        Column("time", "DateTime('Asia/Tokyo')"),
        Column("code", "FixedString(2)"),
        Column("long", "String"),
    )
    definition = table_of(("time", "code", "long"), ("day",), columns)
    day = dt.date(2013, 7, 1)
    (block,) = blocks(
        [{"day": day, "time": "2013-07-01 09:00:00", "code": b"ab", "long": "x" * 5000}],
        definition,
    )
    bounds = {name: (least, greatest) for name, least, greatest in block.key_bounds}
    assert bounds["day"] == ("2013-07-01", "2013-07-01")
    assert bounds["time"] == ("2013-07-01T00:00:00+00:00",) * 2
    assert bounds["long"] == (None, None)
    assert staged(block, store).manifest.key_bounds == block.key_bounds


@pytest.mark.parametrize("price", [float("nan"), float("inf"), None])
def test_what_a_partition_is_computed_from_may_be_no_number(store: PartStore, price) -> None:
    columns = (Column("id", "Int64"), Column("price", "Nullable(Float64)"))
    definition = table_of(("id",), ("isNull(price)",), columns)
    (block,) = blocks([{"id": 1, "price": price}], definition)
    assert block.key_bounds[-1] == KeyBound("price", None, None)
    assert staged(block, store).manifest.key_bounds == block.key_bounds


def test_a_full_disk_leaves_nothing_behind() -> None:
    disk = FakeDisk(lambda: 0.0)
    store = PartStore(disk, ids=CountedIds())
    (block,) = blocks([row(1)])
    begin = store.begin

    def begin_then_full(kind: Any, hint: str) -> Any:
        staging = begin(kind, hint)
        disk.full = True
        return staging

    store.begin = begin_then_full  # type: ignore[method-assign]
    with pytest.raises(DiskFull):
        staged(block, store)
    assert store.staged() == []


# Keys that are computed


def staged_all(blocks: Iterable[Block], store: PartStore) -> list[StagedPart]:
    return list(stage_all(blocks, store, insert_id="i1", run_id="run", created_s=77))


@pytest.mark.parametrize("count", [1, 3, 50, 600])
def test_blocks_are_staged_in_their_order(tmp_path: Path, count: int) -> None:
    """By several threads if there are many; so ids may be given out in any order."""
    rows = [row(number, part=number) for number in range(count)]
    found = blocks(rows, max_partitions_per_insert_block=0)
    store = PartStore(LocalDisk(tmp_path), ids=RandomIds(), durable=False)
    parts = staged_all(found, store)
    assert [one.manifest.partition_id for one in parts] == [str(one) for one in range(count)]
    assert sorted(one.directory for one in parts) == store.staged()


@pytest.mark.parametrize("real", [False, True])
def test_many_blocks_of_which_one_can_not_be_staged_leave_nothing_behind(
    tmp_path: Path, real: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LocalDisk(tmp_path) if real else FakeDisk(lambda: 0.0)
    store = PartStore(disk, ids=RandomIds())
    seal = Staging.seal

    def full(staging: Staging, manifest: Manifest, *, given: GivenRows) -> StagedPart:
        if manifest.partition_id == "13":
            raise DiskFull("no space left")
        return seal(staging, manifest, given=given)

    monkeypatch.setattr(Staging, "seal", full)
    with pytest.raises(DiskFull):
        staged_all(blocks([row(number, part=number) for number in range(40)]), store)
    assert store.staged() == []


def test_large_blocks_are_staged_one_by_one(
    store: PartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an insert of any size would be in memory."""
    monkeypatch.setattr(module, "TOGETHER_ROWS_MAX", 5)
    taken: list[int] = []

    def coming() -> Iterator[Block]:
        for part, rows in enumerate((2, 2, 9, 9, 2)):
            taken.append(part)
            yield from blocks([row(number, part=part) for number in range(rows)])

    parts = stage_all(coming(), store, insert_id="i1", run_id="run", created_s=77)
    looked = [(one.manifest.rows, len(taken)) for one in parts]
    assert looked == [(2, 3), (2, 3), (9, 3), (9, 4), (2, 5)]


def test_a_computed_partition_key() -> None:
    columns = (Column("day", "Date"), Column("id", "Int64"))
    definition = table_of(("id",), ("toYYYYMM(day)",), columns)
    days = [dt.date(2013, 7, 1), dt.date(2013, 8, 2), dt.date(2013, 7, 31)]
    found = blocks([{"day": day, "id": -n} for n, day in enumerate(days)], definition)
    assert [block.partition_id for block in found] == ["201307", "201308"]
    assert found[0].key_bounds == (
        KeyBound("toYYYYMM(day)", 201307, 201307),
        KeyBound("id", -2, 0),
        KeyBound("day", "2013-07-01", "2013-07-31"),
    )


def test_a_computed_sorting_key() -> None:
    definition = table_of(("modulo(id, 3)", "id"), ())
    (block,) = blocks([row(number) for number in (5, 4, 3, 2, 1, 0)], definition)
    assert block.table["id"].to_pylist() == [0, 3, 1, 4, 2, 5]
    assert block.shape.sorted_by == ()


def test_a_key_that_divides_by_zero_is_refused() -> None:
    with pytest.raises(BadValue):
        blocks([row(0)], table_of(("id",), ("intDiv(5, id)",)))


def test_a_column_with_a_strange_name_is_still_a_plain_column() -> None:
    columns = (Column("a b", "Int64"), Column("`", "Int64"))
    definition = table_of(("`a b`",), (r"`\``",), columns)
    found = blocks([{"a b": 2, "`": 1}, {"a b": 1, "`": 1}], definition)
    assert [block.partition_id for block in found] == ["1"]
    assert found[0].table["a b"].to_pylist() == [1, 2]


def test_the_columns_of_the_keys() -> None:
    definition = table_of(("modulo(id, 3)", "name"), ("part",))
    assert key_columns_of(definition) == {"id", "name", "part"}
