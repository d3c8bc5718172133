"""OPTIMIZE TABLE: assign the merges that it asks for, and wait for them (spec §6.7)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import (
    CannotAssignOptimize,
    NoSuchColumn,
    Timeout,
    UserError,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.partition_order import order_of_optimize
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    Nothing,
    optimize_partition,
    select_and_assign,
)
from rmt_pipeline.replica.replica import Replica, not_active
from rmt_pipeline.replica.sync import SyncMode, sync_replica
from rmt_pipeline.replica.wait import wait_as_asked_for
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.snapshot import active_parts

QUEUE_WAITS_MAX = 10
PARTITIONS_SHOWN_MAX = 10


class KeyLeftOut(UserError):
    """DEDUPLICATE BY leaves out a column of a key."""

    code = "THERE_IS_NO_COLUMN"


class CleanupRefused(UserError):
    """OPTIMIZE … CLEANUP of a table that does not permit it."""

    code = "SUPPORT_IS_DISABLED"


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
    """What OPTIMIZE asks for. `partition` is an id, None for all. An empty `deduplicate_by` means
    all columns.
    """

    partition: str | None
    final: bool
    deduplicate: bool
    deduplicate_by: tuple[str, ...]
    cleanup: bool = False


def optimize(
    living: Callable[[], Replica],
    wanted: OptimizeRequest,
    query: QuerySettings,
    new_waker: Callable[[], Waker],
) -> list[PartName]:
    """Assign the merges; returns the parts that they make. Waits as `alter_sync` says.

    `living` returns a Replica with a living session. Raises CannotAssignOptimize with the reasons
    if in some partition nothing was assigned and `optimize_throw_if_noop` is set: merges that were
    assigned in others stay in the log, and are not waited for. Raises NoSuchColumn and KeyLeftOut
    for a `deduplicate_by` that can't be, CleanupRefused for a `cleanup`; TableIsReadOnly;
    Unfinished if waiting ended first.
    """
    replica = living()
    if wanted.cleanup:
        _check_cleanup(wanted, replica)
    if wanted.deduplicate_by:
        _check_columns(wanted.deduplicate_by, replica.definition)
    if replica.keeper.exists(replica.paths.is_active) is None:
        raise not_active(replica, "it assigns no merges")
    if wanted.partition is None and not wanted.final:
        outcome = select_and_assign(
            living(),
            aggressive=True,
            deduplicate=wanted.deduplicate,
            deduplicate_by=wanted.deduplicate_by,
        )
        outcomes = [outcome]
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
    """The message for a partition that never had a row on any replica; "" for other partitions. A
    partition gets a node with its first block, and keeps it for good.
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
    return order_of_optimize(sorted({part.partition for part in parts}))


def _check_columns(by: tuple[str, ...], definition: TableDefinition) -> None:
    """Raises NoSuchColumn for an unknown column, KeyLeftOut if a column of a key is missing. Rows
    that differ in a key are no duplicates; a merge that ignored a key could never be made, and its
    entry would stay in every queue.
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


def _check_cleanup(wanted: OptimizeRequest, replica: Replica) -> None:
    """Raises CannotAssignOptimize for an engine that knows no deleted rows, CleanupRefused where
    the table does not permit it.
    """
    definition = replica.definition
    if definition.engine.kind != "ReplacingMergeTree":
        raise CannotAssignOptimize(
            "CLEANUP takes away rows that are marked as deleted, which ReplacingMergeTree has: "
            f"{definition.full_name} is a {definition.engine.kind}"
        )
    if not wanted.final:
        raise CleanupRefused("CLEANUP needs FINAL: older versions may be in other parts")
    if not replica.settings.allow_experimental_replacing_merge_with_cleanup:
        raise CleanupRefused(
            "CLEANUP is switched off: an older version of a row that comes after it is read again. "
            "The table's setting allow_experimental_replacing_merge_with_cleanup = 1 permits it"
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
    """Assign the merge of one partition. While a running merge or insert is in the way, wait for
    the queue and try again. The waits of all partitions end at `deadline_s`.
    """
    outcome: Assigned | Nothing = Nothing("not tried")
    for waits in range(QUEUE_WAITS_MAX + 1):
        if waits:
            left_s = max(0.0, deadline_s - living().clock.monotonic_s())
            with suppress(
                Timeout
            ):  # the obstacle may be gone although the queue has other entries
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
            cleanup=wanted.cleanup,
        )
        if isinstance(outcome, Assigned) or not outcome.changed:
            break
    return outcome
