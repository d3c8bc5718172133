"""Carrying out a MUTATE_PART entry: the result is made here from its source, or fetched from a
replica that has it (§5.7).
"""

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from functools import partial

from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.compute.mutate.job import (
    MutateDone,
    MutateFailure,
    MutateJob,
    MutateOutcome,
    Mutator,
    Untouched,
)
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import Conflict, RmtError
from rmt_pipeline.protocol.log.entry import MutatePart
from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.mutations.mutations import load_mutations
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import is_here
from rmt_pipeline.replica.work.making import Making, make_here, require_room
from rmt_pipeline.replica.work.merge import FetchResult, somebody_has
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.staging import StagedPart, Staging


@dataclass(frozen=True, slots=True)
class MutateHere:
    """A MUTATE_PART entry whose part this replica makes itself."""

    entry: MutatePart

    @property
    def part(self) -> PartName:
        return self.entry.result


def fetch_or_mutate(
    replica: Replica, view: QueueView, entry: MutatePart
) -> MutateHere | FetchResult:
    """Whether the mutation is made here, or its result fetched. The conditions are checked in the
    original's order, as for merges (spec §5.7 `prepare`).
    """
    settings = replica.settings
    if entry.result in replica.memory.fetch_instead:
        return FetchResult("our own result differed from another replica's")
    if entry.source not in view.current or not is_here(replica, entry.source):
        return FetchResult(f"source {entry.source} is not here")
    age_s = replica.clock.now_s() - entry.create_time
    if age_s >= settings.prefer_fetch_merged_part_time_threshold:
        size = replica.store.manifest(entry.source).bytes_on_disk
        large = size >= settings.prefer_fetch_merged_part_size_threshold
        if large and somebody_has(replica, entry.result):
            return FetchResult("it is old and large, and another replica has it already")
    return MutateHere(entry)


def mutate_here(
    replica: Replica,
    mutator: Mutator,
    tasks: Sequence[MutateHere],
    may_be_left: Collection[PartName],
) -> Generator[tuple[PartName, StagedPart | RmtError], None, None]:
    """Mutate parts as one job, see `make_here`. When a mutation is killed, the parts that it is
    about are stopped.
    """
    mutations, kills = load_mutations(replica), replica.memory.kills
    # A table that is made again has no mutations yet. A part without them, under the name of one
    # that has gone through them, would be restored from this disk.
    replica.require_meant()
    makings = [
        Making(
            task.part,
            (task.entry.source,),
            (Background.MERGES,),
            partial(_is_made, replica, mutations, task.entry),
            partial(_prepare, replica, mutations, task.entry),
        )
        for task in tasks
    ]

    def run(jobs: Sequence[MutateJob]) -> Generator[MutateOutcome, None, None]:
        with kills.watching(replica.keeper, replica.table, jobs):
            for outcome in mutator.mutate(jobs):
                kills.ended(outcome.job)
                yield outcome

    yield from make_here(
        replica, "mutate", makings, run, partial(_staged, replica), may_be_left=may_be_left
    )


def _is_made(
    replica: Replica, mutations: Mutations, entry: MutatePart, manifest: Manifest
) -> bool:
    """Whether a part with this manifest is what the entry wants: made of that source, by the
    mutations that exist now, for the table's current structure. Raises Corruption.
    """
    before = replica.store.manifest(entry.source).mutations
    found = mutations.between(entry.source, entry.result.data_version)
    return (
        manifest.sources == (str(entry.source),)
        and manifest.created_s == entry.create_time
        and manifest.metadata_version == replica.definition.metadata_version
        and manifest.mutations == tuple(dict.fromkeys([*before, *(one for one, _ in found)]))
    )


def _staged(
    replica: Replica, outcome: MutateOutcome, staging: Staging
) -> StagedPart | RmtError:
    match outcome:
        case MutateDone(job) if (killed := _killed(replica, job)) is not None:
            staging.abandon()
            return killed
        case MutateDone():
            return staging.seal(outcome.manifest)
        case Untouched(job):
            source = PartName.parse(job.source.name)
            return replica.store.clone_into(staging, source, job.unchanged())
        case MutateFailure():
            staging.abandon()
            return outcome.error


def _killed(replica: Replica, job: MutateJob) -> Conflict | None:
    """The error if one of the job's mutations was killed. A kill affects every part that is not
    published yet, even one that has just been made: the next try does what is left to do.
    """
    nodes = [replica.table.mutation(one) for one in job.mutations]
    stats = replica.keeper.exists_many(nodes)
    gone = [one for one, stat in zip(job.mutations, stats, strict=True) if stat is None]
    if not gone:
        return None
    return Conflict(
        f"{replica}: mutation {', '.join(gone)} was killed while {job.source.name} was mutated; "
        "what was made is thrown away"
    )


def _prepare(
    replica: Replica, mutations: Mutations, entry: MutatePart
) -> tuple[MutateJob, Staging]:
    """Begin the job and its staging directory. Raises DiskFull, MissingPart, Corruption.

    A mutation that was killed since the entry was written is not among those that are carried out.
    If another replica has made its part before the kill, ours differs, and theirs is fetched (spec
    §5.7, §7.8).
    """
    store = replica.store
    source = SourcePart(
        str(entry.source), store.directory(entry.source), store.manifest(entry.source)
    )
    require_room(replica, [source.manifest], f"mutating {entry.source}")
    found = mutations.between(entry.source, entry.result.data_version)
    staging = store.begin("mutate", str(entry.result))
    job = MutateJob(
        result=str(entry.result),
        source=source,
        staging=staging.local_path(""),
        definition=replica.definition,
        commands=tuple(mutation.commands for _, mutation in found),
        mutations=tuple(mutation_id for mutation_id, _ in found),
        create_time_s=entry.create_time,
    )
    return job, staging
