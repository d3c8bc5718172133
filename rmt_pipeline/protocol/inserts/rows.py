"""Which rows of an insert are in the table, and which are left after some were dropped or lost.

An insert's record has a line (`PartitionRows`) for each of its blocks.

    a block of a partition is lost ──► its line is removed, the partition has rows missing ──►
    a retry that has all the blocks that are still in brings back the others; a retry that is cut
    into other blocks gets an error

1. A drop removes a partition's lines if it drops all the insert's blocks in it, and else none: rows
   that were dropped on purpose must not come back by a retry while others of the insert are in.
2. Lost rows are to come back. A retry is known to have the same rows as the insert. If every block
   of the partition that is still in equals, by its rows, a block of the retry, the retry's other
   blocks are exactly what is missing. If not, a block of the retry may have both rows that are in
   and rows that are missing.
3. If no block of a partition is left, all of it is missing, however a retry is cut.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rmt_pipeline.protocol.inserts.ids import REPLACEMENT
from rmt_pipeline.protocol.nodes.records import (
    UNKNOWN_BLOCK,
    InsertBatch,
    InsertRecord,
    MissingRows,
    PartitionRows,
)
from rmt_pipeline.protocol.parts.name import PartName


@dataclass(frozen=True, slots=True)
class InsertRows:
    """The record of an insert, and its batches in the order of their numbers."""

    record: InsertRecord
    batches: tuple[InsertBatch, ...] = ()

    @property
    def lines(self) -> tuple[PartitionRows, ...]:
        """The lines of the record, then those of the batches."""
        of_batches = [line for batch in self.batches for line in batch.partitions]
        return (*self.record.partitions, *of_batches)

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is left, so that a retry is the same as a new insert. False for an insert
        that was committed in part only: the client that makes it is still to go on with it.
        """
        return self.record.is_whole and not self.lines

    def after_drop(self, dropped: Collection[PartName], insert_id: str) -> "InsertRows":
        """What is left after these blocks were dropped. A replacement that had rows in a partition
        of which nothing is left is forgotten as a whole: it can't be repeated in that partition
        alone.
        """
        found = self._by_partition()
        gone = {
            partition
            for partition, lines in found.items()
            if all(_is_in(line, dropped) for line in lines)
            and (lines or _is_all_dropped(partition, dropped))
        }
        had_rows = any(
            not found[one] or any(line.rows_given for line in found[one]) for one in gone
        )
        if had_rows and insert_id.startswith(REPLACEMENT):
            return self._without(found)
        return self._without(gone)

    def after_loss(self, lost: PartName, insert_id: str) -> "InsertRows":
        """What is left after these blocks were lost. A replacement can't be repeated in only some
        of its partitions, so it has rows missing until nothing of it is left.
        """
        partition = lost.partition
        lines = self._by_partition().get(partition, [])
        gone = [line for line in lines if line.is_in(lost)]
        if not any(line.touches(lost) for line in lines):
            return self
        is_alone = {line.partition for line in self.lines} == {partition}
        if len(gone) == len(lines) and (is_alone or not insert_id.startswith(REPLACEMENT)):
            is_replacement = insert_id.startswith(REPLACEMENT)
            return self._without(self._by_partition() if is_replacement else {partition})
        is_told = all(line.is_in(lost) for line in lines if line.touches(lost))
        rows = sum(line.rows_given for line in gone) if is_told else 0
        kept = self._keeping(lambda line: line not in gone)
        missing = with_missing(self.record.missing, MissingRows(partition, rows))
        return replace(kept, record=replace(kept.record, missing=missing))

    def without_lines(self, lines: Collection[PartitionRows]) -> "InsertRows":
        """What is left without these lines, as if their rows had never been inserted."""
        record, rows_in = self.record, self.record.rows_in
        if rows_in < record.rows:
            rows_in -= sum(line.rows_given for line in self.lines if line in lines)
        kept = self._keeping(lambda line: line not in lines)
        return replace(kept, record=replace(kept.record, rows_in=max(0, rows_in)))

    def renumbered(self, moved: "Moved") -> "InsertRows":
        """The same rows, after those of some parts moved to other parts."""
        return InsertRows(
            replace(self.record, partitions=moved.lines(self.record.partitions)),
            tuple(InsertBatch(moved.lines(batch.partitions)) for batch in self.batches),
        )

    def _by_partition(self) -> dict[str, list[PartitionRows]]:
        found: dict[str, list[PartitionRows]] = {
            one.partition: [] for one in self.record.missing
        }
        for line in self.lines:
            found.setdefault(line.partition, []).append(line)
        return found

    def _without(self, partitions: Collection[str]) -> "InsertRows":
        """What is left without these partitions. If the insert was committed as a whole, `rows_in`
        stays as it is, so that a retry does not go on with it because some rows were dropped.
        """
        record = self.record
        missing = tuple(one for one in record.missing if one.partition not in partitions)
        rows_in = record.rows_in
        if rows_in < record.rows:
            rows_in -= sum(
                line.rows_given for line in self.lines if line.partition in partitions
            )
            rows_in -= sum(one.rows for one in record.missing if one not in missing)
        kept = self._keeping(lambda line: line.partition not in partitions)
        left = replace(kept.record, missing=missing, rows_in=max(0, rows_in))
        return replace(kept, record=left)

    def _keeping(self, stays: Callable[[PartitionRows], bool]) -> "InsertRows":
        def left(lines: Iterable[PartitionRows]) -> tuple[PartitionRows, ...]:
            return tuple(filter(stays, lines))

        return InsertRows(
            replace(self.record, partitions=left(self.record.partitions)),
            tuple(InsertBatch(left(batch.partitions)) for batch in self.batches),
        )


