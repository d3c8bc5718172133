"""Small merges and mutations need no Spark, whether it is there or not."""

from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs import merge
from rmt_pipeline.compute.jobs.merge import LocalMerger, SparkMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator, SparkMutator
from rmt_pipeline.compute.jobs.spark import SparkSessions
from rmt_pipeline.compute.merge.job import MergeDone, MergeJob
from rmt_pipeline.compute.mutate.job import MutateDone, MutateJob
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.system import RandomIds, SystemClock
from tests.support.merging import CREATED_S, definition, job_of, sorted_table, write_part

TABLE = definition([("id", "Int64"), ("city", "String")], ("id",))
NOBODY = "sc://127.0.0.1:1"


def small_job(root: Path, staging: str) -> MergeJob:
    sources = [
        write_part(
            root,
            f"all_{number}_{number}_0",
            sorted_table([{"id": n, "city": f"c{n % 7}"} for n in range(100)], TABLE),
        )
        for number in range(3)
        if not (root / f"all_{number}_{number}_0").exists()
    ]
    (root / staging).mkdir()
    return job_of(TABLE, sources, root / staging)


def test_a_small_merge_does_not_wait_and_makes_the_same_bytes(tmp_path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (right,) = LocalMerger(SystemClock()).merge([small_job(here, "tmp")])
    sessions = SparkSessions(remote=NOBODY)
    (made,) = SparkMerger(sessions, RandomIds()).merge([small_job(there, "tmp")])
    assert isinstance(right, MergeDone)
    assert isinstance(made, MergeDone)
    assert made.manifest == right.manifest  # with the hash of each file
    for file in made.manifest.files:
        assert (there / "tmp" / file.name).read_bytes() == (
            here / "tmp" / file.name
        ).read_bytes()


def mutation(root: Path) -> MutateJob:
    rows = [{"id": n, "city": f"c{n % 7}"} for n in range(100)]
    source = write_part(root, "all_0_0_0", sorted_table(rows, TABLE))
    staging = root / "staging"
    staging.mkdir()
    return MutateJob(
        result="all_0_0_0_5",
        source=source,
        staging=str(staging),
        definition=TABLE,
        commands=("DELETE WHERE id % 3 = 0", "UPDATE city = concat(city, '!') WHERE id > 50"),
        mutations=("0000000001", "0000000002"),
        create_time_s=CREATED_S,
    )


def test_a_small_part_is_mutated_without_waiting_to_the_same_bytes(tmp_path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (right,) = LocalMutator(SystemClock()).mutate([mutation(here)])
    mutator = SparkMutator(SparkSessions(remote=NOBODY), RandomIds())
    (made,) = mutator.mutate([mutation(there)])
    assert isinstance(right, MutateDone)
    assert isinstance(made, MutateDone)
    assert made.manifest == right.manifest
    assert made.manifest.rows == 66


def test_a_larger_part_waits_for_spark(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(merge, "SMALL_ROWS_MAX", 99)
    mutator = SparkMutator(SparkSessions(remote=NOBODY), RandomIds())
    with pytest.raises(Unavailable, match="no Spark Connect server"):
        list(mutator.mutate([mutation(tmp_path)]))


@pytest.mark.parametrize("limit", ["SMALL_ROWS_MAX", "SMALL_BYTES_MAX"])
def test_a_larger_one_waits_for_spark(tmp_path, monkeypatch, limit) -> None:
    monkeypatch.setattr(merge, limit, 299)
    with pytest.raises(Unavailable, match="no Spark Connect server"):
        list(
            SparkMerger(SparkSessions(remote=NOBODY), RandomIds()).merge(
                [small_job(tmp_path, "tmp")]
            )
        )


class NoSession:
    """Whoever asks it for anything has begun a job."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"Spark was asked for {name}")


def test_what_is_small_is_no_job_where_spark_is_there(tmp_path) -> None:
    sessions = SparkSessions(given=NoSession())
    (merged,) = SparkMerger(sessions, RandomIds()).merge([small_job(tmp_path, "tmp")])
    assert isinstance(merged, MergeDone)
    there = tmp_path / "there"
    there.mkdir()
    (mutated,) = SparkMutator(sessions, RandomIds()).mutate([mutation(there)])
    assert isinstance(mutated, MutateDone)


def several(root: Path) -> list[MergeJob]:
    """Merges of 300 rows each."""
    jobs = []
    for name in ("one", "another", "a third"):
        (root / name).mkdir()
        jobs.append(small_job(root / name, "tmp"))
    return jobs


def test_small_ones_that_are_many_together_are_a_job(tmp_path, monkeypatch) -> None:
    """In this process they would be made one after the other."""
    monkeypatch.setattr(merge, "SMALL_ROWS_MAX", 400)
    monkeypatch.setattr(merge, "SMALL_JOBS_SHARE", 2)
    with pytest.raises(Unavailable, match="no Spark Connect server"):
        list(SparkMerger(SparkSessions(remote=NOBODY), RandomIds()).merge(several(tmp_path)))


def test_a_few_small_ones_together_are_no_job(tmp_path, monkeypatch) -> None:
    """What is claimed together must not wait for a JVM that one of them alone does not need."""
    monkeypatch.setattr(merge, "SMALL_ROWS_MAX", 400)
    sessions = SparkSessions(given=NoSession())
    made = list(SparkMerger(sessions, RandomIds()).merge(several(tmp_path)))
    assert [type(one) for one in made] == [MergeDone] * 3
