"""The clean-up job of a server: it removes what is not needed any more, and logs what and why."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
from pydantic import Field

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.replicas import DELAY_MAX_S, replica_version
from rmt_pipeline.dagster.work.runs import OVER
from rmt_pipeline.protocol.background import Background, stopped_words
from rmt_pipeline.protocol.errors import TABLE_FAILS
from rmt_pipeline.protocol.retention import HYSTERESIS
from rmt_pipeline.replica.upkeep.clean_up import CleanedUp, carry_out, plan_clean_up
from rmt_pipeline.replica.upkeep.lag import lag_of
from rmt_pipeline.replica.work.pools import POOLS
from rmt_pipeline.table import Table

CLEAN_UP_CRON = "*/5 * * * *"
DAY_S = 24 * 3600
WORKER_RUNS_KEPT_DAYS = 90
SHOWN_MAX = 100
RUNS_FORGOTTEN_MAX = 500
"""How many runs of one job a clean-up deletes; the next clean-up goes on."""


class CleanUpConfig(dg.Config):
    """Whether to remove things or only to say what would be removed, and how long runs are kept."""

    dry_run: bool = Field(
        default=False, description="Remove nothing, only show what would be removed."
    )
    keep_worker_runs_days: int = Field(
        default=WORKER_RUNS_KEPT_DAYS,
        ge=1,
        description=(
            "After this many days, finished worker runs and their events are deleted. Runs of "
            "your own assets are never deleted."
        ),
    )


def clean_up_job(server: str) -> dg.JobDefinition:
    """The job that removes what every table of a server does not need any more."""
    name = f"clean_up_{names.dagster_name(server)}"

    @dg.op(
        name=f"work_{name}",
        description=(
            "Removes old parts, log entries, block ids, insert records and staging directories of "
            f"every table on server {server}; also finished runs of this job, and workers' runs "
            "that are old."
        ),
    )
    def clean_up(
        context: dg.OpExecutionContext, config: CleanUpConfig, engine: EngineResource
    ) -> None:
        failed = []
        with engine.server(server, purpose="clean-up") as opened:
            for table in opened.tables():
                try:
                    _clean_up(context, table, server, dry_run=config.dry_run)
                    if not config.dry_run:
                        _note_lag(context, table, server)
                # an error in one table, or on its disk, does not stop the others
                except TABLE_FAILS as error:
                    failed.append(f"{table.definition.full_name}: {error}")
            now_s = opened.clock.now_s()
        if not config.dry_run:
            workers = [names.worker_job_name(server, pool) for pool in POOLS]
            kept_s = config.keep_worker_runs_days * DAY_S
            forget_runs(context.instance, [name], before_s=now_s - DAY_S)
            forget_runs(context.instance, workers, before_s=now_s - kept_s)
        if failed:
            raise dg.Failure("\n".join(failed))

    @dg.job(
        name=name,
        executor_def=dg.in_process_executor,
        tags={names.SERVER_TAG: server, names.KIND_TAG: "clean-up"},
        description=(
            f"Removes what is no longer needed from all tables of server {server}: old parts, log "
            "entries, ids and staging directories. The run's log says what and why."
        ),
    )
    def job() -> None:
        clean_up()

    return job


def clean_up_schedule(server: str, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Starts the clean-up job regularly. It is on as soon as Dagster's daemon runs."""
    return dg.ScheduleDefinition(
        name=f"clean_up_{names.dagster_name(server)}",
        description=f"Removes old parts, log entries and ids of the tables on server {server}.",
        cron_schedule=CLEAN_UP_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        job=job,
    )


def _clean_up(
    context: dg.OpExecutionContext, table: Table, server: str, *, dry_run: bool
) -> None:
    name = table.definition.full_name
    if Background.CLEANUP in table.store.marks.stopped():
        context.log.warning("%s: %s", name, stopped_words(Background.CLEANUP))
        return
    plan = plan_clean_up(table.replica, hysteresis=_hysteresis(context.run_id))
    if dry_run:
        parts = ", ".join(map(str, plan.parts.remove[:SHOWN_MAX])) or "none"
        context.log.info("%s: old parts that would be removed: %s", name, parts)
        return
    cleaned = carry_out(table.replica, plan)
    context.log.info("%s: %s", name, cleaned.words())
    if cleaned.parts:
        context.log_event(_observation(name, server, cleaned))


def _note_lag(context: dg.OpExecutionContext, table: Table, server: str) -> None:
    """Record how far the replica is behind. A replica that keeps up is materialized by each
    clean-up, and its freshness policy is about that. One that does not keep up is only observed,
    and so becomes stale.
    """
    lag, key = lag_of(table.replica), names.replica_key(table.definition.full_name, server)
    metadata = {"delay, seconds": round(lag.seconds, 1), "log entries behind": lag.entries}
    if lag.seconds < DELAY_MAX_S:
        version = {"dagster/data_version": replica_version(table.definition).value}
        context.log_event(dg.AssetMaterialization(key, metadata=metadata, tags=version))
    else:
        context.log_event(dg.AssetObservation(key, metadata=metadata))


def _observation(table: str, server: str, cleaned: CleanedUp) -> dg.AssetObservation:
    """An event in the ledger of the parts about those that were removed."""
    return dg.AssetObservation(
        names.parts_key(table, server),
        description=f"Clean-up: {cleaned.words()}",
        metadata={
            "old parts removed": len(cleaned.parts),
            "which": " ".join(map(str, cleaned.parts[:SHOWN_MAX])),
        },
    )


def _hysteresis(run_id: str) -> float:
    """A number between the two bounds that differs from run to run, so that replicas do not trim in
    step.
    """
    low, high = HYSTERESIS
    return low + (high - low) * int(run_id[:2], 16) / 255


def forget_runs(instance: dg.DagsterInstance, jobs: Sequence[str], *, before_s: float) -> int:
    """Delete the finished runs of `jobs` that were created before `before_s` (seconds since the
    epoch), with their events and logs. Otherwise Dagster's storage would grow without bound, for
    these jobs run all day. Returns how many runs were deleted.
    """
    created_before = dt.datetime.fromtimestamp(max(0.0, before_s), dt.UTC)
    forgotten = 0
    for job in jobs:
        old = dg.RunsFilter(job_name=job, statuses=OVER, created_before=created_before)
        for run in instance.get_runs(old, limit=RUNS_FORGOTTEN_MAX):
            instance.delete_run(run.run_id)
            instance.compute_log_manager.delete_logs(prefix=[run.run_id])
            _remove_shard(instance, run.run_id)
            forgotten += 1
    return forgotten


def _remove_shard(instance: dg.DagsterInstance, run_id: str) -> None:
    """Delete the file in which SQLite keeps the events of a run, 130 kB at least: Dagster only
    empties it. Other storages have no such file.
    """
    path_for_shard = getattr(instance.event_log_storage, "path_for_shard", None)
    if path_for_shard is None:
        return
    file = Path(path_for_shard(run_id))
    for suffix in ("", "-wal", "-shm", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
