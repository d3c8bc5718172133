"""Which parts a table is made of that is restored from the disks of its replicas, after ZooKeeper
lost it (§11.6).

All replicas followed one log, so a part's name says which blocks' rows it has, on any disk. The
restored table has the maximal parts of all disks together: a part that one replica has merged
covers the parts that another still has instead, and a part that only one replica had received is
among them too. No row is there twice, since maximal parts have no block in common; none is missing,
since each part is covered by one that stays.

Some parts have to be given up all the same: parts of the same name with different rows, and parts
that overlap and neither contains the other, which no history explains; and parts that another
replica knows to be dropped. The replica promises them no more; their bytes stay in `detached/`. The
same is done with the part of a try of an insert that died before the part was announced, if the
table has the same block as another part:

1. r1 allocates a number for the block, gives its part that name on its disk, and dies.
2. The client repeats the insert on r2, which commits it under another number.
3. ZooKeeper is lost before r1 is back and sees that its part was never announced.

If the try on r2 died as well, one of the two parts stays. All this is decided when all disks have
been heard: another disk may know that the part that would stay was dropped. Then the part with the
same rows is no try that died: they were inserted again after the drop.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from rmt_pipeline.protocol.inserts.ids import HASH_MAX
from rmt_pipeline.protocol.inserts.rows import Moved
from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.nodes.records import PartitionRows
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import Intersects, PartSet

_ADDED_UP_MAX = 1000  # blocks among which those are looked for into which an insert was cut

Promised = Mapping[str, Mapping[PartName, PartHeader]]
"""The parts that each replica promises, with their headers, by the replica's name."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A part that `replica` is not to promise any more, and why."""

    replica: str
    part: PartName
    reason: str


