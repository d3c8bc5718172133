"""Forget what nobody needs any more (spec §10): old parts, log entries, ids, staged directories.

`plan` decides and can be shown; `carry_out` does it. Two replicas may do it at once: a node that
is gone already was removed by the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.part_set import PartSet
from rmt_pipeline.protocol.parts import PartName
from rmt_pipeline.protocol.retention import (
    IdRetention,
    LogTrim,
    OldPart,
    PartRetention,
    ReplicaLogFacts,
    outdated_ids,
    outdated_parts,
    trim_log,
)
from rmt_pipeline.replica.check import look_at_disk
from rmt_pipeline.replica.mutations import clean_mutations
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Kind, Refused
from rmt_pipeline.zookeeper.paths import log_entry_name, sequence_number


@dataclass(frozen=True, slots=True)
class CleanUpPlan:
    """What would be removed, what stays, and why. `leftovers` are directories that nobody promises
    any more and that a part here covers: their removal was interrupted. `unexpected` ones are not
    covered: they are set aside, never removed.
    """

    parts: PartRetention
    leftovers: tuple[PartName, ...]
    unexpected: tuple[PartName, ...]
    log: LogTrim
    blocks: IdRetention
    inserts: IdRetention
    attempts: tuple[str, ...]
    """Queue nodes that failed before they were finished: nobody asks why any more."""
    replicas_version: int


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """What was removed. `pinned`: parts that readers held; they go next time."""

    parts: tuple[PartName, ...] = ()
    pinned: tuple[PartName, ...] = ()
    detached: tuple[str, ...] = ()
    log_entries: int = 0
    marked_lost: tuple[str, ...] = ()
    block_ids: int = 0
    insert_ids: int = 0
    attempts: int = 0
    mutations: int = 0
    directories: tuple[str, ...] = ()
    stopped_because: str = ""

    def words(self) -> str:
        counts = {
            "old parts": len(self.parts),
            "log entries": self.log_entries,
            "block ids": self.block_ids,
            "insert records": self.insert_ids,
            "notes of failures": self.attempts,
            "finished mutations": self.mutations,
            "staging directories": len(self.directories),
        }
        removed = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        words = f"removed {removed}" if removed else "nothing to remove"
        if self.marked_lost:
            words += f"; marked as lost: {', '.join(self.marked_lost)}"
        if self.detached:
            words += f"; set aside: {', '.join(self.detached)}"
        if self.pinned:
            words += f"; {len(self.pinned)} old parts are being read and stay"
        return f"{words}; {self.stopped_because}" if self.stopped_because else words


def plan_clean_up(replica: Replica, *, hysteresis: float = 1.0) -> CleanUpPlan:
    """`hysteresis` (1.05 to 1.15, drawn by the caller) keeps replicas apart (spec §10.2)."""
    keeper, settings = replica.keeper, replica.settings
    names, replicas = keeper.children_stat(replica.table.replicas)
    entries = [sequence_number(name) for name in keeper.children(replica.table.log)]
    facts = [_log_facts(replica, name) for name in names]
    log = trim_log(
        entries,
        facts,
        keep_min=settings.min_replicated_logs_to_keep,
        keep_max=settings.max_replicated_logs_to_keep,
        hysteresis=hysteresis,
        recovering_pointers=_recovering_pointers(replica, facts),
    )
    window = settings.replicated_deduplication_window
    seconds = settings.replicated_deduplication_window_seconds
    leftovers, unexpected = _unpromised(replica)
    return CleanUpPlan(
        parts=_old_parts(replica),
        leftovers=leftovers,
        unexpected=unexpected,
        log=log,
        blocks=outdated_ids(
            _created(replica, replica.table.blocks), window=window, window_seconds=seconds
        ),
        inserts=outdated_ids(
            _created(replica, replica.table.inserts), window=window, window_seconds=seconds
        ),
        attempts=_finished_attempts(replica),
        replicas_version=replicas.version,
    )


def carry_out(replica: Replica, plan: CleanUpPlan) -> CleanedUp:
    """Idempotent; may die anywhere. Raises what ends the session."""
    # The plan may be old by now: what somebody promised or claimed since is not touched.
    leftovers, unexpected = _unpromised(replica)
    removed, pinned = _remove_parts(
        replica, plan.parts.remove, [part for part in leftovers if part in plan.leftovers]
    )
    detached = tuple(
        replica.store.detach(part, "unexpected")
        for part in unexpected
        if part in plan.unexpected
    )
    lost, entries, stopped = _trim(replica, plan)
    return CleanedUp(
        parts=removed,
        pinned=pinned,
        detached=detached,
        log_entries=entries,
        marked_lost=lost,
        block_ids=_remove_nodes(replica, map(replica.table.block, plan.blocks.remove)),
        insert_ids=_remove_nodes(replica, map(replica.table.insert, plan.inserts.remove)),
        attempts=_remove_nodes(replica, map(replica.paths.attempts_of, plan.attempts)),
        mutations=len(clean_mutations(replica)),
        directories=tuple(
            replica.store.sweep(
                keep=(),
                older_than_s=replica.settings.temporary_directories_lifetime,
                now_s=replica.clock.now_s(),
            )
        ),
        stopped_because=stopped,
    )


# --- facts ---


def _old_parts(replica: Replica) -> PartRetention:
    """Covered parts, and since when: the node of the part that covers them is that old."""
    names = [PartName.parse(name) for name in replica.keeper.children(replica.paths.parts)]
    active = PartSet(names)
    covered = [(part, active.containing(part)) for part in names if part not in active]
    covering = sorted({cover for _, cover in covered if cover is not None})
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
        if cover is not None and cover in since_ms
    ]
    settings = replica.settings
    return outdated_parts(
        old,
        lifetime_s=settings.old_parts_lifetime,
        limit=settings.simultaneous_parts_removal_limit,
    )


def _unpromised(replica: Replica) -> tuple[tuple[PartName, ...], tuple[PartName, ...]]:
    """Directories that ZooKeeper does not know and nobody is working on: covered, not covered."""
    disk = look_at_disk(replica)
    promised = PartSet(part for part in disk.promised if part in disk.on_disk)
    settled = [part for part in disk.unexpected if part not in disk.in_flight]
    covered = tuple(part for part in settled if promised.containing(part) is not None)
    return covered, tuple(part for part in settled if part not in covered)


def _log_facts(replica: Replica, name: str) -> ReplicaLogFacts:
    paths = replica.table.replica(name)
    host, pointer, lost, active = replica.keeper.get_many(
        [paths.host, paths.log_pointer, paths.is_lost, paths.is_active]
    )
    return ReplicaLogFacts(
        name=name,
        is_active=active is not None,
        is_lost=None if lost is None else lost[0] == b"1",
        log_pointer=int(pointer[0]) if pointer is not None and pointer[0] else 0,
        host_version=host[1].version if host is not None else -1,
    )


def _recovering_pointers(replica: Replica, facts: Iterable[ReplicaLogFacts]) -> dict[str, int]:
    """Read once more: the pointer of a replica that clones moves backwards (spec §16.7 C3)."""
    names = [one.name for one in facts if one.is_active and one.is_lost]
    reads = replica.keeper.get_many([replica.table.replica(name).log_pointer for name in names])
    return {
        name: int(read[0]) if read is not None and read[0] else 0
        for name, read in zip(names, reads, strict=True)
    }


def _created(replica: Replica, parent: str) -> dict[str, int]:
    names = replica.keeper.children(parent)
    stats = replica.keeper.exists_many([f"{parent}/{name}" for name in names])
    return {
        name: stat.created_ms
        for name, stat in zip(names, stats, strict=True)
        if stat is not None
    }


def _finished_attempts(replica: Replica) -> tuple[str, ...]:
    """The attempts first, then the queue: a node that is not in it then never will be again."""
    attempts, queue = replica.paths.attempts, replica.paths.queue
    noted = replica.keeper.children(attempts)
    waiting = frozenset(replica.keeper.children(queue)) if noted else frozenset()
    return tuple(node for node in noted if node not in waiting)


# --- effects ---


def _remove_parts(
    replica: Replica, parts: Sequence[PartName], leftovers: Sequence[PartName]
) -> tuple[tuple[PartName, ...], tuple[PartName, ...]]:
    """ZooKeeper first: if we die after it, a covered directory that nobody promised is left, which
    the next start sets aside. The other way round ZooKeeper would promise what is not there
    (spec §10.5, §16.7 C9). What readers hold keeps its directory until they let go.
    """
    for part in parts:
        try:
            replica.keeper.multi(transactions.forget_parts(replica.paths, [part]))
        except Refused as refused:
            if refused.kind is not Kind.NO_NODE:
                raise
    going = [*parts, *leftovers]
    pinned = replica.store.remove_all(going)
    return tuple(part for part in going if part not in pinned), tuple(pinned)


def _trim(replica: Replica, plan: CleanUpPlan) -> tuple[tuple[str, ...], int, str]:
    """Mark who stays behind as lost, then remove entries, asserting that nobody came back."""
    if plan.log.all_would_be_lost or not plan.log.remove:
        return (), 0, ""
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
    """One by one, pipelined: an id that somebody else removed is gone all the same."""
    todo = list(paths)
    for start in range(0, len(todo), limits.MULTI_OPS_MAX):
        batch = todo[start : start + limits.MULTI_OPS_MAX]
        for result in replica.keeper.multi_many(
            [transactions.remove_node(path) for path in batch]
        ):
            if isinstance(result, RmtError) and not isinstance(result, Refused):
                raise result
    return len(todo)
