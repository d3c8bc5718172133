"""What OPTIMIZE … PARTITION … [FINAL] merges (spec §6.7): the whole partition, or nothing, with
the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.merges.predicate import MergePredicate
from rmt_pipeline.protocol.merges.size_limits import MERGE_SPACE_FACTOR
from rmt_pipeline.protocol.parts.name import PartName


@dataclass(frozen=True, slots=True)
class MergeAll:
    """Merge these parts: all active ones of the partition, in order."""

    parts: tuple[PartName, ...]


@dataclass(frozen=True, slots=True)
class NothingToMerge:
    """The partition is fully merged already. Not an error."""

    reason: str


@dataclass(frozen=True, slots=True)
class CannotMerge:
    """The merge is not possible now. Some reasons go away once the queue is empty."""

    reason: str


@dataclass(frozen=True, slots=True)
class OptimizeFacts:
    """The bytes on disk of each part, in the order of the parts; the free bytes of the disk;
    whether a TTL still has something to do in the parts.
    """

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
    """What OPTIMIZE of one partition does. `parts` are all its active parts, in order;
    `skip_merged` is the setting optimize_skip_merged_partitions.
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
