"""DROP PARTITION, DROP PART and TRUNCATE, on the replica that is asked: from the decision until the
entry is in the log and was waited for (§9.2).

    a block number in each partition ──► inserts below it cancelled ──► one multi: the entries, the
    ids and records of what is dropped forgotten, the numbers given back ──► ids that did not fit
    forgotten ──► waited

How a replica carries the entry out is in `work.drop`. Why nothing is dropped that was inserted
later, and nothing that was inserted before comes back:

1. The delimiter N is greater than every block number that was taken before it. A write that holds a
   smaller number is in the log before the drop (then it is dropped), or never: an insert has lost
   its lock by then, and deleting that lock is part of its commit; another command on partitions
   asserts the version of `alter_partition_version`, which the drop changes. So no entry after the
   drop makes anything in its range, and what an entry before it makes is taken from the queue when
   the drop is carried out.
2. While N is held no merge is assigned across it, and later a merge is only assigned by a replica
   that has seen the drop. So no part has both blocks that are dropped and later ones.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Conflict,
    NoNextSession,
    OutcomeUnknown,
    ReplicaRetired,
    RmtError,
    Unavailable,
    Unfinished,
    UserError,
)
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import DropPart, DropRange
from rmt_pipeline.protocol.parts.name import PartName, drop_range
from rmt_pipeline.protocol.parts.partition_order import order_of_truncate
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import MergeView, merge_view
from rmt_pipeline.replica.forget import blocks_beside
from rmt_pipeline.replica.insert.insert import ensure_partitions
from rmt_pipeline.replica.mutations.mutations import release_numbers, take_numbers
from rmt_pipeline.replica.partitions.ids_left import forget_what_is_left, with_forgetting
from rmt_pipeline.replica.partitions.inside import in_no_part
from rmt_pipeline.replica.replica import Replica, asserting_active
from rmt_pipeline.replica.wait import wait_as_asked_for
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Check, Op, RefusalKind, Refused, SetData
from rmt_pipeline.zookeeper.partition_transactions import (
    LoggedDrop,
    cancel_insert,
    submit_drops,
)
from rmt_pipeline.zookeeper.paths import log_entry_name, sequence_number
from rmt_pipeline.zookeeper.snapshot import gone, sweep_snapshot

# pauses while ZooKeeper does not answer
SETTLE_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0)

Living = Callable[[], Replica]
"""Returns the Replica with a living session."""


class BadPartition(UserError):
    """The given text is not the id of a partition, as `system.parts` shows it in `partition_id`.
    Nothing was changed.
    """

    code = "INVALID_PARTITION_VALUE"


class NoSuchPart(UserError):
    """The replica has no active part of this name. It may have been merged into another one: see
    `system.parts`.
    """

    code = "NO_SUCH_DATA_PART"


class PartIsLocked(Conflict):
    """A merge or mutation of the part is under way or assigned, or the part waits for something.
    Nothing was changed.
    """

    code = "PART_IS_TEMPORARILY_LOCKED"


class CannotAssignDrop(Conflict):
    """Other commands on partitions were faster, again and again. Nothing was changed."""

    code = "CANNOT_ASSIGN_ALTER"


@dataclass(frozen=True, slots=True)
class Logged:
    """A log entry that drops something: its node's path, its text, and the part or range that it
    drops. `left`: what has ids that did not fit into the multi (`ids_left`).
    """

    path: str
    data: bytes
    dropped: PartName
    left: tuple[PartName, ...] = ()


def drop_partitions(
    living: Living,
    partitions: Sequence[str] | None,
    query: QuerySettings,
    new_waker: Callable[[], Waker],
    *,
    detach: bool = False,
) -> tuple[PartName, ...]:
    """Drop everything in the partitions of these ids, on every replica; None means all partitions.
    Return the ranges that were dropped; a partition that never had a row is not among them, though
    the drop takes its first block number (spec §9.2).

    Waits as `alter_sync` says. As many partitions as fit into a multi are dropped at one moment.
    Raises BadPartition, TableIsReadOnly, CannotAssignDrop, OutcomeUnknown; Unfinished if the
    waiting ended first, or only some of so many partitions are dropped.
    """
    for one in partitions or ():
        require_partition(one, "dropped")
    replica = living()
    there = replica.keeper.children(replica.table.block_numbers)
    wanted = order_of_truncate(there) if partitions is None else sorted(set(partitions))
    new = set(wanted).difference(there)
    if new or not wanted:
        _require_writable(replica)
    if new:
        ensure_partitions(replica, new)
    logged: list[Logged] = []
    problem: RmtError | None = None
    for start in range(0, len(wanted), limits.DROPS_PER_MULTI_MAX):
        some = wanted[start : start + limits.DROPS_PER_MULTI_MAX]
        try:
            logged += _drop(living, some, detach=detach)
        except RmtError as error:
            if not logged:
                raise
            problem = error
            break
    left = [part for one in logged for part in one.left]
    if problem is not None:
        written = (
            f"the drop of {len(logged)} of {len(wanted)} partitions is in the log and will be "
            f"carried out. Of the others: {problem}"
        )
        forget_what_is_left(living, left, written)
        raise Unfinished(written) from problem
    forget_what_is_left(living, left)
    wait_as_asked_for(living, [(one.path, one.data) for one in logged], query, new_waker())
    return tuple(one.dropped for one in logged)


def _require_writable(replica: Replica) -> None:
    """Raise TableIsReadOnly unless the replica is active, and the one that it was when this process
    began to use it (which each multi asserts). Else what was listed before says nothing: while the
    table is restored from the disks of its replicas it has no partitions yet, and a drop would be
    answered as done although the rows come back.
    """
    with asserting_active(replica, "nothing was dropped"):
        replica.keeper.multi([Check(replica.paths.is_active)])


def require_partition(partition: str, verb: str) -> None:
    """Raise BadPartition unless the text can be the id of a partition. `verb` tells in the error
    what was not done with it.
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
    """Drop the active part of exactly this name (spec §9.4); otherwise like `drop_partitions`.

    Raises NoSuchPart; PartIsLocked if a merge or mutation takes the part, or is going to.
    """
    for _ in range(limits.DROP_ROUNDS_MAX):
        logged = _drop_one(living, part, detach=detach)
        if logged is not None:
            forget_what_is_left(living, logged.left)
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
    """Write the entries of these ranges to the log; `ranges` are keyed by the lock that ends each.
    None if another command on partitions came first.
    """
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
    ops, fit = with_forgetting(
        replica,
        submit_drops(replica.table, replica.paths, drops, version=version),
        ranges.values(),
    )
    paths = submit(living, replica, ops, [drop.entry for drop in drops], drops[0].lock)
    if paths is None:
        return None
    return [
        Logged(path, drop.entry, part_range, () if fit else (part_range,))
        for path, drop, part_range in zip(paths, drops, ranges.values(), strict=True)
    ]


