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

If the try on r2 died as well, one of the two parts stays.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import Intersects, PartSet

Promised = Mapping[str, Mapping[PartName, PartHeader]]
"""The parts that each replica promises, with their headers, by the replica's name."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A part that `replica` is not to promise any more, and why."""

    replica: str
    part: PartName
    reason: str


@dataclass(frozen=True, slots=True)
class United:
    """The restored table's parts, each with a replica that has it, and the parts that
    are given up.
    """

    parts: Mapping[PartName, str]
    given_up: tuple[GivenUp, ...]


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
    dead: Iterable[tuple[PartName, PartName]] = (),
) -> United:
    """Which parts the table is made of, and which are given up.

    `held` are the parts of each replica, `dropped` those that each knows to be dropped. `unseen`
    are blocks of inserts without a token whose replica does not know whether they were ever
    announced. `dead` is what `dead_tries` found for inserts with a token: pairs of a part and the
    one that stays.

    Of parts of the same name that are not equal, the version that most replicas have stays; if two
    have equally many, that of the replica whose name sorts first. So every replica that asks gets
    the same answer.
    """
    given_up: list[GivenUp] = []
    holders: dict[PartName, dict[str, PartHeader]] = defaultdict(dict)
    for replica in sorted(held):
        for part, header in held[replica].items():
            by = _dropped_by(part, dropped)
            if by:
                given_up.append(GivenUp(replica, part, f"replica {by} knows it to be dropped"))
            else:
                holders[part][replica] = header
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
    alone = [one for one in unseen if one in parts and len(holders[one]) == 1]
    contents = {
        part: found[_chosen(found)[0]].hash_of_uncompressed_files
        for part, found in holders.items()
        if alone and part.blocks_count == 1 and part not in overlapping
    }
    tries = (
        (part, other)
        for part, other in dead
        if part in parts and len(holders[part]) == 1 and other in holders.keys() - overlapping
    )
    for part, other in (*twice(contents, alone), *tries):
        reason = f"the same block is there as {other}, and nobody has seen this one promised"
        given_up.append(GivenUp(parts.pop(part), part, reason))
    return United(parts, tuple(given_up))


def twice(
    contents: Mapping[PartName, Hashable],
    unseen: Collection[PartName],
    tries: Mapping[PartName, int] = MappingProxyType({}),
) -> list[tuple[PartName, PartName]]:
    """The `unseen` blocks that have the same content as another block of their partition, each with
    the block that stays.

    A block that is known to have been promised is not from a try that died, and never given up: the
    same rows may have been inserted again after a while. `tries` has, for blocks of inserts that
    may have equal blocks in one try, the second at which the try began; equal
    blocks of the same second are taken for two blocks of one try.
    """
    unseen, known = frozenset(unseen), dict[Hashable, PartName]()
    found: list[tuple[PartName, PartName]] = []
    for part in sorted(contents, key=lambda one: (one in unseen, -one.block_min)):
        block = part.partition, contents[part]
        other = known.get(block)
        if other and part in unseen and (part not in tries or tries[part] != tries[other]):
            found.append((part, other))
        known.setdefault(block, part)
    return found


def dead_tries(
    contents: Mapping[PartName, Hashable], unseen: Mapping[PartName, str]
) -> list[tuple[PartName, PartName]]:
    """The blocks of one insert with a token that are from tries that died, each with the block that
    stays. `contents` has all blocks of the insert, `unseen` the replica of those that are not known
    to have been announced.

    One try may have equal blocks, and an announced block is not from a try that died. So equal
    blocks are compared only if they are on two disks, or if one of them was announced.
    """
    known: dict[Hashable, PartName] = {}
    found: list[tuple[PartName, PartName]] = []
    for part in sorted(contents, key=lambda one: (one in unseen, unseen.get(one, ""), one)):
        other = known.setdefault((part.partition, contents[part]), part)
        if part in unseen and unseen.get(other) != unseen[part]:
            found.append((part, other))
    return found


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
