"""A table made again from the disks of its replicas: which of their parts it is made of (§11.6).

All replicas followed one log, so a name says which blocks' rows a part has, on whichever disk it
lies. Then the table is the maximal parts of all disks together: what one replica has merged covers
what another still has in pieces, and what only one had received is in it, too. Nothing is twice,
since maximal parts have no block in common; nothing is missing, since each part is covered by one
that stays.

Where that does not hold, somebody has to go without: parts of one name and other rows, or that
overlap and neither contains the other, which no history explains; and parts that another replica
knows to be dropped. These are given up by name, and their bytes stay in `detached/`. So is a try of
an insert that died before its part was announced, when the same block is there as another part:

1. r1 gives the block a number and its part a name, and dies. 2. The client says it again on r2,
which commits it under another number. 3. ZooKeeper is lost before r1 is back and sees that nobody
knows its part. Or the try on r2 dies as well: then one of the two stays.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import Intersects, PartSet

Promised = Mapping[str, Mapping[PartName, PartHeader]]
"""What each replica promises."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """`replica` promises the part no more."""

    replica: str
    part: PartName
    reason: str


@dataclass(frozen=True, slots=True)
class United:
    """The table's parts, each with a replica that has it; and what is given up."""

    parts: Mapping[PartName, str]
    given_up: tuple[GivenUp, ...]


def outermost(parts: Iterable[PartName]) -> tuple[PartSet, dict[PartName, PartName]]:
    """The maximal ones; and of those that overlap one of them, neither containing the other, which
    one that is.
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
    """`dropped`: what each replica knows to be dropped. `unseen`: blocks that are known by their
    rows, and of which the replica that has them does not know whether they were ever announced.
    `dead`: what `dead_tries` says of inserts with a token.

    Of parts of one name that are not equal, those that most replicas have stay; of as many, those
    of the replica whose name comes first: whoever asks, the answer is the same.
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
    """Blocks of the same content: those that are `unseen`, with the one that stays. What was seen
    to be promised is no try that died: the same rows may be inserted again after a while.

    `tries`: the seconds at which tries began, of blocks of which one try may have equal ones.
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
    """Of the blocks of one insert with a token those that a try which died has named, each with the
    block that stays. `unseen`: on whose disk those are that nobody knows to have been announced.

    One try may have equal blocks, and what was announced is no dead one. So blocks are compared
    that are on two disks, or of which one was announced.
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
    """The first replica of those whose copy stays; the others, with how theirs differs."""
    equal: list[list[str]] = []
    for replica, header in found.items():
        for group in equal:
            if found[group[0]].difference(header) is None:
                group.append(replica)
                break
        else:
            equal.append([replica])
    best = max(equal, key=len)  # the first one of the longest
    differing = [replica for group in equal if group is not best for replica in group]
    header = found[best[0]]
    return best[0], [
        (replica, header.difference(found[replica]) or "") for replica in differing
    ]
