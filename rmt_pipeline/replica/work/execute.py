"""Work a replica's queue: decide, claim, run, publish.

    Executor.look ──► claimed batches ──carry_out──► parts
                          each beside the others

A look never waits for work. So what is large holds up nothing that is small: while it runs, others
are looked for, claimed and carried out. Any number of processes may do this for one replica at
once: claims keep them apart (design §4).
"""

import math
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import itemgetter
from typing import Literal

from rmt_pipeline.compute.merge.job import Merger
from rmt_pipeline.compute.mutate.job import Mutator
from rmt_pipeline.exchange.peers import Peers
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Corruption,
    NoReplicaHasPart,
    ReplicaRetired,
    RmtError,
)
from rmt_pipeline.protocol.log.entry import (
    AttachPart,
    LogEntry,
    MergeParts,
    MutatePart,
    kind_name,
    result_of,
    sources_of,
    subject_of,
    virtual_parts,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import Facts
from rmt_pipeline.protocol.queue.view import Plan, QueueView
from rmt_pipeline.replica.accounting import Accounts
from rmt_pipeline.replica.alter.apply import alters_first, unfinished_alters
from rmt_pipeline.replica.backoff import Backoff, longest_wait_s, record_failure
from rmt_pipeline.replica.claims import Holder
from rmt_pipeline.replica.fetch import PartSource, difference_from_promise, find_sources
from rmt_pipeline.replica.finish import finish_entries, finish_failed
from rmt_pipeline.replica.missing import why_missing
from rmt_pipeline.replica.partitions.attach import AttachHere, attach_here, own_copies
from rmt_pipeline.replica.publish import PartDiffers, Published, publish
from rmt_pipeline.replica.publish_batch import Ready, publish_batch
from rmt_pipeline.replica.quorum import awaited_parts
from rmt_pipeline.replica.replica import Replica, lost_error
from rmt_pipeline.replica.upkeep.check import manifest_here, manifest_seen
from rmt_pipeline.replica.work.drop import DropHere, drop_here
from rmt_pipeline.replica.work.merge import FetchResult, MergeHere, fetch_or_merge, merge_here
from rmt_pipeline.replica.work.mutate import MutateHere, fetch_or_mutate, mutate_here
from rmt_pipeline.replica.work.replace import ReplaceHere, replace_here, sweep_of
from rmt_pipeline.replica.work.single_merge import merges_awaited
from rmt_pipeline.replica.work.step import PartDone, Step
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import in_a_thread
from rmt_pipeline.zookeeper.keeper import Watch
from rmt_pipeline.zookeeper.snapshot import queue_snapshot, queued_entries

Pool = Literal["fetch", "merge"]
POOLS: tuple[Pool, ...] = ("fetch", "merge")
UNKNOWN_BYTES = limits.SMALL_MERGE_BYTES + 1  # of a source that is not here: taken for large
WAITING_SHOWN_MAX = 20
POSTPONED_EVERY_S = 1.0
CLONES_TOGETHER_MAX = 128  # a large part may come after them, and take long


@dataclass(frozen=True, slots=True)
class _Task:
    """An entry that is going to run: its part is fetched from a source, or made or dropped here."""

    node: str
    entry: LogEntry
    how: PartSource | MergeHere | MutateHere | AttachHere | DropHere | ReplaceHere

    @property
    def part(self) -> PartName:
        return self.how.part

    @property
    def produces(self) -> tuple[PartName, ...]:
        """What its claim names."""
        if isinstance(self.how, DropHere | ReplaceHere):
            return virtual_parts(self.entry)
        return tuple(dict.fromkeys([*virtual_parts(self.entry), self.part]))


@dataclass(slots=True)
class Batch:
    """Claimed entries that are carried out together: all are fetched, or merged, or mutated.

    `left` are those whose claims `holder` still holds. Only whoever carries the batch out changes
    it.
    """

    tasks: tuple[_Task, ...]
    holder: Holder
    left: dict[str, _Task] = field(init=False)

    def __post_init__(self) -> None:
        self.left = {task.node: task for task in self.tasks}


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the queue did by itself, and what it claimed: to be carried out."""

    step: Step
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class Tools:
    """What work needs besides the replica: who to fetch from, who merges, who mutates; and how to
    begin something beside the loop that looks: a thread, in a simulated world a task.
    """

    peers: Peers
    merger: Merger
    mutator: Mutator
    spawn: Callable[[Callable[[], None]], object] = in_a_thread


class Executor:
    """One pool of one replica in one process; remembers only when failures may be retried."""

    def __init__(self, replica: Replica, tools: Tools, pool: Pool) -> None:
        self._replica = replica
        self._tools = tools
        self._pool: Pool = pool
        self._backoff = Backoff()
        self._begun: list[Batch] = []
        self._at_hand: frozenset[str] = frozenset()
        self._left = 0
        self._postponed: Counter[str] = Counter()
        """How often each entry was left since that was noted last."""
        self._postponed_noted_s = -math.inf

    def step(self, watch: Watch | None) -> Step:
        """Look once, and carry out what was claimed, one batch after the other: for who waits for
        it. What broke as nobody expected is raised at the end.
        """
        looked_s = self._replica.clock.monotonic_s()
        look = self.look(watch)
        done = list(look.step.done)
        for number, batch in enumerate(look.batches):
            try:
                done += self.carry_out(batch)
            except BaseException:
                for later in look.batches[number + 1 :]:
                    self.give_back(later)
                raise
        for one in done:
            if one.bug is not None:
                raise one.bug
        next_s = self._backoff.next_s(looked_s, self._replica.clock.monotonic_s())
        return replace(look.step, done=tuple(done), next_retry_s=next_s)

    def glance(self, watch: Watch | None) -> Sequence[str]:
        """The queue, for `look`, if that might find something to do; else nothing. The watch fires
        when the queue changes.

        Any pool finishes what is done already, and who else would is not known: so the fetch pool
        looks whenever anything is queued.
        """
        replica = self._replica
        self._at_hand = self._under_way()
        queued = queued_entries(replica.keeper, replica.paths, replica.memory.queue, watch)
        entries = queued.values()
        if any(self._pool == "fetch" or pool_of(entry) == self._pool for entry in entries):
            return tuple(queued)
        self._left = 0
        self._begun = [one for one in self._begun if one.left]
        self._backoff.keep_only(frozenset())
        return ()

    @property
    def has_done_all(self) -> bool:
        """Whether the last look began whatever it found, and all of it is done: then the queue has
        changed by that, and what was in it is not there any more.
        """
        is_done = bool(self._begun) and not any(one.left for one in self._begun)
        return is_done and not self._left and not self._backoff.has_any

    def look(
        self,
        watch: Watch | None,
        elsewhere: Collection[PartName] = (),
        queue: Sequence[str] | None = None,
    ) -> Look:
        """Choose and claim what may run now, of the `queue` as it was seen a moment ago. The watch
        fires when the queue changes; and when claims do, once entries were left.

        `elsewhere` are parts that are being made still for a session that is over: they are left
        alone until they are whole, and then published, not made again. What ends the session or
        makes the replica read-only is raised; then nothing is claimed.
        """
        replica, clock = self._replica, self._replica.clock
        if queue is None:
            self._at_hand = self._under_way()
        claims_watch = watch if self._left else None
        snapshot = queue_snapshot(
            replica.keeper,
            replica.paths,
            replica.memory.queue,
            watch,
            claims_watch,
            names=queue,
        )
        if snapshot.is_lost:
            raise lost_error(replica)
        view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts)
        self._backoff.keep_only(frozenset(view.entries))
        self._backoff.notice_kills(replica, view.entries)
        facts = queue_facts(replica, view, manifest_here, merging=self._pool == "merge")
        plan = plan_of_pool(view, facts, self._pool)
        done = [node for node, _ in plan.done if node not in self._at_hand]
        finish_entries(replica, {node: view.entries[node] for node in done})
        now_s = clock.monotonic_s()
        ready = [
            (node, entry)
            for node, entry in plan.run
            if pool_of(entry) == self._pool and not self._backoff.waits(node, now_s)
        ]
        altered, ready, awaiting = alters_first(replica, ready, self._backoff)
        awaiting |= {
            node: f"{result_of(entry)} was begun in a session that is over; it is being finished"
            for node, entry in ready
            if result_of(entry) in elsewhere
        }
        ready = [one for one in ready if one[0] not in awaiting]
        failed: list[PartDone] = []
        tasks = list(self._tasks(view, ready[: limits.ENTRIES_PER_CLAIM_MAX], failed))
        waiting = [
            (node, reason)
            for node, reason in (*awaiting.items(), *plan.wait)
            if pool_of(view.entries[node]) == self._pool
        ]
        open_nodes = self._open(view, plan, now_s)
        step = Step(
            done=tuple(failed),
            finished_without_work=len(done) + altered,
            waiting=tuple(waiting[:WAITING_SHOWN_MAX]),
            next_retry_s=self._backoff.next_s(now_s, clock.monotonic_s()),
            left=len(open_nodes),
        )
        holder = Holder.new(replica)
        batches = tuple(Batch(group, holder) for group in self._groups(tasks, facts.sizes))
        look = Look(
            replace(step, left=len(open_nodes - {task.node for task in tasks})), batches
        )
        # Last of all: what is raised after it would leave claims behind.
        if tasks and not holder.take(snapshot, {task.node: task.produces for task in tasks}):
            look = Look(step)
        self._note_postponed({node for node, _ in waiting}, view.entries)
        self._left = look.step.left
        self._begun = [*(one for one in self._begun if one.left), *look.batches]
        return look

    def _note_postponed(self, waiting: Iterable[str], queued: Collection[str]) -> None:
        """Once a second at most: who looks more often notes several looks at once."""
        self._postponed.update(waiting)
        now_s = self._replica.clock.monotonic_s()
        if self._postponed and now_s - self._postponed_noted_s >= POSTPONED_EVERY_S:
            self._replica.store.postponed.add(
                dict(self._postponed), frozenset(queued), self._replica.clock.now_s()
            )
            self._postponed.clear()
            self._postponed_noted_s = now_s

    def _under_way(self) -> frozenset[str]:
        """What our hands are at. Asked before the queue is listed: what is done by then with its
        part published left the queue with that, and is not to be finished once more.
        """
        return frozenset(node for batch in self._begun for node in tuple(batch.left))

    def _open(self, view: QueueView, plan: Plan, looked_s: float) -> set[str]:
        """Entries of this pool that nobody here carries out, and that did not just wait until they
        may be tried again. (Mutations that failed may be tried as soon as one is killed.)
        """
        ours = self._under_way() | {node for node, _ in plan.done}
        return {
            node
            for node, entry in view.entries.items()
            if pool_of(entry) == self._pool
            and node not in ours
            and (isinstance(entry, MutatePart) or not self._backoff.waits(node, looked_s))
        }

    @staticmethod
    def give_back(batch: Batch) -> None:
        """What is left of a batch is not carried out here."""
        batch.holder.give_back(batch.left)
        batch.left.clear()

    # --- what to do, and taking it ---

    def _tasks(
        self,
        view: QueueView,
        ready: Sequence[tuple[str, LogEntry]],
        done: list[PartDone],
    ) -> Iterator[_Task]:
        """How each entry is carried out. Entries that can't be are in `done`, with the reason.

        A part that is fetched because it covers the wanted one may overlap what others of these
        entries want, bring as a replacement, or drop. Of those that overlap the first is taken; at
        the next step the rest is done.
        """
        wanted: list[tuple[str, LogEntry]] = []
        taken: list[PartName] = []
        attached = self._attached_here(ready)
        for node, entry in ready:
            sweep = sweep_of(entry)
            if sweep is not None:
                task = _Task(node, entry, sweep)
                taken += task.produces
                yield task
                continue
            here = self._here(view, entry, attached)
            if isinstance(here, FetchResult):
                wanted.append((node, entry))
            else:
                taken.append(here.part)
                yield _Task(node, entry, here)
        parts = [(_result(entry), entry.source_replica) for _, entry in wanted]
        failed = {
            _result(entry): peers
            for node, entry in wanted
            if (peers := self._backoff.peers_failed(node))
        }
        sources = find_sources(self._replica, parts, failed) if parts else {}
        nowhere = {
            node: entry
            for node, entry in wanted
            if not isinstance(sources[_result(entry)], PartSource)
        }
        given_up = finish_failed(self._replica, nowhere)
        wanted = [one for one in wanted if one[0] not in given_up]
        lacking = (_result(nowhere[node]) for node in nowhere.keys() - given_up)
        missing = why_missing(self._replica, lacking)
        covers = False
        for node, entry in wanted:
            source = sources[_result(entry)]
            if not isinstance(source, PartSource):
                if (part := _result(entry)) in missing:
                    source = NoReplicaHasPart(f"{source}: {missing[part]}")
                done.append(self._failed(node, entry, source))
                continue
            if source.part != _result(entry):
                covers = True
                if view.may_take_actual_part(source.part, node) is not None:
                    self._backoff.forgive(node)
                    continue  # tried again at the next step, also where it has failed
            if covers and any(not source.part.disjoint(other) for other in taken):
                continue
            taken.append(source.part)
            yield _Task(node, entry, source)

    def _attached_here(
        self, ready: Sequence[tuple[str, LogEntry]]
    ) -> Mapping[PartName, AttachHere]:
        """What need not be fetched: its bytes were detached here."""
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
        self, tasks: Sequence[_Task], sizes: Mapping[PartName, int]
    ) -> Iterator[tuple[_Task, ...]]:
        """What is carried out together, small before large. Fetches run side by side anyhow; small
        merges, and small mutations, share a job. A large one is alone, so that nothing waits for
        it; and one that failed before, so that nothing fails with it.
        """
        alone: list[tuple[int, _Task]] = []
        kinds = (DropHere, PartSource, ReplaceHere, MergeHere, MutateHere, AttachHere)
        together: dict[type, list[_Task]] = {kind: [] for kind in kinds}
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

    # --- doing it ---

    def carry_out(self, batch: Batch) -> Generator[PartDone, None, None]:
        """What became of each entry of a batch, as it is done.

        Failures of single entries are among the results, whatever broke; what ends the session is
        raised. However it ends, no claim of the batch is held afterwards.
        """
        try:
            yield from self._results(batch)
        except ReplicaRetired:
            raise
        except Exception as error:  # noqa: BLE001  told to people and to whoever called us
            for task in tuple(batch.left.values()):
                yield self._failed_task(batch, task, error)
        finally:
            self.give_back(batch)

    def _results(self, batch: Batch) -> Iterator[PartDone]:
        started_s = self._replica.clock.monotonic_s()
        kinds = {type(task.how) for task in batch.tasks}
        assert len(kinds) == 1, f"a batch is of one kind, not of {kinds}"
        hows = [task.how for task in batch.tasks]
        if fetches := [how for how in hows if isinstance(how, PartSource)]:
            yield from self._fetched(batch, fetches, started_s)
        elif isinstance(hows[0], DropHere | ReplaceHere):
            yield from self._swept(batch)
        elif isinstance(hows[0], AttachHere):
            yield from self._attached(batch, started_s)
        elif merges := [how for how in hows if isinstance(how, MergeHere)]:
            with closing(merge_here(self._replica, self._tools.merger, merges)) as results:
                yield from self._made(batch, results, started_s)
        elif mutations := [how for how in hows if isinstance(how, MutateHere)]:
            with closing(mutate_here(self._replica, self._tools.mutator, mutations)) as results:
                yield from self._made(batch, results, started_s)

    def _attached(self, batch: Batch, started_s: float) -> Iterator[PartDone]:
        """From copies that were detached here; one that is not as it was stays there, and the part
        is fetched at the next try.
        """
        replica = self._replica
        for task in batch.tasks:
            assert isinstance(task.how, AttachHere)
            made: StagedPart | RmtError
            try:
                made = attach_here(replica, task.how)
            except RmtError as error:
                replica.memory.fetch_instead.learn({task.part: None})
                made = error
            done = self._arrived(batch, task, made, replica.clock.monotonic_s() - started_s)
            if not done.error:
                replica.store.detached_parts.remove(task.how.name)
            yield done

    def _swept(self, batch: Batch) -> Iterator[PartDone]:
        """Drops and replacements, one after another, in the order of the queue."""
        replica = self._replica
        for task in batch.tasks:
            started_s = replica.clock.monotonic_s()
            try:
                if isinstance(task.how, DropHere):
                    swept = drop_here(replica, task.node, task.how)
                else:
                    assert isinstance(task.how, ReplaceHere)
                    swept = replace_here(replica, task.node, task.how, self._tools.peers)
            except ReplicaRetired:
                raise
            except Exception as error:  # noqa: BLE001  of this entry alone
                yield self._failed_task(batch, task, error)
                continue
            if not swept.is_claimed:  # it went with the entry
                del batch.left[task.node]
            yield PartDone(
                part=task.part,
                kind=kind_name(task.entry),
                rows=swept.rows,
                size_bytes=swept.size_bytes,
                rows_in=swept.rows_gone,
                bytes_in=swept.bytes_gone,
                sources=swept.gone,
                source_replica=task.entry.source_replica,
                lag_s=replica.clock.now_s() - task.entry.create_time,
                seconds=replica.clock.monotonic_s() - started_s,
            )

    def _fetched(
        self, batch: Batch, sources: Sequence[PartSource], started_s: float
    ) -> Iterator[PartDone]:
        """What an attempt has fetched whose session ended, or whose process died, is not asked for
        again, if it is what was promised.
        """
        replica = self._replica
        tasks = {
            task.how.request: task for task in batch.tasks if isinstance(task.how, PartSource)
        }
        by_part = {source.part: tasks[source.request] for source in sources}
        kept = replica.store.adopt(
            "fetch", {source.part: partial(_is_theirs, source) for source in sources}
        )
        for source in sources:
            if source.part in kept and self._differs(source, kept[source.part]):
                replica.store.discard(kept.pop(source.part))
        yield from self._arrived_together(
            batch, [(by_part[part], staged) for part, staged in kept.items()], started_s
        )
        requests = [source.request for source in sources if source.part not in kept]
        for together in self._tools.peers.fetch(requests, replica.store):
            arrived = [(tasks[request], outcome) for request, outcome in together]
            yield from self._arrived_together(batch, arrived, started_s)

    def _made(
        self,
        batch: Batch,
        results: Iterable[tuple[PartName, StagedPart | RmtError]],
        started_s: float,
    ) -> Iterator[PartDone]:
        """Parts that only got another name are published together, others one by one."""
        clock = self._replica.clock
        tasks = {task.part: task for task in batch.tasks}
        clones: list[Ready] = []

        def named() -> Iterator[PartDone]:
            for one, published in publish_batch(self._replica, clones) if clones else ():
                seconds = clock.monotonic_s() - started_s
                yield self._told(batch, tasks[one.part], published, seconds)
            clones.clear()

        accounts = Accounts(self._replica)
        for part, made in results:
            outcome = self._checked(accounts, tasks[part], made)
            if isinstance(outcome, StagedPart) and outcome.is_clone:
                clones.append(Ready(tasks[part].node, part, outcome))
            else:
                seconds = clock.monotonic_s() - started_s
                yield self._arrived(batch, tasks[part], outcome, seconds)
            if len(clones) == CLONES_TOGETHER_MAX:
                yield from named()
        yield from named()

    def _checked(
        self, accounts: Accounts, task: _Task, made: StagedPart | RmtError
    ) -> StagedPart | RmtError:
        """What was made; or why it may not be published. Then it is kept for the next try, unless
        it is made in no time.
        """
        if isinstance(made, StagedPart):
            try:
                accounts.require(task.entry, made)
            except ReplicaRetired:
                raise
            except RmtError as error:
                if made.is_clone:
                    self._replica.store.discard(made)
                return error
        return made

    def _arrived_together(
        self,
        batch: Batch,
        arrived: Sequence[tuple[_Task, StagedPart | RmtError]],
        started_s: float,
    ) -> Iterator[PartDone]:
        """Publish what was fetched, with one multi; or give entries back with the reason."""
        clock = self._replica.clock
        ready: list[Ready] = []
        for task, outcome in arrived:
            try:
                if isinstance(outcome, RmtError):
                    raise outcome
                ready.append(self._compared(task, outcome))
            except ReplicaRetired:
                raise
            except RmtError as error:
                yield self._failed_task(batch, task, error)
        tasks = {task.part: task for task, _ in arrived}
        for one, published in publish_batch(self._replica, ready) if ready else ():
            seconds = clock.monotonic_s() - started_s
            yield self._told(batch, tasks[one.part], published, seconds)

    def _compared(self, task: _Task, staged: StagedPart) -> Ready:
        """Raises Corruption when it is not what its sender has promised."""
        assert isinstance(task.how, PartSource)
        difference = self._differs(task.how, staged)
        if difference is not None:
            self._replica.store.discard(staged)
            raise Corruption(
                f"{self._replica}: {task.part} arrived from {task.how.replica} and is not what "
                f"ZooKeeper has for it: {difference}"
            )
        awaited = awaited_parts(task.entry)
        return Ready(task.node, task.part, staged, task.how.header is not None, awaited)

    def _differs(self, source: PartSource, staged: StagedPart) -> str | None:
        store = self._replica.store
        return difference_from_promise(store, source.part, staged, source.header)

    def _arrived(
        self, batch: Batch, task: _Task, outcome: StagedPart | RmtError, seconds: float
    ) -> PartDone:
        """Publish what was made; or give the entry back with the reason."""
        if isinstance(outcome, RmtError):
            return self._failed_task(batch, task, outcome)
        try:
            parts = awaited_parts(task.entry)
            published = publish(self._replica, task.node, task.part, outcome, awaited=parts)
        except ReplicaRetired:
            raise
        except Exception as error:  # noqa: BLE001  of this part alone
            return self._told(batch, task, error, seconds)
        return self._told(batch, task, published, seconds)

    def _told(
        self, batch: Batch, task: _Task, published: Published | Exception, seconds: float
    ) -> PartDone:
        """What became of a task; what could not be published is given back."""
        if isinstance(published, PartDiffers):
            self._replica.memory.fetch_instead.learn({task.part: None})
            return replace(self._failed_task(batch, task, published), differs=True)
        if isinstance(published, Exception):
            return self._failed_task(batch, task, published)
        if not published.is_claimed:  # it went with the entry
            del batch.left[task.node]
        rows_in, bytes_in = self._taken_in(task)
        return PartDone(
            part=published.part,
            kind="FETCH" if isinstance(task.how, PartSource) else kind_name(task.entry),
            rows=published.rows,
            size_bytes=published.size_bytes,
            rows_in=rows_in,
            bytes_in=bytes_in,
            sources=sources_of(task.entry),
            source_replica=task.how.replica if isinstance(task.how, PartSource) else "",
            lag_s=self._replica.clock.now_s() - task.entry.create_time,
            seconds=seconds,
        )

    def _taken_in(self, task: _Task) -> tuple[int, int]:
        """Rows and bytes of what a part was made of; nothing of a part that was fetched."""
        if isinstance(task.how, PartSource):
            return 0, 0
        looks = (manifest_seen(self._replica, part) for part in sources_of(task.entry))
        found = [one for one in looks if one is not None]
        return sum(one.rows for one in found), sum(one.bytes_on_disk for one in found)

    def _failed_task(self, batch: Batch, task: _Task, error: Exception) -> PartDone:
        peer = task.how.replica if isinstance(task.how, PartSource) else ""
        failed = self._failed(task.node, task.entry, error, batch.holder, peer)
        del batch.left[task.node]
        return failed

    def _failed(
        self,
        node: str,
        entry: LogEntry,
        error: Exception,
        holder: Holder | None = None,
        peer: str = "",
    ) -> PartDone:
        """The wait begins before the claim is given back: whoever looks next sees both."""
        tries = self._backoff.failed(
            node,
            self._replica.clock.monotonic_s(),
            longest_wait_s(self._replica, entry),
            peer=peer,
        )
        code = error.code if isinstance(error, RmtError) else "LOGICAL_ERROR"
        self._replica.store.errors.add(code, str(error), self._replica.clock.now_s())
        is_bug = not isinstance(error, RmtError | OSError)
        reason = f"unexpected {error!r}" if is_bug else str(error)
        try:
            record_failure(self._replica, node, tries, reason, holder=holder)
        except ReplicaRetired:
            if is_bug:  # what broke matters more than that nobody can be told in ZooKeeper
                raise error from None
            raise
        return PartDone(
            part=subject_of(entry),
            kind=kind_name(entry),
            error=reason,
            bug=error if is_bug else None,
        )


def _is_theirs(source: PartSource, manifest: Manifest) -> bool:
    """Whether this is, as far as ZooKeeper says, what that replica would send."""
    expected = source.header
    return expected is not None and manifest.header().difference(expected) is None


def queue_facts(
    replica: Replica,
    view: QueueView,
    look: Callable[[Replica, PartName], Manifest | None],
    *,
    merging: bool = True,
) -> Facts:
    """What is known here beside the queue: how large the parts are that its merges and mutations
    read, as far as they can be read; which slots claimed entries take; which merges others make.

    `merging=False` spares the question who makes them: no merge will be planned.
    """
    claimed = [view.entries[node] for node in view.claims if node in view.entries]
    unclaimed = (entry for node, entry in view.entries.items() if node not in view.claims)
    sources = {
        source
        for entry in view.entries.values()
        if isinstance(entry, MergeParts | MutatePart)
        for source in sources_of(entry)
        if source in view.current
    }
    facts = Facts(
        ttl_merges_max=replica.settings.max_number_of_merges_with_ttl_in_pool,
        size_limits=replica.size_limits(),
        sizes={
            source: manifest.bytes_on_disk
            for source in sources
            if (manifest := look(replica, source)) is not None
        },
        merges_elsewhere=merges_awaited(replica, unclaimed) if merging else {},
        unfinished_alters=unfinished_alters(replica, view.entries),
        stopped=replica.store.marks.stopped(),
    )
    return reduce(Facts.with_running, claimed, facts)


def plan_of_pool(view: QueueView, facts: Facts, pool: Pool) -> Plan:
    """The plan for workers of this pool; what others can run is in it too.

    Merges wait for fetches that come before them, but no fetch for a merge that has not begun:
    the merge may lack the very part that is to be fetched again.
    """
    merges = [node for node, entry in view.entries.items() if pool_of(entry) == "merge"]
    skip = frozenset(merges) if pool == "fetch" else frozenset()
    return view.plan(facts, limits.ENTRIES_PER_STEP_MAX, skip)


def pool_of(entry: LogEntry) -> Pool:
    """Merges and mutations compute; everything else is quick (spec §4.10)."""
    return "merge" if isinstance(entry, MergeParts | MutatePart) else "fetch"


def _result(entry: LogEntry) -> PartName:
    part = result_of(entry)
    assert part is not None
    return part
