"""Jobs to mutate parts, and their outcomes: plain values."""

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
    their versions; `mutations` are their ids. `create_time_s` is that of the log entry, the only
    time that a mutation uses.
    """

    result: str
    source: SourcePart
    staging: str
    definition: TableDefinition
    commands: tuple[str, ...]
    mutations: tuple[str, ...]
    create_time_s: int

    def unchanged(self) -> Manifest:
        """The manifest of the result if it is the source under the new name."""
        return as_result(self, self.source.manifest)


@dataclass(frozen=True, slots=True)
class MutateDone:
    """The files in `job.staging` are the result; they are not synced yet.

    `manifest` is complete. If the result has no rows, it has no file.
    """

    job: MutateJob
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Untouched:
    """No command applies to any row of the source: nothing was written, the source is
    the result.
    """

    job: MutateJob


@dataclass(frozen=True, slots=True)
class MutateFailure:
    """Nothing is to be published; the staging directory is to be removed.

    `error` is one of these: Corruption with a `part` (its bytes differ from its manifest: check it
    and fetch it again), Corruption without one (rows or values that should have stayed did not),
    DiskFull, Unavailable (try again), or a UserError about a value that can't be computed.
    """

    job: MutateJob
    error: RmtError
    part: str = ""


MutateOutcome = MutateDone | Untouched | MutateFailure


class Mutator(Protocol):
    """Rewrites parts: in this process (LocalMutator) or by Spark (SparkMutator)."""

    def mutate(self, jobs: Sequence[MutateJob]) -> Iterator[MutateOutcome]:
        """Run mutations; yields the outcome of each job when it is known, in any order.

        Raises Unavailable if Spark can't be reached: then there are no outcomes. Closing the
        iterator cancels the jobs that still run.
        """
        ...


def as_result(job: MutateJob, manifest: Manifest) -> Manifest:
    """`manifest` as that of the job's result, with its source and mutations."""
    return replace(
        manifest,
        created_s=job.create_time_s,
        insert_id="",
        run_id="",
        sources=(job.source.name,),
        mutations=tuple(dict.fromkeys((*job.source.manifest.mutations, *job.mutations))),
    )
