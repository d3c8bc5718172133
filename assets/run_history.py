"""Forgets old runs of jobs that run all day: otherwise Dagster's storage grows without bound."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

RUNS_FORGOTTEN_MAX = 500
"""Of one job at a time; the next clean-up goes on."""

_OVER = [
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.CANCELED,
    dg.DagsterRunStatus.FAILURE,
]


def forget_runs(instance: dg.DagsterInstance, jobs: Sequence[str], *, before_s: float) -> int:
    """Delete the finished runs of `jobs` that were created before `before_s` (seconds since the
    epoch), their events and logs. Returns how many.
    """
    created_before = dt.datetime.fromtimestamp(before_s, dt.UTC)
    forgotten = 0
    for job in jobs:
        old = dg.RunsFilter(job_name=job, statuses=_OVER, created_before=created_before)
        for run in instance.get_runs(old, limit=RUNS_FORGOTTEN_MAX):
            instance.delete_run(run.run_id)
            instance.compute_log_manager.delete_logs(prefix=[run.run_id])
            _remove_shard(instance, run.run_id)
            forgotten += 1
    return forgotten


def _remove_shard(instance: dg.DagsterInstance, run_id: str) -> None:
    """SQLite keeps the events of each run in a file of its own, 130 kB at least, and Dagster
    only empties it. Other storages have no such file.
    """
    path_for_shard = getattr(instance.event_log_storage, "path_for_shard", None)
    if path_for_shard is None:
        return
    file = Path(path_for_shard(run_id))
    for suffix in ("", "-wal", "-shm", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
