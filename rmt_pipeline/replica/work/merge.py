"""Carrying out a merge entry: the result is made here from its sources, or fetched from a replica
that has it (spec §5.3).
"""

from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from rmt_pipeline.compute.merge.job import (
    MergeDone,
    MergeJob,
    MergeOutcome,
    Merger,
    SourcePart,
)
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.log.entry import (
    MERGE_REGULAR,
    MERGE_TTL_RECOMPRESS,
    LogEntry,
    MergeParts,
    MutatePart,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.alter.apply import knows_its_ttl
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import is_here
from rmt_pipeline.replica.work.making import Making, make_here, require_room
from rmt_pipeline.replica.work.single_merge import merger_elsewhere
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.staging import StagedPart, Staging
from rmt_pipeline.zookeeper.snapshot import living_replicas, promised_elsewhere


@dataclass(frozen=True, slots=True)
class MergeHere:
    """A MERGE_PARTS entry whose part this replica makes itself."""

    entry: MergeParts

    @property
    def part(self) -> PartName:
        return self.entry.result


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result is fetched and not made here; `reason` says why."""

    reason: str


def fetch_or_merge(
    replica: Replica, view: QueueView, entry: LogEntry
) -> MergeHere | FetchResult:
    """Whether the merge is made here, or its result fetched. The conditions are checked in the
    original's order (spec §5.3 `prepare`).
    """
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
    """Whether another active replica has a part of exactly this name."""
    keeper, table = replica.keeper, replica.table
    names = [
        name
        for name, active in living_replicas(keeper, table).items()
        if active and name != replica.name
    ]
    stats = keeper.exists_many([table.replica(name).part(part) for name in names])
    return any(stat is not None for stat in stats)


def make_again(replica: Replica, nowhere: Iterable[LogEntry]) -> None:
    """Let those merges and mutations be made here after all whose result differed from that of
    another replica, if no replica promises theirs any more, not even one that is away: it was
    dropped before ours could fetch it. `nowhere` are entries whose part can't be fetched now.
    """
    differed = [
        entry.result
        for entry in nowhere
        if isinstance(entry, MergeParts | MutatePart)
        and entry.result in replica.memory.fetch_instead
    ]
    if differed:
        _, promised = promised_elsewhere(replica.keeper, replica.table, replica.name, differed)
        replica.memory.fetch_instead.forget(
            part for part, by in promised.items() if set(by.values()) <= {None}
        )


def merge_here(
    replica: Replica,
    merger: Merger,
    merges: Sequence[MergeHere],
    may_be_left: Collection[PartName],
) -> Generator[tuple[PartName, StagedPart | RmtError], None, None]:
    """Run merges as one job, see `make_here`."""
    makings = [
        Making(
            merge.part,
            merge.entry.sources,
            _background(merge.entry),
            partial(_is_made, replica, merge.entry),
            partial(_prepare, replica, merge.entry),
        )
        for merge in merges
    ]

    def run(jobs: Sequence[MergeJob]) -> Generator[MergeOutcome, None, None]:
        yield from merger.merge(jobs)

    return make_here(replica, "merge", makings, run, _staged, may_be_left=may_be_left)


def _background(entry: MergeParts) -> tuple[Background, ...]:
    """The kinds of background work that the merge belongs to: it is not made while one is
    stopped.
    """
    regular = entry.merge_type == MERGE_REGULAR
    return (Background.MERGES,) if regular else (Background.MERGES, Background.TTL_MERGES)


def _is_made(replica: Replica, entry: MergeParts, manifest: Manifest) -> bool:
    """Whether a part with this manifest is what the entry wants: made of the same parts, for the
    table's current structure.
    """
    return (
        manifest.sources == tuple(map(str, entry.sources))
        and manifest.created_s == entry.create_time
        and manifest.metadata_version == replica.definition.metadata_version
    )


def _staged(outcome: MergeOutcome, staging: Staging) -> StagedPart | RmtError:
    if isinstance(outcome, MergeDone):
        return staging.seal(outcome.manifest)
    staging.abandon()
    return outcome.error


def _prepare(replica: Replica, entry: MergeParts) -> tuple[MergeJob, Staging]:
    """Begin the job and its staging directory. Raises DiskFull, MissingPart, Corruption."""
    store = replica.store
    sources = tuple(
        SourcePart(str(source), store.directory(source), store.manifest(source))
        for source in entry.sources
    )
    require_room(
        replica, (source.manifest for source in sources), f"merging into {entry.result}"
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
        expires=knows_its_ttl(replica),
    )
    return job, staging
