"""Defaults like `now()` and `rand()`: values of inserted rows, none for rows that are there."""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.inputs.conform import conform
from rmt_pipeline.compute.insert.stage import StagePlan, stage_batches, unpack_staged
from rmt_pipeline.compute.mutate.commands import CompiledCommands
from rmt_pipeline.compute.rows.conform import Conform
from rmt_pipeline.compute.rows.defaults import DefaultExpressions
from rmt_pipeline.compute.rows.ttl import RowTtl
from rmt_pipeline.compute.units import Shape
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.protocol.ttl import TtlRule
from rmt_pipeline.sql.run.table_relation import TableFiles, relation_over
from rmt_pipeline.store.manifest import PartColumn
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.translate.connection import open_connection
from tests.support.merging import definition, write_part

NOW_S = 1_700_000_000.123456
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
COLUMNS = (
    Column("n", "Int64"),
    Column("time", "DateTime", "DEFAULT", "now()"),
    Column("number", "UInt64", "DEFAULT", "rand64()"),
    Column("id", "UUID", "MATERIALIZED", "generateUUIDv4()"),
    Column("twice", "Int64", "DEFAULT", "n * 2"),
)
NO_UUID = "00000000-0000-0000-0000-000000000000"
WITHOUT = {"time": EPOCH, "number": 0, "id": NO_UUID, "twice": 14}


def inserted(*columns: Column, rows: int = 100, now_s: float | None = NOW_S) -> pa.Table:
    batches = pa.table({"n": range(rows)}).to_batches(max_chunksize=10)
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    return pa.concat_tables(
        conform(reader, columns, settings=QuerySettings(), now_s=now_s),
    )


def test_now_is_one_time_for_an_insert_and_rand_one_number_for_a_row() -> None:
    table = inserted(*COLUMNS)
    assert set(table["time"].to_pylist()) == {dt.datetime.fromtimestamp(int(NOW_S), dt.UTC)}
    assert len(set(table["number"].to_pylist())) == 100
    assert len(set(table["id"].to_pylist())) == 100
    assert table["twice"].to_pylist() == [2 * n for n in range(100)]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("DateTime64(6)", "now64(6)", dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC)),
        ("DateTime64(3)", "now64()", dt.datetime(2023, 11, 14, 22, 13, 20, 123000, dt.UTC)),
        (
            "DateTime64(6)",
            "now64(6, 'Asia/Tokyo')",
            dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC),
        ),
        (
            "DateTime64(6)",
            "now64(9, 'Asia/Tokyo')",
            dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC),
        ),
        ("DateTime64(3)", "now64(9)", dt.datetime(2023, 11, 14, 22, 13, 20, 123000, dt.UTC)),
        ("String", "toString(now64(9))", "2023-11-14 22:13:20.123456000"),
        ("Int64", "toUnixTimestamp64Nano(now64(9))", 1_700_000_000_123_456_000),
        (
            "DateTime",
            "NOW() + INTERVAL 1 HOUR",
            dt.datetime(2023, 11, 14, 23, 13, 20, 0, dt.UTC),
        ),
        ("String", "toString(now('Asia/Tokyo'))", "2023-11-15 07:13:20"),
        ("Date", "today()", dt.date(2023, 11, 14)),
        ("Date", "yesterday()", dt.date(2023, 11, 13)),
        ("UInt32", "toUnixTimestamp(now())", 1_700_000_000),
        ("Array(UInt32)", "arrayMap(x -> x + toUnixTimestamp(now()), [1])", [1_700_000_001]),
    ],
)
def test_each_function_of_the_clock_is_of_the_moment_of_the_insert(kind, text, value) -> None:
    column = Column("c", kind, "DEFAULT", text)
    assert inserted(COLUMNS[0], column)["c"].to_pylist() == [value] * 100


@pytest.mark.parametrize("digits", [7, 8, 9])
def test_a_moment_may_have_more_digits_than_microseconds(digits: int) -> None:
    column = Column("c", f"DateTime64({digits})", "DEFAULT", f"now64({digits})")
    [value] = set(
        inserted(COLUMNS[0], column)["c"]
        .cast(pa.timestamp("ns", "UTC"))
        .cast(pa.int64())
        .to_pylist()
    )
    assert value == 1_700_000_000_123_456_000


