"""Decides which entries of a replica's queue may run now (spec §4; design §4).

The original keeps its queue in the memory of one server process. Ours is a value that any worker
builds from what it read in ZooKeeper. If two workers decide from the same reads to run the same
entry, or entries that exclude each other, the multi that claims refuses one of them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace, merge
from itertools import zip_longest
from typing import assert_never

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import (
    AlterMetadata,
    AttachPart,
    DropPart,
    DropRange,
    GetPart,
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
    describe_entry,
    drop_range_of,
    result_of,
    touched_by,
    virtual_parts,
)
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.index import PartIndex
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.queue.facts import Covered, Decision, Facts, Run, Wait
from rmt_pipeline.protocol.queue.rules import Question, is_shut, overlap_reason, reason_to_wait
from rmt_pipeline.protocol.queue.state import Lane, QueueState, lane_of
from rmt_pipeline.protocol.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Plan:
    """What one look at the queue decided.

    The entries of `run` may be claimed together in one multi. Those of `done`, each with the part
    that covers it, need only be deleted. `wait` has the entries that may not run, with the reason.
    An entry that might run but was to be skipped or tried later is in none of them.
    """

    run: tuple[tuple[str, LogEntry], ...]
    done: tuple[tuple[str, PartName], ...]
    wait: tuple[tuple[str, str], ...]


class QueueView:
    """A replica's queue at one moment; a value (P8 to P14 of docs/protocol.md)."""

    __slots__ = ("_state",)

    def __init__(
        self,
        entries: Mapping[str, LogEntry],
        claims: Mapping[str, Claim],
        parts: Iterable[PartName],
        before: "QueueView | None" = None,
    ) -> None:
        """`entries` (in queue order), `claims` and `parts` must have been read in this order.
        `before` is an earlier view of this queue; what is equal in it is not looked at again.

        Raises Corruption if parts or promises overlap in a way that no history gives.
        """
        known: QueueState | None = None
        if before is not None:
            known = before._state  # noqa: SLF001  also a QueueView
        self._state: QueueState = QueueState(entries, claims, parts, known)

    @property
    def entries(self) -> Mapping[str, LogEntry]:
        """The entries by queue node, in queue order."""
        return self._state.entries

    @property
    def claims(self) -> Mapping[str, Claim]:
        return self._state.claims

    @property
    def current(self) -> PartSet:
        """The maximal parts that this replica has. Not to be changed."""
        return self._state.current

    @property
    def virtual(self) -> PartSet:
        """The parts that the replica will have once the queue is empty, and the fake ranges of
        queued drops. Not to be changed.
        """
        return self._state.virtual

    @property
    def future(self) -> Mapping[PartName, tuple[str, ...]]:
        """The parts that are being produced, each with the queue nodes that produce it."""
        return self._state.future.owners

    def of_lanes(self, *lanes: Lane) -> dict[str, LogEntry]:
        """The entries of these lanes by node, one lane after the other, each in queue order."""
        entries = self._state.entries
        return {node: entries[node] for lane in lanes for node in self._state.lanes[lane]}

    def count(self, lanes: Iterable[Lane]) -> int:
        """How many entries are in these lanes."""
        return sum(len(self._state.lanes[lane]) for lane in lanes)

    def names(self, partition: str) -> frozenset[PartName]:
        """Every part of the partition in `R/parts`, covered ones too."""
        return self._state.names(partition)

    def check(self) -> None:
        """Assert the queue's invariants (P8, P10)."""
        self._state.check()

    def order(self) -> list[str]:
        """The queue's nodes in the order in which to try them.

        Drops come first, so that no part is fetched that a drop would take away (spec §4.2).
        Fetches of newly inserted parts and of parts that this replica has lost, which may be a
        whole table, take turns, so that neither kind waits for the other. What waits for an earlier
        drop, but for the first of each partition, comes last.
        """
        first = dict.fromkeys(_in_turn(self._state.lanes_to_ask()))
        return [*first, *(node for node in self._state.entries if node not in first)]

    def decide(self, node: str, facts: Facts) -> Decision:
        """What to do about one entry. `node` must be in the queue."""
        state = self._state
        return self._decide(node, state.future, state.dropping, facts)

    def _decide(
        self,
        node: str,
        future: PartIndex,
        dropping: PartIndex,
        facts: Facts,
        full: Wait | None = None,
    ) -> Decision:
        """Decide about one entry. If `full` is given, no rule is asked: an entry that is neither
        claimed nor covered gets this answer.
        """
        entry = self._state.entries[node]
        claim = self._state.claims.get(node)
        if claim is not None:
            return Wait(f"it is being executed by {claim.worker}")
        part = result_of(entry)
        if part is not None:
            covering = self._state.current.containing(part)
            if covering is not None:
                return Covered(covering)
        if full is not None:
            return full
        reason = reason_to_wait(Question(self._state, future, dropping, node, entry, facts))
        return Run() if reason is None else Wait(reason)

    def plan(
        self,
        facts: Facts,
        limit: int,
        skip: Collection[str] = (),
        later: Collection[str] = (),
    ) -> Plan:
        """Decide about every entry, each beside those chosen before it; at most `limit` run.

        Once the limit is reached the other entries wait for it, and the rules are not asked, which
        would take long for a long queue. Covered entries are found all the same.

        `skip` are nodes that the caller leaves to other workers. They are not chosen, so no other
        entry waits for them. `later` are nodes that have failed and may not be tried again yet:
        other entries do not produce what overlaps their parts, but they take no slot.
        """
        future, dropping = self._state.future.copy(), self._state.dropping.copy()
        run: list[tuple[str, LogEntry]] = []
        done: list[tuple[str, PartName]] = []
        wait: list[tuple[str, str]] = []
        full = Wait(f"{limit} other entries were taken first")
        for node in self.order():
            is_full = len(run) >= limit
            decision = self._decide(node, future, dropping, facts, full if is_full else None)
            if isinstance(decision, Covered):
                done.append((node, decision.covered_by))
            elif isinstance(decision, Wait):
                wait.append((node, decision.reason))
            elif node not in skip:
                entry = self._state.entries[node]
                _take(node, entry, future, dropping)
                if node not in later:
                    run.append((node, entry))
                    facts = facts.with_running(entry)
        return Plan(tuple(run), tuple(done), tuple(wait))

    def choose(
        self,
        facts: Facts,
        limit: int,
        skip: Collection[Lane] = (),
        later: Collection[str] = (),
    ) -> Plan:
        """The `run` and `done` that `plan` gives, without asking the rules about entries that can't
        run: once an entry was refused because its lane is shut (`is_shut`), no other one of that
        lane is asked, nor are those that wait for an earlier drop in their partition, but for the
        first of each. `wait` has only entries that were asked. `skip` are lanes that the caller
        leaves to other workers. `done` is in queue order.

        Entries of `later` are not asked either. Such an entry matters only to one that overlaps it;
        if an entry that is to be chosen does, this falls back on `plan`.
        """
        state, facts_before = self._state, facts
        future, dropping = state.future.copy(), state.dropping.copy()
        run: list[tuple[str, LogEntry]] = []
        wait: list[tuple[str, str]] = []
        shut = set(skip)
        for node in _in_turn(state.lanes_to_ask(), shut) if limit else ():
            if node in later or node in state.claims or node in state.covered:
                continue
            entry = state.entries[node]
            lane = lane_of(entry)
            if lane in shut:
                continue
            reason = reason_to_wait(Question(state, future, dropping, node, entry, facts))
            if reason is not None:
                wait.append((node, reason))
                if is_shut(entry, facts):
                    shut.add(lane)
                continue
            if later and self._overlaps(entry, later):
                skipped = frozenset(self.of_lanes(*skip))
                return self.plan(facts_before, limit, skipped, later)
            _take(node, entry, future, dropping)
            run.append((node, entry))
            if len(run) >= limit:
                break
            facts = facts.with_running(entry)
        done = sorted(one for one in state.covered.items() if one[0] not in state.claims)
        return Plan(tuple(run), tuple(done), tuple(wait))

    def _overlaps(self, entry: LogEntry, nodes: Collection[str]) -> bool:
        """Whether the entry brings or drops blocks that the entry of one of these
        nodes does too.
        """
        touched = self._state.touched
        return any(
            node in nodes for name in touched_by(entry) for _, node in touched.overlapping(name)
        )

    def may_take_actual_part(self, part: PartName, node: str) -> Refusal | None:
        """Whether the running entry at `node` may fetch `part`, which covers the entry's own part,
        and so claim that name as well (spec §4.8). None if it may.

        The original waits for older entries that produce something overlapping; here the fetch
        is refused and tried again, which needs no waiting inside a worker.
        """
        state = self._state
        if state.virtual.containing(part) is None:
            return Refusal(
                f"{part} is not known here: the log entry that made it is not pulled yet, "
                "and a drop may come before it"
            )
        for dropped, drop_node in state.drop_parts.overlapping(part):
            if not self._waits_for(drop_node, node):
                return Refusal(
                    f"{drop_node}, which drops part {dropped}, must run before {part}"
                )
        early = self._drop_before(part, node)
        if early is not None:
            return Refusal(f"{early} must run before {part}, which has rows that came after it")
        reason = overlap_reason(part, state.future, but=node)
        return None if reason is None else Refusal(reason)

    def _drop_before(self, part: PartName, node: str) -> str | None:
        """The first queued drop behind which rows of `part` come: readers would see them beside
        what it drops. None if there is none, apart from drops of what the entry at `node` drops
        itself, in the step that brings the part.
        """
        state = self._state
        own = drop_range_of(state.entries[node]) if node in state.entries else None
        last = max(
            (one for _, one in state.touched.overlapping(part) if one != node), default=""
        )
        for other in sorted(state.drops.nodes_in(part.partition) - {node}):
            dropped = drop_range_of(state.entries[other])
            assert dropped is not None
            takes_it = own is not None and own.contains(dropped)
            if other < last and not takes_it and not self._waits_for(other, node):
                return other
        return None

    def _waits_for(self, drop_node: str, node: str) -> bool:
        """Whether the drop waits for the replacement at `node`, or for one behind it that waits for
        that: they have yet to bring what it drops, which nobody sees here until then.
        """
        state = self._state
        entry = state.entries.get(drop_node)
        if not isinstance(entry, DropPart) or node not in state.entries:
            return False
        return isinstance(state.entries[node], ReplaceRange) and any(
            node <= other < drop_node for _, other in state.replacements.overlapping(entry.part)
        )

    def is_dropped_later(self, part: PartName, node: str) -> bool:
        """Whether an entry behind `node` drops the part, by itself or within a range. A replica
        that has carried that entry out can't send the part any more.
        """
        later = (entry for other, entry in self._state.entries.items() if other > node)
        return any(
            dropped is not None and dropped.contains(part)
            for dropped in map(drop_range_of, later)
        )

    def detaches(self, parts: Iterable[PartName]) -> str:
        """The first queue node whose entry detaches one of these parts; "" if none does."""
        detaching = self._state.detaching
        return min(
            (node for part in parts for _, node in detaching.overlapping(part)), default=""
        )

    def entries_removed_by(
        self, part_range: PartName, by: str | None = None
    ) -> list[tuple[str, LogEntry]]:
        """The entries that become pointless when everything in `part_range` goes (spec §4.11).

        `by` is the queue node of the DROP or REPLACE that does it. None: no entry does it, a broken
        part is to be fetched again; then replacements stay. Raises Corruption if only some of a
        replacement's new parts are in the range.
        """
        return [
            (node, entry)
            for node, entry in self._state.entries.items()
            if node != by and _is_removed(entry, part_range, node, by)
        ]


