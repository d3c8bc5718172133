"""Assigning mutations of single parts: MUTATE_PART entries (spec §6.1, §7.4)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import LogEntry, MutatePart
from rmt_pipeline.protocol.mutations import Desired, Mutations
from rmt_pipeline.protocol.parts.name import PartName, mutated
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.queue.facts import slots_of
from rmt_pipeline.replica.accounting import covered_now
from rmt_pipeline.replica.assign.merges import (
    OUTDATED,
    Assigned,
    Nothing,
    outdated,
    queue_is_full,
    view_of,
)
from rmt_pipeline.replica.mutations.mutations import load_mutations
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica, asserting_active
from rmt_pipeline.replica.upkeep.check import manifest_here
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import batches
from rmt_pipeline.zookeeper.keeper import Create, RefusalKind, Refused
from rmt_pipeline.zookeeper.snapshot import awaiting_quorum, queue_snapshot

FAILING_NOT_COUNTED_MAX = 100


@dataclass(frozen=True, slots=True)
class _View:
    """What may be mutated now. Merges and mutations are counted in slots, see `slots_of`: `queued`
    are all, `running` those that workers have claimed, `failing` the queued mutations that failed
    before and are tried again.
    """

    active: PartSet
    virtual: PartSet
    mutations: Mutations
    awaiting_quorum: frozenset[PartName]
    log_version: int
    is_lost_version: int
    queued: float
    mutations_queued: float
    failing: float
    running: float


def assign_mutations(replica: Replica) -> list[Assigned] | Nothing:
    """Write entries for parts that a mutation has to change, as many as the queue takes.

    One look at the table serves for all of them: each multi asserts that the log has the version
    that the previous multi gave it, so no other process has assigned anything in between.

    Raises RowsDoNotAddUp if an entry would cover rows that are not in its source.
    """
    view = _look(replica)
    room = _room(replica, view)
    if isinstance(room, Nothing):
        return room
    entries = list(_entries(replica, view, room))
    if not entries:
        return Nothing(f"no mutation is left to do for the {len(view.active)} active parts")
    if not covered_now(
        replica, entries, log_version=view.log_version, is_lost_version=view.is_lost_version
    ):
        return Nothing(OUTDATED)
    assigned: list[Assigned] = []
    ops = [Create(replica.table.log_prefix, encode(entry), sequence=True) for entry in entries]
    for batch in batches(
        ops,
        bytes_max=limits.MULTI_BYTES_MAX - 2 * limits.OP_BYTES_OVERHEAD,
        ops_max=limits.MUTATIONS_PER_MULTI_MAX,
    ):
        texts = [op.data for op in batch if isinstance(op, Create)]
        paths = _write(replica, texts, view)
        if isinstance(paths, Nothing):
            return assigned or paths
        view = replace(view, log_version=view.log_version + 1)
        assigned += [
            Assigned(entry.result, (entry.source,), path, text)
            for entry, path, text in zip(entries[len(assigned) :], paths, texts, strict=False)
        ]
    return assigned


def _look(replica: Replica) -> _View:
    """Read what may be mutated. The mutations are read before the log is pulled: anything that is
    assigned after that changes the log's version. Numbers in flight need not be read, because a
    part is mutated by itself, and when a mutation is loaded, so is every smaller one (spec §7.4).

    The parts that wait for their quorum are read last. A part comes together with the node that
    says that it waits, so each part that was seen and is not among them has reached its quorum.
    """
    keeper, memory = replica.keeper, replica.memory
    mutations = load_mutations(replica)
    pulled = pull_log(replica, afresh=True)
    snapshot = queue_snapshot(keeper, replica.paths, memory.queue)
    awaiting = awaiting_quorum(keeper, replica.table)
    entries = snapshot.entries
    slots = {node: slots_of(entry, _sizes(replica, entry)) for node, entry in entries.items()}
    mutating = {node for node, entry in entries.items() if isinstance(entry, MutatePart)}
    tried = set(keeper.children(replica.paths.attempts)) if mutating else set()
    return _View(
        active=snapshot.parts.current,
        virtual=view_of(snapshot).virtual,
        mutations=mutations,
        awaiting_quorum=awaiting,
        log_version=pulled.log_version,
        is_lost_version=pulled.is_lost_version,
        queued=sum(slots.values()),
        mutations_queued=sum(slots[node] for node in mutating),
        failing=sum(slots[node] for node in mutating & tried),
        running=sum(slots.get(node, 0) for node in snapshot.claims),
    )


def _sizes(replica: Replica, entry: LogEntry) -> dict[PartName, int]:
    """The size of a mutation's source, if it is here; empty for other entries."""
    if not isinstance(entry, MutatePart) or not replica.store.has(entry.source):
        return {}
    manifest = manifest_here(replica, entry.source)
    return {} if manifest is None else {entry.source: manifest.bytes_on_disk}


