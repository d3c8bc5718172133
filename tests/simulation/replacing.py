"""Partitions whose rows are replaced, or joined by others, by a simulated client: what REPLACE and
ATTACH PARTITION … FROM, and a backfill, do once their parts are staged.
"""

from collections.abc import Callable, Mapping, Sequence

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import MissingPart
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.partitions.drop import others_first
from rmt_pipeline.replica.partitions.overwrite import PAUSE_S
from rmt_pipeline.replica.partitions.swap import (
    Change,
    Incoming,
    PartitionChanged,
    Wanted,
    swap,
)
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.snapshot import active_parts, awaiting_quorum
from tests.simulation.ledger import Ledger
from tests.support.cluster import Context
from tests.support.sim_rows import stage_rows

Rows = Mapping[str, Sequence[str]]
Action = Callable[[Context], None]


def put(ledger: Ledger, rows: Rows, *, replaces: bool = True) -> Action:
    """All partitions in one commit; with `replaces` whatever was in them goes."""

    def run(context: Context) -> None:
        changes = tuple(
            Change(
                partition, tuple(map(Incoming, staged_rows(context, partition, some))), replaces
            )
            for partition, some in sorted(rows.items())
        )
        swap(context.replica, Wanted(changes))
        ledger.answer(context.process)

    return run


def put_beside(ledger: Ledger, rows: Rows, taken: str) -> Action:
    """A condition: rows that begin with `taken` go, others of the partition stay. As the statement,
    it is not tried while a part waits for its quorum (`from_table.wait_until_here`), and looks
    again when parts go before it holds them (`overwrite`).
    """

    def run(context: Context) -> None:
        for _ in range(limits.DROP_ROUNDS_MAX):
            try:
                return once(context)
            except MissingPart:
                context.clock.sleep_s(PAUSE_S)
        raise others_first(context.replica())

    def once(context: Context) -> None:
        replica = context.replica()
        active = PartSet(active_parts(replica.keeper, replica.paths))
        if awaiting_quorum(replica.keeper, replica.table).intersection(active):
            return
        changes = []
        for partition, some in sorted(rows.items()):
            parts = active.in_partition(partition)
            with context.store.pin(parts):
                there = [row for part in parts for row in context.site.rows(part)]
            kept = [row for row in there if not row.startswith(taken)]
            ledger.taken_out.update(row for row in there if row.startswith(taken))
            staged = staged_rows(context, partition, [*some, *kept])
            changes.append(
                Change(
                    partition,
                    tuple(map(Incoming, staged)),
                    expected=frozenset(parts),
                    rewrites=True,
                )
            )
        try:
            swap(context.replica, Wanted(tuple(changes), keeps_ids=True))
        except PartitionChanged:
            return  # somebody else was there first
        ledger.answer(context.process)

    return run


def staged_rows(context: Context, partition: str, rows: Sequence[str]) -> list[StagedPart]:
    created_s = int(context.clock.now_s())
    if not rows:
        return []
    return [
        stage_rows(
            context.store,
            partition,
            sorted(rows),
            created_s=created_s,
            definition=context.definition,
        )
    ]
