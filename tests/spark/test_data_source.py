"""`spark.read.format("rmt")` and `df.write.format("rmt")`, as a Spark program that is none of ours
uses them: real Spark, real servers.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmt_pipeline.compute.insert.stage import stage_task
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.inserts.ids import insert_id_of_parts
from rmt_pipeline.spark import InsertSlowed, RmtDataSource, Target, _Staged
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.table import Table
from tests.support.waiting import LIMIT_S

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]

DAYS = [dt.date(2026, 1, 31), dt.date(2026, 2, 1)]


@dataclass(frozen=True, slots=True)
class Program:
    """A Spark session that knows the format, and a table."""

    spark: Any
    config: Config
    table: Table

    def options(self, **more: str) -> dict[str, str]:
        return {"config": str(self.config.path), "server": "r1", **more}

    def frame(self, first: int, last: int) -> Any:
        numbers = range(first, last)
        rows = pa.table(
            {
                "day": pa.array([DAYS[n % 2] for n in numbers], pa.date32()),
                "n": pa.array(numbers, pa.int64()),
                "text": [f"row {n}" for n in numbers],
            }
        )
        return self.spark.createDataFrame(rows)

    def append(self, frame: Any, **more: str) -> None:
        writer = frame.write.format("rmt").options(**self.options(**more))
        writer.mode("append").save("source")

    def read(self) -> pa.Table:
        return self.spark.read.format("rmt").options(**self.options()).load("source").toArrow()

    def numbers(self) -> list[int]:
        return sorted(self.table.dataset().to_table()["n"].to_pylist())

    def staged(self) -> list[str]:
        directory = Path(self.table.store.disk.local_path(""))
        return [path.name for path in directory.iterdir() if path.name.startswith("tmp_")]


@pytest.fixture
def program(two_servers: Config, connect: Any) -> Iterator[Program]:
    spark = connect.get()
    spark.dataSource.register(RmtDataSource)
    with ServerContext.open(two_servers, "r1", purpose="test") as server:
        session = Session(server)
        session.execute(
            "CREATE TABLE source (day Date, n UInt64, text String) ENGINE = "
            "ReplicatedMergeTree('/clickhouse/tables/{shard}/source', '{replica}') "
            "PARTITION BY toYYYYMM(day) ORDER BY n"
        )
        yield Program(spark, two_servers, server.table("source"))
        session.execute("DROP TABLE source SYNC")


def test_what_tasks_write_is_one_insert_and_is_read_again(program: Program) -> None:
    program.append(program.frame(0, 1000).repartition(4), token="first")
    [insert] = program.table.inserts()
    assert insert.record.rows_in == 1000
    assert {line.partition for line in insert.lines} == {"202601", "202602"}
    assert program.numbers() == list(range(1000))
    found = program.read().sort_by("n")
    assert found["text"].to_pylist() == [f"row {n}" for n in range(1000)]
    assert found["day"].to_pylist() == [DAYS[n % 2] for n in range(1000)]
    assert program.staged() == []


def test_the_same_token_is_the_same_insert(program: Program) -> None:
    for _ in range(2):
        program.append(program.frame(0, 10), token="a day")
    program.append(program.frame(10, 20), token="another day")
    assert program.numbers() == list(range(20))
    assert len(program.table.inserts()) == 2


def test_parts_of_before_an_alter_are_read_with_the_columns_of_now(program: Program) -> None:
    program.append(program.frame(0, 4), token="before")
    with ServerContext.open(program.config, "r1", purpose="test") as server:
        Session(server).execute("ALTER TABLE source ADD COLUMN twice UInt64 DEFAULT n * 2")
    assert sorted(program.read()["twice"].to_pylist()) == [0, 2, 4, 6]


def test_one_wrong_value_in_one_task_leaves_nothing(program: Program) -> None:
    wrong = program.frame(0, 100).selectExpr("day", "IF(n = 50, -1, n) AS n", "text")
    with pytest.raises(Exception, match="-1"):
        program.append(wrong.repartition(4), token="wrong")
    assert (program.numbers(), program.staged()) == ([], [])


def stream(program: Program, directory: Path, **more: str) -> None:
    source = program.spark.readStream.schema("day DATE, n BIGINT, text STRING")
    writing = source.parquet(str(directory / "in")).writeStream.format("rmt")
    writing = writing.options(**program.options(path="source", **more))
    query = writing.option("checkpointLocation", str(directory / "checkpoint")).trigger(
        availableNow=True
    )
    assert query.start().awaitTermination(LIMIT_S)


def test_a_batch_of_a_stream_that_is_carried_out_again_is_a_duplicate(
    program: Program, tmp_path: Path
) -> None:
    """1. Two files come, one after the other: two batches.
    2. Spark dies before it notes that the second one is done, and carries it out again.
    """
    for number in range(2):
        rows = program.frame(10 * number, 10 * number + 10)
        rows.write.mode("append").parquet(str(tmp_path / "in"))
        stream(program, tmp_path, token="orders")
    assert program.numbers() == list(range(20))
    inserts = {one.insert_id for one in program.table.inserts()}
    assert len(inserts) == 2
    for note in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        note.unlink()
    stream(program, tmp_path, token="orders")
    assert program.numbers() == list(range(20)), "batch 1 was carried out twice"
    assert {one.insert_id for one in program.table.inserts()} == inserts


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_an_insert_that_is_slowed_down_says_so_each_time(program: Program, kind: str) -> None:
    with ServerContext.open(program.config, "r1", purpose="test") as server:
        Session(server).execute(
            "ALTER TABLE source MODIFY SETTING "
            "parts_to_delay_insert = 1, min_delay_to_insert_ms = 30"
        )
    program.append(program.frame(0, 2))
    planned: Any = None
    for number in (1, 2):
        source = RmtDataSource(program.options(path="source", token=f"slow {number}"))
        rows = program.frame(10 * number, 10 * number + 2).toArrow()
        if kind == "batch":
            writer: Any = source.writer(None, overwrite=False)
            plan, batch = writer._plan, []
        else:  # Spark plans a stream once, for all its batches
            writer = planned = planned or source.streamWriter(None, overwrite=False)
            named = insert_id_of_parts(writer._token(number), deduplicate=True)
            plan, batch = replace(writer._plan, insert_id=named), [number]
        staged = _Staged(tuple(stage_task(plan, iter(rows.to_batches()))))
        with pytest.warns(
            InsertSlowed, match="source: .*; it waited 0.0[3-9] s first, because"
        ):
            writer.commit([staged], *batch)
    assert program.numbers() == [0, 1, 10, 11, 20, 21]


def test_a_stream_needs_a_name(program: Program, tmp_path: Path) -> None:
    program.frame(0, 1).write.parquet(str(tmp_path / "in"))
    with pytest.raises(Exception, match="needs a name for its inserts"):
        stream(program, tmp_path)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "t"}, "needs to know the server"),
        ({"server": "r1"}, "needs to know the path"),
        ({"server": "r1", "path": "t", "insert_quorom": "2"}, "insert_quorom"),
    ],
    ids=["no server", "no table", "no such setting"],
)
def test_an_option_that_lacks_or_is_none_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(UserError, match=text):
        Target.of(options)


def test_it_only_appends() -> None:
    with pytest.raises(UserError, match="only appends"):
        RmtDataSource({"server": "r1", "path": "t"}).writer(None, overwrite=True)
