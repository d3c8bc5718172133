"""A table's log and one replica's queue, as simple as can be: what the queue's rules are held to.

The model knows what the end must be: all entries applied in log order, each at once, to nothing.
"""

from dataclasses import dataclass, field, replace

from rmt_pipeline.protocol.log.entry import (
    AlterMetadata,
    DropPart,
    DropRange,
    GetPart,
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
    drop_range_of,
    parts_brought,
    result_of,
    virtual_parts,
)
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName, drop_range, merged, mutated
from rmt_pipeline.protocol.parts.set import Intersects, PartSet
from rmt_pipeline.protocol.queue.facts import Covered, Facts, Run
from rmt_pipeline.protocol.queue.view import QueueView
from tests.support.protocol import TIME_S, node

HEADER = {"create_time": TIME_S, "source_replica": "r2"}


def apply_at_once(parts: PartSet, entry: LogEntry) -> None:
    """What the entry makes of a replica that has done everything before it."""
    dropped = drop_range_of(entry)
    if dropped is not None:
        parts.remove_covered(dropped)
    made = entry.new_parts if isinstance(entry, ReplaceRange) else [result_of(entry)]
    for part in made:
        if part is not None:
            assert not isinstance(parts.add(part), Intersects), f"{part} intersects in the log"


@dataclass
class Log:
    """What leaders and inserts decide. `state`: the parts after the last entry."""

    entries: list[LogEntry] = field(default_factory=list)
    state: PartSet = field(default_factory=PartSet)
    numbers: dict[str, int] = field(default_factory=dict)
    alter_version: int = 0

    def append(self, entry: LogEntry) -> None:
        self.entries.append(entry)
        apply_at_once(self.state, entry)

    def take_number(self, partition: str) -> int:
        number = self.numbers.get(partition, 0)
        self.numbers[partition] = number + 1
        return number

    def insert(self, partition: str) -> None:
        number = self.take_number(partition)
        self.append(GetPart(PartName(partition, number, number, 0), **HEADER))

    def merge(self, partition: str, first: int, count: int) -> None:
        """Merge `count` neighbours, as far as there are as many; one alone too (OPTIMIZE FINAL)."""
        held = self.state.in_partition(partition)
        members = held[first % len(held) :][:count] if held else []
        if members:
            self.append(MergeParts(tuple(members), merged(members), **HEADER))

    def mutate(self, partition: str, *, by_alter: bool) -> None:
        """A mutation of all parts of the partition, maybe born from an ALTER."""
        version = self.take_number(partition)
        if by_alter:
            self.alter()
        alter_version = self.alter_version if by_alter else -1
        for part in self.state.in_partition(partition):
            if part.data_version < version:
                self.append(MutatePart(part, mutated(part, version), alter_version, **HEADER))

    def alter(self) -> None:
        self.alter_version += 1
        self.append(AlterMetadata(self.alter_version, False, "", "", **HEADER))

    def drop(self, partition: str, *, detach: bool) -> None:
        delimiter = self.take_number(partition)
        if delimiter:
            self.append(DropRange(drop_range(partition, delimiter), detach, **HEADER))

    def drop_part(self, partition: str, index: int, *, detach: bool) -> None:
        members = self.state.in_partition(partition)
        if members:
            self.append(DropPart(members[index % len(members)], detach, **HEADER))

    def replace(self, partition: str, count: int, *, attach_only: bool) -> None:
        """REPLACE PARTITION FROM, or ATTACH PARTITION FROM, which drops nothing."""
        delimiter = self.take_number(partition)
        dropped = drop_range(partition, delimiter + 1)
        if attach_only or delimiter == 0:
            dropped = PartName(partition, 0, 0, 0)
        numbers = [self.take_number(partition) for _ in range(count)]
        new = tuple(
            PartName(partition, number, number, index) for index, number in enumerate(numbers)
        )
        names = tuple(map(str, new))
        self.append(ReplaceRange(dropped, "db", "t", names, new, names, **HEADER))

    def decide(self, kind: str, partition: str, a: int, b: int) -> None:
        """One decision of the kind that the letter says; `a` and `b` say which and how many."""
        {
            "i": lambda: self.insert(partition),
            "g": lambda: self.take_number(partition),
            "m": lambda: self.merge(partition, a, b + 2),
            "f": lambda: self.merge(partition, a, 1),
            "u": lambda: self.mutate(partition, by_alter=a > 1),
            "x": self.alter,
            "d": lambda: self.drop(partition, detach=b > 1),
            "p": lambda: self.drop_part(partition, a, detach=b > 1),
            "r": lambda: self.replace(partition, b, attach_only=a > 1),
        }[kind]()


KINDS = "iiiiiiiiimmmmmmfguuudprx"


