"""Recognizing replacements that were requested here and left nothing to do: carrying out their log
entry (`work.replace`) would change nothing.
"""

from collections.abc import Collection

from rmt_pipeline.protocol.log.entry import partitions_about
from rmt_pipeline.protocol.parts.name import PartName, drop_range
from rmt_pipeline.replica.forget import what_to_forget
from rmt_pipeline.replica.quorum import read_quorums
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.snapshot import sweep_snapshot


def settled_ones(replica: Replica, ranges: Collection[PartName]) -> frozenset[PartName]:
    """Those of these ranges of which nothing is left: no part, queue entry or directory, and no id,
    record or quorum of what was in any of them. The ranges were emptied by the multis that wrote
    their entries. A range that stands for no blocks is always settled.

    If this replica has been cloned since, from one that has yet to read these entries, it has got
    everything back: then there are parts, or entries that bring them. Otherwise nothing comes back
    into a settled range. Its queue entries went with its parts, and later entries have greater
    numbers. So only a worker that has begun already can still make a directory inside, and it
    removes that itself, or the next start does, as after any drop.

    The caller has read the log pointer and `is_lost` before, and asserts them.
    """
    real = [one for one in ranges if one.blocks_count >= 2]
    if not real:
        return frozenset(ranges)
    snapshot = sweep_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    queued = frozenset[str]().union(
        *(partitions_about(entry) for entry in snapshot.entries.values())
    )
    there = [one for one in real if any(map(one.contains, snapshot.parts.names(one.partition)))]
    busy = frozenset([*there, *(one for one in real if one.partition in queued)])
    quorums = read_quorums(replica)
    ends = [drop_range(one.partition, one.block_max) for one in real]
    if any(quorums.without(one) for one in real) or what_to_forget(replica, ends):
        return frozenset(ranges).difference(real)
    return frozenset(ranges) - busy - are_on_disk(replica, real)


def are_on_disk(replica: Replica, dropped: Collection[PartName]) -> frozenset[PartName]:
    """Those of these ranges, or parts, in which any part has a directory on this disk, promised or
    not.
    """
    prefixes = tuple({f"{one.partition}_" for one in dropped})
    names = (one for one in replica.store.names() if one.startswith(prefixes))
    parts = [part for one in names if (part := PartName.try_parse(one)) is not None]
    return frozenset(one for one in dropped if any(map(one.contains, parts)))
