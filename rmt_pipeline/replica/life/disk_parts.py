"""What is on the disk of a replica whose nodes ZooKeeper has lost (spec §11.6)."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.restoring import outermost
from rmt_pipeline.replica.insert.record import noted_records
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.manifest import Manifest

# pauses before a part that the disk could not read is looked at again
LOOK_AGAIN_AFTER_S = (1.0, 5.0)


@dataclass(frozen=True, slots=True)
class DiskParts:
    """What the disk of one replica has. `parts`: the maximal ones, which have the table's rows.
    `promised`: these, and the parts that they cover, which clean-up removes in its time. `small`:
    those of the promised parts that are one block of an insert each; `unseen`: those of the small
    ones that this server never saw promised. `left_out`: parts that are broken, overlap another
    one, or are in no merge that covers them, with the reason.
    `dropped`: ranges that were dropped here. `numbers`: by partition, the greatest number that is
    known here; `mutations`: the greatest number of a mutation, -1 without any. `in_part`: what was
    noted of each commit of inserts that took several commits and are not known to have ended, by
    insert id.
    """

    parts: Mapping[PartName, Manifest]
    promised: Mapping[PartName, Manifest]
    small: Mapping[PartName, Manifest]
    unseen: Collection[PartName]
    left_out: Sequence[tuple[PartName, str]]
    dropped: Sequence[PartName]
    numbers: Mapping[str, int]
    mutations: int
    in_part: Mapping[str, Sequence[InsertRecord]]


def parts_of_disk(replica: Replica) -> DiskParts:
    """Look at the disk. Of two parts that overlap one is left out. Two that are the same block of
    an insert both stay: whether one of them is of a try that died is decided when the table is
    opened, for another disk may know that the other one was dropped.
    """
    store = replica.store
    dropped = store.drops.ranges()
    names = store.parts()
    store.sync_names()  # what is announced has to be there after a crash of the host, too
    numbers: dict[str, int] = defaultdict(lambda: -1)
    for part in (*names, *dropped):
        last = part.block_max if part.is_drop_range else max(part.block_max, part.mutation)
        numbers[part.partition] = max(numbers[part.partition], last)
    kept = [part for part in names if not any(one.contains(part) for one in dropped)]
    manifests, broken = _inspected(replica, kept)
    left_out = [(part, f"it is broken: {error}") for part, error in broken.items()]
    seen = store.marks.active_seen()
    noted = PartSet(() if seen is None else seen.parts)
    small = {part: one for part, one in manifests.items() if one.insert_id}
    unseen = {part for part in small if noted.containing(part) is None}
    maximal, overlapping = outermost(manifests)
    for part, other in overlapping.items():
        del manifests[part]
        left_out.append((part, f"it overlaps {other}, and neither contains the other"))
    for part in sorted(small.keys() & manifests.keys() - set(maximal)):
        if not _is_in(part, maximal.containing(part), manifests):
            del manifests[part]
            left_out.append((part, "merges went across its number: it was never announced"))
    mutations = [int(one) for found in manifests.values() for one in found.mutations]
    return DiskParts(
        parts={part: manifests[part] for part in maximal},
        promised=manifests,
        small={part: one for part, one in small.items() if part in manifests},
        unseen=unseen & manifests.keys(),
        left_out=left_out,
        dropped=dropped,
        numbers=numbers,
        mutations=max(mutations, default=-1),
        in_part=noted_records(replica),
    )


def _is_in(
    part: PartName, covering: PartName | None, manifests: Mapping[PartName, Manifest]
) -> bool:
    """Whether the covering part has the rows of this block, as far as the disk tells. The process
    of an insert may have died when the part had its name and was not announced yet. A merge goes
    across such a number, and names its sources.
    """
    while covering is not None and covering.blocks_count > 1:
        named = map(PartName.try_parse, manifests[covering].sources)
        sources = [one for one in named if one is not None]
        source = next((one for one in sources if one.contains(part)), None)
        if sources and source is None:
            return False
        covering = source if source in manifests else None
    return True


def _inspected(
    replica: Replica, parts: Sequence[PartName]
) -> tuple[dict[PartName, Manifest], dict[PartName, Corruption]]:
    """Return the manifests of these parts, and what is wrong with those that are broken.

    A part that is left out of the restored table may be the only copy of its rows. So one that the
    disk can't read is looked at again after a while: a disk, or a network in front of it, may fail
    for a moment.
    """
    manifests: dict[PartName, Manifest] = {}
    broken: dict[PartName, Corruption] = {}
    todo = parts
    for pause_s in (0.0, *LOOK_AGAIN_AFTER_S):
        if todo and pause_s:
            replica.clock.sleep_s(pause_s)
        for part in todo:
            try:
                manifests[part] = replica.store.inspect(part)
                broken.pop(part, None)
            except Corruption as error:
                broken[part] = error
        todo = [part for part, error in broken.items() if isinstance(error.__cause__, OSError)]
    return {part: manifests[part] for part in parts if part in manifests}, broken
