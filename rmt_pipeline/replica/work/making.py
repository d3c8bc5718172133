"""What merges and mutations have in common: parts that are made here, several in one job."""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
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
    """A part that is to be made here, from `sources`.

    It is not made while one of the kinds in `background` is stopped by hand. `is_made` says, given
    the manifest of a part that lies here, whether that is the wanted part; `prepare` begins the job
    and the directory that it writes to, or raises an RmtError.
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
    *,
    may_be_left: Collection[PartName],
) -> Generator[tuple[PartName, StagedPart | RmtError], None, None]:
    """Make parts as one job; yields each of them staged and whole, or the error that stopped it.

    The sources are pinned meanwhile. The caller discards a result that it does not publish. One of
    `may_be_left` that an earlier attempt has made before its session ended or its process died is
    not made again; a clean-up removes those that are no longer wanted.

    `run` yields the outcome of each job when it ends; `staged` turns an outcome into the staged
    part, or the error, which it may also raise.

    SYSTEM STOP may come between the look at the queue and this. It sets its mark first, then asks
    the jobs whose directories it finds to stop; we make the directory first, then look at the mark.
    So at least one of the two notices the other.
    """
    wanted: Mapping[PartName, Making[JobT]] = {one.part: one for one in makings}
    sought = {part: one.is_made for part, one in wanted.items() if part in may_be_left}
    kept = replica.store.adopt(kind, sought) if sought else {}
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
                except RmtError as error:  # the other parts can still be made
                    yield part, error
                    suspect(replica, error)
                    continue
                jobs.append(job)
                stagings[job.result] = staging
            if jobs:
                for outcome in held.enter_context(closing(run(jobs))):
                    staging = stagings.pop(outcome.job.result)
                    forget_stop(outcome.job.staging)  # it has ended, whichever way
                    yield (
                        PartName.parse(outcome.job.result),
                        _result(replica, staging, partial(staged, outcome, staging)),
                    )
                    if isinstance(outcome, MergeFailure | MutateFailure) and outcome.part:
                        check_part(replica, PartName.parse(outcome.part))
        except RmtError as error:  # the engine is not available: the rest is not made
            for result, staging in stagings.items():
                staging.abandon()
                yield PartName.parse(result), error
            stagings.clear()
        finally:
            for staging in stagings.values():
                staging.abandon()


def _result(
    replica: Replica, staging: Staging, staged: Callable[[], StagedPart | RmtError]
) -> StagedPart | RmtError:
    """The staged part, or the error. Only this part fails when a clean-up has removed its
    directory, its source has lost a file, the disk is full, or ZooKeeper does not say whether it is
    still wanted.
    """
    try:
        return staged()
    except RmtError as error:
        staging.abandon()
        suspect(replica, error)
        return error
    except BaseException:
        staging.abandon()
        raise


def _require_not_stopped(replica: Replica, making: Making[JobT], staging: Staging) -> None:
    """Raises Conflict if this kind of work was stopped by hand; the staging directory is removed
    then.
    """
    stopped = first_stopped(replica.store.marks.stopped(), *making.background)
    if stopped is not None:
        staging.abandon()
        raise Conflict(f"{replica}: {making.part} is not made here: {stopped}")


def require_room(replica: Replica, sources: Iterable[Manifest], what: str) -> None:
    """Raises DiskFull unless there is free disk for the sources' bytes once more, and some."""
    needed = int(DISK_RESERVED_FACTOR * sum(one.bytes_on_disk for one in sources))
    free = replica.store.disk.free_bytes()
    if free < needed:
        raise DiskFull(
            f"{replica}: {what} needs {needed} bytes beside its sources, {free} are free; "
            "free some space, it is tried again"
        )
