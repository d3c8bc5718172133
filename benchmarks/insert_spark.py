"""10 million rows from Parquet, staged by Spark, against DuckDB that sorts and writes the same.

    python -m benchmarks.insert_spark [rows]

Through a Spark Connect server with two cores, warm. Committing (two ZooKeeper multis for the whole
insert) is not in it: `benchmarks/insert.py` has that.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.merges import (
    CORES,
    duckdb_sorts,
    line,
    rows,
    table_of,
    take_turns,
    timed,
    title,
    verdict,
)
from examples.flights.ports import free_port
from rmt_pipeline.compute.insert.spark import stage_dataframe, stage_parquet
from rmt_pipeline.compute.insert.stage import StagePlan
from rmt_pipeline.compute.jobs.spark import SparkSessions
from rmt_pipeline.processes.java import find_java
from rmt_pipeline.processes.spark import ConnectServer, import_path
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.store.staging import StagedPart

FILES = 10
ROUNDS = 3
FROM_FILES = "Spark, tasks that read the files"
FROM_FRAME = "Spark, a DataFrame of the files"
COMPUTED = "Spark, a DataFrame that it computes"
GOALS = {FROM_FILES: 1.0, FROM_FRAME: 0.8}


def main(count: int) -> None:
    os.environ["PYTHONPATH"] = import_path()
    root = Path(tempfile.mkdtemp(prefix="rmt-bench-"))
    try:
        files = []
        for number in range(FILES):
            path = root / f"input-{number}.parquet"
            table = rows(number, count // FILES, ids=10**9)
            table = table.sort_by("price")  # in another order than the key
            pq.write_table(table, path, compression="zstd")
            files.append(str(path))
        java_home = find_java().env["JAVA_HOME"]
        with ConnectServer(
            root / "connect.log",
            port=free_port(),
            master=f"local[{CORES}]",
            java_home=java_home,
        ) as server:
            sessions = SparkSessions(remote=server.url)
            compare(root, files, sessions, count)
            sessions.close()
    finally:
        shutil.rmtree(root)


def compare(root: Path, files: list[str], sessions: SparkSessions, count: int) -> None:
    def by_spark(stage: Callable[[StagePlan], list[StagedPart]]) -> None:
        directory = Path(tempfile.mkdtemp(dir=root))
        plan = StagePlan(table_of(), str(directory), QuerySettings(), "", "", 1, durable=False)
        staged = stage(plan)
        assert sum(part.manifest.rows for part in staged) == count
        shutil.rmtree(directory)

    def from_files(plan: StagePlan) -> list[StagedPart]:
        return stage_parquet(sessions.get(), files, plan)

    def from_frame(plan: StagePlan) -> list[StagedPart]:
        return stage_dataframe(sessions.get().read.parquet(*files), plan)

    def computed(plan: StagePlan) -> list[StagedPart]:
        frame = sessions.get().read.parquet(*files)
        return stage_dataframe(frame.where("price >= 0 OR price < 0"), plan)

    target = str(root / "duckdb.parquet")
    found = take_turns(
        {
            FROM_FILES: lambda: timed(lambda: by_spark(from_files)),
            FROM_FRAME: lambda: timed(lambda: by_spark(from_frame)),
            COMPUTED: lambda: timed(lambda: by_spark(computed)),
            "DuckDB": lambda: timed(lambda: duckdb_sorts(files, target, CORES)),
        },
        ROUNDS,
    )
    title(
        f"{count:,} rows from Parquet", "what", "seconds", "rows/s", "of DuckDB", "goal", "met"
    )
    for name, seconds in found.items():
        ratio = found["DuckDB"] / seconds
        goal = GOALS.get(name)
        met = ("", "") if goal is None else (f"≥ {goal}", verdict(ratio >= goal))
        line(name, seconds, f"{count / seconds:,.0f}", ratio, *met)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
