"""A Spark DataFrame becomes staged parts: all rows, in few parts, or nothing."""

import dataclasses
import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.insert import scanned as scanned_module
from rmt_pipeline.compute.insert.scanned import scanned_files
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


@pytest.fixture
def scanned(tmp_path, connect, monkeypatch):
    """A directory with three files that Spark reads, however small they are."""
    monkeypatch.setattr(scanned_module, "SCANNED_BYTES_MIN", 0)
    directory = tmp_path / "input"
    directory.mkdir()
    for number in range(3):
        data = rows(300).slice(100 * number, 100)
        pq.write_table(data, directory / f"{number}.parquet", row_group_size=30)
    return directory


UNCHANGED = {
    "the files": lambda spark, path: spark.read.parquet(*map(str, sorted(path.iterdir()))),
    "their directory": lambda spark, path: spark.read.parquet(str(path)),
    "all columns": lambda spark, path: spark.read.parquet(str(path)).select("n", "day", "time"),
    "SQL": lambda spark, path: spark.sql("SELECT * FROM {t}", t=spark.read.parquet(str(path))),
}
CHANGED = {
    "a condition": lambda frame: frame.where("n > 5"),
    "a column less": lambda frame: frame.drop("day"),
    "a column more": lambda frame: frame.selectExpr("*", "n + 1 AS m"),
    "other names": lambda frame: frame.selectExpr("n", "time AS day", "day AS time"),
    "another type": lambda frame: frame.selectExpr("CAST(n AS INT) AS n", "day", "time"),
    "some rows": lambda frame: frame.limit(7),
    "rows twice": lambda frame: frame.union(frame),
    "another frame": lambda frame: frame.join(frame.select("n"), "n"),
    "distinct rows": lambda frame: frame.distinct(),
    "a file twice": lambda frame: frame.sparkSession.read.parquet(
        *frame.inputFiles(), frame.inputFiles()[0]
    ),
}


@pytest.mark.parametrize("how", UNCHANGED)
def test_files_that_a_frame_reads_and_leaves_as_they_are_are_found(how, scanned, connect):
    frame = UNCHANGED[how](connect.get(), scanned)
    assert scanned_files(frame) == sorted(map(str, scanned.iterdir()))


@pytest.mark.parametrize("how", CHANGED)
def test_a_frame_with_other_rows_than_its_files_is_not_taken_for_them(how, scanned, connect):
    assert scanned_files(CHANGED[how](connect.get().read.parquet(str(scanned)))) == []


def test_files_of_which_spark_may_read_other_values_are_left_to_it(scanned, connect):
    """Times without a zone, times of the Julian calendar, partitions in names, small files."""
    session, data = connect.get(), rows(10)
    frame = session.read.parquet(str(scanned))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanned_module, "SCANNED_BYTES_MIN", 1 << 20)
        assert scanned_files(frame) == []
    local = data.set_column(2, "time", data["time"].cast(pa.timestamp("us")))
    old = data.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    for name, table in (("local", local), ("old", old), ("named/p=1", data)):
        path = scanned.parent / name
        path.mkdir(parents=True)
        pq.write_table(table, path / "0.parquet")
    for name in ("local", "old", "named"):
        assert scanned_files(session.read.parquet(str(scanned.parent / name))) == [], name


def test_a_frame_of_files_is_read_by_the_tasks_themselves(scanned, connect):
    """An error names the file. NULL is no default, as in any other frame."""
    table = dataclasses.replace(TABLE, partition_by=())
    store = scanned.parent / "store"
    store.mkdir()
    frame = connect.get().read.parquet(str(scanned))
    staged = stage_dataframe(frame, plan(store, table))
    assert (
        sum(part.manifest.row_hash for part in staged) % 2**128
        == hash_table(rows(300).select(["day", "time", "n"])).row_hash
    )
    wrong = rows(50).set_column(0, "n", pa.array([None if n == 33 else n for n in range(50)]))
    pq.write_table(wrong, scanned / "1.parquet")
    formatted = QuerySettings(input_format_null_as_default=True)
    with pytest.raises(BadValue, match=r"1\.parquet row 34"):
        stage_dataframe(
            connect.get().read.parquet(str(scanned)), plan(store, table, settings=formatted)
        )


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
