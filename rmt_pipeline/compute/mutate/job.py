"""What is to be mutated, and what became of it: plain values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store.manifest import Manifest


@dataclass(frozen=True, slots=True)
class MutateJob:
    """One part to rewrite. `staging` is the absolute path of an empty directory that the workers
    can write.

    `commands` are the texts of all mutations that are applied in this one pass, in the order of
    their versions; `mutations` are their ids. `create_time_s` is the log entry's: the only time
    that a mutation knows.
    """

    result: str
    source: SourcePart
    staging: str
    definition: TableDefinition
    commands: tuple[str, ...]
    mutations: tuple[str, ...]
    create_time_s: int

    def unchanged(self) -> Manifest:
        """The story of a part that is the source under the new name."""
        return as_result(self, self.source.manifest)


@dataclass(frozen=True, slots=True)
class MutateDone:
    """The files of `job.staging` are the result; they are not synced yet.

    `manifest` is whole. It may have no rows: then it has no file.
    """

    job: MutateJob
    manifest: Manifest
    rows_deleted: int
    seconds: float
    """Of work, summed over the units."""


@dataclass(frozen=True, slots=True)
class Untouched:
    """No command is for any row of the source: nothing was written, the source is the result."""

    job: MutateJob


@dataclass(frozen=True, slots=True)
class MutateFailure:
    """Nothing is to be published; the staging directory is to be removed.

    `error` is Corruption with `part` (that part's bytes are not its manifest's: check it and
    fetch it again), Corruption without (what should have stayed did not), DiskFull, Unavailable
    (try again), or a UserError about a value that can't be computed.
    """

    job: MutateJob
    error: RmtError
    part: str = ""


MutateOutcome = MutateDone | Untouched | MutateFailure


class Mutator(Protocol):
    """Who rewrites parts: this process (LocalMutator) or Spark (SparkMutator)."""

    def mutate(self, jobs: Sequence[MutateJob]) -> Iterator[MutateOutcome]:
        """Carry out mutations; each outcome as it comes, one per job, in any order.

        Raises Unavailable when there is nobody to compute: then no job has an outcome. Whoever
        stops iterating cancels what is still running.
        """
        ...


def as_result(job: MutateJob, manifest: Manifest) -> Manifest:
    """`manifest` as that of the job's result: made by these mutations from that part."""
    return replace(
        manifest,
        created_s=job.create_time_s,
        insert_id="",
        run_id="",
        sources=(job.source.name,),
        mutations=tuple(dict.fromkeys((*job.source.manifest.mutations, *job.mutations))),
    )
