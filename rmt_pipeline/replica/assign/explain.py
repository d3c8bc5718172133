"""Explains why something is being merged or not, from the same decisions that choose merges (design
§1).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.merges.predicate import mergeable_runs
from rmt_pipeline.protocol.merges.selector import Candidate, explain_run
from rmt_pipeline.protocol.merges.ttl import UNKNOWN_S, ttl_merges
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.text import format_time
from rmt_pipeline.replica.assign.merges import (
    MergeView,
    merge_view,
    mergeable,
    no_room,
    selector_settings,
    ttl_limit,
    ttl_part,
    ttl_settings,
)
from rmt_pipeline.replica.missing import why_missing
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import manifest_seen
from rmt_pipeline.store.manifest import Manifest

RANGES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class ExplainedRange:
    """Neighbouring parts that were considered for a merge. The range with the smallest `score`
    among those without a `reason` is merged next; a `reason` is the rule that forbids the range
    now. TTL merges come before all others and have no score; `what` says for what they are due.
    """

    partition: str
    parts: tuple[str, ...]
    size_bytes: int
    score: float | None
    reason: str
    what: str = ""


@dataclass(frozen=True, slots=True)
class Explained:
    """The explained ranges. `limit` says why nothing at all may be assigned now; "" if something
    may.
    """

    ranges: tuple[ExplainedRange, ...]
    limit: str


def explain_merges(replica: Replica, partition: str | None = None) -> Explained:
    """Every range that the selector considers, best first, and every boundary that no merge may
    cross, with the rule; then the parts that can't be fetched.
    """
    settings = replica.settings
    view = merge_view(replica, None if partition is None else [partition])
    slots = settings.max_replicated_merges_in_queue
    bytes_max = replica.size_limits().merge_bytes_max(used=view.queued, slots=slots)
    none = no_room(replica, view)
    limit = "" if none is None else none.reason
    found, now_s = mergeable_runs(view.predicate, view.active), int(replica.clock.now_s())
    ranges = [
        _explained(candidate)
        for run in found.runs
        if partition in (None, run[0].partition)
        for candidate in explain_run(
            [mergeable(part, manifest, now_s) for part, manifest in _seen(replica, run)],
            selector_settings(replica),
            bytes_max,
            RANGES_SHOWN_MAX,
        )
    ]
    ranges.sort(key=lambda one: (bool(one.reason), one.score or 0.0))
    ranges = _ttl_ranges(replica, view, found.runs, bytes_max, partition) + ranges
    boundaries = [
        ExplainedRange(
            partition=boundary.left.partition,
            parts=tuple(str(part) for part in (boundary.left, boundary.right) if part),
            size_bytes=0,
            score=None,
            reason=boundary.refusal.reason,
        )
        for boundary in found.boundaries
        if partition in (None, boundary.left.partition)
    ]
    lost = [
        ExplainedRange(part.partition, (str(part),), size_bytes=0, score=None, reason=words)
        for part, words in why_missing(replica, _coming(view, partition)).items()
    ]
    return Explained(tuple(ranges + boundaries + lost), limit)


def _seen(replica: Replica, run: Sequence[PartName]) -> list[tuple[PartName, Manifest]]:
    """Those of the parts that are here, with their manifests, read once: a drop may remove them
    meanwhile.
    """
    looks = ((part, manifest_seen(replica, part)) for part in run)
    return [(part, manifest) for part, manifest in looks if manifest is not None]


def _coming(view: MergeView, partition: str | None) -> Iterator[PartName]:
    """The parts that the queue is to bring, in this partition (None: in all)."""
    here = set(view.active)
    for part in view.predicate.virtual:
        if part not in here and not part.is_drop_range and partition in (None, part.partition):
            yield part


def _ttl_ranges(
    replica: Replica,
    view: MergeView,
    runs: Sequence[Sequence[PartName]],
    bytes_max: int,
    partition: str | None,
) -> list[ExplainedRange]:
    """The TTL merges that are due, in the order in which they will be assigned."""
    here = [
        [ttl_part(part, manifest) for part, manifest in seen]
        for run in runs
        if partition in (None, run[0].partition)
        and len(seen := _seen(replica, run)) == len(run)
    ]
    limit = ttl_limit(replica, view)
    found = [
        ExplainedRange(
            partition=one.parts[0].part.partition,
            parts=tuple(str(part.part) for part in one.parts),
            size_bytes=one.size_bytes,
            score=None,
            reason=limit if one.refusal is None else one.refusal.reason,
            what=f"TTL: {one.what}{_since(one.due_s)}",
        )
        for one in ttl_merges(here, ttl_settings(replica, bytes_max))
    ]
    return sorted(found, key=lambda one: bool(one.reason))[:RANGES_SHOWN_MAX]


def _since(due_s: int) -> str:
    return "" if due_s == UNKNOWN_S else f" since {format_time(due_s)}"


def _explained(candidate: Candidate) -> ExplainedRange:
    return ExplainedRange(
        partition=candidate.parts[0].part.partition,
        parts=tuple(str(one.part) for one in candidate.parts),
        size_bytes=sum(one.size_bytes for one in candidate.parts),
        score=candidate.score,
        reason="" if candidate.refusal is None else candidate.refusal.reason,
    )
