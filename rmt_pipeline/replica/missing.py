"""Parts that nobody can give: on no replica, or on none that is active (spec §5.9). In words."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from rmt_pipeline.protocol.errors import Corruption, ReplicaRetired
from rmt_pipeline.protocol.log.entry import (
    LogEntry,
    MergeParts,
    MutatePart,
    drop_range_of,
    result_of,
    sources_of,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.snapshot import KnownQueue, living_replicas, queued_entries

LOOKED_AT_MAX = 100


def why_missing(replica: Replica, wanted: Iterable[PartName]) -> dict[PartName, str]:
    """By part: what stands in the way of those of `wanted` that nobody can give or make now, with
    the remedy that there is. At most `LOOKED_AT_MAX` are looked at.

    The queues are read only for what nobody has, and the parts once more after them: what an entry
    makes moves from the one to the other.
    """
    parts = sorted(set(wanted))[:LOOKED_AT_MAX]
    if not parts:
        return {}
    living = living_replicas(replica.keeper, replica.table)
    promised, queued = _promised(replica, living), list[LogEntry]()
    if not all(_holders(part, promised) for part in parts):
        queued = _queued(replica, living)
        promised = _promised(replica, living)
    found: dict[PartName, str] = {}
    for part in parts:
        holders = _holders(part, promised)
        if not holders:
            lost = sorted(_lost(part, queued, promised))
            if lost:
                found[part] = _lost_words(replica, lost, list(living))
        elif not any(living[name] for name in holders):
            found[part] = (
                f"{part} is only on {', '.join(holders)}, not active now: start the server there"
            )
    return found


def lost_of(replica: Replica, wanted: Collection[PartName]) -> set[PartName]:
    """Which parts are lost of those that are `wanted`: themselves, or sources of what is to make
    them. The parts are read once more after the queues: what an entry makes moves from the one to
    the other.
    """
    living = living_replicas(replica.keeper, replica.table)
    queued = _queued(replica, living)
    promised = _promised(replica, living)
    return {leaf for part in wanted for leaf in _lost(part, queued, promised)}


def _promised(replica: Replica, names: Collection[str]) -> dict[str, list[PartName]]:
    listed = replica.keeper.children_many([replica.table.replica(name).parts for name in names])
    return {
        name: [PartName.parse(text) for text in texts or []]
        for name, texts in zip(names, listed, strict=True)
    }


def _queued(replica: Replica, names: Iterable[str]) -> list[LogEntry]:
    """Of all replicas. One that was dropped meanwhile, or whose queue can't be read, makes nothing:
    that is its own worker's business.
    """
    found: list[LogEntry] = []
    for name in names:
        with suppress(ReplicaRetired, Corruption):
            known = KnownQueue()
            found += queued_entries(replica.keeper, replica.table.replica(name), known).values()
    return found


def _holders(part: PartName, promised: Mapping[str, Sequence[PartName]]) -> list[str]:
    return [
        name for name, parts in promised.items() if any(one.contains(part) for one in parts)
    ]


def _lost(
    part: PartName, queued: Collection[LogEntry], promised: Mapping[str, Sequence[PartName]]
) -> set[PartName]:
    """What is lost of it: itself, or sources of what is to make it; nothing if it can be made, or
    is going to be dropped. What is made of it, or of what contains it, does not make it.
    """
    if _holders(part, promised):
        return set()
    lost = {part}
    for entry in queued:
        result = result_of(entry)
        dropped = drop_range_of(entry)
        if dropped is not None and dropped.contains(part):
            return set()
        if (
            isinstance(entry, MergeParts | MutatePart)
            and result is not None
            and result.contains(part)
            and not any(source.contains(part) for source in sources_of(entry))
        ):
            lost = {
                leaf for source in sources_of(entry) for leaf in _lost(source, queued, promised)
            }
            if not lost:
                return lost
    return lost


def _lost_words(replica: Replica, lost: Sequence[PartName], names: Sequence[str]) -> str:
    first = lost[0]
    more = f" (and {len(lost) - 1} more parts)" if len(lost) > 1 else ""
    node = replica.table.replica("<replica>").part(first)
    return (
        f"{first}{more} is lost: no replica ({', '.join(names)}) has it, or what it could be made "
        "of. If there is a copy, in detached/ of a replica or in a backup, put it into the table's "
        f"directory on one of them under the name {first} and create {node} in ZooKeeper; else "
        "insert its rows again. When all replicas are active it becomes an empty part, and "
        "nothing waits for it any more (system.lost_parts)"
    )
