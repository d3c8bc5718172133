"""Working a replica's queue: decide, claim, carry out, publish.

    Executor.look ──► claimed batches ──carry_out──► parts
                          each beside the others

A look never waits for work. So a large entry holds up no small one: while it runs, others are
found, claimed and carried out. Any number of processes may do this for one replica at the same
time: claims keep them apart (design §4).
"""

import math
from collections import Counter
from collections.abc import (
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from operator import itemgetter

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    NoReplicaHasPart,
)
from rmt_pipeline.protocol.log.entry import (
    AttachPart,
    GetPart,
    LogEntry,
    MutatePart,
    result_of,
    sources_of,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import Facts, Run
from rmt_pipeline.protocol.queue.view import Plan, QueueView
from rmt_pipeline.replica.alter.apply import alters_first
from rmt_pipeline.replica.backoff import Backoff
from rmt_pipeline.replica.claims import Holder
from rmt_pipeline.replica.fetch import (
    PartSource,
    SeenNodes,
    find_sources,
    hinted_sources,
    hints_of,
)
from rmt_pipeline.replica.finish import finish_entries, finish_failed
from rmt_pipeline.replica.missing import why_missing
from rmt_pipeline.replica.partitions.attach import AttachHere, own_copies
from rmt_pipeline.replica.put_back import PutBack, what_is_left
from rmt_pipeline.replica.replica import Replica, lost_error
from rmt_pipeline.replica.upkeep.check import manifest_here
from rmt_pipeline.replica.work.carry import Batch, BatchCarrier, ClaimedEntry, Tools
from rmt_pipeline.replica.work.drop import DropHere
from rmt_pipeline.replica.work.merge import (
    FetchResult,
    MergeHere,
    fetch_or_merge,
    make_again,
)
from rmt_pipeline.replica.work.mutate import MutateHere, fetch_or_mutate
from rmt_pipeline.replica.work.pools import (
    LANES,
    Pool,
    choose_of_pool,
    pool_of,
    queue_facts,
)
from rmt_pipeline.replica.work.replace import ReplaceHere, sweep_of
from rmt_pipeline.replica.work.step import PartDone, Step
from rmt_pipeline.zookeeper.batches import cut
from rmt_pipeline.zookeeper.keeper import Op, Stat, Watch
from rmt_pipeline.zookeeper.known import Queued
from rmt_pipeline.zookeeper.snapshot import (
    Foreknown,
    QueueSnapshot,
    queue_snapshot,
    queued_entries,
)

UNKNOWN_BYTES = limits.SMALL_MERGE_BYTES + 1  # a source that is not here counts as large
WAITING_SHOWN_MAX = 20
PULLED_MAX = 32  # entries that are claimed with their pull
CLAIM_TRIES = 5  # in one look, if the claims of other pools come between
POSTPONED_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look at the queue: `step` is what it did itself, `batches` are what it
    claimed and the caller is to carry out.
    """

    step: Step
    batches: tuple[Batch, ...] = ()


class Executor:
    """Works one pool of one replica in one process. Between looks it remembers only what saves
    work, and when failed entries may be tried again.
    """

    def __init__(self, replica: Replica, tools: Tools, pool: Pool) -> None:
        self._replica = replica
        self._pool: Pool = pool
        self._backoff = Backoff()
        self._carrier = BatchCarrier(replica, tools, self._backoff)
        self._begun: list[Batch] = []
        self._at_hand: frozenset[str] = frozenset()
        self._left = 0
        self._seen: QueueSnapshot | None = None
        self._view: QueueView | None = None
        """The view of the last look, from which the next one is made."""
        self._known: Foreknown | None = None
        self._pulled: list[Batch] = []
        self._postponed: Counter[str] = Counter()
        """How often each entry was left waiting since that was last noted on the disk."""
        self._postponed_noted_s = -math.inf

    def carry_out(self, batch: Batch) -> Generator[PartDone, None, None]:
        """See `BatchCarrier.carry_out`."""
        return self._carrier.carry_out(batch)

    def give_back(self, batch: Batch) -> None:
        """Give back the claims of a batch's remaining entries, which the next look finds. For the
        thread that looks.
        """
        self._left += len(batch.left)
        self._carrier.give_back(batch)

    def glance(self, watch: Watch | None) -> Queued | Collection[str]:
        """The queue, for `look`, if that might find something to do; else an empty one. The watch
        fires when the queue changes.

        Entries that are done already may be finished by any pool, and it is not known whether
        another one runs; so the fetch pool looks whenever anything is queued.
        """
        replica = self._replica
        self._at_hand = self._under_way()
        known = self._known_queue(watch)
        if known is not None:
            return known
        queued = queued_entries(replica.keeper, replica.paths, replica.memory.queue, watch)
        entries = queued.values()
        if any(self._pool == "fetch" or pool_of(entry) == self._pool for entry in entries):
            return tuple(queued)
        self._left = 0
        self._begun = [one for one in self._begun if one.left]
        self._backoff.keep_only(frozenset())
        return ()

    def _known_queue(self, watch: Watch | None) -> Queued | None:
        """The queue as this process has filled it, whose stat `look` then compares; None if the
        queue must be listed. Only for the fetch pool, and only if it has entries and all of them
        are known. The watch is set before.
        """
        replica = self._replica
        known = replica.memory.queue
        queued = known.queued(replica.paths)
        if self._pool != "fetch" or watch is None or queued is None or not queued.names:
            return None
        if self._seen is None or self._seen.names is not queued.names:
            seen = {} if self._seen is None else self._seen.entries
            new = [name for name in queued.names if name not in seen]
            if len(known.entries.of(new)) < len(new):
                return None
        is_awaited = replica.keeper.await_children(replica.paths.queue, watch)
        return queued if is_awaited else None

    @property
    def has_begun_all(self) -> bool:
        """Whether the last look began everything that it found, and nothing has failed since. Then
        the change of the queue was our own: what was pulled is being carried out, or is gone.
        """
        return bool(self._begun) and not self._left and not self._backoff.has_any

    def look(
        self,
        watch: Watch | None,
        elsewhere: Collection[PartName] = (),
        queue: Queued | Collection[str] | None = None,
    ) -> Look:
        """Choose and claim entries that may run now, from the `queue` that `glance` has just
        returned (None: list it). The watch fires when the queue changes; if the last look left
        entries, also when claims change.

        `elsewhere` are parts that are still being made for a session that is over: their entries
        wait until the part is whole, and then it is published, not made again. An error that ends
        the session or makes the replica read-only is raised; then nothing is claimed.
        """
        replica, clock = self._replica, self._replica.clock
        snapshot = self._snapshot(watch, queue)
        view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts, self._view)
        self._seen, self._view = snapshot, view
        self._backoff.keep_only(view.entries)
        self._backoff.notice_kills(replica, view.entries)
        facts = queue_facts(replica, view, manifest_here, merging=self._pool == "merge")
        now_s = clock.monotonic_s()
        plan = choose_of_pool(view, facts, self._pool, self._backoff.waiting(now_s))
        done = [node for node, _ in plan.done if node not in self._at_hand]
        finish_entries(replica, {node: view.entries[node] for node in done})
        altered, ready, awaiting = self._ready(plan, elsewhere)
        failed: list[PartDone] = []
        tasks = _claimed_at_once(list(self._tasks(view, ready, failed, snapshot.beside)))
        waiting = [
            (node, reason)
            for node, reason in (*awaiting.items(), *plan.wait)
            if pool_of(view.entries[node]) == self._pool
        ]
        step = Step(
            done=tuple(failed),
            finished_without_work=len(done) + altered,
            waiting=tuple(waiting[:WAITING_SHOWN_MAX]),
            next_retry_s=self._backoff.next_s(now_s, clock.monotonic_s()),
            left=self._count_open(view, plan, [], now_s),
        )
        groups, look = tuple(self._groups(tasks, facts.sizes)), Look(step)
        left = self._count_open(view, plan, tasks, now_s)
        # Claim last: an error that is raised after this would leave claims behind.
        holder = self._claimed(snapshot, view, facts, tasks) if tasks else None
        if holder is not None:
            batches = tuple(Batch(group, holder) for group in groups)
            look = Look(replace(step, left=left), batches)
        self._note_postponed({node for node, _ in waiting}, view.entries)
        self._left = look.step.left
        self._begun = [*(one for one in self._begun if one.left), *look.batches]
        return look

    # --- claiming with the pull (`Claimer`): new parts, if nothing else is to be done ---

    def beside(self) -> tuple[str, ...]:
        """See `Claimer`. Nothing to read if it is not known how the queue, and the claims, are."""
        replica = self._replica
        self._at_hand = self._under_way()
        self._known = Foreknown.now(replica.paths, replica.memory.queue)
        return () if self._known is None else self._known.paths

    def choose(
        self,
        came: Mapping[str, LogEntry],
        beside: Sequence[tuple[bytes, Stat] | None],
        is_lost_version: int,
    ) -> "PulledParts | None":
        """Choose to fetch all entries that come, if a look would begin just these: all are new
        parts that other replicas have, and nothing in the queue is left for this pool.

        The pull asserts that no other process has pulled or added an entry since the queue was
        known, and the version of `executing` that no other worker has claimed.
        """
        replica, known = self._replica, self._known
        is_simple = len(came) <= PULLED_MAX and all(map(_is_new_part, came.values()))
        if not is_simple or known is None or self._left:
            return None
        snapshot = known.snapshot(replica.keeper, beside, self._seen)
        if snapshot is None or snapshot.is_lost or snapshot.is_lost_version != is_lost_version:
            return None
        if snapshot.entries and min(came) <= max(snapshot.entries):
            return None  # another loop has pulled since, from the same pointer
        entries = {**snapshot.entries, **came}
        view = QueueView(entries, snapshot.claims, snapshot.parts, self._view)
        facts = queue_facts(replica, view, manifest_here, merging=False)
        now_s = replica.clock.monotonic_s()
        waiting = self._backoff.waiting(now_s)
        plan = choose_of_pool(view, facts, self._pool, waiting)
        done = [node for node, _ in plan.done if node not in self._at_hand]
        if done or {node for node, _ in plan.run} != came.keys():
            return None
        _, ready, _ = alters_first(replica, plan.run, self._backoff)
        wanted = [(_result(entry), entry.source_replica) for _, entry in ready]
        sources = hinted_sources(replica, wanted)
        tasks = tuple(
            ClaimedEntry(node, entry, sources[_result(entry)])
            for node, entry in ready
            if _result(entry) in sources
        )
        if self._count_open(view, plan, tasks, now_s):
            return None
        return PulledParts(self, Batch(tasks, Holder.new(replica)), snapshot, view)

    def has_pulled(self, batch: Batch, view: QueueView) -> None:
        """The batch was claimed with the pull."""
        self._view = view
        self._pulled.append(batch)
        self._begun = [*(one for one in self._begun if one.left), batch]

    @property
    def pulled_count(self) -> int:
        """How many entries were claimed so since they were taken last."""
        return sum(len(batch.tasks) for batch in self._pulled)

    def taken_with_the_pull(self) -> tuple[Batch, ...]:
        """The batches that were claimed so since the last call, for the caller to carry out."""
        found, self._pulled = tuple(self._pulled), []
        return found

    def _claimed(
        self,
        snapshot: QueueSnapshot,
        view: QueueView,
        facts: Facts,
        tasks: Sequence[ClaimedEntry],
    ) -> Holder | None:
        """Claim these entries, all of them or none; returns who holds the claims. None if another
        worker was faster.

        While a merge pool looks at its sources on the disk, the fetch pool of a busy replica claims
        several times; and when merges begin, a fetch pool is refused while inserts wait for it. So
        entries that may run beside what was claimed meanwhile are claimed again.
        """
        replica = self._replica
        known, claims = replica.memory.queue, {task.node: task.produces for task in tasks}
        for _ in range(CLAIM_TRIES):
            holder = Holder.new(replica)
            is_taken = holder.take(snapshot, claims)
            if is_taken:
                return holder
            if is_taken is None or not all(map(_may_be_claimed_again, tasks)):
                return None
            snapshot = queue_snapshot(
                replica.keeper,
                replica.paths,
                known,
                queue=known.queued(replica.paths),
                before=snapshot,
            )
            now = QueueView(snapshot.entries, snapshot.claims, snapshot.parts, view)
            came = (node for node in now.claims if node not in view.claims)
            for node in came:
                facts = facts.with_running(now.entries[node]) if node in now.entries else facts
            view = now
            if snapshot.is_lost or not _may_run(view, facts, tasks):
                return None
        return None

    def _snapshot(
        self, watch: Watch | None, queue: Queued | Collection[str] | None
    ) -> QueueSnapshot:
        """The snapshot on which `look` decides. Raises TableIsReadOnly if the replica is lost."""
        replica = self._replica
        if queue is None:
            self._at_hand = self._under_way()
        claims_watch = watch if self._left else None
        beside = (
            hints_of(replica, queue.names, self._at_hand) if isinstance(queue, Queued) else ()
        )
        snapshot = queue_snapshot(
            replica.keeper,
            replica.paths,
            replica.memory.queue,
            watch,
            claims_watch,
            queue=queue,
            before=self._seen,
            beside=beside,
        )
        if snapshot.is_lost:
            raise lost_error(replica)
        return snapshot

    def _ready(
        self, plan: Plan, elsewhere: Collection[PartName]
    ) -> tuple[int, list[tuple[str, LogEntry]], dict[str, str]]:
        """How many ALTERs were carried out; the entries of this pool to begin now; and for other
        entries that the plan would run, why they wait.
        """
        ready = [(node, entry) for node, entry in plan.run if pool_of(entry) == self._pool]
        altered, ready, awaiting = alters_first(self._replica, ready, self._backoff)
        awaiting |= {
            node: f"{result_of(entry)} was begun in a session that is over; it is being finished"
            for node, entry in ready
            if result_of(entry) in elsewhere
        }
        ready = [one for one in ready if one[0] not in awaiting]
        return altered, ready[: limits.ENTRIES_PER_CLAIM_MAX], awaiting

    def _note_postponed(self, waiting: Iterable[str], queued: Collection[str]) -> None:
        """Note which entries are waiting, on the disk once a second at most; looks in between are
        counted and noted together.
        """
        self._postponed.update(waiting)
        now_s = self._replica.clock.monotonic_s()
        if self._postponed and now_s - self._postponed_noted_s >= POSTPONED_EVERY_S:
            self._replica.store.postponed.add(
                dict(self._postponed), frozenset(queued), self._replica.clock.now_s()
            )
            self._postponed.clear()
            self._postponed_noted_s = now_s

    def _under_way(self) -> frozenset[str]:
        """The queue nodes that our batches still hold. Asked before the queue is listed: an entry
        that has been published by then has left the queue with that, and must not be finished once
        more.
        """
        return frozenset(node for batch in self._begun for node in tuple(batch.left))

    def _count_open(
        self, view: QueueView, plan: Plan, tasks: Iterable[ClaimedEntry], looked_s: float
    ) -> int:
        """How many entries of this pool no batch of this process carries out, apart from those that
        failed and just wait for their next try. (Failed mutations do count: they may be tried as
        soon as one is killed.)
        """
        entries = view.entries
        taken = self._at_hand | self._under_way()  # some were published since the view was read
        taken |= {node for node, _ in plan.done} | {one.node for one in tasks}
        taken |= {
            node
            for node in self._backoff.waiting(looked_s)
            if not isinstance(entries.get(node), MutatePart)
        }
        ours = [
            node for node in taken if node in entries and pool_of(entries[node]) == self._pool
        ]
        return view.count(LANES[self._pool]) - len(ours)

    # --- what to do, and taking it ---

    def _tasks(
        self,
        view: QueueView,
        ready: Sequence[tuple[str, LogEntry]],
        done: list[PartDone],
        seen: SeenNodes,
    ) -> Iterator[ClaimedEntry]:
        """How each entry is carried out. Entries that can't be are added to `done`, with the
        reason.
        """
        wanted: list[tuple[str, LogEntry]] = []
        taken: list[PartName] = []
        attached = self._attached_here(ready)
        for node, entry in ready:
            sweep = sweep_of(entry)
            if sweep is not None:
                task = ClaimedEntry(node, entry, sweep)
                taken += task.produces
                yield task
                continue
            here = self._here(view, entry, attached)
            if isinstance(here, FetchResult):
                wanted.append((node, entry))
            else:
                taken.append(here.part)
                yield ClaimedEntry(node, entry, here)
        yield from self._fetches(view, wanted, taken, done, seen)

    def _fetches(
        self,
        view: QueueView,
        wanted: Sequence[tuple[str, LogEntry]],
        taken: list[PartName],
        done: list[PartDone],
        seen: SeenNodes,
    ) -> Iterator[ClaimedEntry]:
        """From where the part of each of these entries is fetched, as `_tasks`. `taken` are the
        parts that other entries make.

        A part that is fetched because it covers the wanted one may overlap parts that other entries
        want, bring as a replacement, or drop. Of entries that overlap only the first is taken; the
        next step does the rest.
        """
        parts = [(_result(entry), entry.source_replica) for _, entry in wanted]
        failed = {
            _result(entry): peers
            for node, entry in wanted
            if (peers := self._backoff.peers_failed(node))
        }
        sources = find_sources(self._replica, parts, failed, seen) if parts else {}
        nowhere = {
            node: entry
            for node, entry in wanted
            if not isinstance(sources[_result(entry)], PartSource)
        }
        make_again(self._replica, nowhere.values())
        given_up = finish_failed(self._replica, nowhere)
        wanted = [one for one in wanted if one[0] not in given_up]
        lacking = (_result(entry) for node, entry in nowhere.items() if node not in given_up)
        missing = why_missing(self._replica, lacking)
        covers = False
        for node, entry in wanted:
            source = sources[_result(entry)]
            if not isinstance(source, PartSource):
                left = what_is_left(self._replica, entry)
                if left is None:
                    why = missing.get(_result(entry))
                    error = NoReplicaHasPart(f"{source}: {why}") if why else source
                    done.append(self._carrier.failed(node, entry, error))
                else:  # it overlaps nothing: who has what contains it has it, too
                    yield ClaimedEntry(node, entry, left)
                continue
            if source.part != _result(entry):
                covers = True
                if view.may_take_actual_part(source.part, node) is not None:
                    self._backoff.forgive(node)
                    continue  # tried again at the next step, also where it has failed
            if covers and any(not source.part.disjoint(other) for other in taken):
                continue
            taken.append(source.part)
            recovers = isinstance(entry, GetPart) and entry.recovers
            request = replace(source.request, recovers=recovers)
            yield ClaimedEntry(node, entry, replace(source, request=request))

    def _attached_here(
        self, ready: Sequence[tuple[str, LogEntry]]
    ) -> Mapping[PartName, AttachHere]:
        """The parts that need not be fetched, because their bytes were detached here."""
        fetch_instead = self._replica.memory.fetch_instead
        entries = [
            entry
            for _, entry in ready
            if isinstance(entry, AttachPart) and entry.part not in fetch_instead
        ]
        return own_copies(self._replica, entries)

    def _here(
        self, view: QueueView, entry: LogEntry, attached: Mapping[PartName, AttachHere]
    ) -> MergeHere | MutateHere | AttachHere | FetchResult:
        if isinstance(entry, AttachPart) and entry.part in attached:
            return attached[entry.part]
        if isinstance(entry, MutatePart):
            return fetch_or_mutate(self._replica, view, entry)
        return fetch_or_merge(self._replica, view, entry)

    def _groups(
        self, tasks: Sequence[ClaimedEntry], sizes: Mapping[PartName, int]
    ) -> Iterator[tuple[ClaimedEntry, ...]]:
        """Group the tasks into batches, small ones before large. Fetches run side by side in any
        case; small merges share a job, and so do small mutations. A large one is alone, so that
        nothing waits for it; so is one that failed before, so that nothing fails with it.
        """
        alone: list[tuple[int, ClaimedEntry]] = []
        kinds = (DropHere, PartSource, ReplaceHere, MergeHere, MutateHere, AttachHere, PutBack)
        together: dict[type, list[ClaimedEntry]] = {kind: [] for kind in kinds}
        for task in tasks:
            size = sum(sizes.get(source, UNKNOWN_BYTES) for source in sources_of(task.entry))
            is_made = isinstance(task.how, MergeHere | MutateHere | AttachHere)
            if is_made and (
                size > limits.SMALL_MERGE_BYTES or self._backoff.has_failed(task.node)
            ):
                alone.append((size, task))
            else:
                together[type(task.how)].append(task)
        alone.sort(key=itemgetter(0))
        groups = [*together.values(), *([task] for _, task in alone)]
        yield from (tuple(group) for group in groups if group)


@dataclass(frozen=True, slots=True)
class PulledParts:
    """New parts that are claimed in the multi that copies their entries to the queue."""

    executor: Executor
    batch: Batch
    snapshot: QueueSnapshot
    view: QueueView

    def take(self, pull: Sequence[Op]) -> list[str] | None:
        """See `Holder.take_pulled`."""
        claims = {task.node: task.produces for task in self.batch.tasks}
        return self.batch.holder.take_pulled(self.snapshot, claims, pull)

    def end(self, *, is_right: bool) -> None:
        """See `Claiming`."""
        if is_right:
            self.executor.has_pulled(self.batch, self.view)
        else:
            self.executor.give_back(self.batch)


def _claimed_at_once(tasks: Sequence[ClaimedEntry]) -> Sequence[ClaimedEntry]:
    """The first of the tasks, as many as one multi claims: each claim names all parts that its
    entry produces, and a replacement's may be thousands. The next look takes the others.
    """

    def weigh(task: ClaimedEntry) -> int:
        names = sum(len(str(part)) + 1 for part in task.produces)
        return names + 3 * limits.OP_BYTES_OVERHEAD  # two operations, and who claims

    return next(cut(tasks, weigh, limits.MULTI_BYTES_MAX), ())


def _is_new_part(entry: LogEntry) -> bool:
    return isinstance(entry, GetPart) and not entry.recovers


def _may_be_claimed_again(task: ClaimedEntry) -> bool:
    """Whether `_may_run` can judge the entry: a merge, or the fetch of the very part that it
    wants.
    """
    how = task.how
    return isinstance(how, MergeHere) or (
        isinstance(how, PartSource) and how.part == _result(task.entry)
    )


def _may_run(view: QueueView, facts: Facts, tasks: Iterable[ClaimedEntry]) -> bool:
    """Whether these entries, which were chosen a moment ago, may all run side by side now."""
    for task in tasks:
        if task.node not in view.entries or view.decide(task.node, facts) != Run():
            return False
        if not all(source in view.current for source in sources_of(task.entry)):
            return False
        facts = facts.with_running(task.entry)
    return True


def _result(entry: LogEntry) -> PartName:
    part = result_of(entry)
    assert part is not None
    return part
