"""What OPTIMIZE … PARTITION … [FINAL] merges (spec §6.7): everything, or it says why not."""

from collections.abc import Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.merges.predicate import MergePredicate
from rmt_pipeline.protocol.merges.size_limits import MERGE_SPACE_FACTOR
from rmt_pipeline.protocol.parts.name import PartName


@dataclass(frozen=True, slots=True)
class MergeAll:
    """Merge these: all active parts of the partition, in order."""

    parts: tuple[PartName, ...]


@dataclass(frozen=True, slots=True)
class NothingToMerge:
    """The partition is as merged as it can be. Not an error."""

    reason: str


@dataclass(frozen=True, slots=True)
class CannotMerge:
    """Something is in the way now; waiting for the queue may help."""

    reason: str


@dataclass(frozen=True, slots=True)
class OptimizeFacts:
    """`sizes_bytes` of the parts, in the same order; the disk; whether a TTL is unfinished."""

    sizes_bytes: Sequence[int]
    disk_free_bytes: int
    ttl_unfinished: bool = False


def select_partition(
    parts: Sequence[PartName],
    predicate: MergePredicate,
    facts: OptimizeFacts,
    *,
    final: bool,
    skip_merged: bool,
) -> MergeAll | NothingToMerge | CannotMerge:
    """`parts`: all active parts of one partition in order. `skip_merged`:
    optimize_skip_merged_partitions.
    """
    if not parts:
        return NothingToMerge("the partition has no parts")
    if len(parts) == 1:
        [part] = parts
        if not final:
            return CannotMerge(f"{part} is the only part of the partition")
        if skip_merged and part.level > 0 and not facts.ttl_unfinished:
            return NothingToMerge(f"{part} is the only part, and is merged already")
    refusal = predicate.merge_range(parts)
    if refusal is not None:
        return CannotMerge(refusal.reason)
    needed_bytes = int(sum(facts.sizes_bytes) * MERGE_SPACE_FACTOR)
    if facts.disk_free_bytes < needed_bytes:
        return CannotMerge(
            f"the disk has {facts.disk_free_bytes} bytes free; merging {len(parts)} parts of "
            f"{sum(facts.sizes_bytes)} bytes needs {needed_bytes}"
        )
    return MergeAll(tuple(parts))
