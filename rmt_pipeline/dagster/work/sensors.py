"""The sensors of a server: one starts workers for new log entries, two propose merges and
mutations.

This module decides when to look and what to request from Dagster. Looking itself is in `watching`,
which runs live is in `runs`, and the work is in `workers`.
"""

from collections.abc import Callable, Sequence

import dagster as dg

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.record.unrecorded import Unrecorded
from rmt_pipeline.dagster.work.presence import Watchers
from rmt_pipeline.dagster.work.runs import WorkerRuns
from rmt_pipeline.dagster.work.watching import MergeWatch, MutationWatch, QueueWatch, few_of
from rmt_pipeline.replica.work.pools import Pool

TICK_S = 5
"""Dagster's sensor loop is not faster than this, whatever interval a sensor asks for."""
TWICE = (
    "nothing is done twice, but watching costs twice; declare its tables with jobs=False in one of "
    "the two, or set RMT_REPLICA where the location is the package's own"
)


def sensors_of(server: str, workers: Sequence[dg.JobDefinition]) -> list[dg.SensorDefinition]:
    """The sensors of a server. `workers` are the jobs of its pools."""
    return [_log_sensor(server, workers), _mutation_sensor(server), _merge_sensor(server)]


def _log_sensor(server: str, workers: Sequence[dg.JobDefinition]) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"log_{names.dagster_name(server)}",
        jobs=workers,
        minimum_interval_seconds=TICK_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Copies new entries of every table's log into its queue on server {server}, and "
            "starts a worker for each pool that has work and no worker. Ends runs whose worker is "
            "gone. Records inserts and commands that were made there outside Dagster. A tick waits "
            "up to 40 s for something to do; if it starts nothing, it says why."
        ),
    )
    def log(context: dg.SensorEvaluationContext, engine: EngineResource) -> dg.SensorResult:
        runs = engine.standing(server, WorkerRuns)
        queues = engine.standing(server, QueueWatch)
        others = engine.standing(server, Watchers).others(context)
        unrecorded = Unrecorded(queues.server, context.instance, context.cursor)
        watched = queues.wait(
            lambda: runs.active(context.instance, end_dead=True), until=unrecorded.there
        )
        pauses = {pool: runs.pause(context.instance, pool) for pool in watched.needed}
        requests = [_request(server, pool) for pool, pause in pauses.items() if not pause]
        words = None
        events = unrecorded.told()
        if not requests:
            watchers = [f"{other} watches {server} too: {TWICE}" for other in others]
            words = few_of([*watchers, *unrecorded.words, *pauses.values(), *watched.reasons])
        return dg.SensorResult(
            requests, skip_reason=words, cursor=unrecorded.cursor(), asset_events=events
        )

    return log


def _request(server: str, pool: Pool) -> dg.RunRequest:
    return dg.RunRequest(job_name=names.worker_job_name(server, pool))


def _mutation_sensor(server: str) -> dg.SensorDefinition:
    return _proposing_sensor(
        server,
        "mutations",
        MutationWatch,
        f"Plans the work of new mutations in the tables of server {server}, and notes which "
        "mutations are finished. A tick waits up to 40 s for something to do, and says what "
        "unfinished mutations wait for.",
    )


def _merge_sensor(server: str) -> dg.SensorDefinition:
    return _proposing_sensor(
        server,
        "merges",
        MergeWatch,
        f"Plans the merges that are worth it in the tables of server {server}; all replicas then "
        "carry them out. A tick waits up to 40 s for new parts; if it plans no merge, it says why.",
    )


def _proposing_sensor(
    server: str,
    what: str,
    watch: Callable[[ServerContext], MutationWatch | MergeWatch],
    description: str,
) -> dg.SensorDefinition:
    """A sensor that starts no runs: what its watch writes to the log is work that the log sensor
    sees.
    """

    @dg.sensor(
        name=f"{what}_{names.dagster_name(server)}",
        minimum_interval_seconds=TICK_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=description,
    )
    def propose(context: dg.SensorEvaluationContext, engine: EngineResource) -> dg.SkipReason:
        runs = engine.standing(server, WorkerRuns)
        watching = engine.standing(server, watch)
        return dg.SkipReason(watching.wait(lambda: runs.active(context.instance)))

    return propose