def test_now_is_one_time_in_all_tasks_of_an_insert(tmp_path: Path, monkeypatch) -> None:
    """Each takes its rows by itself; of a task that runs twice the driver sees one result."""
    for name in ("set_cpu_count", "set_io_thread_count"):  # of a worker, not of this process
        monkeypatch.setattr(pa, name, lambda _: None)
    plan = StagePlan(
        definition=replace(definition([("n", "Int64")], ("n",)), columns=COLUMNS),
        directory=str(tmp_path),
        settings=QuerySettings(),
        insert_id="",
        run_id="",
        now_s=NOW_S,
        durable=False,
    )
    times, numbers = [], []
    for n in range(2):
        batch = pa.record_batch({"n": pa.array([n], pa.int64())})
        [staged] = unpack_staged(pa.Table.from_batches(stage_batches(plan, iter([batch]))))
        assert isinstance(staged, StagedPart)
        assert staged.manifest.created_s == int(NOW_S)
        [file] = staged.manifest.files
        [row] = pq.read_table(tmp_path / staged.directory / file.name).to_pylist()
        times.append(row["time"])
        numbers.append(row["number"])
    assert times == [dt.datetime.fromtimestamp(int(NOW_S), dt.UTC)] * 2
    assert numbers[0] != numbers[1]


def test_a_value_that_is_given_stays() -> None:
    [table] = conform(
        [{"n": 1, "number": 5}, {"n": 2}], COLUMNS[:3], settings=QuerySettings(), now_s=NOW_S
    )
    given, computed = table["number"].to_pylist()
    assert given == 5
    assert computed != 5


def test_rows_of_a_part_that_lacks_the_column_are_never_given_another_value() -> None:
    batch = pa.record_batch({"n": pa.array([7], pa.int64())})
    table = Conform(Shape(COLUMNS, ()), ()).table(batch, "all_0_0_0")
    assert table.to_pylist() == [{"n": 7, **WITHOUT}]


def test_a_query_reads_them_as_a_merge_does(tmp_path: Path) -> None:
    part = write_part(tmp_path, "all_0_0_0", pa.table({"n": pa.array([7], pa.int64())}))
    files = [f"{part.directory}/{file.name}" for file in part.manifest.files]
    plain = definition([("n", "Int64")], ("n",))
    table = replace(plain, columns=COLUMNS)
    relation = relation_over([TableFiles((PartColumn("n", "Int64"),), files, 0)], table)
    with open_connection(directories=[Path(part.directory)]) as connection:
        [row] = connection.sql(f"SELECT * FROM ({relation.sql})").fetchall()
    assert [*row[2:]] == [0, NO_UUID, 14]
    assert row[1].timestamp() == 0


def test_what_is_cleared_or_follows_from_an_update_is_not_computed_anew() -> None:
    table = inserted(*COLUMNS, rows=3)
    follows = Column("follows", "UInt64", "MATERIALIZED", "n + rand64()")
    whole = inserted(*COLUMNS[:2], follows, rows=3)
    cleared = CompiledCommands(["CLEAR COLUMN time"], COLUMNS, "all").apply(table).rows
    assert set(cleared["time"].to_pylist()) == {EPOCH}
    updated = (
        CompiledCommands(["UPDATE n = 100 WHERE 1"], (*COLUMNS[:2], follows), "all")
        .apply(whole)
        .rows
    )
    assert updated["n"].to_pylist() == [100] * 3
    assert updated["follows"].to_pylist() == whole["follows"].to_pylist()


def test_what_expires_is_not_computed_anew() -> None:
    table = inserted(*COLUMNS, rows=3)
    rule = TtlRule("column", "time", column="time")
    expired = RowTtl([rule], COLUMNS, expire_s=int(NOW_S) + 1).expire(table)
    assert set(expired["time"].to_pylist()) == {EPOCH}


def test_only_expressions_that_give_the_same_each_time_count_for_rows_that_are_there() -> None:
    names = [column.name for column in COLUMNS]
    assert [name for name in names if name in DefaultExpressions(COLUMNS)] == ["twice"]
    counted = DefaultExpressions(COLUMNS, inserted=True)
    assert [name for name in names if name in counted] == names[1:]
