"""Whether a clean-up that found nothing would find something now: told by what a few nodes count,
read of many tables in one request, and by the names in the table's directory.

What a clean-up finds depends on what is in ZooKeeper and on the disk, and on time only as long as
something waits to grow old. Ids of blocks and inserts do not: the newest of them is their "now".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.clean_up import CleanedUp, CleanUpPlan
from rmt_pipeline.zookeeper.keeper import Stat
from rmt_pipeline.zookeeper.known import NodeCounts, node_counts

Read = tuple[bytes, Stat] | None


def nodes_to_read(replica: Replica) -> tuple[str, ...]:
    """Each counts what a clean-up looks at, or is changed with it."""
    table, own = replica.table, replica.paths
    return (
        table.log,
        table.mutations,
        own.attempts,
        table.quorum_parallel,
        table.quorum_failed_parts,
        table.quorum_status,
        own.is_lost,
        own.parts,
        table.blocks,
        table.inserts,
        table.replicas,
        table.restoring,
    )


@dataclass(frozen=True, slots=True)
class Settled:
    """A table in which nothing is to be cleaned, and nothing grows old, until this changes."""

    nodes: tuple[NodeCounts | None, ...]
    names: int
    """Of the names in its directory, in no order."""
    settings: TableSettings
    """They say how much is kept; no node tells when they are altered."""

    @classmethod
    def now(cls, replica: Replica, reads: Sequence[Read]) -> "Settled":
        """As it was when the nodes were read."""
        return cls(
            tuple(map(node_counts, reads)), hash(replica.store.names()), replica.settings
        )


def is_settled(
    replica: Replica, reads: Sequence[Read], plan: CleanUpPlan, done: CleanedUp
) -> bool:
    """Whether the next clean-up would find nothing either, if nothing changes: of one whose nodes
    were read before it.

    What others hold up counts as waiting: a log longer than is kept, because somebody has not
    copied it; mutations that somebody has not finished; attempts, of which a lost part may come.
    """
    log, mutations, attempts, parallel, failed, status, is_lost, parts, *_ = reads
    if done != CleanedUp() or plan.parts.kept or log is None or parts is None:
        return False
    settings, store = replica.settings, replica.store
    keep = settings.finished_mutations_to_keep
    return not (
        log[1].children_count > settings.min_replicated_logs_to_keep
        or (keep and mutations is not None and mutations[1].children_count > keep)
        or any(
            one is not None and one[1].children_count for one in (attempts, parallel, failed)
        )
        or status is not None
        or is_lost is None
        or is_lost[0] == b"1"
        or len(store.parts()) != parts[1].children_count  # in flight, or left by who died
        or store.staged()
        or store.drops.ranges()
    )
