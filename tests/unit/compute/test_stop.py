"""A job that is asked to stop ends between two batches, and says why."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.compute.mutate import unit as kernel_mutate
from rmt_pipeline.compute.mutate.commands import CompiledCommands
from rmt_pipeline.compute.mutate.job import MutateDone, MutateFailure, MutateJob
from rmt_pipeline.compute.stop import ask_to_stop, forget_stop
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.replica.kills import Kills
from rmt_pipeline.syntax.types import arrow_schema
from rmt_pipeline.system import SystemClock
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.merging import definition, write_part

TABLE = definition([("id", "Int64")], ("id",))
PATHS = TablePaths("/t")


def job_at(root: Path) -> MutateJob:
    rows = pa.Table.from_pylist(
        [{"id": n} for n in range(10)], schema=arrow_schema(TABLE.columns)
    )
    staging = root / "staging"
    staging.mkdir()
    return MutateJob(
        result="all_0_0_0_5",
        source=write_part(root, "all_0_0_0", rows),
        staging=str(staging),
        definition=TABLE,
        commands=("DELETE WHERE id = 9",),
        mutations=("0000000004",),
        create_time_s=1,
    )


def test_a_running_job_stops_at_the_next_batch(tmp_path, monkeypatch):
    job = job_at(tmp_path)
    batches = []
    whole = CompiledCommands.apply

    def apply(commands: CompiledCommands, rows: pa.Table):
        batches.append(rows.num_rows)
        ask_to_stop(job.staging, "enough of that")
        return whole(commands, rows)

    monkeypatch.setattr(CompiledCommands, "apply", apply)
    monkeypatch.setattr(kernel_mutate, "batch_rows_for", lambda *_: 3)
    [outcome] = LocalMutator(SystemClock()).mutate([job])
    assert isinstance(outcome, MutateFailure)
    assert isinstance(outcome.error, Conflict)
    assert str(outcome.error) == "enough of that"
    assert batches == [3]


def test_a_stop_that_is_forgotten_stops_nothing(tmp_path):
    job = job_at(tmp_path)
    ask_to_stop(job.staging, "never mind")
    forget_stop(job.staging)
    [outcome] = LocalMutator(SystemClock()).mutate([job])
    assert isinstance(outcome, MutateDone)


class Watched:
    """As much of a Keeper as kills need; `gone` is what happens when a node goes."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.watches = {}

    def exists(self, path, watch):
        self.watches[path] = watch
        return object() if path in self.there else None

    def gone(self, path: str) -> None:
        self.there.discard(path)
        self.watches.pop(path)()


def stop_words(job: MutateJob) -> str | None:
    file = Path(job.staging) / "stop"
    return file.read_text() if file.exists() else None


def test_a_kill_asks_the_jobs_of_that_mutation_to_stop_and_no_others(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    jobs = []
    for root, mutation in ((one, "0000000004"), (other, "0000000005")):
        root.mkdir()
        jobs.append(replace(job_at(root), mutations=(mutation,)))
    keeper = Watched(*(PATHS.mutation(job.mutations[0]) for job in jobs))
    with Kills().watching(keeper, PATHS, jobs):
        keeper.gone(PATHS.mutation("0000000004"))
        assert "mutation 0000000004 was killed" in (stop_words(jobs[0]) or "")
        assert stop_words(jobs[1]) is None
    assert stop_words(jobs[0]) is None, "the directory is left as it was"


def test_a_mutation_that_is_gone_already_stops_its_job_at_once(tmp_path):
    job = job_at(tmp_path)
    with Kills().watching(Watched(), PATHS, [job]):
        assert "0000000004 was killed" in (stop_words(job) or "")


def test_a_kill_after_the_job_has_ended_leaves_its_directory_alone(tmp_path):
    job = job_at(tmp_path)
    keeper, kills = Watched(PATHS.mutation("0000000004")), Kills()
    with kills.watching(keeper, PATHS, [job]):
        kills.ended(job)
        keeper.gone(PATHS.mutation("0000000004"))
        assert stop_words(job) is None


def test_a_mutation_is_watched_once_whatever_runs(tmp_path):
    job, kills, path = job_at(tmp_path), Kills(), PATHS.mutation("0000000004")
    keeper = Watched(path)
    with kills.watching(keeper, PATHS, [job]):
        first = keeper.watches[path]
    with kills.watching(keeper, PATHS, [job]):
        assert keeper.watches[path] is first
