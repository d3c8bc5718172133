"""Parts and who they belong to, asked by overlap: the queue's working sets."""

from collections.abc import Iterator, Mapping

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet


class PartIndex:
    """Names of parts, each with the queue nodes that stand for it; names may overlap.

    Most names in such a set are disjoint and answer by binary search. The few that overlap
    another one (a drop range over running work, an entry queued twice) are in a short list.
    """

    __slots__ = ("_apart", "_overlapping", "_owners")

    def __init__(self) -> None:
        self._apart = PartSet()
        self._overlapping: list[PartName] = []
        self._owners: dict[PartName, tuple[str, ...]] = {}

    def add(self, part: PartName, node: str) -> None:
        owners = self._owners.get(part, ())
        if not owners:
            if self._apart.intersecting(part):
                self._overlapping.append(part)
            else:
                self._apart.add(part)
        if node not in owners:
            self._owners[part] = (*owners, node)

    def overlapping(self, part: PartName) -> Iterator[tuple[PartName, str]]:
        """Every (name, node) whose blocks are not disjoint with `part`'s, itself included."""
        for other in self._apart.intersecting(part):
            for node in self._owners[other]:
                yield other, node
        for other in self._overlapping:
            if not other.disjoint(part):
                for node in self._owners[other]:
                    yield other, node

    def copy(self) -> "PartIndex":
        twin = PartIndex()
        twin._apart = self._apart.copy()
        twin._overlapping = list(self._overlapping)
        twin._owners = dict(self._owners)
        return twin

    @property
    def owners(self) -> Mapping[PartName, tuple[str, ...]]:
        return self._owners