def _in_turn(
    lanes: Mapping[Lane, Collection[str]], shut: AbstractSet[Lane] = frozenset()
) -> Iterator[str]:
    """The nodes in the order of `QueueView.order`. Lanes in `shut`, to which the caller may add
    while it iterates, may be left out.

    After the drops there is a row of entries for each lane, and one for both lanes of fetches. The
    next row is the one whose next entry has the first place in the queue. It yields that entry; the
    row of fetches yields the one whose turn it is instead.
    """
    yield from lanes[Lane.DROPS]
    new, lost = lanes[Lane.NEW_PARTS], lanes[Lane.LOST_PARTS]
    rows: list[tuple[Iterator[str], Iterator[str], set[Lane]]] = [
        (iter(merge(new, lost)), _by_turns(new, lost), {Lane.NEW_PARTS, Lane.LOST_PARTS})
    ]
    rows += [(iter(lanes[lane]), iter(lanes[lane]), {lane}) for lane in _ONE_BY_ONE]
    places = [(first, row) for row in range(len(rows)) if (first := next(rows[row][0], ""))]
    heapify(places)
    while places:
        places_left, taken, kinds = rows[places[0][1]]
        kinds = {lane for lane in kinds if lanes[lane]}
        if kinds <= shut:
            heappop(places)
            continue
        yield next(taken)
        place = next(places_left, "")
        if place:
            heapreplace(places, (place, places[0][1]))
        else:
            heappop(places)


