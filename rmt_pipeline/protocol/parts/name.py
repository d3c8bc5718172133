"""Part names: the algebra that the whole engine stands on (spec §1.1 to §1.4, §1.6)."""

import re
from dataclasses import dataclass, replace
from typing import Self

from rmt_pipeline.protocol.errors import Corruption

LEVEL_MAX = 999_999_999
LEVEL_MAX_LEGACY = 4_294_967_295  # REPLACE ranges before 21.6; kept so that text round-trips
MUTATION_MAX = 999_999_999  # the "infinite" mutation version of drop ranges
BLOCK_NUMBER_MAX = 999_999_999

_NAME = re.compile(
    r"([^_/]+)_(-?[0-9]{1,19})_(-?[0-9]{1,19})_([0-9]{1,10})(?:_([0-9]{1,10}))?", re.ASCII
)


@dataclass(frozen=True, order=True, slots=True)
class PartName:
    """A part: rows of blocks `block_min..block_max` of one partition, after `level` merges.

    Ordered lexicographically by its fields; every set algorithm depends on that order.
    """

    partition: str
    block_min: int
    block_max: int
    level: int
    mutation: int = 0

    def __post_init__(self) -> None:
        assert self.partition, "a partition id is never empty"
        assert "_" not in self.partition, "the separator may not appear in a partition id"
        assert "/" not in self.partition, "a part name is a directory name"
        assert self.block_min <= self.block_max
        assert 0 <= self.level <= LEVEL_MAX_LEGACY
        assert 0 <= self.mutation <= LEVEL_MAX_LEGACY

    def __str__(self) -> str:
        name = f"{self.partition}_{self.block_min}_{self.block_max}_{self.level}"
        return f"{name}_{self.mutation}" if self.mutation else name

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises Corruption naming the text."""
        part = cls.try_parse(text)
        if part is None:
            raise Corruption(
                f"{text!r} is not a part name (<partition>_<min>_<max>_<level>[_<mutation>])"
            )
        return part

    @classmethod
    def try_parse(cls, text: str) -> Self | None:
        """The inverse of `str`; None if the text is not a part name."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        partition, block_min, block_max, level, mutation = match.groups()
        numbers = (int(block_min), int(block_max), int(level), int(mutation or 0))
        in_range = numbers[2] <= LEVEL_MAX_LEGACY and numbers[3] <= LEVEL_MAX_LEGACY
        if partition in (".", "..") or numbers[0] > numbers[1] or not in_range:
            return None
        part = cls(partition, *numbers)
        return part if str(part) == text else None  # each part has one name: no leading zeros

    @property
    def data_version(self) -> int:
        """A mutation with a greater version must be applied to this part (spec §1.2)."""
        return self.mutation or self.block_min

    @property
    def blocks_count(self) -> int:
        return self.block_max - self.block_min + 1

    @property
    def is_drop_range(self) -> bool:
        """Whether this is a fake part for a range of blocks, by its level (spec §1.6)."""
        return self.level in (LEVEL_MAX, LEVEL_MAX_LEGACY)

    def contains(self, other: "PartName") -> bool:
        """Whether `self` makes `other` obsolete (spec §1.3). Every part contains itself.

        The mutation of a range is written as 999999999, and stands for any. (In the original it is
        that number: after a billion inserts its drops do not take parts that were mutated.)
        """
        return (
            self.partition == other.partition
            and self.block_min <= other.block_min
            and self.block_max >= other.block_max
            and self.level >= other.level
            and (self.mutation >= other.mutation or self._is_of_any_mutation(other))
            and (
                (self.block_min == other.block_min and self.block_max == other.block_max)
                or self.level > other.level
                or self.is_drop_range
            )
        )

    def _is_of_any_mutation(self, other: "PartName") -> bool:
        is_any = self.is_drop_range and self.mutation >= MUTATION_MAX
        return is_any and not other.is_drop_range

    def disjoint(self, other: "PartName") -> bool:
        """Whether no block is in both (spec §1.4); levels and mutations do not matter."""
        return (
            self.partition != other.partition
            or self.block_min > other.block_max
            or self.block_max < other.block_min
        )


def merged(sources: list[PartName]) -> PartName:
    """The name of the part that a merge of `sources` gives (spec §1.2)."""
    assert sources, "a merge has sources"
    assert len({part.partition for part in sources}) == 1, "a merge stays in one partition"
    return PartName(
        sources[0].partition,
        min(part.block_min for part in sources),
        max(part.block_max for part in sources),
        max(part.level for part in sources) + 1,
        max(part.mutation for part in sources),
    )


def mutated(source: PartName, version: int) -> PartName:
    """The name of `source` after the mutation with this version (spec §1.2)."""
    assert version > source.data_version
    return replace(source, mutation=version)


def drop_range(partition: str, delimiter: int) -> PartName:
    """The fake part for every block before the number `delimiter` (spec §1.6, 21.6+)."""
    assert delimiter > 0, "a partition that never had a block has nothing to drop"
    return PartName(partition, 0, delimiter - 1, LEVEL_MAX, MUTATION_MAX)


def gap(left: PartName, right: PartName) -> PartName | None:
    """The fake part for the blocks strictly between two parts; None if there is no block between
    them (spec §1.6).
    """
    assert left.partition == right.partition
    assert left.block_max < right.block_min
    if left.block_max + 1 == right.block_min:
        return None
    return PartName(
        left.partition, left.block_max + 1, right.block_min - 1, LEVEL_MAX, MUTATION_MAX
    )
