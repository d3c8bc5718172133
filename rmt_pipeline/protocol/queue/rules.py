"""May this entry run now? The original's rules, in its order of evaluation (spec §4.6, §4.7).

Each rule is a function that returns a reason to wait, or None. `future` and `dropping` are passed
beside the state because a worker that claims several entries at once adds each of them to these
before it asks about the next.

One rule is narrower here. In the original an entry waits for every queued DROP_PART that
touches what it produces, and a DROP_PART for every queued REPLACE_RANGE that it touches; a
replacement and a DROP_PART of one of its own new parts would then wait for each other. Here,
between these two, the later one in the queue waits for the earlier: the order in which they
were decided.

Two rules are added. An ALTER with a mutation waits for pieces of mutations that were decided before
it, which in the original may run after it and fail. And what comes into a partition waits for the
drops in that partition that were decided before it (`_dropped_first`). The original only tries
drops first (spec §4.2): once one runs, or has failed (§4.5), or waits for another, what came after
it may overtake it, and readers then see both: after DETACH and ATTACH each row twice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from rmt_pipeline.protocol.background import Background, first_stopped
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
    drop_range_of,
    partitions_about,
    result_of,
    sources_of,
    virtual_parts,
)
from rmt_pipeline.protocol.parts.index import PartIndex
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import Facts
from rmt_pipeline.protocol.queue.state import QueueState


@dataclass(frozen=True, slots=True)
class Question:
    """May `entry`, at `node`, run now?"""

    state: QueueState
    future: PartIndex
    dropping: PartIndex
    node: str
    entry: LogEntry
    facts: Facts


Rule = Callable[[Question], str | None]


def reason_to_wait(question: Question) -> str | None:
    """Why the entry may not run, by the first rule that forbids it; None if it may be claimed."""
    stopped = first_stopped(question.facts.stopped, Background.REPLICATION_QUEUES)
    if stopped is not None:
        return stopped
    for rule in _RULES[type(question.entry)]:
        reason = rule(question)
        if reason is not None:
            return reason
    return None


def _produced_by_another(question: Question) -> str | None:
    """Rule 1a: no two running entries may produce parts that overlap (spec §16.3 Q5).

    A drop may start over running work that it covers: that work will fail to publish, because
    its queue entry is gone (design §4).
    """
    for part in virtual_parts(question.entry):
        for other, node in question.future.overlapping(part):
            if part.is_drop_range and part.contains(other):
                continue
            if other == part:
                return f"another entry, {node}, {_produces(question.state, node)} {part}"
            return f"{node} {_produces(question.state, node)} {other}, which overlaps {part}"
    return None


def _produces(state: QueueState, node: str) -> str:
    """The verb for the entry at `node`: a worker has claimed it, or it is only to be claimed before
    the entry in question.
    """
    return "is producing" if node in state.claims else "is to produce"


def _affected_by_drop_part(question: Question) -> str | None:
    """Rule 2: a DROP_PART runs before anything that touches its blocks."""
    part = result_of(question.entry)
    assert part is not None
    for dropped, node in question.state.drop_parts.overlapping(part):
        return f"{node}, which drops part {dropped}, must run before {part} is produced"
    return None


def _replaces_after_drop_part(question: Question) -> str | None:
    """Rule 2 for the new parts of a replacement: it waits for earlier DROP_PARTs only."""
    assert isinstance(question.entry, ReplaceRange)
    for part in question.entry.new_parts:
        for dropped, node in question.state.drop_parts.overlapping(part):
            if node < question.node:
                return f"{node}, which drops part {dropped}, must run before {part} is produced"
    return None


def _going_to_be_dropped(question: Question) -> str | None:
    """Rule 3: a part that a queued drop will take away is not made: the drop removes
    its entry too.
    """
    part = result_of(question.entry)
    assert part is not None
    covering = question.state.virtual.containing(part)
    if covering is not None and covering.is_drop_range:
        return f"{part} is going to be dropped by the queued drop of {covering}"
    return None


def is_shut(entry: LogEntry, facts: Facts) -> bool:
    """Whether the facts alone (work stopped by hand, or no free slot) keep this entry and all of
    its lane from running. Running more entries does not change that.
    """
    stopped = first_stopped(facts.stopped, Background.REPLICATION_QUEUES)
    match entry:
        case GetPart() | AttachPart():
            return (stopped or _no_fetch(entry, facts)) is not None
        case MergeParts() | MutatePart():
            return (stopped or _no_merge(facts)) is not None
        case DropRange() | DropPart() | ReplaceRange() | AlterMetadata():
            return stopped is not None
        case _:
            assert_never(entry)


def _fetches(question: Question) -> str | None:
    """Rule 4: a fetch needs a free slot, and fetches must not be stopped."""
    return _no_fetch(question.entry, question.facts)


def _no_fetch(entry: LogEntry, facts: Facts) -> str | None:
    stopped = first_stopped(facts.stopped, Background.FETCHES)
    reason = stopped or _slots("fetches", facts.fetches_busy, facts.fetches_max)
    if reason is None and isinstance(entry, GetPart) and entry.recovers:
        return _slots("fetches of what was lost", facts.recoveries_busy, facts.recoveries_max)
    return reason


def _merges(question: Question) -> str | None:
    """Rule 5a: a merge or mutation needs a free slot, and merges must not be stopped.

    Rule 5b, that a source is being produced right now, needs no test of its own: a source's blocks
    are the result's as well, so rule 1a has found it.
    """
    return _no_merge(question.facts)


def _no_merge(facts: Facts) -> str | None:
    stopped = first_stopped(facts.stopped, Background.MERGES)
    return stopped or _slots("merges and mutations", facts.merges_busy, facts.merges_max)


def _slots(what: str, busy: float, most: int) -> str | None:
    return f"all {most} slots for {what} are taken" if busy >= most else None


def _merge_fits(question: Question) -> str | None:
    """Rules 5e to 5h for merges."""
    entry, facts = question.entry, question.facts
    assert isinstance(entry, MergeParts)
    other = facts.merges_elsewhere.get(entry.result)
    if other is not None:
        return f"replica {other} was chosen to merge {entry.result}; waiting to fetch it"
    stopped = first_stopped(facts.stopped, Background.TTL_MERGES)
    if entry.merge_type != MERGE_REGULAR and stopped is not None:
        return stopped
    if entry.merge_type != MERGE_REGULAR and facts.ttl_merges_busy >= facts.ttl_merges_max:
        return f"all {facts.ttl_merges_max} slots for TTL merges are taken"
    limits, busy, slots = facts.size_limits, facts.merges_busy, facts.merges_max
    if limits.any_size(used=busy, slots=slots):
        return None
    return _too_large(question, limits.merge_bytes_max(used=busy, slots=slots))


def _mutation_fits(question: Question) -> str | None:
    """Rules 5d to 5h for mutations. Rule 5c, that a mutation which failed waits before it is tried
    again, is in `replica.backoff`: it concerns single entries of one process.
    """
    facts = question.facts
    busy, slots = facts.merges_busy, facts.merges_max
    return _too_large(question, facts.size_limits.mutation_bytes_max(used=busy, slots=slots))


def _too_large(question: Question, bytes_max: int) -> str | None:
    facts = question.facts
    sources = sources_of(question.entry)
    size_bytes = sum(facts.sizes.get(source, 0) for source in sources)
    if size_bytes <= bytes_max and bytes_max > 0:
        return None
    return (
        f"its sources have {size_bytes} bytes, and with {facts.merges_busy:g} of "
        f"{facts.merges_max} slots taken at most {bytes_max} may start"
    )


def _alter_is_next(question: Question) -> str | None:
    """Rule 6: ALTERs go one after another, metadata then data of each (spec §8.3).

    The sequence of the original is in memory; here it is what is unfinished: queued metadata,
    and mutations that this replica has not finished. The smallest version is its head.
    """
    assert isinstance(question.entry, AlterMetadata)
    version = question.entry.alter_version
    for node, other in question.state.alters.items():
        if other < version:
            return f"{node}, which alters metadata to version {other}, comes first"
    unfinished = min(question.facts.unfinished_alters, default=version)
    if unfinished < version:
        return f"the mutation of ALTER {unfinished} is not finished on this replica"
    return None


def _mutations_came_first(question: Question) -> str | None:
    """An ALTER that renames columns or changes their values waits for the MUTATE_PARTs of mutations
    that were decided before it: their commands use the columns' names before the ALTER.
    """
    assert isinstance(question.entry, AlterMetadata)
    if not question.entry.have_mutation:
        return None
    for node, other in question.state.entries.items():
        if node >= question.node:
            return None
        if isinstance(other, MutatePart) and other.alter_version == -1:
            return f"{node}, which mutates {other.source}, was decided for the columns before"
    return None


def _alter_came_first(question: Question) -> str | None:
    """Rule 7: a mutation born from an ALTER runs on the metadata that this ALTER made."""
    assert isinstance(question.entry, MutatePart)
    version = question.entry.alter_version  # -1 if it belongs to no ALTER
    for node, other in question.state.alters.items():
        if other <= version:
            return f"{node}, which alters metadata to version {other}, comes first"
    return None


def _no_overlapping_drop(question: Question) -> str | None:
    """Rule 8: drops that overlap run one by one."""
    dropped = drop_range_of(question.entry)
    if dropped is None:  # a replacement with nothing to drop
        return None
    for other, node in question.dropping.overlapping(dropped):
        return f"{node} is dropping {other}, which overlaps {dropped}"
    return None


def _replacement_came_first(question: Question) -> str | None:
    """Rule 9: a DROP_PART waits for an earlier replacement that brings its part. If it ran first,
    the replacement would bring the part back.
    """
    assert isinstance(question.entry, DropPart)
    for part, node in question.state.replacements.overlapping(question.entry.part):
        if node < question.node:
            return f"{node} has to bring {part} before it can be dropped"
    return None


def _detached_first(question: Question) -> str | None:
    """Rule 10: a drop waits for an earlier DETACH of the same blocks, so that the parts to be
    detached are still there when that runs.
    """
    dropped = drop_range_of(question.entry)
    if dropped is None:
        return None
    for other, node in question.state.detaching.overlapping(dropped):
        if node < question.node:
            return f"{node}, which detaches {other}, must run first"
    return None


def _dropped_first(question: Question) -> str | None:
    """Rule 11: what brings parts waits for every drop in their partition that is queued before it.
    So no reader sees what was dropped beside what came after it.

    A drop never waits for what is queued behind it, so two entries do not wait for each other. Only
    a replacement needs parts: if no replica has one of them any more, the empty part that takes its
    place does not wait. A replacement that drops something needs no such rule: it takes away what
    drops before it would take, in the step that brings its parts.
    """
    if drop_range_of(question.entry) is not None or not question.facts.has_rows:
        return None
    for partition in partitions_about(question.entry):
        node = question.state.first_drops.get(partition, question.node)
        if node < question.node:
            dropped = drop_range_of(question.state.entries[node])
            return f"{node}, which drops {dropped}, must run first"
    return None


_PRODUCING: tuple[Rule, ...] = (
    _produced_by_another,
    _affected_by_drop_part,
    _going_to_be_dropped,
    _dropped_first,
)
_RULES: dict[type[LogEntry], tuple[Rule, ...]] = {
    GetPart: (*_PRODUCING, _fetches),
    AttachPart: (*_PRODUCING, _fetches),
    MergeParts: (*_PRODUCING, _merges, _merge_fits),
    MutatePart: (*_PRODUCING, _merges, _alter_came_first, _mutation_fits),
    DropRange: (_produced_by_another, _no_overlapping_drop, _detached_first),
    DropPart: (_no_overlapping_drop, _replacement_came_first, _detached_first),
    ReplaceRange: (
        _produced_by_another,
        _replaces_after_drop_part,
        _no_overlapping_drop,
        _detached_first,
        _dropped_first,
    ),
    AlterMetadata: (_alter_is_next, _mutations_came_first),
}


def overlap_reason(part: PartName, future: PartIndex, *, but: str) -> str | None:
    """Why `part` may not be produced beside the parts that are being produced now, except those of
    the queue node `but`; None if it may.
    """
    for other, node in future.overlapping(part):
        if node != but:
            return f"{node} is producing {other}, which overlaps {part}"
    return None