_ONE_BY_ONE = (
    Lane.ATTACHED_PARTS,
    Lane.MERGES,
    Lane.MUTATIONS,
    Lane.ADDITIONS,
    Lane.ALTERS,
)


def _by_turns(*lines: Iterable[str]) -> Iterator[str]:
    """The first of each line, then the second of each, and so on; lines that have
    ended drop out.
    """
    return (node for turn in zip_longest(*lines) for node in turn if node is not None)


def _take(node: str, entry: LogEntry, future: PartIndex, dropping: PartIndex) -> None:
    for part in virtual_parts(entry):
        future.add(part, node)
    dropped = drop_range_of(entry)
    if dropped is not None:
        dropping.add(dropped, node)


def _is_removed(entry: LogEntry, part_range: PartName, node: str, by: str | None) -> bool:
    match entry:
        case GetPart() | AttachPart():
            return part_range.contains(entry.part)
        case MergeParts() | MutatePart():
            return part_range.contains(entry.result)
        case ReplaceRange():
            if by is None or not part_range.contains(entry.range):
                return False
            inside = [part for part in entry.new_parts if part_range.contains(part)]
            if inside and len(inside) < len(entry.new_parts):
                raise Corruption(
                    f"{by} drops {part_range}, but {node} ({describe_entry(entry)}) brings "
                    f"{inside[0]} inside that range and other parts outside of it"
                )
            return bool(inside)
        case DropRange() | DropPart() | AlterMetadata():
            return False
        case _:
            assert_never(entry)
