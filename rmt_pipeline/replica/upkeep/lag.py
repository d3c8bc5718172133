"""How far a replica is behind the others."""

from typing import NamedTuple

from rmt_pipeline.protocol.log.entry import AttachPart, GetPart
from rmt_pipeline.protocol.nodes.formats import number_of
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Refused
from rmt_pipeline.zookeeper.paths import sequence_number
from rmt_pipeline.zookeeper.snapshot import gone, queued_entries


class Lag(NamedTuple):
    """How far a replica is behind."""

    entries: int
    """How many log entries it has not copied into its queue."""
    seconds: float
    """The age of the oldest log entry that it has not copied, or of the oldest part in its queue
    that it has yet to get from another replica; 0 if there is neither.
    """


def lag_of(replica: Replica) -> Lag:
    """Return how far this replica is behind now, which takes a few reads. Raises ReplicaDropped."""
    keeper, now_s = replica.keeper, replica.clock.now_s()
    try:
        pointer = number_of(keeper.get(replica.paths.log_pointer)[0])
        names = keeper.children(replica.table.log)
    except Refused as refused:
        raise gone(replica.paths) from refused
    behind = sorted(name for name in names if sequence_number(name) >= pointer)
    stat = keeper.exists(replica.table.log_entry(behind[0])) if behind else None
    since = [] if stat is None else [stat.created_ms / 1000]
    queued = queued_entries(keeper, replica.paths, replica.memory.queue).values()
    since += [one.create_time for one in queued if isinstance(one, GetPart | AttachPart)]
    return Lag(len(behind), max([0.0, *(now_s - one for one in since)]))
