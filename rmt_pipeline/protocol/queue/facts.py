"""The facts that the queue's rules need besides the queue itself, and the possible decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.log.entry import (
    MERGE_REGULAR,
    AlterMetadata,
    AttachPart,
    DropPart,
    DropRange,
    GetPart,
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
)
from rmt_pipeline.protocol.merges.size_limits import UNLIMITED_BYTES, SizeLimits
from rmt_pipeline.protocol.parts.name import PartName


@dataclass(frozen=True, slots=True)
class Run:
    """The entry may be claimed now."""


@dataclass(frozen=True, slots=True)
class Covered:
    """Nothing is left to do: this replica has `covered_by`, which equals or contains the entry's
    part. Delete the entry (spec §5.1.2).
    """

    covered_by: PartName


@dataclass(frozen=True, slots=True)
class Wait:
    """The entry may not be claimed now. `reason`, for people, names what it waits for."""

    reason: str


Decision = Run | Covered | Wait

FETCHES_MAX = limits.FETCHES_CLAIMED_MAX
RECOVERIES_MAX = limits.leaving_some(FETCHES_MAX)
MERGES_MAX = limits.MERGES_MAX
TTL_MERGES_MAX = 2


@dataclass(frozen=True, slots=True)
class Facts:
    """What the worker's process knows. Every default means that nothing is in the way.

    * `*_busy` of `*_max`: slots taken. Merges and mutations share theirs, see `slots_of`;
    * `recoveries_*`: the slots for fetches that fetches of lost or cloned parts may take;
    * `sizes`: bytes on disk of this replica's parts; a part that is not in it counts 0;
    * `merges_elsewhere`: results that another replica was chosen to merge, and that replica;
    * `unfinished_alters`: alter versions whose mutation this replica has not finished;
    * `stopped`: the background work that was stopped by hand on this server;
    * `has_rows`: whether the part that is asked about has any. An empty one, which takes the place
      of a lost part, is seen by no reader.
    """

    fetches_busy: int = 0
    fetches_max: int = FETCHES_MAX
    recoveries_busy: int = 0
    recoveries_max: int = RECOVERIES_MAX
    merges_busy: float = 0
    merges_max: int = MERGES_MAX
    size_limits: SizeLimits = field(default_factory=SizeLimits)
    sizes: Mapping[PartName, int] = field(default_factory=dict)
    ttl_merges_busy: int = 0
    ttl_merges_max: int = TTL_MERGES_MAX
    merges_elsewhere: Mapping[PartName, str] = field(default_factory=dict)
    unfinished_alters: frozenset[int] = frozenset()
    stopped: frozenset[Background] = frozenset()
    has_rows: bool = True

    def with_running(self, entry: LogEntry) -> "Facts":
        """The facts once this entry runs as well."""
        match entry:
            case GetPart() | AttachPart():
                recovers = isinstance(entry, GetPart) and entry.recovers
                return replace(
                    self,
                    fetches_busy=self.fetches_busy + 1,
                    recoveries_busy=self.recoveries_busy + recovers,
                )
            case MergeParts():
                ttl = entry.merge_type != MERGE_REGULAR
                return replace(
                    self,
                    merges_busy=self.merges_busy + 1,
                    ttl_merges_busy=self.ttl_merges_busy + ttl,
                )
            case MutatePart():
                return replace(self, merges_busy=self.merges_busy + slots_of(entry, self.sizes))
            case DropRange() | DropPart() | ReplaceRange() | AlterMetadata():
                return self
            case _:
                assert_never(entry)


def slots_of(entry: LogEntry, sizes: Mapping[PartName, int]) -> float:
    """How many slots of the pool for merges and mutations the entry takes. Small parts are mutated
    together, as one job, so that a mutation of thousands of them does not take thousands of
    turns. The original gives each a slot; it has no mutations that cost as little as a hard link.
    """
    match entry:
        case MutatePart() if (
            sizes.get(entry.source, UNLIMITED_BYTES) <= limits.SMALL_MUTATION_BYTES
        ):
            return 1 / limits.SMALL_MUTATIONS_PER_SLOT
        case MergeParts() | MutatePart():
            return 1
        case _:
            return 0