@dataclass(frozen=True, slots=True)
class Moved:
    """Parts whose rows have moved to other parts.

    `to` has for each the first and the last block number of the parts that have its rows now.
    """

    to: Mapping[PartName, tuple[int, int]]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, PartName]]) -> "Moved":
        """Made from pairs of the name of a part that is gone and a part that has rows of it now.
        The name '' stands for rows that were in no part. A part may be in several pairs: then its
        rows are in all of their second parts.
        """
        found: dict[PartName, tuple[int, int]] = {}
        for name, part in pairs:
            before = PartName.try_parse(name)
            if before is not None and before != part:
                first, last = found.get(before, (part.block_min, part.block_max))
                found[before] = min(first, part.block_min), max(last, part.block_max)
        return cls(found)

    def part(self, part: PartName) -> PartName:
        """The range of blocks that has the rows of `part` now; `part` itself if they have not
        moved.
        """
        for before, (first, last) in self.to.items():
            if before.partition == part.partition and _contains(
                before, part.block_min, part.block_max
            ):
                return PartName(part.partition, first, last, 0)
        return part

    def lines(self, lines: Iterable[PartitionRows]) -> tuple[PartitionRows, ...]:
        """The lines with the block numbers where their rows are now, sorted."""
        return tuple(sorted(map(self._line, lines)))

    def _line(self, line: PartitionRows) -> PartitionRows:
        now = self.part(PartName(line.partition, line.first, line.last, 0))
        held = now.block_min, now.block_max
        if held == (line.first, line.last):
            return line
        return line._replace(
            first=held[0], last=held[1], own_first=UNKNOWN_BLOCK, own_last=UNKNOWN_BLOCK
        )


def with_missing(missing: Iterable[MissingRows], more: MissingRows) -> tuple[MissingRows, ...]:
    """`missing` after `more` rows of a partition are known to be lost. A count of 0 means that the
    number is not known; it stays 0, whatever is added.
    """
    before = {one.partition: one.rows for one in missing}
    known = before.get(more.partition)
    before[more.partition] = 0 if known == 0 or not more.rows else more.rows + (known or 0)
    return tuple(MissingRows(*one) for one in sorted(before.items()))


def blocks_there(
    lines: Sequence[PartitionRows], contents: Sequence[tuple[int, str, int]]
) -> frozenset[int] | None:
    """Which blocks of a retry are in a partition that has rows missing, as indexes of `contents`.

    `lines` are the insert's lines of that partition, `contents` (see `PartitionRows.content`) the
    retry's blocks in it. None if that can't be told, because the retry is cut into other blocks:
    a line has no equal block, or every block of the retry is in, or a line is of several blocks.
    """
    if any(line.first != line.last or line.first == UNKNOWN_BLOCK for line in lines):
        return None
    wanted = Counter(line.content for line in lines)
    found = set()
    for index, content in enumerate(contents):
        if wanted[content] > 0:
            wanted[content] -= 1
            found.add(index)
    is_told = wanted.total() == 0 and len(found) < len(contents)
    return frozenset(found) if is_told else None


def _contains(part: PartName, first: int, last: int) -> bool:
    return part.block_min <= first and last <= part.block_max


def _is_in(line: PartitionRows, dropped: Collection[PartName]) -> bool:
    return any(map(line.is_in, dropped))


def _is_all_dropped(partition: str, dropped: Collection[PartName]) -> bool:
    return any(
        one.partition == partition and one.is_drop_range and one.block_min == 0
        for one in dropped
    )