class InsertTries(NamedTuple):
    """The `blocks` of one insert with a token; and those that are not known to have been announced,
    each with a value for the try that made it, by which of several tries the first one stays.
    """

    blocks: Collection[PartName]
    unseen: Mapping[PartName, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class United:
    """The restored table's parts, each with a replica that has it, and the parts that
    are given up. `repeats` are blocks of tries that died, each with the same block that stays.
    """

    parts: Mapping[PartName, str]
    given_up: tuple[GivenUp, ...]
    repeats: Mapping[PartName, PartName]


def outermost(parts: Iterable[PartName]) -> tuple[PartSet, dict[PartName, PartName]]:
    """The maximal parts; and each part that overlaps one of these without either containing the
    other, with that one.
    """
    maximal, overlapping = PartSet(), dict[PartName, PartName]()
    for part in sorted(parts, key=_largest_first):
        outcome = maximal.add(part)
        if isinstance(outcome, Intersects):
            overlapping[part] = outcome.part
    return maximal, overlapping


def unite(
    held: Promised,
    dropped: Mapping[str, Collection[PartName]],
    unseen: Collection[PartName] = (),
    inserts: Collection[InsertTries] = (),
) -> United:
    """Which parts the table is made of, and which are given up.

    `held` are the parts of each replica, `dropped` those that each knows to be dropped. `unseen`
    are blocks of inserts without a token whose replica does not know whether they were ever
    announced; `inserts` are those with a token that have such blocks. What two replicas have was
    announced. If merges of other disks alone went across such a block, it may be in the merged part
    or not: nothing is given up for it.

    Of parts of the same name that are not equal, the version that most replicas have stays; if two
    have equally many, that of the replica whose name sorts first. So every replica that asks gets
    the same answer.
    """
    holders, given_up = _not_dropped(held, dropped)
    maximal, overlapping = outermost(holders)
    parts: dict[PartName, str] = {}
    for part, found in sorted(holders.items()):
        if part in overlapping:
            reason = f"it overlaps {overlapping[part]}, and neither contains the other"
            given_up += [GivenUp(replica, part, reason) for replica in found]
            continue
        first, others = _chosen(found)
        given_up += [
            GivenUp(replica, part, f"it is not the one of replica {first}: {difference}")
            for replica, difference in others
        ]
        if part in maximal:
            parts[part] = first
    apart = {part: found for part, found in holders.items() if part not in overlapping}
    repeats = _blocks_of_dead_tries(held, apart, maximal, unseen, inserts)
    for part in sorted(repeats.keys() & parts.keys()):
        reason = (
            f"the same block is there as {repeats[part]}, and nobody has seen this one promised"
        )
        given_up.append(GivenUp(parts.pop(part), part, reason))
    return United(parts, tuple(given_up), repeats)


def _not_dropped(
    held: Promised, dropped: Mapping[str, Collection[PartName]]
) -> tuple[dict[PartName, dict[str, PartHeader]], list[GivenUp]]:
    """The parts that nobody knows to be dropped, each with the replicas that have it; and the
    others, which are given up.
    """
    holders: dict[PartName, dict[str, PartHeader]] = defaultdict(dict)
    given_up: list[GivenUp] = []
    for replica in sorted(held):
        for part, header in held[replica].items():
            by = _dropped_by(part, dropped)
            if by:
                given_up.append(GivenUp(replica, part, f"replica {by} knows it to be dropped"))
            else:
                holders[part][replica] = header
    return holders, given_up


def _blocks_of_dead_tries(
    held: Promised,
    holders: Mapping[PartName, Mapping[str, PartHeader]],
    maximal: PartSet,
    unseen: Collection[PartName],
    inserts: Collection[InsertTries],
) -> dict[PartName, PartName]:
    """The blocks of tries that died, each with the same block that stays. `holders` leaves out the
    parts that overlap others.
    """
    doubtful = {
        part
        for part in chain(unseen, *(one.unseen for one in inserts))
        if len(holders.get(part, ())) == 1
    }
    own = {name: outermost(held[name])[0] for name in (held if doubtful else ())}
    across = {
        part
        for part in doubtful
        if part not in maximal
        and all(part in own[name] for name in holders[part])
        and (covering := maximal.containing(part)) is not None
        and covering.blocks_count > 1
    }
    alone = across | {part for part in doubtful if part in maximal}
    blocks = {
        part: found[_chosen(found)[0]]
        for part, found in (holders.items() if alone else ())
        if part.blocks_count == 1
    }
    repeats = _repeats(blocks, alone.intersection(unseen), across)
    for insert in inserts:
        rows = {
            part: blocks[part].uncompressed_hash_of_compressed_files
            for part in insert.blocks
            if part in blocks
        }
        tries = {part: by for part, by in insert.unseen.items() if part in alone}
        repeats |= dead_tries(rows, tries, across)
    return repeats


def _repeats(
    blocks: Mapping[PartName, PartHeader],
    unseen: Collection[PartName],
    across: Collection[PartName],
) -> dict[PartName, PartName]:
    """The `unseen` blocks that have the same content as another block of their partition, each with
    the block that stays, which is not one that merges went `across`. Two blocks of one insert
    without a token are never equal.

    A block that is known to have been promised is not from a try that died, and never given up: the
    same rows may have been inserted again after a while.
    """
    known, found = dict[Hashable, PartName](), dict[PartName, PartName]()
    for part in sorted(blocks, key=lambda one: (one in across, one in unseen, -one.block_min)):
        content = part.partition, blocks[part].hash_of_uncompressed_files
        other = known.setdefault(content, part)
        if other != part and part in unseen:
            found[part] = other
    return found


def dead_tries(
    contents: Mapping[PartName, Hashable],
    unseen: Mapping[PartName, tuple[str, int]],
    across: Collection[PartName] = (),
) -> dict[PartName, PartName]:
    """The blocks of one insert with a token that are from tries that died, each with the block that
    stays, which is not one that merges went `across`. `contents` has all blocks of the insert,
    `unseen` the try of those that are not known to have been announced.

    One try may have equal blocks, and an announced block is not from a try that died. So equal
    blocks are compared only if they are of two tries, or if one of them was announced.
    """
    known, found = dict[Hashable, PartName](), dict[PartName, PartName]()
    for part in sorted(
        contents,
        key=lambda one: (one in across, one in unseen, unseen.get(one, ("", 0)), one),
    ):
        other = known.setdefault((part.partition, contents[part]), part)
        if part in unseen and unseen.get(other) != unseen[part]:
            found[part] = other
    return found


class CameAgain:
    """Blocks of an insert, or of all inserts that are known by their rows, given with the hashes of
    their rows: where the rows of earlier blocks may have come again, after these were dropped.
    """

    def __init__(self, blocks: Mapping[PartName, int]) -> None:
        self._hashes = blocks
        self._equal: dict[tuple[str, int], list[PartName]] = defaultdict(list)
        self._partition: dict[str, list[PartName]] = defaultdict(list)
        for block in sorted(blocks):
            self._equal[block.partition, blocks[block]].append(block)
            self._partition[block.partition].append(block)

    def moved(
        self, lines: Iterable[PartitionRows], dropped: Collection[PartName] | None = None
    ) -> Moved:
        """From the blocks that the lines of an insert name to those with the same rows that are
        later than all of these. None: whatever is named; else only what was `dropped`.
        """
        found: dict[str, list[PartitionRows]] = defaultdict(list)
        for line in lines:
            if line.first >= 0:
                found[line.partition].append(line)
        pairs = [pair for mine in found.values() for pair in self._pairs(mine, dropped)]
        return Moved.of((str(_block_of(line)), block) for line, block in pairs)

    def _pairs(
        self, lines: Sequence[PartitionRows], dropped: Collection[PartName] | None
    ) -> Iterator[tuple[PartitionRows, PartName]]:
        """Of one partition. If no block is cut as before, the rows are in blocks that follow each
        other and add up to them.
        """
        last = max(line.last for line in lines)
        gone: dict[int, list[PartitionRows]] = defaultdict(list)
        for line in sorted(lines, key=lambda one: (_block_of(one) in self._hashes, one)):
            if dropped is None or any(map(line.is_in, dropped)):
                gone[int(line.row_hash, 16)].append(line)
        partition, are_equal = lines[0].partition, False
        for row_hash, those in gone.items():
            equal = self._equal.get((partition, row_hash), ())
            later = [block for block in equal if block.block_min > last][-len(those) :]
            are_equal = are_equal or bool(later)
            yield from zip(those, later, strict=False)
        if gone and not are_equal:
            wanted = sum(row_hash * len(those) for row_hash, those in gone.items()) & HASH_MAX
            run = self._adding_up(partition, last, wanted)
            yield from ((line, one) for those in gone.values() for line in those for one in run)

    def _adding_up(self, partition: str, last: int, wanted: int) -> Sequence[PartName]:
        """The last later blocks that follow each other and whose hashes add up to this."""
        near = self._partition.get(partition, [])[-_ADDED_UP_MAX:]
        later = [block for block in near if block.block_min > last]
        starts, total, found = {0: 0}, 0, slice(0)
        for end, block in enumerate(later, start=1):
            total = (total + self._hashes[block]) & HASH_MAX
            if (start := starts.get((total - wanted) & HASH_MAX)) is not None:
                found = slice(start, end)
            starts[total] = end
        return later[found]


def _block_of(line: PartitionRows) -> PartName:
    return PartName(line.partition, line.first, line.last, 0)


def _largest_first(part: PartName) -> tuple[int, int, int, PartName]:
    return -part.blocks_count, -part.level, -part.mutation, part


def _dropped_by(part: PartName, dropped: Mapping[str, Collection[PartName]]) -> str:
    return next(
        (
            replica
            for replica, ranges in sorted(dropped.items())
            if any(one.contains(part) for one in ranges)
        ),
        "",
    )


def _chosen(found: Mapping[str, PartHeader]) -> tuple[str, list[tuple[str, str]]]:
    """The first replica of those whose version of the part stays, and the replicas whose version
    differs, each with how.
    """
    equal: list[list[str]] = []
    for replica, header in found.items():
        for group in equal:
            if found[group[0]].difference(header) is None:
                group.append(replica)
                break
        else:
            equal.append([replica])
    best = max(equal, key=len)  # the first of the longest groups
    differing = [replica for group in equal if group is not best for replica in group]
    header = found[best[0]]
    return best[0], [
        (replica, header.difference(found[replica]) or "") for replica in differing
    ]