def partition_version(replica: Replica) -> int:
    """Return the version that every command on partitions asserts and changes. Raises
    ReplicaDropped.
    """
    stat = replica.keeper.exists(replica.table.alter_partition_version)
    if stat is None:
        raise gone(replica.paths)
    return stat.version


def cancel_inserts(
    replica: Replica, ranges: Collection[PartName], own: Collection[str] = ()
) -> None:
    """Make sure that no insert with a block number in the ranges is in flight: afterwards it is in
    the log, or never will be. The caller's `own` locks are no insert's. Raises Unavailable: then
    some inserts were cancelled, and nothing else was changed.
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


# --- one part ---------------------------------------------------------------------------------


def _drop_one(living: Living, part: PartName, *, detach: bool) -> Logged | None:
    """Write the entry that drops one part to the log; None if a merge or mutation was assigned
    meanwhile.
    """
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
    ops.append(SetData(replica.table.alter_partition_version))  # see `nothing_to_drop`
    dropped = (part, *_gone_beside(replica, view, part))
    ops, fit = with_forgetting(replica, ops, dropped)
    paths = submit(living, replica, ops, [entry], "")
    return None if paths is None else Logged(paths[0], entry, part, () if fit else dropped)


def _gone_beside(replica: Replica, view: MergeView, part: PartName) -> list[PartName]:
    """The blocks that were dropped before, of inserts which have others in this part. A record
    keeps the lines of blocks that are dropped one by one until the last of them goes: if this is
    the last one, nothing is left of the insert's rows in the partition.

    The multi asserts the view's version of the log, so that none of these blocks is about to come.
    A replica that carries the entry out looks again (`work.drop`).
    """
    beside = blocks_beside(replica, part)
    if not beside:
        return []
    queue = sweep_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    return in_no_part(beside, (view.active, view.predicate.virtual), queue.entries.values())


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
    """Send the multi and return the paths of these entries, once they are in the log. None if
    another command came first: the caller looks again. `lock` is deleted by the same multi; "" when
    it deletes none. `begin` is a number that the log's next entry had at some time before; None: it
    is read here.
    """
    if begin is None:
        _, log = replica.keeper.children_stat(replica.table.log)
        begin = log.next_sequence
    try:
        with asserting_active(replica, "it takes no commands"):
            created = replica.keeper.multi(ops)
    except Refused as refused:
        if refused.kind in (RefusalKind.BAD_VERSION, RefusalKind.NO_NODE):
            return None
        raise
    except OutcomeUnknown:
        return _settled(living, replica, entries, lock, begin)
    return [path for path in created if path.startswith(replica.table.log_prefix)]


def _settled(
    living: Living, replica: Replica, entries: Sequence[bytes], lock: str, begin: int
) -> list[str] | None:
    """Settle a multi that got no answer: return the entries' paths, or None if it did not land and
    never will.
    """
    for pause_s in SETTLE_PAUSES_S:
        try:
            return _find(living(), entries, lock, begin)
        except NoNextSession:
            break
        except (ReplicaRetired, Unavailable):
            replica.clock.sleep_s(pause_s)
        except OutcomeUnknown as unknown:
            if isinstance(unknown, _CannotTell):
                raise
            replica.clock.sleep_s(pause_s)
    raise _CannotTell(
        f"{replica}: whether it is in the log is not known: ZooKeeper did not answer. {_LOOK}"
    )


_LOOK = "system.parts and system.replication_queue show whether it was; repeat it if it was not"


class _CannotTell(OutcomeUnknown):
    code = "UNKNOWN_STATUS_OF_TRANSACTION"


def _find(
    replica: Replica, entries: Sequence[bytes], lock: str, begin: int
) -> list[str] | None:
    """Find the entries in the log. First comes a write that excludes the multi: it deletes the same
    lock, or, if there is no lock, changes the version of the log that the multi asserts. Also if it
    is refused, the server that answers has seen all that was written before. Raises _CannotTell if
    entries were removed from the log since.
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
        return None  # every entry since then is still there, and ours are not among them
    raise _CannotTell(
        f"{replica}: whether it is in the log is not known: entries since "
        f"{log_entry_name(begin)} were removed from it before there was an answer. {_LOOK}"
    )


def perhaps_another(replica: Replica) -> Unavailable:
    """Return the error for a command that can't try again, because the parts that it published
    could not be taken back.
    """
    return Unavailable(
        f"{replica}: other commands came first, and there is no answer from ZooKeeper to whether "
        "it is still the same table. Nothing was changed; try again"
    )


def others_first(replica: Replica) -> CannotAssignDrop:
    """Return the error for a command before which another one changed the log or the partitions
    each time that it tried.
    """
    return CannotAssignDrop(
        f"{replica}: other commands on partitions, merges or mutations came first "
        f"{limits.DROP_ROUNDS_MAX} times. Nothing was changed; try again"
    )
