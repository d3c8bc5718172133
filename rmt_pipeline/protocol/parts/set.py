"""A set of parts in which a part replaces those that it makes obsolete (spec §1.5)."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import PartName


@dataclass(frozen=True, slots=True)
class Added:
    """The part is a member now. It contains `replaced`, which are members no more."""

    replaced: tuple[PartName, ...]


@dataclass(frozen=True, slots=True)
class HasCovering:
    """`part`, a member, contains the new one (or equals it); nothing changed."""

    part: PartName


@dataclass(frozen=True, slots=True)
class Intersects:
    """`part`, a member, overlaps the new one and neither contains the other; nothing
    changed.
    """

    part: PartName


class PartSet:
    """Maximal parts, pairwise disjoint.

    Invariant: in each partition no two members have a block in common. So members sorted by
    their first block are sorted by their last one too, and all members that overlap a given
    range of blocks are neighbours: every question is two binary searches.

    Not frozen: a queue's view of thousands of parts is brought up to date in place. A copy shares
    its partitions' lists with the original until either changes one, so making a copy costs time
    by the number of partitions, not of parts.
    """

    __slots__ = ("_firsts", "_members", "_own", "_size")

    def __init__(self, parts: Iterable[PartName] = ()) -> None:
        """The members are the maximal ones of `parts`. Raises Corruption if two of
        them intersect.
        """
        self._members: dict[str, list[PartName]] = {}
        self._firsts: dict[str, list[int]] = {}  # block_min of each member, for bisect
        self._own: set[str] = set()  # partitions whose lists no copy shares
        self._size = 0
        self.extend(parts)

    def extend(self, parts: Iterable[PartName]) -> None:
        """Add each of `parts`. Raises Corruption if one of them intersects a member."""
        for part in sorted(parts, key=_outermost_first):
            outcome = self.add(part)
            if isinstance(outcome, Intersects):
                raise Corruption(
                    f"parts {outcome.part} and {part} overlap and neither contains the other: "
                    "no history gives both; find out which one the log does not explain"
                )

    def add(self, part: PartName) -> Added | HasCovering | Intersects:
        """Make `part` a member, in the place of the members that it contains, unless a member
        contains it or intersects it. Returns which of the three it was.
        """
        low, high = _overlap(
            self._members.get(part.partition, ()), self._firsts.get(part.partition, ()), part
        )
        overlapping = self._members[part.partition][low:high] if low < high else []
        for member in overlapping:
            if member.contains(part):
                return HasCovering(member)
        for member in overlapping:
            if not part.contains(member):
                return Intersects(member)
        members, firsts = self._owned(part.partition)
        members[low:high] = [part]
        firsts[low:high] = [part.block_min]
        self._size += 1 - len(overlapping)
        return Added(tuple(overlapping))

    def containing(self, part: PartName) -> PartName | None:
        """The member that contains `part` (`part` itself if it is a member); None if none does."""
        if part in self:
            return part
        for member in self.intersecting(part):
            if member.contains(part):
                return member
        return None

    def covered_by(self, part: PartName) -> list[PartName]:
        """The members that `part` contains, in order; also `part` itself if it is a member."""
        return [member for member in self.intersecting(part) if part.contains(member)]

    def intersecting(self, part: PartName) -> list[PartName]:
        """The members that have a block in common with `part`, in order."""
        members = self._members.get(part.partition)
        if not members:
            return []
        low, high = _overlap(members, self._firsts[part.partition], part)
        return members[low:high]

    def remove(self, part: PartName) -> bool:
        """Remove `part` itself, not what it contains. Returns False if it is not a member."""
        if part not in self:
            return False
        members, firsts = self._owned(part.partition)
        index = bisect_left(firsts, part.block_min)
        del members[index]
        del firsts[index]
        self._size -= 1
        if not members:
            self._forget(part.partition)
        return True

    def remove_covered(self, part: PartName) -> list[PartName]:
        """Remove every member that `part` contains (also `part`); returns them in order."""
        removed = self.covered_by(part)
        for member in removed:
            self.remove(member)
        return removed

    def replace_partition(self, partition: str, parts: Iterable[PartName]) -> None:
        """Make the maximal ones of `parts`, which are all of this partition, its only members.
        Raises Corruption if two of them intersect.
        """
        fresh = PartSet(parts)
        self._size += len(fresh) - len(self._members.get(partition, ()))
        assert len(fresh) == len(fresh.in_partition(partition)), f"not all are of {partition}"
        if not fresh:
            self._forget(partition)
            return
        self._members[partition], self._firsts[partition] = fresh._owned(partition)
        self._own.add(partition)

    def _forget(self, partition: str) -> None:
        """Drop the lists of a partition without members. Else a long-lived set would keep every
        partition that ever had a part.
        """
        self._members.pop(partition, None)
        self._firsts.pop(partition, None)
        self._own.discard(partition)

    def in_partition(self, partition: str) -> list[PartName]:
        """The members of one partition, in order of their blocks."""
        return list(self._members.get(partition, ()))

    def is_same_in(self, partition: str, other: "PartSet") -> bool:
        """Whether the partition has the same members in both sets. Takes no time if one is a copy
        of the other and neither has changed the partition.
        """
        mine = self._members.get(partition)
        theirs = other._members.get(partition)  # noqa: SLF001  also a PartSet
        return mine is theirs or mine == theirs

    def partitions(self) -> list[str]:
        """The partitions that have members, sorted."""
        return sorted(self._members)

    def copy(self) -> "PartSet":
        """A copy, which shares the partitions' lists until either changes one."""
        twin = PartSet()
        twin._members, twin._firsts = dict(self._members), dict(self._firsts)
        twin._size = self._size
        self._own = set()
        return twin

    def _owned(self, partition: str) -> tuple[list[PartName], list[int]]:
        """The partition's lists, which may be changed: no copy shares them any more."""
        if partition not in self._own:
            self._members[partition] = list(self._members.get(partition, ()))
            self._firsts[partition] = list(self._firsts.get(partition, ()))
            self._own.add(partition)
        return self._members[partition], self._firsts[partition]

    def check(self) -> None:
        """Assert the invariant."""
        for partition, members in self._members.items():
            assert self._firsts[partition] == [member.block_min for member in members]
            for left, right in pairwise(members):
                assert left.block_max < right.block_min, f"{left} and {right} overlap"
        assert self._size == sum(len(members) for members in self._members.values())

    def __contains__(self, part: object) -> bool:
        if not isinstance(part, PartName):
            return False
        firsts = self._firsts.get(part.partition, ())
        index = bisect_left(firsts, part.block_min)
        if index == len(firsts):
            return False
        member = self._members[part.partition][index]
        return member is part or member == part

    def __iter__(self) -> Iterator[PartName]:
        for partition in self.partitions():
            yield from self._members[partition]

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"PartSet({' '.join(map(str, self))})"


