"""An index of part names by the queue nodes that they belong to, searched by overlapping blocks.
The queue's working sets are such indexes.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping

from rmt_pipeline.protocol.parts.name import PartName

_Members = list[tuple[int, PartName]]


class PartIndex:
    """Names of parts, each with the queue nodes that it belongs to. Names may overlap each other.

    The names of a partition are kept by length, in classes whose longest is at most twice its
    shortest, each sorted by the first block. So in each class a name that overlaps a part begins
    less than the longest length before it: two binary searches find all of them, and there are at
    most some thirty classes.

    A copy shares the partitions with its original until either changes one.
    """

    __slots__ = ("_classes", "_own", "_owners")

    def __init__(self) -> None:
        self._classes: dict[str, dict[int, _Members]] = {}
        self._own: set[str] = set()  # partitions whose lists no copy shares
        self._owners: dict[PartName, tuple[str, ...]] = {}

    def add(self, part: PartName, node: str) -> None:
        """Note that `part` belongs to the queue node `node`."""
        owners = self._owners.get(part, ())
        if node in owners:
            return
        if not owners:
            classes = self._owned(part.partition)
            insort(classes.setdefault(_class_of(part), []), (part.block_min, part))
        self._owners[part] = (*owners, node)

    def remove(self, part: PartName, node: str) -> None:
        """Undo `add`. Does nothing if the part does not belong to the node."""
        owners = self._owners.get(part, ())
        if node not in owners:
            return
        if len(owners) > 1:
            self._owners[part] = tuple(other for other in owners if other != node)
            return
        del self._owners[part]
        classes, length_class = self._owned(part.partition), _class_of(part)
        members = classes[length_class]
        del members[bisect_left(members, (part.block_min, part))]
        if members:
            return
        del classes[length_class]
        if not classes:  # else the index would keep every partition that ever had a part
            del self._classes[part.partition]
            self._own.discard(part.partition)

    def overlapping(self, part: PartName) -> Iterator[tuple[PartName, str]]:
        """Every (name, node) whose name shares a block with `part`, `part` itself included."""
        for length_class, members in self._classes.get(part.partition, {}).items():
            low = bisect_right(members, part.block_min - (1 << length_class), key=_first_block)
            high = bisect_right(members, part.block_max, lo=low, key=_first_block)
            for _, other in members[low:high]:
                if other.block_max >= part.block_min:
                    for node in self._owners[other]:
                        yield other, node

    def nodes_in(self, partition: str) -> set[str]:
        """The queue nodes that some part of the partition belongs to."""
        return {
            node
            for members in self._classes.get(partition, {}).values()
            for _, part in members
            for node in self._owners[part]
        }

    def has_any_in(self, partition: str) -> bool:
        """Whether some part of the partition is in the index."""
        return partition in self._classes

    def copy(self) -> "PartIndex":
        """A copy, which shares the partitions' lists until either changes one."""
        twin = PartIndex()
        twin._classes, twin._owners = dict(self._classes), dict(self._owners)
        self._own = set()
        return twin

    @property
    def owners(self) -> Mapping[PartName, tuple[str, ...]]:
        """Every part, with the queue nodes that it belongs to."""
        return self._owners

    def _owned(self, partition: str) -> dict[int, _Members]:
        """The partition's lists, which may be changed: no copy shares them any more."""
        if partition not in self._own:
            shared = self._classes.get(partition, {})
            self._classes[partition] = {one: list(names) for one, names in shared.items()}
            self._own.add(partition)
        return self._classes[partition]


def _class_of(part: PartName) -> int:
    """The length class n of a part: it has at least 2**(n - 1) and less than 2**n blocks."""
    return part.blocks_count.bit_length()


def _first_block(member: tuple[int, PartName]) -> int:
    return member[0]
