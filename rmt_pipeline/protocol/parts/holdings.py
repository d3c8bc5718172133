"""The parts that a replica has at one moment, made from those that it had at another one."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet

PartChanges = Mapping[str, tuple[frozenset[PartName], frozenset[PartName]]]
"""What came and what went, of each partition in which something did."""

FEW = 64  # names that came, until all are one dictionary again


class Holdings:
    """Every part that a replica promises, covered ones too. A value: it never changes, so threads
    may share it, and what was found out about it once serves all looks that see the same parts.

    `renamed` gives the next moment's: names that are in both are not parsed again, and partitions
    in which nothing changed are shared.
    """

    def __init__(
        self,
        by_name: Mapping[str, PartName],
        of_partition: Mapping[str, frozenset[PartName]],
        before: tuple[PartSet, frozenset[str], Sequence[PartName]] | None = None,
        came: Sequence[PartName] = (),
    ) -> None:
        """See `of`. `before`: maximal parts of another moment, the partitions that have lost one of
        them since, and what came. `came` are not among those `by_name`, and few.
        """
        self._named = by_name
        self._came = came
        self._before = before
        self.of_partition = of_partition

    @classmethod
    def of(cls, parts: Iterable[PartName]) -> "Holdings":
        by_name = _names_of(parts)
        return cls(by_name, _by_partition(by_name.values()))

    def renamed(self, names: Iterable[str]) -> "Holdings":
        """With exactly these names. Raises Corruption for one that is no part's."""
        mine = self._by_name()
        by_name = {name: mine.get(name) or PartName.parse(name) for name in names}
        added = [by_name[name] for name in by_name.keys() - mine.keys()]
        removed = [mine[name] for name in mine.keys() - by_name.keys()]
        return self._next(by_name, added, removed)

    def joined(self, parts: Iterable[PartName]) -> "Holdings":
        """With these parts too."""
        added = [part for part in dict.fromkeys(parts) if part not in self]
        came = [*self._came, *added]
        if len(came) > FEW:
            return self._next({**self._named, **_names_of(came)}, added, [])
        return self._next(self._named, added, [], came)

    def without(self, parts: Iterable[PartName]) -> "Holdings":
        """Those that are among them are not any more."""
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
        if current is None:  # nobody has asked for it, or it can't be told
            if self._before is None or removed:
                return Holdings(by_name, of_partition, came=names_came)
            earlier, since, came = self._before
            changes = earlier, since, [*came, *added]
            return Holdings(by_name, of_partition, changes, names_came)
        # Without a part that something larger covers nothing changes; without another one, those
        # that it covered may be the maximal ones again.
        lost = frozenset(part.partition for part in removed if part in current)
        return Holdings(by_name, of_partition, (current, lost, added), names_came)

    @cached_property
    def current(self) -> PartSet:
        """The maximal ones. Not to be changed: take a copy. Raises Corruption when two of them
        overlap and neither contains the other. Threads that ask for it at once find the same.
        """
        if self._before is None:
            return PartSet(self)
        before, lost, added = self._before
        parts = before.copy()
        for partition in lost:
            parts.replace_partition(partition, self.names(partition))
        parts.extend(part for part in added if part.partition not in lost)
        return parts

    def names(self, partition: str) -> frozenset[PartName]:
        """Those of one partition."""
        return self.of_partition.get(partition, frozenset())

    def partitions(self) -> list[str]:
        """The partitions that have parts, sorted."""
        return sorted(self.of_partition)

    def changes(self, later: "Holdings") -> PartChanges:
        """What came and went until there were these. Partitions that are shared cost nothing."""
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

    def __contains__(self, part: object) -> bool:
        return isinstance(part, PartName) and part in self.names(part.partition)

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
