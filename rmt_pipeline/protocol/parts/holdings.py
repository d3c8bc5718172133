"""The parts that a replica has at one moment, computed from those that it had at an earlier one.

Parsing thousands of names again for each look would be slow, so each moment shares with the one
before whatever did not change.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet

PartChanges = Mapping[str, tuple[frozenset[PartName], frozenset[PartName]]]
"""For each partition that changed: the parts that were added, and those that were removed."""

FEW = 64  # added names that are kept apart before all are put into one dictionary again


class Holdings:
    """Every part that a replica promises in `R/parts`, covered ones too.

    A value: it never changes, so threads may share it, and what is computed from it once serves
    every look that sees the same parts. `renamed` makes the next moment's: names that are in both
    are not parsed again, and partitions in which nothing changed are shared.
    """

    def __init__(
        self,
        by_name: Mapping[str, PartName],
        of_partition: Mapping[str, frozenset[PartName]],
        before: tuple[PartSet, frozenset[str], Sequence[PartName]] | None = None,
        came: Sequence[PartName] = (),
    ) -> None:
        """For use within this module; others call `of`.

        `came` are a few parts that are not in `by_name` yet. `before`, from which `current` is
        computed: the maximal parts of an earlier moment, the partitions that have lost one of
        these since, or a part added since, and the parts added since. None: `current` is computed
        from all parts.
        """
        self._named = by_name
        self._came = came
        self._before = before
        self.of_partition = of_partition

    @classmethod
    def of(cls, parts: Iterable[PartName]) -> "Holdings":
        """Holdings of exactly these parts."""
        by_name = _names_of(parts)
        return cls(by_name, _by_partition(by_name.values()))

    def renamed(self, names: Iterable[str]) -> "Holdings":
        """The holdings with exactly these names. Raises Corruption if one is not a part name."""
        mine = self._by_name()
        by_name = {name: mine.get(name) or PartName.parse(name) for name in names}
        added = [by_name[name] for name in by_name.keys() - mine.keys()]
        removed = [mine[name] for name in mine.keys() - by_name.keys()]
        return self._next(by_name, added, removed)

    def joined(self, parts: Iterable[PartName]) -> "Holdings":
        """These holdings and `parts`."""
        added = [part for part in dict.fromkeys(parts) if part not in self]
        came = [*self._came, *added]
        if len(came) > FEW:
            return self._next({**self._named, **_names_of(came)}, added, [])
        return self._next(self._named, added, [], came)

    def without(self, parts: Iterable[PartName]) -> "Holdings":
        """These holdings but for `parts`; names that are not among them are ignored."""
        by_name = dict(self._by_name())
        removed = [gone for part in parts if (gone := by_name.pop(str(part), None)) is not None]
        return self._next(by_name, [], removed)

    def _next(
        self,
        by_name: Mapping[str, PartName],
        added: Sequence[PartName],
        removed: Sequence[PartName],
        names_came: Sequence[PartName] = (),
    ) -> "Holdings":
        if not added and not removed:
            return self
        gone, come = _by_partition(removed), _by_partition(added)
        of_partition = dict(self.of_partition)
        for partition in gone.keys() | come.keys():
            kept = self.names(partition) - gone.get(partition, frozenset())
            of_partition[partition] = kept | come.get(partition, frozenset())
            if not of_partition[partition]:
                del of_partition[partition]
        current: PartSet | None = self.__dict__.get("current")
        if current is None:  # it was not computed, or could not be
            if self._before is None:
                return Holdings(by_name, of_partition, came=names_came)
            earlier, since, came = self._before
            changes = earlier, since.union(gone), [*came, *added]
            return Holdings(by_name, of_partition, changes, names_came)
        # Removing a covered part leaves the maximal ones as they are. If a maximal part is removed,
        # parts that it covered may be maximal again.
        lost = frozenset(part.partition for part in removed if part in current)
        return Holdings(by_name, of_partition, (current, lost, added), names_came)

    @cached_property
    def current(self) -> PartSet:
        """The maximal parts. Not to be changed: take a copy. Raises Corruption if two of them
        overlap and neither contains the other. Threads that compute it at once get equal sets.
        """
        if self._before is None:
            return PartSet(self)
        before, lost, added = self._before
        parts = before.copy()
        for partition in lost:
            parts.replace_partition(partition, self.names(partition))
        # In these partitions a part that was added may be gone again.
        parts.extend(part for part in added if part.partition not in lost)
        return parts

    def names(self, partition: str) -> frozenset[PartName]:
        """The parts of one partition, covered ones too."""
        return self.of_partition.get(partition, frozenset())

    def partitions(self) -> list[str]:
        """The partitions that have parts, sorted."""
        return sorted(self.of_partition)

    def changes(self, later: "Holdings") -> PartChanges:
        """What was added and removed between these and `later`. Shared partitions cost nothing."""
        if later is self:
            return {}
        before, now = self.of_partition, later.of_partition
        changed = [
            one for one in before.keys() | now.keys() if before.get(one) is not now.get(one)
        ]
        return {
            one: (later.names(one) - self.names(one), self.names(one) - later.names(one))
            for one in changed
            if before.get(one) != now.get(one)
        }

    def __contains__(self, part: PartName) -> bool:
        return part in self.names(part.partition)

    def __iter__(self) -> Iterator[PartName]:
        yield from self._named.values()
        yield from self._came

    def __len__(self) -> int:
        return len(self._named) + len(self._came)

    def __repr__(self) -> str:
        return f"Holdings({' '.join(map(str, self))})"

    def _by_name(self) -> Mapping[str, PartName]:
        return {**self._named, **_names_of(self._came)} if self._came else self._named


def _names_of(parts: Iterable[PartName]) -> dict[str, PartName]:
    return {str(part): part for part in parts}


def _by_partition(parts: Iterable[PartName]) -> dict[str, frozenset[PartName]]:
    found: defaultdict[str, list[PartName]] = defaultdict(list)
    for part in parts:
        found[part.partition].append(part)
    return {partition: frozenset(names) for partition, names in found.items()}
