"""OPTIMIZE TABLE: assign the merges that were asked for, and wait for them (spec §6.7)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import (
    CannotAssignOptimize,
    NoSuchColumn,
    TableIsReadOnly,
    Timeout,
    UserError,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    Nothing,
    optimize_partition,
    select_and_assign,
)
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.wait import SyncMode, sync_replica, wait_as_asked_for
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.snapshot import active_parts

QUEUE_WAITS_MAX = 10
PARTITIONS_SHOWN_MAX = 10


class KeyLeftOut(UserError):
    """A column of a key is not among those that make rows equal."""

    code = "THERE_IS_NO_COLUMN"


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
    """`partition` is an id, None for all. `deduplicate_by` () is by all columns."""

    partition: str | None
    final: bool
    deduplicate: bool
    deduplicate_by: tuple[str, ...]


def optimize(
    living: Callable[[], Replica],
    wanted: OptimizeRequest,
    query: QuerySettings,
    new_waker: Callable[[], Waker],
) -> list[PartName]:
    """The parts that the assigned merges make. Waits as `alter_sync` says.

    `living` gives a Replica with a living session. Raises CannotAssignOptimize with the reason if
    nothing was assigned and `optimize_throw_if_noop` is set; NoSuchColumn and KeyLeftOut for what
    rows are to be equal in; TableIsReadOnly; Unfinished when waiting ended first.
    """
    replica = living()
    if wanted.deduplicate_by:
        _check_columns(wanted.deduplicate_by, replica.definition)
    if replica.keeper.exists(replica.paths.is_active) is None:
        raise TableIsReadOnly(
            f"{replica} is not active, so it assigns no merges; start its server with `rmt serve`"
        )
    if wanted.partition is None and not wanted.final:
        outcomes = [select_and_assign(living(), aggressive=True)]
    elif wanted.partition is not None and (unknown := _unknown(living(), wanted.partition)):
        outcomes = [Nothing(unknown)]
    else:
        partitions = [wanted.partition] if wanted.partition is not None else _all(living())
        deadline_s = living().clock.monotonic_s() + query.receive_timeout
        outcomes = [
            _one(living, one, wanted, query, new_waker, deadline_s=deadline_s)
            for one in partitions
        ]
    assigned = [outcome for outcome in outcomes if isinstance(outcome, Assigned)]
    refused = [outcome.reason for outcome in outcomes if isinstance(outcome, Nothing)]
    if refused and query.optimize_throw_if_noop:
        raise CannotAssignOptimize("; ".join(refused))
    entries = [(one.log_entry, one.data) for one in assigned]
    wait_as_asked_for(living, entries, query, new_waker())
    return [one.result for one in assigned]


def _unknown(replica: Replica, partition: str) -> str:
    """What is to be said of a partition that never had a row on any replica; "" for others. It has
    a node from its first block on, for good.
    """
    if not replica.definition.partition_by:
        return ""
    if replica.keeper.exists(replica.table.partition(partition)) is not None:
        return ""
    known = sorted(replica.keeper.children(replica.table.block_numbers))
    there_are = ", ".join(known[:PARTITIONS_SHOWN_MAX]) or "none yet"
    more = f" and {len(known) - PARTITIONS_SHOWN_MAX} more" * (
        len(known) > PARTITIONS_SHOWN_MAX
    )
    return (
        f"{replica.definition.full_name} has no partition with the id {partition}; there are: "
        f"{there_are}{more}"
    )


def _all(replica: Replica) -> list[str]:
    parts = active_parts(replica.keeper, replica.paths)
    return sorted({part.partition for part in parts})


def _check_columns(by: tuple[str, ...], definition: TableDefinition) -> None:
    """Rows that differ in a key are no duplicates; a merge that was to find them by less could
    never be made, and its entry would stay in every queue. Raises NoSuchColumn, KeyLeftOut.
    """
    from rmt_pipeline.translate.expression import compile_expression  # noqa: PLC0415  start-up

    for name in by:
        if definition.column(name) is None:
            known = ", ".join(each.name for each in definition.columns)
            raise NoSuchColumn(f"DEDUPLICATE BY {name}: {definition.full_name} has {known}")
    for text in (*definition.order_by, *definition.partition_by):
        for name in compile_expression(text, definition.columns).columns_used:
            if name not in by:
                raise KeyLeftOut(
                    f"DEDUPLICATE BY {', '.join(by)}: {name} is missing, and "
                    f"{definition.full_name} has {text} in a key: all columns of its keys "
                    "have to be named"
                )


def _one(
    living: Callable[[], Replica],
    partition: str,
    wanted: OptimizeRequest,
    query: QuerySettings,
    new_waker: Callable[[], Waker],
    *,
    deadline_s: float,
) -> Assigned | Nothing:
    """When a running merge or insert is in the way, wait for the queue and try again. The waits of
    all partitions end at `deadline_s`.
    """
    outcome: Assigned | Nothing = Nothing("not tried")
    for waits in range(QUEUE_WAITS_MAX + 1):
        if waits:
            left_s = max(0.0, deadline_s - living().clock.monotonic_s())
            with suppress(
                Timeout
            ):  # what is in the way may be gone, and something else be to do
                sync_replica(
                    living(),
                    SyncMode.DEFAULT,
                    min(left_s, query.receive_timeout / QUEUE_WAITS_MAX),
                    new_waker(),
                )
        outcome = optimize_partition(
            living(),
            partition,
            final=wanted.final,
            skip_merged=query.optimize_skip_merged_partitions,
            deduplicate=wanted.deduplicate,
            deduplicate_by=wanted.deduplicate_by,
        )
        if isinstance(outcome, Assigned) or not outcome.changed:
            break
    return outcome
