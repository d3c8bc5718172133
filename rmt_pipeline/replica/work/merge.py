"""A merge entry: made here from its sources, or its result fetched from who has it (spec §5.3)."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from rmt_pipeline.compute.merge.job import (
    MergeDone,
    MergeFailure,
    MergeJob,
    MergeOutcome,
    Merger,
    SourcePart,
)
from rmt_pipeline.protocol.errors import DiskFull, RmtError
from rmt_pipeline.protocol.log.entry import MERGE_TTL_RECOMPRESS, LogEntry, MergeParts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import check_part, is_here, suspect
from rmt_pipeline.replica.work.single_merge import merger_elsewhere
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.staging import StagedPart, Staging
from rmt_pipeline.zookeeper.snapshot import living_replicas

DISK_RESERVED_FACTOR = 1.1  # of the sources' bytes, while the result is written beside them


@dataclass(frozen=True, slots=True)
class MergeHere:
    entry: MergeParts

    @property
    def part(self) -> PartName:
        return self.entry.result


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Not merged here; `reason` says why."""

    reason: str


def fetch_or_merge(
    replica: Replica, view: QueueView, entry: LogEntry
) -> MergeHere | FetchResult:
    """The original's order of questions (spec §5.3 `prepare`)."""
    if not isinstance(entry, MergeParts):
        return FetchResult("it is not a merge")
    settings = replica.settings
    if settings.always_fetch_merged_part:
        return FetchResult("always_fetch_merged_part is set")
    if entry.result in replica.memory.fetch_instead:
        return FetchResult("our own result differed from another replica's")
    age_s = replica.clock.now_s() - entry.create_time
    recompresses = entry.merge_type == MERGE_TTL_RECOMPRESS
    if (
        recompresses
        and entry.source_replica != replica.name
        and age_s <= settings.try_fetch_recompressed_part_timeout
    ):
        return FetchResult(f"{entry.source_replica}, which assigned it, recompresses it first")
    if (other := merger_elsewhere(replica, entry)) is not None:
        return FetchResult(f"replica {other} was chosen to merge it")
    for source in entry.sources:
        if source not in view.current or not is_here(replica, source):
            return FetchResult(f"source {source} is not here")
    if age_s >= settings.prefer_fetch_merged_part_time_threshold:
        size = sum(replica.store.manifest(source).bytes_on_disk for source in entry.sources)
        large = size >= settings.prefer_fetch_merged_part_size_threshold
        if large and somebody_has(replica, entry.result):
            return FetchResult("it is old and large, and another replica has it already")
    return MergeHere(entry)


def somebody_has(replica: Replica, part: PartName) -> bool:
    keeper, table = replica.keeper, replica.table
    names = [
        name
        for name, active in living_replicas(keeper, table).items()
        if active and name != replica.name
    ]
    stats = keeper.exists_many([table.replica(name).part(part) for name in names])
    return any(stat is not None for stat in stats)


def merge_here(
    replica: Replica, merger: Merger, merges: Sequence[MergeHere]
) -> Generator[tuple[PartName, StagedPart | RmtError], None, None]:
    """Run merges as one job; each result staged and whole, or the error that stopped it.

    The sources are pinned meanwhile. A result that did not get published is thrown away by the
    caller. What an attempt has made whose session ended, or whose process died, is not made again;
    what nobody wants any more is swept.
    """
    stagings: dict[str, Staging] = {}
    jobs = []
    kept = replica.store.adopt(
        "merge", {merge.part: partial(_is_made, replica, merge.entry) for merge in merges}
    )
    yield from kept.items()
    with ExitStack() as pinned:
        try:
            for merge in merges:
                if merge.part in kept:
                    continue
                try:
                    pinned.enter_context(replica.store.pin(merge.entry.sources))
                    job, staging = _prepare(replica, merge.entry)
                except RmtError as error:  # the others can be made all the same
                    yield merge.part, error
                    suspect(replica, error)
                    continue
                jobs.append(job)
                stagings[job.result] = staging
            for outcome in merger.merge(jobs) if jobs else ():
                staging = stagings.pop(outcome.job.result)
                yield PartName.parse(outcome.job.result), _staged(outcome, staging)
                if isinstance(outcome, MergeFailure) and outcome.part:
                    check_part(replica, PartName.parse(outcome.part))
        except RmtError as error:  # nobody to compute: none of the rest is done
            for result, staging in stagings.items():
                staging.abandon()
                yield PartName.parse(result), error
            stagings.clear()
        finally:
            for staging in stagings.values():
                staging.abandon()


def _is_made(replica: Replica, entry: MergeParts, manifest: Manifest) -> bool:
    """Whether this is what the entry wants: of the same parts, for the table as it is now."""
    return (
        manifest.sources == tuple(map(str, entry.sources))
        and manifest.created_s == entry.create_time
        and manifest.metadata_version == replica.definition.metadata_version
    )


def _staged(outcome: MergeOutcome, staging: Staging) -> StagedPart | RmtError:
    if isinstance(outcome, MergeDone):
        try:
            return staging.seal(outcome.manifest)
        except RmtError as error:  # its directory was swept; the others' were not
            return error
    staging.abandon()
    return outcome.error


def _prepare(replica: Replica, entry: MergeParts) -> tuple[MergeJob, Staging]:
    """Raises DiskFull, MissingPart, Corruption."""
    store = replica.store
    sources = tuple(
        SourcePart(str(source), store.directory(source), store.manifest(source))
        for source in entry.sources
    )
    needed = int(
        DISK_RESERVED_FACTOR * sum(source.manifest.bytes_on_disk for source in sources)
    )
    free = store.disk.free_bytes()
    if free < needed:
        raise DiskFull(
            f"{replica}: merging into {entry.result} needs {needed} bytes beside its sources, "
            f"{free} are free; free some space, the merge is tried again"
        )
    staging = store.begin("merge", str(entry.result))
    job = MergeJob(
        result=str(entry.result),
        sources=sources,
        staging=staging.local_path(""),
        definition=replica.definition,
        create_time_s=entry.create_time,
        deduplicate=entry.deduplicate,
        deduplicate_by=entry.deduplicate_by,
        cleanup=entry.cleanup,
        merge_type=entry.merge_type,
    )
    return job, staging
