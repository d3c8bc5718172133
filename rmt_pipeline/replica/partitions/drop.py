"""DROP PARTITION, DROP PART and TRUNCATE, asked for: decided, in the log, and waited for (§9.2).

    a number in each partition ──► inserts below it cancelled ──► one multi: the entries, ids and
    records of what is dropped forgotten, the numbers given back ──► waited

What the replicas then do is `work.drop`. Why nothing is dropped that was inserted later, and
nothing that was inserted before comes back:

1. The delimiter N is greater than every number that was taken before it. Whoever holds a smaller
   one is in the log before the drop (then it is dropped), or never: an insert has lost its lock by
   then, and deleting that lock is part of its commit; another command on partitions asserts the
   version of `alter_partition_version`, which the drop changes. So no entry after the drop makes
   anything in its range, and what an entry before it makes is taken from the queue when the drop
   is carried out.
2. While N is held no merge is assigned across it, and after that a merge is assigned by whoever has
   seen the drop. So no part has both blocks that are dropped and later ones.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Conflict,
    OutcomeUnknown,
    ReplicaRetired,
    TableIsReadOnly,
    Unavailable,
    UserError,
)
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import DropPart, DropRange
from rmt_pipeline.protocol.parts.name import PartName, drop_range
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import merge_view
from rmt_pipeline.replica.forget import what_to_forget_at_once
from rmt_pipeline.replica.mutations.mutations import release_numbers, take_numbers
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.wait import wait_as_asked_for
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import op_bytes
from rmt_pipeline.zookeeper.keeper import Op, RefusalKind, Refused
from rmt_pipeline.zookeeper.partition_transactions import (
    LoggedDrop,
    cancel_insert,
    submit_drops,
)
from rmt_pipeline.zookeeper.paths import log_entry_name, sequence_number
from rmt_pipeline.zookeeper.snapshot import gone

SETTLE_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0)  # while ZooKeeper does not answer

Living = Callable[[], Replica]
"""A Replica with a living session."""


class BadPartition(UserError):
    """What was given is no partition's id, as `system.parts` shows it in `partition_id`. Nothing
    was changed.
    """

    code = "INVALID_PARTITION_VALUE"


class NoSuchPart(UserError):
    """The replica has no active part of this name. It may be merged into another one: see
    `system.parts`.
    """

    code = "NO_SUCH_DATA_PART"


class PartIsLocked(Conflict):
    """Something is being made of the part, or it waits for something. Nothing was changed."""

    code = "PART_IS_TEMPORARILY_LOCKED"


class CannotAssignDrop(Conflict):
    """Other commands on partitions were faster, again and again. Nothing was changed."""

    code = "CANNOT_ASSIGN_ALTER"


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry that is in the log: its node's path, its text, and what it drops."""

    path: str
    data: bytes
    dropped: PartName


def drop_partitions(
    living: Living,
    partitions: Sequence[str] | None,
    query: QuerySettings,
    new_waker: Callable[[], Waker],
    *,
    detach: bool = False,
) -> tuple[PartName, ...]:
    """Drop everything in these partitions, by id, on every replica; None: in all there are. What
    was dropped; a partition that never had a row is not among it.

    Waits as `alter_sync` says. As many partitions as fit into a multi go at one moment. Raises
    BadPartition, TableIsReadOnly, CannotAssignDrop, OutcomeUnknown; Unfinished when waiting ended
    first.
    """
    for one in partitions or ():
        require_partition(one, "dropped")
    replica = living()
    there = replica.keeper.children(replica.table.block_numbers)
    wanted = there if partitions is None else sorted(set(there).intersection(partitions))
    logged: list[Logged] = []
    for start in range(0, len(wanted), limits.DROPS_PER_MULTI_MAX):
        logged += _drop(
            living, wanted[start : start + limits.DROPS_PER_MULTI_MAX], detach=detach
        )
    wait_as_asked_for(living, [(one.path, one.data) for one in logged], query, new_waker())
    return tuple(one.dropped for one in logged)


def require_partition(partition: str, verb: str) -> None:
    """Raises BadPartition unless the text can be a partition's id. `verb` is what was not done with
    it.
    """
    if PartName.try_parse(f"{partition}_0_0_0") is None:
        raise BadPartition(
            f"{partition!r} is not the id of a partition, as system.parts shows it in "
            f"partition_id. Nothing was {verb}"
        )