class Replica:
    """One replica's nodes in ZooKeeper."""

    def __init__(self) -> None:
        self.pulled = 0
        self.given_up = 0
        self.queue: dict[str, LogEntry] = {}
        self.claims: dict[str, Claim] = {}
        self.parts: set[PartName] = set()
        self.came: dict[PartName, str] = {}  # by the entries that bring rows
        self.end = PartSet()  # what all pulled entries, applied at once, come to
        self._seen = ({}, {}, set())
        self._view = QueueView(*self._seen)

    @property
    def view(self) -> QueueView:
        """Of the nodes as they are. It is made of nothing but them, once for each change."""
        if self._seen != (self.queue, self.claims, self.parts):
            self._seen = (dict(self.queue), dict(self.claims), set(self.parts))
            self._view = QueueView(*self._seen)
        return self._view

    def pull(self, log: Log, count: int) -> None:
        new = log.entries[self.pulled : self.pulled + count]
        first = self.pulled + self.given_up
        added = [(node(number), entry) for number, entry in enumerate(new, first)]
        for name, entry in added:
            apply_at_once(self.end, entry)
            if not isinstance(entry, MergeParts | MutatePart):
                self.came |= dict.fromkeys(parts_brought(entry), name)
        self.queue |= dict(added)
        self.pulled += len(added)

    def claim(self, facts: Facts, limit: int) -> None:
        for name, entry in self.view.plan(facts, limit).run:
            self.claims[name] = Claim("w", virtual_parts(entry))

    def finish_done(self) -> None:
        self._remove([name for name, _ in self.view.plan(Facts(), 0).done])

    def fail(self, name: str) -> None:
        del self.claims[name]

    def take_larger(self, name: str, log: Log) -> None:
        """The worker of a GET finds a larger part, on a replica that has pulled everything."""
        entry = self.queue.get(name)
        if not isinstance(entry, GetPart):
            return
        larger = log.state.containing(entry.part)
        if larger is None or larger == entry.part:
            return
        if self.view.may_take_actual_part(larger, name) is None:
            claim = self.claims[name]
            self.claims[name] = replace(claim, parts=(*claim.parts, larger))

    def execute(self, name: str) -> None:
        """The worker of a claim publishes; when a drop took its entry, it only gives up."""
        claim = self.claims[name]
        entry = self.queue.get(name)
        if entry is None:
            self.fail(name)
            return
        match entry:
            case GetPart():
                self._publish(name, {claim.parts[-1]})
            case MergeParts() | MutatePart():
                self._publish(name, {entry.result})
            case AlterMetadata():
                self._publish(name, set())
            case DropRange():
                self._drop(name, entry.range, set())
            case DropPart():
                self._drop(name, entry.part, set())
            case ReplaceRange():
                self._drop(name, drop_range_of(entry), set(entry.new_parts))
            case _:
                raise AssertionError(entry)

    def _publish(self, name: str, parts: set[PartName]) -> None:
        self._require_dropped(name, parts)
        self.parts |= parts
        self._remove([name])

    def _drop(self, name: str, dropped: PartName | None, new: set[PartName]) -> None:
        entries: list[str] = []
        if dropped is not None:
            self._require_detached(
                name, [part for part in self.parts if dropped.contains(part)]
            )
            entries = [other for other, _ in self.view.entries_removed_by(dropped, name)]
            self.parts = {part for part in self.parts if not dropped.contains(part)}
        self._require_dropped(name, new)
        self.parts |= new
        self._remove([name, *entries])

    def _require_dropped(self, name: str, new: set[PartName]) -> None:
        """Nobody sees rows beside what was dropped before they came."""
        for other, entry in self.queue.items():
            dropped = drop_range_of(entry)
            if other == name or dropped is None:
                continue
            stays = [one for one in self.parts if dropped.contains(one)]
            near = [one for one in new if one.partition == dropped.partition]
            later = [part for part in near if self._came(part) > other]
            assert not (stays and later), f"{name} brings {later}, and {other} drops {stays}"

    def _came(self, part: PartName) -> str:
        """The node of the last entry that brought rows of the part."""
        return max(node for one, node in self.came.items() if part.contains(one))

    def _require_detached(self, name: str, gone: list[PartName]) -> None:
        """What a DETACH of before is to set aside is not taken by others."""
        for other, entry in self.queue.items():
            if other < name and isinstance(entry, DropRange | DropPart) and entry.detach:
                taken = drop_range_of(entry)
                assert taken is not None
                assert not any(map(taken.contains, gone)), f"{name} takes what {other} detaches"

    def _remove(self, names: list[str]) -> None:
        """One multi: entries go, with the claim of the first one."""
        for name in names:
            del self.queue[name]
        if names:
            self.claims.pop(names[0], None)

    def clean_up(self) -> None:
        self.parts = set(self.view.current)

    def give_up(self, index: int) -> None:
        """A part that it has is broken: it is to be fetched again."""
        if self.parts:
            part = sorted(self.parts)[index % len(self.parts)]
            self.parts.remove(part)
            entry = GetPart(part, **{**HEADER, "source_replica": ""})
            self.queue[node(self.pulled + self.given_up)] = entry
            self.given_up += 1

    def restart(self) -> None:
        """All workers die; their claims vanish with their sessions."""
        self.claims = {}

    def step(self, name: str) -> bool:
        """Work on one entry from start to end if it may run alone. False when it has to wait."""
        decision = self.view.decide(name, Facts())
        match decision:
            case Covered():
                self._remove([name])
                return True
            case Run():
                self.claims[name] = Claim("w", virtual_parts(self.queue[name]))
                self.execute(name)
                return True
            case _:
                return False
