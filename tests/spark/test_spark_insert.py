"""A Spark DataFrame becomes staged parts: all rows, in few parts, or nothing."""

import dataclasses
import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.insert.spark import stage_dataframe, stage_parquet
from rmt_pipeline.compute.insert.stage import StagePlan
from rmt_pipeline.protocol.errors import BadValue, IncorrectData, UnknownColumn
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.store.hashes.rows import hash_table
from tests.support.local_session import create, local_session
from tests.support.local_session import rows as answer_of
from tests.support.merging import CREATED_S, definition

pytestmark = pytest.mark.spark

TABLE = dataclasses.replace(
    definition([("day", "Date"), ("time", "DateTime"), ("n", "Int64")], ("n",)),
    partition_by=("toYYYYMM(day)",),
)


def plan(directory: Path, table=TABLE, **changes) -> StagePlan:
    whole = StagePlan(
        definition=table,
        directory=str(directory),
        settings=QuerySettings(),
        columns_given=None,
        insert_id="token-1",
        run_id="run-1",
        now_s=CREATED_S,
        durable=False,
    )
    return dataclasses.replace(whole, **changes)


def rows(count: int) -> pa.Table:
    first = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    times = [first + dt.timedelta(hours=hour) for hour in range(count)]
    return pa.table(
        {
            "n": pa.array(range(count, 0, -1), pa.int64()),
            "day": pa.array([time.date() for time in times]),
            "time": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def read(directory: Path, staged) -> list[pa.Table]:
    return [
        pq.ParquetFile(directory / part.directory / file.name).read()
        for part in staged
        for file in part.manifest.files
    ]


def test_every_row_is_staged_once_and_a_partition_is_one_part(tmp_path, connect) -> None:
    data = rows(2000)
    frame = connect.get().createDataFrame(data).repartition(5)

    staged = stage_dataframe(frame, plan(tmp_path))

    assert [part.manifest.partition_id for part in staged].count("202402") == 1
    assert {part.manifest.partition_id for part in staged} == {"202401", "202402", "202403"}
    tables = read(tmp_path, staged)
    wanted = data.select(["day", "time", "n"])
    assert (
        sum(part.manifest.row_hash for part in staged) % 2**128 == hash_table(wanted).row_hash
    )
    assert all(table["n"].to_pylist() == sorted(table["n"].to_pylist()) for table in tables)
    assert sorted(n for table in tables for n in table["n"].to_pylist()) == list(range(1, 2001))
    assert {part.manifest.insert_id for part in staged} == {"token-1"}
    assert {part.manifest.run_id for part in staged} == {"run-1"}


def test_without_a_partition_key_each_task_makes_its_own_part(tmp_path, connect) -> None:
    table = dataclasses.replace(TABLE, partition_by=())
    frame = connect.get().createDataFrame(rows(300)).repartition(3)
    staged = stage_dataframe(frame, plan(tmp_path, table))
    assert [part.manifest.partition_id for part in staged] == ["all"] * 3
    assert sum(part.manifest.rows for part in staged) == 300


def test_one_wrong_value_leaves_nothing_staged(tmp_path, connect) -> None:
    session = connect.get()
    frame = session.createDataFrame(rows(100)).selectExpr(
        "day", "time", "IF(n = 50, CAST(NULL AS BIGINT), n) AS n"
    )
    with pytest.raises(BadValue, match="n"):
        stage_dataframe(frame.repartition(4), plan(tmp_path))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tmp_")] == []


def test_a_column_that_the_table_does_not_have_is_named(tmp_path, connect) -> None:
    frame = connect.get().createDataFrame(rows(10).append_column("extra", pa.array([1] * 10)))
    with pytest.raises(UnknownColumn, match="extra"):
        stage_dataframe(frame, plan(tmp_path))


def test_files_are_read_by_the_tasks_themselves(tmp_path, connect) -> None:
    data = rows(2000)
    paths = []
    for number in range(3):
        path = tmp_path / f"input-{number}.parquet"
        pq.write_table(data.slice(700 * number, 700), path, row_group_size=100)
        paths.append(str(path))
    small = QuerySettings(max_insert_block_size=400)
    store = tmp_path / "store"
    store.mkdir()
    staged = stage_parquet(connect.get(), paths, plan(store, settings=small))
    tables = read(store, staged)
    assert sorted(n for table in tables for n in table["n"].to_pylist()) == list(range(1, 2001))
    assert max(part.manifest.rows for part in staged) <= 400


def test_a_wrong_value_in_a_file_is_named_with_its_row(tmp_path, connect) -> None:
    path = tmp_path / "input.parquet"
    data = rows(500).set_column(0, "n", pa.array([None if n == 333 else n for n in range(500)]))
    pq.write_table(data, path, row_group_size=100)
    small = QuerySettings(max_insert_block_size=100)
    with pytest.raises(BadValue, match=r"input\.parquet row 334"):
        stage_parquet(connect.get(), [str(path)], plan(tmp_path, settings=small))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tmp_")] == []


def test_a_file_that_is_no_parquet_is_named(tmp_path, connect) -> None:
    path = tmp_path / "input.parquet"
    path.write_text("day,time,n")
    with pytest.raises(IncorrectData, match=r"input\.parquet"):
        stage_parquet(connect.get(), [str(path)], plan(tmp_path))


def test_a_frame_without_rows_stages_nothing(tmp_path, connect) -> None:
    frame = connect.get().createDataFrame(rows(3)).where("n > 5")
    assert stage_dataframe(frame, plan(tmp_path)) == []


def test_a_table_takes_frames_and_files_of_spark_once(tmp_path, connect) -> None:
    data = rows(2000)
    path = tmp_path / "input.parquet"
    pq.write_table(data, path, row_group_size=100)
    with local_session(tmp_path) as session:
        create(
            session,
            "CREATE TABLE t (day Date, time DateTime, n Int64) "
            "ENGINE = ReplicatedMergeTree('/t', '{replica}') "
            "PARTITION BY toYYYYMM(day) ORDER BY n",
        )
        table = session.context.server.table("t")
        frame = connect.get().createDataFrame(data.slice(0, 5))
        assert table.insert_spark(frame, token="frame").rows == 5
        for _ in range(2):
            table.insert_parquet(connect.get(), [str(path)], token="files")
        assert answer_of(session, "SELECT count(), sum(n) FROM t") == [
            (2005, sum(range(1, 2001)) + sum(range(1996, 2001)))
        ]
