"""What merges and mutations have in common: parts that are made here, several as one job."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Generic, TypeVar

from rmt_pipeline.compute.merge.job import MergeFailure, MergeJob, MergeOutcome
from rmt_pipeline.compute.mutate.job import MutateFailure, MutateJob, MutateOutcome
from rmt_pipeline.compute.stop import forget_stop
from rmt_pipeline.protocol.background import Background, first_stopped
from rmt_pipeline.protocol.errors import Conflict, DiskFull, RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import check_part, suspect
from rmt_pipeline.store.layout import StageKind
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.staging import StagedPart, Staging

DISK_RESERVED_FACTOR = 1.1  # of the sources' bytes, while the result is written beside them


JobT = TypeVar("JobT", MergeJob, MutateJob)
OutcomeT = TypeVar("OutcomeT", bound=MergeOutcome | MutateOutcome)


@dataclass(frozen=True, slots=True)
class Making(Generic[JobT]):
    """A part that is to be made here, of `sources`.

    `background` are what it must not be stopped for. `is_made` says of the manifest of something
    that lies here whether it is what is wanted; `prepare` begins the job and the directory that it
    writes to, or raises an RmtError.
    """

    part: PartName
    sources: Sequence[PartName]
    background: Sequence[Background]
    is_made: Callable[[Manifest], bool]
    prepare: Callable[[], tuple[JobT, Staging]]


def make_here(
    replica: Replica,
    kind: StageKind,
    makings: Iterable[Making[JobT]],
    run: Callable[[Sequence[JobT]], Generator[OutcomeT, None, None]],
    staged: Callable[[OutcomeT, Staging], StagedPart | RmtError],
) -> Generator[tuple[PartName, StagedPart | RmtError], None, None]:
    """Make parts as one job; each staged and whole, or the error that stopped it.

    The sources are pinned meanwhile. A result that did not get published is thrown away by the
    caller. What an attempt has made whose session ended, or whose process died, is not made again;
    what nobody wants any more is swept.

    `run` gives each job's outcome when it ends; `staged` is what the outcome left in its directory,
    or why nothing.

    Between the look at the queue and here SYSTEM STOP may have been said. It sets its mark first,
    then asks what it finds in the directories of jobs; we make the directory first, then look at
    the mark. So one of the two sees the other.
    """
    wanted: Mapping[PartName, Making[JobT]] = {one.part: one for one in makings}
    kept = replica.store.adopt(kind, {part: one.is_made for part, one in wanted.items()})
    yield from kept.items()
    stagings: dict[str, Staging] = {}
    jobs: list[JobT] = []
    with ExitStack() as held:
        try:
            for part, making in wanted.items():
                if part in kept:
                    continue
                try:
                    held.enter_context(replica.store.pin(making.sources))
                    job, staging = making.prepare()
                    _require_not_stopped(replica, making, staging)
                except RmtError as error:  # the others can be made all the same
                    yield part, error
                    suspect(replica, error)
                    continue
                jobs.append(job)
                stagings[job.result] = staging
            if jobs:
                for outcome in held.enter_context(closing(run(jobs))):
                    staging = stagings.pop(outcome.job.result)
                    forget_stop(outcome.job.staging)  # it has ended, whichever way
                    yield PartName.parse(outcome.job.result), staged(outcome, staging)
                    if isinstance(outcome, MergeFailure | MutateFailure) and outcome.part:
                        check_part(replica, PartName.parse(outcome.part))
        except RmtError as error:  # nobody to compute: none of the rest is done
            for result, staging in stagings.items():
                staging.abandon()
                yield PartName.parse(result), error
            stagings.clear()
        finally:
            for staging in stagings.values():
                staging.abandon()


def _require_not_stopped(replica: Replica, making: Making[JobT], staging: Staging) -> None:
    """Raises Conflict when it was stopped by hand; then the directory is gone."""
    stopped = first_stopped(replica.store.marks.stopped(), *making.background)
    if stopped is not None:
        staging.abandon()
        raise Conflict(f"{replica}: {making.part} is not made here: {stopped}")


def require_room(replica: Replica, sources: Iterable[Manifest], what: str) -> None:
    """Raises DiskFull unless there is room for the sources' bytes once more, and some."""
    needed = int(DISK_RESERVED_FACTOR * sum(one.bytes_on_disk for one in sources))
    free = replica.store.disk.free_bytes()
    if free < needed:
        raise DiskFull(
            f"{replica}: {what} needs {needed} bytes beside its sources, {free} are free; "
            "free some space, it is tried again"
        )
