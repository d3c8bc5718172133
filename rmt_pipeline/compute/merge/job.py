"""What is to be merged, and what became of it: plain values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.log.entry import MERGE_REGULAR, MergeType
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store.manifest import Manifest


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A part to merge: its name, absolute directory and manifest."""

    name: str
    directory: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class MergeJob:
    """One merge. `sources` in block order; `staging` is the absolute path of an empty directory
    that the workers can write.

    `create_time_s` is the log entry's: the only time that a merge knows (spec §16.9 E6). Whatever
    its type, rows that have expired by then are dropped.
    `cleanup` drops tombstones of ReplacingMergeTree (spec §17.2).
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


@dataclass(frozen=True, slots=True)
class MergeDone:
    """The files of `job.staging` are the result; they are not synced yet.

    `manifest` is whole, but for the Dagster run. It may have no rows: then it has no file. A
    manifest is the same on every replica that makes the merge with the same library versions.
    """

    job: MergeJob
    manifest: Manifest
    rows_in: int
    units: int
    seconds: float
    """Of work, summed over the units: more than the time it took where they ran at once."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeFailure:
    """Nothing is to be published; the staging directory is to be removed.

    `error` is Corruption with `part` (that part's bytes are not its manifest's: check it and
    fetch it again), Corruption without (rows were not conserved), DiskFull, Unavailable (try
    again), or a UserError about values that the engine refuses.
    """

    job: MergeJob
    error: RmtError
    part: str = ""


MergeOutcome = MergeDone | MergeFailure


class Merger(Protocol):
    """Who merges parts: this process (LocalMerger) or Spark (SparkMerger)."""

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        """Carry out merges; each outcome as it comes, one per job, in any order.

        Raises Unavailable when there is nobody to compute: then no job has an outcome. Whoever
        stops iterating cancels what is still running.
        """
        ...
