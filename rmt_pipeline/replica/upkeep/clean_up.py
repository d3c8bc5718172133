"""Remove what is not needed any more (spec §10): old parts, log entries, ids, staged directories.

`plan_clean_up` decides and can be shown; `carry_out` does it. Two replicas may do it at once: if a
node is gone already, the other one has removed it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import TypeVar

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Corruption, DiskFull, MissingPart, UserError
from rmt_pipeline.protocol.nodes.formats import number_of
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.retention import (
    LogTrim,
    OldPart,
    PartRetention,
    ReplicaLogFacts,
    log_trim,
    outdated_parts,
)
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.replica.insert.report import again_words
from rmt_pipeline.replica.mutations.mutations import clean_mutations
from rmt_pipeline.replica.quorum import clean_quorums
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.attached import AttachedLeft, remove_attached
from rmt_pipeline.replica.upkeep.check import forget_undone_drops, is_idle, look_at_disk
from rmt_pipeline.replica.upkeep.commit_notes import tidy_notes
from rmt_pipeline.replica.upkeep.lost import replace_lost_parts
from rmt_pipeline.replica.upkeep.outdated_ids import OutdatedIds, find_outdated, forget_ids
from rmt_pipeline.replica.upkeep.rewound import (
    ZooKeeperIsOlder,
    require_log_as_seen,
    require_not_restored,
    require_numbers_given_out,
)
from rmt_pipeline.store.part_log import PartEvent
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import refusals
from rmt_pipeline.zookeeper.keeper import Refused, Stat
from rmt_pipeline.zookeeper.known import NodeCounts, node_counts
from rmt_pipeline.zookeeper.paths import log_entry_name, sequence_number
from rmt_pipeline.zookeeper.snapshot import claims_and_parts

INSERTS_SHOWN_MAX = 3
_UNFINISHED = ("attaching", "deleting")  # of a detached part; its process may have died
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class CleanUpPlan:
    """What would be removed, what stays, and why. `leftovers` are directories that are not promised
    any more and that a part here covers: their removal was interrupted. `unexpected` ones are not
    covered: they are set aside, never removed.
    """

    parts: PartRetention
    leftovers: tuple[PartName, ...]
    unexpected: tuple[PartName, ...]
    log: LogTrim
    ids: OutdatedIds
    attempts: tuple[str, ...]
    """Queue nodes that failed before they were carried out: the notes of their failures are not
    needed any more.
    """
    replicas_version: int
    covering: Mapping[PartName, PartName]
    """For each part that is to be removed, the one that covers it."""
    is_lost_version: int
    """The version of this replica's `is_lost` before its parts were looked at: it changes when a
    part is given up.
    """


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """What was removed. `pinned` are old parts that readers held; they go next time."""

    parts: tuple[PartName, ...] = ()
    pinned: tuple[PartName, ...] = ()
    detached: tuple[str, ...] = ()
    log_entries: int = 0
    marked_lost: tuple[str, ...] = ()
    block_ids: int = 0
    insert_ids: int = 0
    inserts_in_part: tuple[tuple[str, InsertRecord], ...] = ()
    attempts: int = 0
    mutations: int = 0
    quorums: int = 0
    lost: tuple[PartName, ...] = ()
    """Parts that no replica had any more: they are empty ones now."""
    directories: tuple[str, ...] = ()
    kept: tuple[PartName, ...] = ()
    """Old parts that are needed again: what covered them was given up since."""
    stopped_because: str = ""

    def words(self) -> str:
        counts = {
            "old parts": len(self.parts),
            "log entries": self.log_entries,
            "block ids": self.block_ids,
            "insert records": self.insert_ids,
            "notes of failures": self.attempts,
            "finished mutations": self.mutations,
            "quorum nodes": self.quorums,
            "staging directories": len(self.directories),
        }
        removed = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        words = f"removed {removed}" if removed else "nothing to remove"
        if self.marked_lost:
            words += f"; marked as lost: {', '.join(self.marked_lost)}"
        if self.lost:
            words += (
                f"; LOST on all replicas, and empty parts now: {', '.join(map(str, self.lost))} "
                "(system.lost_parts says which inserts to repeat)"
            )
        if self.detached:
            words += f"; set aside: {', '.join(self.detached)}"
        if self.pinned:
            words += f"; {len(self.pinned)} old parts are being read and stay"
        if self.kept:
            words += (
                f"; {len(self.kept)} old parts stay: a part of this replica was given up, or the "
                "replica was marked lost, since they were looked at"
            )
        for insert_id, record in self.inserts_in_part[:INSERTS_SHOWN_MAX]:
            words += (
                f"; insert {insert_id}, begun on {record.replica}, is in part: "
                f"{record.rows_there} of {record.rows} rows: {again_words(record)}"
            )
        if len(self.inserts_in_part) > INSERTS_SHOWN_MAX:
            words += (
                f"; {len(self.inserts_in_part) - INSERTS_SHOWN_MAX} more inserts are in part"
            )
        return f"{words}; {self.stopped_because}" if self.stopped_because else words


def plan_clean_up(replica: Replica, *, hysteresis: float = 1.0) -> CleanUpPlan:
    """Look at what a clean-up would remove. `hysteresis` is drawn by the caller from
    retention.HYSTERESIS.

    Raises BeingRestored: what covers a part may be given up when the table is opened. A plan that
    was made before the restore began does no harm: it was for another creation of the replica.
    """
    keeper, settings = replica.keeper, replica.settings
    lost, is_lost = keeper.get(replica.paths.is_lost)
    require_not_restored(replica)
    names, replicas = keeper.children_stat(replica.table.replicas)
    entries = [sequence_number(name) for name in keeper.children(replica.table.log)]
    facts = [facts for name in names if (facts := _log_facts(replica, name)) is not None]
    log = log_trim(
        entries,
        facts,
        keep_min=settings.min_replicated_logs_to_keep,
        keep_max=settings.max_replicated_logs_to_keep,
        hysteresis=hysteresis,
        recovering_pointers=_recovering_pointers(replica, facts),
    )
    parts = PartRetention((), ())
    covering: dict[PartName, PartName] = {}
    leftovers: tuple[PartName, ...] = ()
    unexpected: tuple[PartName, ...] = ()
    if lost != b"1":  # a lost replica is going to be cloned, and the clone decides what stays
        parts, covering = _old_parts(replica)
        leftovers, unexpected = _unpromised(replica)
    return CleanUpPlan(
        parts=parts,
        leftovers=leftovers,
        unexpected=unexpected,
        log=log,
        ids=find_outdated(replica),
        attempts=_finished_attempts(replica),
        replicas_version=replicas.version,
        covering=covering,
        is_lost_version=is_lost.version,
    )


def carry_out(replica: Replica, plan: CleanUpPlan) -> CleanedUp:
    """Remove what the plan says. It may be repeated, and may die anywhere. What the disk refuses,
    or can't be read, is told in `stopped_because`, and stops nothing else. Raises what ends the
    session.
    """
    # Old parts leave the disk last: if that fails, ZooKeeper, where other replicas wait for a
    # clean-up, is clean.
    lost, entries, stopped = _trim(replica, plan)
    words = [stopped]
    # while there are still the ids that tell what was attached
    left = _tried(words, partial(remove_attached, replica))
    block_ids, insert_ids, unreadable = 0, 0, plan.ids.unreadable
    if left is not None:
        block_ids, insert_ids, unreadable = forget_ids(replica, _ids(plan, left))
    words += [*(one.why for one in left or ()), *unreadable]
    attempts = _remove_nodes(replica, map(replica.paths.attempts_of, plan.attempts))
    mutations = len(_tried(words, partial(clean_mutations, replica)) or ())
    quorums = _tried(words, partial(clean_quorums, replica)) or 0
    lost_parts = _tried(words, partial(replace_lost_parts, replica)) or ()
    removal = _tried(words, partial(_remove_parts, replica, plan))
    removed, pinned, kept = removal or ((), (), ())
    now_s = replica.clock.now_s()
    replica.store.part_log.note(PartEvent("RemovePart", str(one), now_s) for one in removed)
    detached, full = _set_aside(replica, plan.unexpected)
    _tried(words, partial(_forget_dropped, replica))
    _tried(words, partial(tidy_notes, replica))
    lifetime_s, now_s = replica.settings.temporary_directories_lifetime, replica.clock.now_s()
    swept = partial(replica.store.sweep, keep=(), older_than_s=lifetime_s, now_s=now_s)
    finished = partial(replica.store.detached_parts.finish_removals, lifetime_s, now_s)
    directories = [one for step in (swept, finished) for one in _tried(words, step) or ()]
    return CleanedUp(
        parts=removed,
        pinned=pinned,
        detached=detached,
        log_entries=entries,
        marked_lost=lost,
        block_ids=block_ids,
        insert_ids=insert_ids,
        inserts_in_part=plan.ids.inserts_in_part,
        attempts=attempts,
        mutations=mutations,
        quorums=quorums,
        lost=lost_parts,
        directories=tuple(directories),
        kept=kept,
        stopped_because="; ".join(filter(None, [*words, *full])),
    )


def _tried(words: list[str], step: Callable[[], Found]) -> Found | None:
    """What the step returns; None if the disk refused it, or something can't be read: then the
    reason is added to `words`.
    """
    try:
        return step()
    except Corruption as error:
        words.append(f"something can't be read, and is left alone: {error}")
        return None
    except (OSError, DiskFull) as error:
        words.append(
            f"the disk of the table failed, and the next clean-up tries again: {error}"
        )
        return None


def _ids(plan: CleanUpPlan, left: Sequence[AttachedLeft]) -> OutdatedIds:
    """The outdated ids, without those that tell that a part which is left was attached."""
    stay = tuple(one.block_ids for one in left)
    old = plan.ids.blocks
    going = tuple(block_id for block_id in old.remove if not block_id.startswith(stay))
    return replace(plan.ids, blocks=replace(old, remove=going))


def _set_aside(
    replica: Replica, unexpected: Iterable[PartName]
) -> tuple[tuple[str, ...], list[str]]:
    """Set directories aside; one that can't be set aside does not stop the others.

    Returns the new names of those that were, and the reason for each that was not.
    """
    detached: list[str] = []
    words: list[str] = []
    for part in unexpected:
        try:
            name = replica.store.detach_if(part, "unexpected", partial(is_idle, replica, part))
        except (UserError, MissingPart, OSError) as error:
            words.append(f"{part} could not be set aside: {error}")
            continue
        if name is not None:
            detached.append(name)
    return tuple(detached), words


# --- facts ---


def _old_parts(replica: Replica) -> tuple[PartRetention, dict[PartName, PartName]]:
    """Return which parts are covered and for how long, and which part covers each of them.

    A part is covered since the node of the part that covers it was created.
    """
    names = [PartName.parse(name) for name in replica.keeper.children(replica.paths.parts)]
    active = PartSet(names)
    covered = [
        (part, cover) for part in names if (cover := active.containing(part)) and cover != part
    ]
    covering = sorted({cover for _, cover in covered})
    stats = replica.keeper.exists_many([replica.paths.part(part) for part in covering])
    now_ms = int(replica.clock.now_s() * 1000)
    since_ms = {
        part: stat.created_ms for part, stat in zip(covering, stats, strict=True) if stat
    }
    old = [
        OldPart(
            part,
            cover,
            max(0.0, (now_ms - since_ms[cover]) / 1000),
            readers=int(replica.store.is_pinned(part)),
        )
        for part, cover in covered
        if cover in since_ms
    ]
    settings = replica.settings
    retention = outdated_parts(
        old,
        lifetime_s=settings.old_parts_lifetime,
        limit=settings.simultaneous_parts_removal_limit,
    )
    going = frozenset(retention.remove)
    return retention, {part: cover for part, cover in covered if part in going}


def _unpromised(replica: Replica) -> tuple[tuple[PartName, ...], tuple[PartName, ...]]:
    """Return the directories that ZooKeeper does not know and that no process is working on: those
    that are covered or were dropped, and the others.
    """
    disk = look_at_disk(replica)
    promised = PartSet(disk.promised.intersection(disk.on_disk))
    if replica.keeper.exists(replica.table.restoring) is not None:
        return (), ()  # the parts are about to be promised
    try:
        require_log_as_seen(replica)
        require_numbers_given_out(replica, disk.unexpected)
    except ZooKeeperIsOlder:
        return (), ()  # parts that it does not know any more may have been inserted before
    settled = [part for part in disk.unexpected if part not in disk.in_flight]
    is_covered = [
        promised.containing(part) is not None or disk.was_dropped(part) for part in settled
    ]
    return (
        tuple(compress(settled, is_covered)),
        tuple(compress(settled, (not one for one in is_covered))),
    )


def _log_facts(replica: Replica, name: str) -> ReplicaLogFacts | None:
    """Read what `log_trim` needs of a replica. None for one that is being dropped: its `host` goes
    early (spec §0.3). The process that dropped it may have died; what is left pulls nothing, and
    the trimming could not assert that it stays away. A replica that is made anew under its name
    gives `replicas` another version.
    """
    paths = replica.table.replica(name)
    host, pointer, lost, active = replica.keeper.get_many(
        [paths.host, paths.log_pointer, paths.is_lost, paths.is_active]
    )
    if host is None:
        return None
    return ReplicaLogFacts(
        name=name,
        is_active=active is not None,
        is_lost=None if lost is None else lost[0] == b"1",
        log_pointer=number_of(pointer[0]) if pointer is not None else 0,
        host_version=host[1].version,
    )


def _recovering_pointers(replica: Replica, facts: Iterable[ReplicaLogFacts]) -> dict[str, int]:
    """Read the pointers once more: the pointer of a replica that clones moves backwards (spec §16.7
    C3).
    """
    names = [one.name for one in facts if one.is_active and one.is_lost]
    reads = replica.keeper.get_many([replica.table.replica(name).log_pointer for name in names])
    return {
        name: number_of(read[0]) if read is not None else 0
        for name, read in zip(names, reads, strict=True)
    }


def _finished_attempts(replica: Replica) -> tuple[str, ...]:
    """Return the queue nodes that have notes of failures and are not in the queue. The notes are
    read first, then the queue: a node that is not in it then never will be again.
    """
    attempts, queue = replica.paths.attempts, replica.paths.queue
    noted = replica.keeper.children(attempts)
    waiting = frozenset(replica.keeper.children(queue)) if noted else frozenset()
    return tuple(node for node in noted if node not in waiting)


# --- effects ---


def _remove_parts(
    replica: Replica, plan: CleanUpPlan
) -> tuple[tuple[PartName, ...], tuple[PartName, ...], tuple[PartName, ...]]:
    """Remove old parts and leftovers. ZooKeeper comes first: if the process dies after that, a
    covered directory is left that is not promised, which the next clean-up removes. The other way
    round ZooKeeper would promise parts that are not there (spec §10.5, §16.7 C9). A part that
    readers hold keeps its directory until they let go.

    Returns what was removed, what is pinned, and what stays promised.
    """
    forgotten, kept = _forget(replica, plan)
    going = [*forgotten, *plan.leftovers]
    stay = replica.store.remove_all(going, lambda held: _covered_and_idle(replica, held))
    pinned = tuple(part for part in stay if replica.store.is_pinned(part))
    stayed = frozenset(stay)
    return tuple(part for part in going if part not in stayed), pinned, kept


def _forget(
    replica: Replica, plan: CleanUpPlan
) -> tuple[tuple[PartName, ...], tuple[PartName, ...]]:
    """Stop promising the parts that the plan found covered. Returns those, and the ones that have
    to stay after all.

    1. The plan is made: C covers A and B.
    2. C is found broken; its node goes, a fetch is queued.
    3. The plan is carried out: A and B were all that this replica had.

    So each removal asserts that no part was given up since (that changes `is_lost`), and that the
    covering part is promised.
    """
    parts = plan.parts.remove
    multis = [
        transactions.forget_covered(
            replica.paths, part, plan.covering[part], is_lost_version=plan.is_lost_version
        )
        for part in parts
    ]
    forgotten: list[PartName] = []
    kept: list[PartName] = []
    for part, refused in zip(parts, refusals(replica.keeper, multis), strict=True):
        gone = refused is None or refused.path == replica.paths.part(part)
        (forgotten if gone else kept).append(part)
    return tuple(forgotten), tuple(kept)


def _covered_and_idle(replica: Replica, parts: Sequence[PartName]) -> list[PartName]:
    """Return which of these directories, which no process can take now, may be removed: those that
    are not promised, that no worker is about to promise, and that a promised part covers or a drop
    took away.

    They were unknown when the plan was made. Since then a worker may have claimed an entry that
    makes the part, found the directory as good as what it made, and promised it.
    """
    view = claims_and_parts(replica.keeper, replica.paths)
    promised, dropped = PartSet(map(PartName.parse, view.names)), replica.store.drops.ranges()
    return [
        part
        for part in parts
        if view.is_free(part)
        and (
            promised.containing(part) is not None or any(one.contains(part) for one in dropped)
        )
    ]


def _forget_dropped(replica: Replica) -> None:
    """Forget the note that a range was dropped once no part within it is left here, no claim makes
    one, and the note is older than a staged directory may get: by then a process that does not know
    that its session is over has stopped too.

    The note stays as long as another replica promises a part within it, for that one has yet to
    carry out the drop. If ZooKeeper lost the table now, no other disk would tell that these rows
    are to go.
    """
    forget_undone_drops(replica)
    oldest_s = replica.clock.now_s() - replica.settings.temporary_directories_lifetime
    old = [
        one
        for one in replica.store.drops.ranges()
        if (replica.store.drops.noted_s(one) or 0) < oldest_s
    ]
    if not old:
        return
    claimed = claims_and_parts(replica.keeper, replica.paths).claimed
    names = replica.keeper.children(replica.table.replicas)
    promised = replica.keeper.children_many(
        [replica.table.replica(name).parts for name in names if name != replica.name]
    )
    elsewhere = [PartName.parse(name) for listed in promised for name in listed or ()]
    here = [*replica.store.parts(), *claimed]
    for one in old:
        if not any(one.contains(part) for part in (*here, *elsewhere)):
            replica.store.drops.forget(one)


def _trim(replica: Replica, plan: CleanUpPlan) -> tuple[tuple[str, ...], int, str]:
    """Mark replicas that stay behind as lost, then remove log entries, asserting that none of those
    came back.
    """
    hosts = dict(plan.log.check_hosts)
    marked: list[str] = []
    removed = 0
    try:
        for name in plan.log.mark_lost:
            paths = replica.table.replica(name)
            replica.keeper.multi(transactions.mark_lost(paths, hosts[name]))
            marked.append(name)
        for start in range(0, len(plan.log.remove), limits.CLEAN_UP_OPS_PER_MULTI_MAX):
            batch = plan.log.remove[start : start + limits.CLEAN_UP_OPS_PER_MULTI_MAX]
            replica.keeper.multi(
                transactions.trim_log(
                    replica.table,
                    [log_entry_name(number) for number in batch],
                    hosts=plan.log.check_hosts,
                    replicas_version=plan.replicas_version,
                )
            )
            removed += len(batch)
    except Refused as refused:
        return tuple(marked), removed, f"trimming the log stopped: {refused}"
    return tuple(marked), removed, ""


def _remove_nodes(replica: Replica, paths: Iterable[str]) -> int:
    """Remove the nodes and return how many are gone: those that another process removed meanwhile
    count too.
    """
    todo = list(paths)
    refusals(replica.keeper, [transactions.remove_node(path) for path in todo])
    return len(todo)


Read = tuple[bytes, Stat] | None


def nodes_to_read(replica: Replica) -> tuple[str, ...]:
    """Return the nodes that change whenever there is something new for a clean-up to look at."""
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
    """A table in which there is nothing to clean, and nothing grows old, until this changes: the
    counts and versions of a few nodes, which are read for many tables in one request, and the names
    in the table's directory.

    What a clean-up finds depends on what is in ZooKeeper and on the disk, and on the time only as
    long as something waits to grow old. Ids of blocks and inserts do not: they age by the newest of
    them. (Those that are kept only because our clock is behind ZooKeeper's stay until something
    changes.)
    """

    nodes: tuple[NodeCounts | None, ...]
    names: int
    """A hash of the names in the table's directory, in no order."""
    settings: TableSettings
    """The settings say how much is kept; no node tells when they are altered."""

    @classmethod
    def now(cls, replica: Replica, reads: Sequence[Read]) -> "Settled":
        """Return the state as it was when the nodes were read."""
        return cls(
            tuple(map(node_counts, reads)), hash(replica.store.names()), replica.settings
        )


def is_settled(
    replica: Replica, reads: Sequence[Read], plan: CleanUpPlan, done: CleanedUp
) -> bool:
    """Whether the next clean-up would find nothing either, if nothing changes. `reads` are the
    nodes as they were before the clean-up `done`.

    What other processes hold up counts as waiting: a log longer than is kept, because a replica has
    not copied it; mutations that some replica has not finished; notes of failures, because a part
    may turn out to be lost.
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
        # in flight, or left by a process that died
        or len(store.parts()) != parts[1].children_count
        or store.staged()
        or store.drops.ranges()
        or store.marks.commit_notes()
        or any(one.reason in _UNFINISHED for one in store.detached_parts.names())
    )