def drop_part(
    living: Living,
    part: PartName,
    query: QuerySettings,
    new_waker: Callable[[], Waker],
    *,
    detach: bool = False,
) -> None:
    """Drop the active part of exactly this name (spec §9.4). As `drop_partitions` otherwise.

    Raises NoSuchPart; PartIsLocked when a merge or mutation has it, or is going to.
    """
    for _ in range(limits.DROP_ROUNDS_MAX):
        logged = _drop_one(living, part, detach=detach)
        if logged is not None:
            wait_as_asked_for(living, [(logged.path, logged.data)], query, new_waker())
            return
    raise others_first(living())


# --- ranges -----------------------------------------------------------------------------------


def _drop(living: Living, partitions: Sequence[str], *, detach: bool) -> list[Logged]:
    for _ in range(limits.DROP_ROUNDS_MAX):
        replica = living()
        version = partition_version(replica)
        locks = take_numbers(replica, partitions, replica.new_holder())
        try:
            ranges = {
                lock: drop_range(partition, sequence_number(lock))
                for partition, lock in locks.items()
                if sequence_number(lock) > 0
            }
            logged = _drop_ranges(living, replica, ranges, version, detach=detach)
        except BaseException:
            release_numbers(replica, list(locks.values()))
            raise
        release_numbers(replica, [lock for lock in locks.values() if lock not in ranges])
        if logged is not None:
            return logged
        release_numbers(replica, list(ranges))
    raise others_first(living())


def _drop_ranges(
    living: Living,
    replica: Replica,
    ranges: dict[str, PartName],
    version: int,
    *,
    detach: bool,
) -> list[Logged] | None:
    """`ranges` by the lock that ends each. None when another command came first."""
    cancel_inserts(replica, ranges.values())
    drops = [
        LoggedDrop(
            encode(
                DropRange(
                    create_time=int(replica.clock.now_s()),
                    source_replica=replica.name,
                    entry_id=replica.new_entry_id(),
                    range=part_range,
                    detach=detach,
                )
            ),
            lock,
        )
        for lock, part_range in ranges.items()
    ]
    if not drops:
        return []
    ops = with_forgetting(
        replica,
        submit_drops(replica.table, replica.paths, drops, version=version),
        ranges.values(),
    )
    paths = submit(living, replica, ops, [drop.entry for drop in drops], drops[0].lock)
    if paths is None:
        return None
    return [
        Logged(path, drop.entry, part_range)
        for path, drop, part_range in zip(paths, drops, ranges.values(), strict=True)
    ]


def partition_version(replica: Replica) -> int:
    """What commands on partitions compare and set. Raises ReplicaDropped."""
    stat = replica.keeper.exists(replica.table.alter_partition_version)
    if stat is None:
        raise gone(replica.paths)
    return stat.version


def cancel_inserts(
    replica: Replica, ranges: Collection[PartName], own: Collection[str] = ()
) -> None:
    """Afterwards no insert with a number in the ranges is in flight: it is in the log, or it will
    never be. The caller's `own` locks are no insert's. Raises Unavailable: then some were
    cancelled, which is all that was changed.
    """
    keeper, table = replica.keeper, replica.table
    listed = keeper.children_many([table.partition(one.partition) for one in ranges])
    held = [
        path
        for one, names in zip(ranges, listed, strict=True)
        for name in names or ()
        if sequence_number(name) <= one.block_max
        if (path := f"{table.partition(one.partition)}/{name}") not in own
    ]
    inserts = table.insert_lock_data("").strip()
    locks = [
        path
        for path, read in zip(held, keeper.get_many(held), strict=True)
        if read is not None and read[0].startswith(inserts)
    ]
    for result in keeper.multi_many([cancel_insert(lock) for lock in locks]):
        if isinstance(result, OutcomeUnknown):
            raise Unavailable(
                f"{replica}: ZooKeeper did not answer when inserts in flight were cancelled; "
                "nothing was dropped, try again"
            ) from result
        if isinstance(result, Exception) and not isinstance(result, Refused):
            raise result


def with_forgetting(
    replica: Replica, ops: Sequence[Op], dropped: Collection[PartName]
) -> Sequence[Op]:
    """The operations, and behind them those that remove the ids and records of the dropped rows, as
    far as they fit into the same multi. What does not fit is removed by the replica that carries
    the entry out (`work.drop`).
    """
    left = limits.MULTI_BYTES_MAX - sum(map(op_bytes, ops))
    return [*ops, *what_to_forget_at_once(replica, dropped, left)]


# --- one part ---------------------------------------------------------------------------------


