"""Merges as Spark jobs: what the kernel does in this process, it does in Spark's workers."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rmt_pipeline.compute import units
from rmt_pipeline.compute.jobs import merge
from rmt_pipeline.compute.jobs.merge import LocalMerger, SparkMerger
from rmt_pipeline.compute.jobs.spark import SparkSessions, run_jobs
from rmt_pipeline.compute.merge.job import MergeDone, MergeFailure, MergeJob, SourcePart
from rmt_pipeline.compute.merge.plan import plan_merge
from rmt_pipeline.compute.units import UnitFailed
from rmt_pipeline.protocol.errors import Corruption, IncorrectData, Unavailable
from rmt_pipeline.system import RandomIds, SystemClock
from tests.support.merging import (
    definition,
    job_of,
    read_result,
    rows_of,
    sorted_table,
    write_part,
)

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch) -> None:
    """Else these merges would need no Spark."""
    monkeypatch.setattr(merge, "SMALL_ROWS_MAX", -1)


COLUMNS = [("id", "Int64"), ("city", "String"), ("amount", "Int64"), ("sign", "Int8")]
PLAIN = definition(COLUMNS, ("id",))
SUMMING = definition(COLUMNS, ("id",), "SummingMergeTree", columns_to_sum=("amount",))
COLLAPSING = definition(COLUMNS, ("id",), "CollapsingMergeTree", sign_column="sign")


def part(root: Path, number: int, rows: int, sign: int = 1) -> SourcePart:
    random = np.random.default_rng(number)
    table = [
        {
            "id": int(key),
            "city": f"c{key % 7}",
            "amount": int(random.integers(-2, 3)),
            "sign": sign,
        }
        for key in random.integers(0, rows, rows)
    ]
    return write_part(root, f"all_{number}_{number}_0", sorted_table(table, PLAIN))


def job(root: Path, sources: list[SourcePart], table=PLAIN, **options) -> MergeJob:
    staging = root / f"tmp_{sources[0].name}_{len(list(root.iterdir()))}"
    staging.mkdir()
    return job_of(table, sources, staging, **options)


def outcomes(merger, jobs: list[MergeJob]) -> dict[str, MergeDone | MergeFailure]:
    return {each.job.result: each for each in merger.merge(jobs)}


@pytest.mark.parametrize(
    "table", [PLAIN, SUMMING, COLLAPSING], ids=lambda table: table.engine.kind
)
def test_spark_makes_what_the_kernel_makes_here(tmp_path, connect, monkeypatch, table) -> None:
    large = [part(tmp_path, number, 3000) for number in range(3)]
    monkeypatch.setattr(units, "UNIT_BYTES", large[0].manifest.bytes_on_disk)
    small = [[part(tmp_path, 10 * group + at, 20) for at in range(3)] for group in range(1, 12)]
    merges = [large, *small]

    here = outcomes(LocalMerger(SystemClock()), [job(tmp_path, each, table) for each in merges])
    spark = SparkMerger(connect, RandomIds())
    there = outcomes(spark, [job(tmp_path, each, table) for each in merges])

    assert there.keys() == here.keys()
    for name, made in there.items():
        assert isinstance(made, MergeDone)
        assert made.manifest == here[name].manifest
        left = sorted(file.name for file in Path(made.job.staging).iterdir())
        assert left == [file.name for file in made.manifest.files], "and no progress"
    whole = there["all_0_2_1"]
    assert len(whole.manifest.files) == 4
    assert rows_of(read_result(whole), table) == rows_of(read_result(here["all_0_2_1"]), table)


def test_units_that_fail_say_why_and_leave_the_others_alone(tmp_path, connect) -> None:
    good = [part(tmp_path, number, 50) for number in range(2)]
    broken = [part(tmp_path, number, 50) for number in range(10, 12)]
    path = Path(broken[1].directory) / "data-00000.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    wrong = [part(tmp_path, number, 50, sign=3) for number in range(20, 22)]
    jobs = [job(tmp_path, good), job(tmp_path, broken), job(tmp_path, wrong, COLLAPSING)]

    found = outcomes(SparkMerger(connect, RandomIds()), jobs)

    assert isinstance(found["all_0_1_1"], MergeDone)
    corrupt, refused = found["all_10_11_1"], found["all_20_21_1"]
    assert isinstance(corrupt, MergeFailure)
    assert isinstance(corrupt.error, Corruption)
    assert corrupt.part == "all_11_11_0"
    assert isinstance(refused, MergeFailure)
    assert isinstance(refused.error, IncorrectData)
    assert "sign" in str(refused.error)


def stuck(root: Path, number: int) -> SourcePart:
    """A part whose bytes never come: whoever opens its file waits."""
    source = part(root, number, 5)
    path = Path(source.directory) / "data-00000.parquet"
    path.unlink()
    os.mkfifo(path)
    return source


def test_cancelled_jobs_end_and_their_units_say_so(tmp_path, connect) -> None:
    planned = plan_merge(job(tmp_path, [stuck(tmp_path, 1)]), 0)
    results = []
    running = threading.Thread(
        target=lambda: results.extend(run_jobs(connect, [[planned]], tag="to-be-cancelled"))
    )
    running.start()
    while running.is_alive():  # before the job has begun, there is nothing to stop
        connect.get().interruptTag("another-tag")
        connect.get().interruptTag("to-be-cancelled")
        time.sleep(0.2)
    (failed,) = results
    assert isinstance(failed, UnitFailed)
    assert failed.error == "Unavailable"


def test_a_merge_that_nobody_waits_for_is_cancelled(tmp_path, connect, monkeypatch) -> None:
    large = part(tmp_path, 1, 3000)
    monkeypatch.setattr(units, "UNIT_BYTES", large.manifest.bytes_on_disk // 2)
    jobs = [job(tmp_path, [large]), job(tmp_path, [stuck(tmp_path, 2)])]
    found = iter(SparkMerger(connect, RandomIds()).merge(jobs))
    first = next(found)
    assert isinstance(first, MergeDone)
    assert first.job is jobs[0]
    found.close()  # returns, though the other merge would wait for ever


def test_no_server_is_an_error_that_says_what_to_do() -> None:
    nobody = SparkSessions(remote="sc://127.0.0.1:1")
    with pytest.raises(Unavailable, match="rmt spark"):
        nobody.get()


def test_a_session_is_made_again_after_the_server_lost_it(tmp_path, connect_server) -> None:
    sessions = SparkSessions(remote=connect_server.url)
    first = sessions.get()
    assert sessions.get() is first
    first.stop()
    merger = SparkMerger(sessions, RandomIds())
    (outcome,) = merger.merge([job(tmp_path, [part(tmp_path, 1, 5)])])
    assert isinstance(outcome, MergeDone)
    sessions.close()
