"""Queue entries that need no work any more: their part is here already (spec §5.1.2)."""

from collections.abc import Sequence

from rmt_pipeline.protocol import limits
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Refused


def finish_entries(replica: Replica, nodes: Sequence[str]) -> None:
    """Delete them. Somebody else may have done it to some: then one by one.

    Raises OutcomeUnknown, ReplicaRetired: the entries that are left are found again.
    """
    paths, keeper = replica.paths, replica.keeper
    for start in range(0, len(nodes), limits.MULTI_OPS_MAX):
        batch = nodes[start : start + limits.MULTI_OPS_MAX]
        multis = [transactions.finish_entry(paths, node) for node in batch]
        try:
            keeper.multi([op for ops in multis for op in ops])
        except Refused:
            for result in keeper.multi_many(multis):
                if isinstance(result, Exception) and not isinstance(result, Refused):
                    raise result from None
