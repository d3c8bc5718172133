"""`execute_merges_on_single_replica_time_threshold`: one replica merges, and the others fetch its
result; if it has not made it in time, every replica merges (spec §5.3.6).
"""

from collections.abc import Iterable

from rmt_pipeline.protocol.log.entry import LogEntry, MergeParts
from rmt_pipeline.protocol.merges.picker import chosen_replica
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.snapshot import living_replicas

ACTIVE_VALID_S = 3.0  # how long a list of active replicas is believed


def merger_elsewhere(replica: Replica, entry: MergeParts) -> str | None:
    """The other replica that was chosen to carry out this merge; None if it is done here."""
    threshold_s = replica.settings.execute_merges_on_single_replica_time_threshold
    if not threshold_s or replica.clock.now_s() - entry.create_time >= threshold_s:
        return None
    chosen = chosen_replica(_active(replica), replica.name, replica.table.root, entry.result)
    return None if chosen == replica.name else chosen


def merges_awaited(replica: Replica, entries: Iterable[LogEntry]) -> dict[PartName, str]:
    """Results that another replica was chosen to merge and has not published yet, each with that
    replica.
    """
    if not replica.settings.execute_merges_on_single_replica_time_threshold:
        return {}
    elsewhere = {
        entry.result: chosen
        for entry in entries
        if isinstance(entry, MergeParts)
        and (chosen := merger_elsewhere(replica, entry)) is not None
    }
    stats = replica.keeper.exists_many(
        [replica.table.replica(name).part(result) for result, name in elsewhere.items()]
    )
    return {
        result: name
        for (result, name), stat in zip(elsewhere.items(), stats, strict=True)
        if stat is None
    }


def _active(replica: Replica) -> tuple[str, ...]:
    known, now_s = replica.memory.active, replica.clock.monotonic_s()
    if known is None or now_s - known[0] > ACTIVE_VALID_S:
        living = living_replicas(replica.keeper, replica.table)
        known = now_s, tuple(name for name, active in living.items() if active)
        replica.memory.active = known
    return known[1]
