"""Jobs to merge parts, and their outcomes: plain values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.log.entry import MERGE_REGULAR, MergeType
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store.manifest import Manifest


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A part to merge; its name, absolute directory and manifest."""

    name: str
    directory: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class MergeJob:
    """One merge. `sources` are in block order; `staging` is the absolute path of an empty directory
    that the workers can write.

    `create_time_s` is that of the log entry, the only time that a merge uses (spec §16.9 E6). If it
    `expires` rows, those that have expired by then are dropped, whatever the merge's type.
    `cleanup` drops the deleted rows of ReplacingMergeTree (spec §17.2).
    """

    result: str
    sources: tuple[SourcePart, ...]
    staging: str
    definition: TableDefinition
    create_time_s: int
    deduplicate: bool = False
    deduplicate_by: tuple[str, ...] = ()
    cleanup: bool = False
    merge_type: MergeType = MERGE_REGULAR
    expires: bool = True


@dataclass(frozen=True, slots=True)
class MergeDone:
    """The files in `job.staging` are the result; they are not synced yet.

    `manifest` is complete but for the Dagster run. If the result has no rows, it has no file. The
    manifest is the same on every replica that makes the merge with the same library versions.
    """

    job: MergeJob
    manifest: Manifest
    rows_in: int
    seconds: float
    """The time of work, summed over the units; more than the elapsed time if several
    ran at once.
    """
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeFailure:
    """Nothing is to be published; the staging directory is to be removed.

    `error` is one of these: Corruption with a `part` (its bytes differ from its manifest: check it
    and fetch it again), Corruption without one (rows were not conserved), DiskFull, Unavailable
    (try again), or a UserError about values that the engine refuses.
    """

    job: MergeJob
    error: RmtError
    part: str = ""


MergeOutcome = MergeDone | MergeFailure


class Merger(Protocol):
    """Merges parts: in this process (LocalMerger) or by Spark (SparkMerger)."""

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        """Run merges; yields the outcome of each job when it is known, in any order.

        Raises Unavailable if Spark can't be reached: then there are no outcomes. Closing the
        iterator cancels the jobs that still run.
        """
        ...
