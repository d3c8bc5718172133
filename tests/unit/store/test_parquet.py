"""Parquet files: what goes in comes out, the same bytes each time, in bounded pieces."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.store import parquet
from rmt_pipeline.store.hashes.rows import hash_table
from rmt_pipeline.syntax.types import arrow_schema
from tests.support.tables import tables

EVERY_TYPE = [
    *("Int8", "UInt64", "Int128", "UInt256", "Float32", "Float64", "Bool", "String"),
    *("FixedString(5)", "Date", "Date32", "DateTime", "DateTime('Asia/Tokyo')"),
    *("DateTime64(3)", "DateTime64(9, 'UTC')", "UUID", "Enum8('a' = 1)", "IPv4", "IPv6"),
    *("Decimal(9, 2)", "Decimal(38, 10)", "Decimal(76, 3)", "LowCardinality(String)"),
    *("Array(Nullable(Int32))", "Tuple(a Int8, b String)", "Tuple(Int8, UInt8)"),
    *("Map(String, Array(UInt8))", "Nullable(Float64)"),
]


@settings(max_examples=30)
@given(tables())
def test_rows_survive(table: pa.Table) -> None:
    read = pq.read_table(pa.BufferReader(parquet.to_parquet(table)))
    assert hash_table(read) == hash_table(table)
    assert read.schema.types == table.schema.types


@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_the_stored_type_survives_without_arrows_own_schema(kind: str) -> None:
    schema = arrow_schema([Column("x", kind)])
    read = pq.read_table(pa.BufferReader(parquet.to_parquet(schema.empty_table())))
    assert read.schema.equals(schema)


def test_the_same_rows_give_the_same_bytes() -> None:
    table = repetitive_table(5000)
    copy = pa.Table.from_batches(table.to_batches(max_chunksize=77))
    assert parquet.to_parquet(table).equals(parquet.to_parquet(copy))


def test_only_columns_that_repeat_get_a_dictionary() -> None:
    table = repetitive_table(10_000)
    assert parquet.dictionary_columns(table) == ["few"]
    assert parquet.dictionary_columns(table.slice(0, 100)) == []
    group = pq.ParquetFile(pa.BufferReader(parquet.to_parquet(table))).metadata.row_group(0)
    with_dictionary = [group.column(i).has_dictionary_page for i in range(2)]
    assert with_dictionary == [False, True]


def test_row_groups_are_bounded_in_rows_and_bytes(monkeypatch) -> None:
    assert parquet.row_group_rows(10, 100) == parquet.ROW_GROUP_ROWS
    assert parquet.row_group_rows(1000, 1000 << 20) == 128
    assert parquet.row_group_rows(1, 1 << 40) == 1
    assert parquet.row_group_rows(0, 0) == 1
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 300)
    metadata = pq.ParquetFile(
        pa.BufferReader(parquet.to_parquet(repetitive_table(1000)))
    ).metadata
    assert [metadata.row_group(i).num_rows for i in range(4)] == [300, 300, 300, 100]


@pytest.mark.parametrize(
    ("rows", "codec", "found"),
    [(10, "", "UNCOMPRESSED"), (1000, "", "ZSTD"), (10, "LZ4", "LZ4")],
)
def test_rows_that_fit_into_a_block_of_the_disk_are_compressed_if_that_is_asked_for(
    rows: int, codec: str, found: str
) -> None:
    data = parquet.to_parquet(repetitive_table(rows), codec=codec)
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    assert {group.column(at).compression for at in range(2)} == {found}


def test_readers_are_told_the_order_and_the_bounds() -> None:
    data = parquet.to_parquet(repetitive_table(10), sorted_by=["id"])
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    assert [column.column_index for column in group.sorting_columns] == [0]
    assert (group.column(0).statistics.min, group.column(0).statistics.max) == (0, 9)
    nested = pa.table({"l": [[1]], "id": [1]})
    group = pq.ParquetFile(
        pa.BufferReader(parquet.to_parquet(nested, sorted_by=["id"]))
    ).metadata
    assert group.row_group(0).sorting_columns == ()


def test_a_file_streams_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "data-00000.parquet"
    table = repetitive_table(1000)
    path.write_bytes(b"".join(parquet.chunks_of(parquet.to_parquet(table))))
    batches = list(parquet.read_batches(str(path), columns=["id"], batch_rows=300))
    assert [batch.num_rows for batch in batches] == [300, 300, 300, 100]
    assert pa.Table.from_batches(batches).column("id") == table.column("id")


def test_damage_is_corruption_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "data-00000.parquet"
    path.write_bytes(parquet.to_parquet(repetitive_table(10)).to_pybytes()[:-5])
    with pytest.raises(Corruption, match=r"data-00000\.parquet"):
        list(parquet.read_batches(str(path)))
    with pytest.raises(FileNotFoundError):
        list(parquet.read_batches(str(tmp_path / "none")))


def test_a_dataset_has_the_tables_columns_even_without_files(tmp_path: Path) -> None:
    columns = [Column("id", "Int64"), Column("late", "String")]
    assert parquet.open_dataset([], columns).to_table().num_rows == 0
    path = tmp_path / "data-00000.parquet"
    path.write_bytes(parquet.to_parquet(pa.table({"id": [1]})).to_pybytes())
    read = parquet.open_dataset([str(path)], columns).to_table()
    assert read.to_pylist() == [{"id": 1, "late": None}]


def repetitive_table(rows: int) -> pa.Table:
    few = pa.array(["EWR", "JFK", "LGA"]).take(pa.array(np.arange(rows) % 3))
    return pa.table({"id": np.arange(rows), "few": few})
