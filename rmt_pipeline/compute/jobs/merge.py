"""Merges on the driver's side: takes jobs and returns outcomes, computed in this process or by
Spark.

A merge is planned as units, the units are run, and their results are added up and checked. The
caller then seals the staging directory with a manifest and publishes it, or removes it.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial

from rmt_pipeline.compute.jobs.aside import Aside
from rmt_pipeline.compute.jobs.spark import SparkSessions, run_jobs
from rmt_pipeline.compute.jobs.task import try_unit
from rmt_pipeline.compute.merge.job import (
    MergeFailure,
    MergeJob,
    MergeOutcome,
    SourcePart,
)
from rmt_pipeline.compute.merge.plan import nothing_is_left, plan_merge, shape_of, tasks_of
from rmt_pipeline.compute.merge.result import added_up, outcome_of
from rmt_pipeline.compute.progress import forget_progress
from rmt_pipeline.compute.read.proof import every_row_expired
from rmt_pipeline.compute.rows.source import BrokenSource
from rmt_pipeline.compute.units import Unit, UnitResult
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.system import Clock, IdSource, SystemClock

SMALL_ROWS_MAX = 10_000
SMALL_BYTES_MAX = 4 << 20
SMALL_JOBS_SHARE = 8  # small merges together may have so many times as much

UnitResults = Generator[UnitResult, None, None]
RunUnits = Callable[[Sequence[Sequence[Unit]]], UnitResults]
"""A function that runs the units of several jobs, and yields the results in any order."""


class LocalMerger:
    """Runs merges in this process, one after the other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        for job in jobs:
            yield from _outcomes([job], self._run)

    def _run(self, merges: Sequence[Sequence[Unit]]) -> UnitResults:
        for units in merges:
            for unit in units:
                yield try_unit(unit, self._clock)


class SparkMerger:
    """Runs merges as Spark jobs of units.

    Small merges are run in this process: a Spark job costs several times what their units do, and a
    JVM may take a minute to start. The same units make the same bytes here, and `aside` if that is
    given.
    """

    def __init__(
        self, sessions: SparkSessions, ids: IdSource, aside: Aside | None = None
    ) -> None:
        self._sessions = sessions
        self._ids = ids
        self._aside = aside

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        all_sources = [source for job in jobs for source in job.sources]
        if not (
            all(are_small(job.sources) for job in jobs)
            and are_small(all_sources, SMALL_JOBS_SHARE)
        ):
            yield from _outcomes(jobs, self._run)
        elif self._aside is None:
            yield from LocalMerger(SystemClock()).merge(jobs)
        else:
            for job in jobs:
                yield from _outcomes([job], partial(_beside, self._aside))

    def _run(self, merges: Sequence[Sequence[Unit]]) -> UnitResults:
        return run_jobs(self._sessions, tasks_of(merges), tag=f"merge-{self._ids.new_id()}")


def _beside(aside: Aside, merges: Sequence[Sequence[Unit]]) -> UnitResults:
    yield from aside.run([unit for units in merges for unit in units])


def are_small(sources: Iterable[SourcePart], share: int = 1) -> bool:
    """Whether Spark is not worth it: all these parts are read in less time than a job needs to
    start. With a `share` they may have so many times as much.
    """
    manifests = [source.manifest for source in sources]
    return (
        sum(each.rows for each in manifests) <= share * SMALL_ROWS_MAX
        and sum(each.bytes_on_disk for each in manifests) <= share * SMALL_BYTES_MAX
    )


def results_of_jobs(
    planned: Mapping[int, Sequence[Unit]], run: RunUnits
) -> Iterator[tuple[int, list[UnitResult]]]:
    """Run the units of several jobs, `planned` by the jobs' numbers. Yields the number and the
    results of each job once the last of its units has ended.
    """
    if not planned:
        return
    ended: defaultdict[int, list[UnitResult]] = defaultdict(list)
    with contextlib.closing(run(list(planned.values()))) as units_ended:
        for result in units_ended:
            ended[result.merge].append(result)
            if len(ended[result.merge]) == len(planned[result.merge]):
                yield result.merge, ended[result.merge]


def _outcomes(jobs: Sequence[MergeJob], run: RunUnits) -> Iterator[MergeOutcome]:
    """Plan all jobs, run their units, and yield each job's outcome once its last unit has ended."""
    planned: dict[int, list[Unit]] = {}
    for number, job in enumerate(jobs):
        try:
            if nothing_is_left(job) and every_row_expired(job):
                yield added_up(job, shape_of(job), ())
                continue
            planned[number] = plan_merge(job, number)
        except RmtError as error:
            part = str(error.part) if isinstance(error, BrokenSource) else ""
            yield MergeFailure(job, error, part)
    for number, results in results_of_jobs(planned, run):
        forget_progress(jobs[number].staging)
        yield outcome_of(jobs[number], planned[number][0].shape, results)