def _outermost_first(part: PartName) -> tuple[str, int, int, int, int]:
    """The order for `extend`: a part comes after every part that contains it, and first blocks
    ascend, so that each `add` is at the end of the lists.
    """
    return part.partition, part.block_min, -part.block_max, -part.level, -part.mutation


def _overlap(
    members: Sequence[PartName], firsts: Sequence[int], part: PartName
) -> tuple[int, int]:
    """The slice of `members` that have a block in common with `part`."""
    low = bisect_right(firsts, part.block_min)
    if low and members[low - 1].block_max >= part.block_min:
        low -= 1  # the member that begins before `part` reaches into it
    return low, bisect_right(firsts, part.block_max, lo=low)


def of_disk(parts: Iterable[PartName]) -> PartSet:
    """The maximal ones of the parts of a disk. What was dropped by name may still lie there, beside
    a part that was merged across its numbers: of two that overlap, one is left out.
    """
    found = PartSet()
    for part in sorted(parts, key=_outermost_first):
        found.add(part)
    return found


def contained_in(parts: Iterable[PartName]) -> Callable[[PartName], bool]:
    """A function that says whether one of `parts` contains a given part. `parts` may overlap."""
    disjoint = PartSet()
    others = [part for part in parts if isinstance(disjoint.add(part), Intersects)]
    return lambda part: (
        disjoint.containing(part) is not None or any(other.contains(part) for other in others)
    )
