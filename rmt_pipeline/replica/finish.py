"""Finishing queue entries that need no work because their part is here already (spec §5.1.2)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.log.entry import GetPart, LogEntry
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.quorum import awaited_parts, count_us, has_failed
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import refusals
from rmt_pipeline.zookeeper.keeper import Refused
from rmt_pipeline.zookeeper.snapshot import awaiting_quorum


def finish_entries(replica: Replica, entries: Mapping[str, LogEntry]) -> None:
    """Delete these queue nodes. If another process has deleted some of them, the rest are deleted
    one by one. For an entry with a quorum this replica is counted in the same multi.

    Raises OutcomeUnknown, ReplicaRetired: a later look finds the entries that are left.
    """
    awaited = {node: part for node, entry in entries.items() for part in awaited_parts(entry)}
    _finish(replica, [node for node in entries if node not in awaited])
    if awaited and not count_us(replica, frozenset(awaited.values())).ops:
        _finish(replica, list(awaited))  # mostly our own inserts, where we are counted already
        return
    for node, part in awaited.items():
        _finish_awaited(replica, node, part)


def finish_failed(replica: Replica, nowhere: Mapping[str, LogEntry]) -> frozenset[str]:
    """Delete those entries whose part is never to be fetched, because its quorum failed or fails
    now. `nowhere` are the entries whose part no active replica has. Returns the queue nodes that
    were deleted. Raises what `finish_entries` raises.
    """
    wanted = {node: one.part for node, one in nowhere.items() if isinstance(one, GetPart)}
    awaiting = awaiting_quorum(replica.keeper, replica.table) if wanted else frozenset()
    failed = [
        node for node, part in wanted.items() if part in awaiting and has_failed(replica, part)
    ]
    _finish(replica, failed)
    return frozenset(failed)


def _finish(replica: Replica, nodes: Sequence[str]) -> None:
    paths, keeper = replica.paths, replica.keeper
    for start in range(0, len(nodes), limits.MULTI_OPS_MAX):
        batch = nodes[start : start + limits.MULTI_OPS_MAX]
        multis = [transactions.finish_entry(paths, node) for node in batch]
        try:
            keeper.multi([op for ops in multis for op in ops])
        except Refused:
            refusals(keeper, multis)


def _finish_awaited(replica: Replica, node: str, part: PartName) -> None:
    """Finish an entry whose part an insert with a quorum may be waiting for: this replica has its
    rows in a larger part, and is counted for it.
    """
    for _ in range(limits.PUBLISH_ROUNDS_MAX):
        counted = count_us(replica, [part])
        with suppress(Refused):  # another replica counted itself meanwhile: read again
            replica.keeper.multi(
                [*transactions.finish_entry(replica.paths, node), *counted.ops]
            )
            return
        if replica.keeper.exists(replica.paths.queue_entry(node)) is None:
            return