def _room(replica: Replica, view: _View) -> float | Nothing:
    """How many more mutations the queue takes, in slots. A limited number that fail again and again
    are not counted, because otherwise they would keep all other parts from being mutated.
    """
    settings = replica.settings
    if (full := queue_is_full(settings, view.queued)) is not None:
        return full
    counted = view.mutations_queued - min(view.failing, FAILING_NOT_COUNTED_MAX)
    if counted >= settings.max_replicated_mutations_in_queue:
        return Nothing(
            f"{view.mutations_queued:g} mutations are queued ({view.failing:g} of them failing), "
            f"max_replicated_mutations_in_queue is {settings.max_replicated_mutations_in_queue}"
        )
    return min(
        settings.max_replicated_merges_in_queue - view.queued,
        settings.max_replicated_mutations_in_queue - counted,
    )


def _entries(replica: Replica, view: _View, room: float) -> Iterator[MutatePart]:
    """Entries for parts that need a mutation, up to `room` slots and as large as the pool can take.
    The parts that have waited for the oldest mutation come first: otherwise mutations that come one
    after another would keep the pool busy with the first partitions, and never reach the last.
    """
    settings, create_time = replica.settings, int(replica.clock.now_s())
    bytes_max = replica.size_limits().mutation_bytes_max(
        used=view.running, slots=limits.MERGES_MAX
    )
    alters = frozenset(
        one for one, entry in view.mutations.entries.items() if entry.alter_version != -1
    )
    for part in _oldest_first(view):
        if room <= 0:
            return
        desired = view.mutations.desired(
            part,
            view.virtual,
            unfinished_alters=alters,
            in_one_entry_max=settings.replicated_max_mutations_in_one_entry,
        )
        if not isinstance(desired, Desired) or part in view.awaiting_quorum:
            continue
        entry = MutatePart(
            create_time=create_time,
            source_replica=replica.name,
            source=part,
            result=mutated(part, desired.version),
            alter_version=desired.alter_version,
        )
        sizes = _sizes(replica, entry)
        if sizes.get(part, 0) <= bytes_max:  # 0: not here, so another replica mutates it
            room -= slots_of(entry, sizes)
            yield entry


def _oldest_first(view: _View) -> list[PartName]:
    waiting = [
        (mutation_id, part)
        for part in view.active
        if (mutation_id := view.mutations.next_of(part)) is not None
    ]
    return [part for _, part in sorted(waiting)]


def _write(replica: Replica, texts: Sequence[bytes], view: _View) -> list[str] | Nothing:
    """Write the entries to the log; their paths, or `Nothing` if something else was assigned
    first.
    """
    ops = transactions.assign(
        replica.table,
        replica.paths,
        texts,
        log_version=view.log_version,
        is_lost_version=view.is_lost_version,
    )
    try:
        with asserting_active(replica, "it assigns no mutations"):
            return replica.keeper.multi(ops)[-len(texts) :]
    except Refused as refused:
        if refused.kind is RefusalKind.BAD_VERSION:
            return Nothing(outdated(replica, refused))
        raise
