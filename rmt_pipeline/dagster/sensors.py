"""Sensors: per server one turns log entries into workers, two propose merges and mutations.

What belongs here: when to look, and what to ask Dagster for. What does not: looking
(`watching`) and doing (`workers`).
"""

from collections.abc import Sequence

import dagster as dg

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.watching import Needed, follow_mutations, wait_for_work
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.assign.merges import Assigned, select_and_assign
from rmt_pipeline.table import Table

MERGES_PER_TICK_MAX = 100
TICK_S = 5
"""Dagster's sensor loop is not faster than this, whatever a sensor asks for."""

_ACTIVE = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def sensors_of(server: str, workers: Sequence[dg.JobDefinition]) -> list[dg.SensorDefinition]:
    """`workers`: the jobs of the server's pools."""
    return [_log_sensor(server, workers), _mutation_sensor(server), _merge_sensor(server)]


def active_workers(instance: dg.DagsterInstance, server: str) -> set[str]:
    """The worker tags of the server's runs that are queued or running."""
    runs = instance.get_runs(dg.RunsFilter(tags={names.SERVER_TAG: server}, statuses=_ACTIVE))
    return {run.tags[names.WORKER_TAG] for run in runs if names.WORKER_TAG in run.tags}


def _log_sensor(server: str, workers: Sequence[dg.JobDefinition]) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"log_{names.dagster_name(server)}",
        jobs=workers,
        minimum_interval_seconds=TICK_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Copies new entries of every table's log into its queue on server {server}, and "
            "starts a worker for each pool that has work and no worker. Waits for ZooKeeper "
            "for up to 40 s; when nothing is to be done, the tick says why."
        ),
    )
    def log(context: dg.SensorEvaluationContext, engine: EngineResource) -> dg.SensorResult:
        with engine.server(server, purpose="sensor") as opened:
            watched = wait_for_work(opened, lambda: active_workers(context.instance, server))
        if watched.needed:
            return dg.SensorResult([_request(server, need) for need in watched.needed])
        return dg.SensorResult(skip_reason=watched.words())

    return log


def _request(server: str, need: Needed) -> dg.RunRequest:
    job = names.worker_job_name(server, need.pool)
    return dg.RunRequest(
        job_name=job,
        run_config={"ops": {f"work_{job}": {"config": {"table": need.table}}}},
        tags={
            names.WORKER_TAG: names.worker_tag(server, need.table, need.pool),
            names.TABLE_TAG: need.table,
        },
    )


def _mutation_sensor(server: str) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"mutations_{names.dagster_name(server)}",
        minimum_interval_seconds=TICK_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Writes the pieces of new mutations to the log of each table of server {server}, "
            "and notes which mutations are finished. Waits for ZooKeeper for up to 40 s; the "
            "tick says what unfinished ones wait for."
        ),
    )
    def mutations(context: dg.SensorEvaluationContext, engine: EngineResource) -> dg.SkipReason:
        with engine.server(server, purpose="sensor") as opened:
            words = follow_mutations(opened, lambda: active_workers(context.instance, server))
        return dg.SkipReason(words)

    return mutations


def _merge_sensor(server: str) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"merges_{names.dagster_name(server)}",
        minimum_interval_seconds=TICK_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Writes merges that are worth it to the log of each table of server {server}; all "
            "replicas then carry them out. When there is none, the tick says why."
        ),
    )
    def merges(context: dg.SensorEvaluationContext, engine: EngineResource) -> dg.SkipReason:
        with engine.server(server, purpose="sensor") as opened:
            workers = active_workers(context.instance, server)
            words = [
                _propose(table)
                for table in opened.tables()
                if names.worker_tag(server, table.definition.full_name, "merge") not in workers
            ]
        return dg.SkipReason("; ".join(words) or "the merge workers are active and do it")

    return merges


def _propose(table: Table) -> str:
    """Assign until nothing more is worth it; what happened, in words."""
    name = table.definition.full_name
    assigned = []
    try:
        for _ in range(MERGES_PER_TICK_MAX):
            outcome = select_and_assign(table.replica, aggressive=False)
            if not isinstance(outcome, Assigned):
                break
            assigned.append(str(outcome.result))
    except RmtError as error:
        return f"{name}: {error}"
    if assigned:
        return f"{name}: assigned {', '.join(assigned)}"
    assert not isinstance(outcome, Assigned)
    return f"{name}: {outcome.reason}"
