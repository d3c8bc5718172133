"""What the queue's rules need to know besides the queue itself, and what they answer."""

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
    """Nothing is left to do: this replica has `covered_by`, which equals or contains the
    entry's
    part. Delete the entry (spec §5.1.2).
    """

    covered_by: PartName


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now. `reason` names the parts and entries it waits for, for people."""

    reason: str


Decision = Run | Covered | Wait

FETCHES_MAX = limits.FETCHES_CLAIMED_MAX
RECOVERIES_MAX = limits.leaving_some(FETCHES_MAX)
MERGES_MAX = limits.MERGES_MAX
TTL_MERGES_MAX = 2


@dataclass(frozen=True, slots=True)
class Facts:
    """What the process knows. Every default means "nothing in the way".

    * `*_busy` of `*_max`: slots taken. Merges and mutations share theirs, see `slots_of`;
    * `recoveries_*`: of those for fetches, what is lost or cloned may take;
    * `sizes`: bytes on disk of the parts here; one that is not here counts 0;
    * `merges_elsewhere`: results that another replica has been chosen to merge, by whom;
    * `unfinished_alters`: alter versions whose mutation this replica has not finished;
    * `stopped`: what was stopped by hand on this server.
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
    """How many slots of the pool for merges and mutations it takes. Small parts are mutated
    together, as one job, so that a mutation of thousands of them does not take thousands of
    turns; the original, which gives each a slot, has no parts of so little cost as a hard link.
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
