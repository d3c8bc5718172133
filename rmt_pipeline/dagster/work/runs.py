"""The runs of a server's workers, as the sensors judge them: which ones live, which are over, and
whether another one may be requested.
"""

from collections.abc import Sequence
from itertools import takewhile

import dagster as dg

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.work.presence import nodes_present
from rmt_pipeline.replica.work.pools import POOLS, Pool

START_MAX_S = 120.0
"""How long a run may take from its launch until it begins; Dagster itself waits three minutes."""
BEGIN_MAX_S = 60.0
"""How long a run may take from its start until its worker has a session, on a busy machine."""
ABSENT_MAX_S = 15.0
"""How long a started run may be without its node: a worker that lost its session has a new one by
then.
"""
PAUSE_S = 5.0
"""The pause after a worker that failed. It doubles with each further failure."""
PAUSE_MAX_S = 300.0
FAILURES_LOOKED_AT = 8

_ACTIVE = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
OVER = [
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
]
_FAILED = (dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE)


def ended_badly(instance: dg.DagsterInstance, job: str) -> list[dg.RunRecord]:
    """The latest finished runs of the job, newest first, up to the first one that succeeded."""
    over = dg.RunsFilter(job_name=job, statuses=OVER)
    return list(
        takewhile(
            lambda record: record.dagster_run.status != dg.DagsterRunStatus.SUCCESS,
            instance.get_run_records(over, limit=FAILURES_LOOKED_AT),
        )
    )


class WorkerRuns:
    """The worker runs of one server. It remembers since when a run's worker is missing, so it has
    to live as long as the sensor's process watches.
    """

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._missing_since_s: dict[str, float] = {}

    def active(
        self, instance: dg.DagsterInstance, *, end_dead: bool = False
    ) -> dict[Pool, str]:
        """For each pool, the id of the run that works it or is about to.

        `end_dead`: also cancel runs whose worker is gone. They would stay active for ever, and
        Dagster would start no other run beside them. For one thread at a time. Raises Unavailable.
        """
        name, now_s = self._server.server.name, self._server.clock.now_s()
        tags = {names.worker_tag(name, pool): pool for pool in POOLS}
        found = dg.RunsFilter(tags={names.SERVER_TAG: name}, statuses=_ACTIVE)
        records = [
            record
            for record in instance.get_run_records(found)
            if record.dagster_run.tags.get(names.WORKER_TAG) in tags
        ]
        alive = nodes_present(self._server.keeper(), name) if records else frozenset()
        living = {}
        for record in records:
            run = record.dagster_run
            if self._lives(record, alive, now_s):
                living[tags[run.tags[names.WORKER_TAG]]] = run.run_id
            elif end_dead:
                self._missing_since_s.pop(run.run_id, None)
                instance.report_run_canceled(
                    run,
                    f"Its worker is gone: no process has it in ZooKeeper since {ABSENT_MAX_S:g} s. "
                    "What it had claimed is free again; the log sensor starts the next worker.",
                )
        return living

    def pause(self, instance: dg.DagsterInstance, pool: Pool) -> str:
        """Why no further worker of this pool should be requested yet, after some that failed; empty
        when one may be.
        """
        job = names.worker_job_name(self._server.server.name, pool)
        failures = list(takewhile(_has_failed, ended_badly(instance, job)))
        if not failures:
            return ""
        failed, last = len(failures), failures[0]
        ended_s = last.end_time or last.update_timestamp.timestamp()
        pause_s = min(PAUSE_S * 2 ** (failed - 1), PAUSE_MAX_S)
        left_s = ended_s + pause_s - self._server.clock.now_s()
        if left_s <= 0 or left_s > pause_s + PAUSE_S:  # the clock was set back since
            return ""
        return (
            f"the last {failed} {pool} workers failed, run {last.dagster_run.run_id[:8]} last"
            f"{_error(instance, last.dagster_run.run_id)}; the next may start in {left_s:.0f} s"
        )

    def _lives(self, record: dg.RunRecord, alive: frozenset[str], now_s: float) -> bool:
        """Whether the run counts as alive. A queued run needs no process: Dagster's daemon keeps
        it, and goes on with it after a restart. A run that was launched has some time to begin; one
        that will have been launched in the future was so before the clock was set back.
        """
        run = record.dagster_run
        if run.status == dg.DagsterRunStatus.QUEUED or run.run_id in alive:
            self._missing_since_s.pop(run.run_id, None)
            return True
        if run.status in (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING):
            return abs(now_s - record.update_timestamp.timestamp()) < START_MAX_S
        monotonic_s = self._server.clock.monotonic_s()
        since_s = self._missing_since_s.setdefault(run.run_id, monotonic_s)
        is_young = (
            record.start_time is not None and abs(now_s - record.start_time) < BEGIN_MAX_S
        )
        return is_young or monotonic_s - since_s < ABSENT_MAX_S


def _error(instance: dg.DagsterInstance, run_id: str) -> str:
    """What the run failed with, in one line that begins with a colon; empty when it is
    not known.
    """
    found = instance.get_records_for_run(run_id, of_type=set(_FAILED), limit=1).records
    words = [_message(record.event_log_entry.dagster_event) for record in found]
    return f": {words[0]}" if words and words[0] else ""


def _has_failed(record: dg.RunRecord) -> bool:
    return record.dagster_run.status == dg.DagsterRunStatus.FAILURE


def _message(event: dg.DagsterEvent | None) -> str:
    """The first line of the innermost error: Dagster wraps what was raised."""
    if event is None:
        return ""
    error = getattr(event.event_specific_data, "error", None)
    while error is not None and error.cause is not None:
        error = error.cause
    text = event.message or "" if error is None else error.message
    lines: Sequence[str] = text.strip().splitlines()
    return lines[0] if lines else ""