def _drop_one(living: Living, part: PartName, *, detach: bool) -> Logged | None:
    """None when something was assigned to the log meanwhile."""
    replica = living()
    view = merge_view(replica, [part.partition])
    if part not in view.active:
        covering = view.active.containing(part)
        hint = f"; it became part of {covering}" if covering is not None else ""
        raise NoSuchPart(
            f"{replica} has no active part {part}{hint}; system.parts shows which are active"
        )
    refusal = view.predicate.may_merge_one(part)
    if refusal is not None:
        raise PartIsLocked(
            f"{replica}: {part} can't be dropped now: {refusal.reason}. Try again"
        )
    entry = encode(
        DropPart(
            create_time=int(replica.clock.now_s()),
            source_replica=replica.name,
            entry_id=replica.new_entry_id(),
            part=part,
            detach=detach,
        )
    )
    ops = transactions.assign(
        replica.table,
        replica.paths,
        [entry],
        log_version=view.predicate.log_version,
        is_lost_version=view.is_lost_version,
    )
    paths = submit(living, replica, with_forgetting(replica, ops, [part]), [entry], "")
    return None if paths is None else Logged(paths[0], entry, part)


# --- into the log -----------------------------------------------------------------------------


def submit(
    living: Living,
    replica: Replica,
    ops: Sequence[Op],
    entries: Sequence[bytes],
    lock: str,
    *,
    begin: int | None = None,
) -> list[str] | None:
    """The paths of these entries, once they are in the log. None when something came first: look
    again. `lock` goes in the same multi; "" when none does. `begin`: a number that the log's next
    entry had when somebody looked; None: it is asked for.
    """
    if begin is None:
        _, log = replica.keeper.children_stat(replica.table.log)
        begin = log.next_sequence
    try:
        created = replica.keeper.multi(ops)
    except Refused as refused:
        if refused.path == replica.paths.is_active:
            raise TableIsReadOnly(
                f"{replica} is not active, so it takes no commands; start its server with "
                "`rmt serve`"
            ) from refused
        if refused.kind in (RefusalKind.BAD_VERSION, RefusalKind.NO_NODE):
            return None
        raise
    except OutcomeUnknown:
        return _settled(living, replica, entries, lock, begin)
    return [path for path in created if path.startswith(replica.table.log_prefix)]


def _settled(
    living: Living, replica: Replica, entries: Sequence[bytes], lock: str, begin: int
) -> list[str] | None:
    """Of a multi without an answer: the paths; None when it has not landed and never will."""
    for pause_s in SETTLE_PAUSES_S:
        try:
            return _find(living(), entries, lock, begin)
        except (ReplicaRetired, Unavailable):
            replica.clock.sleep_s(pause_s)
        except OutcomeUnknown as unknown:
            if isinstance(unknown, _CannotTell):
                raise
            replica.clock.sleep_s(pause_s)
    raise _CannotTell(
        f"{replica}: whether it is in the log is not known: ZooKeeper did not answer "
        f"{len(SETTLE_PAUSES_S)} times. {_LOOK}"
    )


_LOOK = (
    "system.parts and system.replication_queue show whether it was; say it again if it was not"
)


class _CannotTell(OutcomeUnknown):
    code = "UNKNOWN_STATUS_OF_TRANSACTION"


def _find(
    replica: Replica, entries: Sequence[bytes], lock: str, begin: int
) -> list[str] | None:
    """The write that excludes the multi comes first: it deletes the same lock; or, of one without a
    lock, it moves the version of the log that it asserts.
    """
    keeper, table = replica.keeper, replica.table
    try:
        keeper.multi(
            transactions.release_locks([lock]) if lock else transactions.bump_log(table)
        )
    except Refused:
        pass
    else:
        if lock:
            return None
    keeper.sync(table.root)
    names, log = keeper.children_stat(table.log)
    new = [name for name in names if sequence_number(name) >= begin]
    reads = keeper.get_many([table.log_entry(name) for name in new])
    by_text = {
        read[0]: table.log_entry(name)
        for name, read in zip(new, reads, strict=True)
        if read is not None
    }
    if all(entry in by_text for entry in entries):
        return [by_text[entry] for entry in entries]
    if len(by_text) == log.next_sequence - begin:
        return None  # every entry since is there, and these are not
    raise _CannotTell(
        f"{replica}: whether it is in the log is not known: entries since "
        f"{log_entry_name(begin)} were removed from it before there was an answer. {_LOOK}"
    )


def perhaps_another(replica: Replica) -> Unavailable:
    """What to raise when a command can't try again: its parts have kept their names."""
    return Unavailable(
        f"{replica}: other commands came first, and there is no answer from ZooKeeper to whether "
        "it is still the same table. Nothing was changed; try again"
    )


def others_first(replica: Replica) -> CannotAssignDrop:
    """What to raise when the log moved each time that a command tried to write to it."""
    return CannotAssignDrop(
        f"{replica}: other commands on partitions, merges or mutations came first "
        f"{limits.DROP_ROUNDS_MAX} times. Nothing was changed; try again"
    )
