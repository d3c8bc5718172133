"""Carrying out claimed queue entries: their part is fetched, made or dropped, and published (design
§4).
"""

from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from rmt_pipeline.compute.merge.job import Merger
from rmt_pipeline.compute.mutate.job import Mutator
from rmt_pipeline.exchange.peers import Peers
from rmt_pipeline.protocol.errors import (
    Corruption,
    ReplicaRetired,
    RmtError,
)
from rmt_pipeline.protocol.log.entry import (
    LogEntry,
    ReplaceRange,
    kind_name,
    parts_brought,
    sources_of,
    subject_of,
    virtual_parts,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.text import shortened
from rmt_pipeline.replica.accounting import Accounts
from rmt_pipeline.replica.backoff import Backoff, longest_wait_s, record_failure
from rmt_pipeline.replica.claims import Holder
from rmt_pipeline.replica.fetch import PartSource, broken_promise
from rmt_pipeline.replica.partitions.attach import AttachHere, attach_here
from rmt_pipeline.replica.publish import PartDiffers, Published, publish
from rmt_pipeline.replica.publish_batch import Ready, publish_batch
from rmt_pipeline.replica.put_back import PutBack, is_unseen, stage_what_is_left
from rmt_pipeline.replica.quorum import awaited_parts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import manifest_seen
from rmt_pipeline.replica.upkeep.commit_notes import settle_notes
from rmt_pipeline.replica.work.drop import DropHere, drop_here
from rmt_pipeline.replica.work.merge import MergeHere, merge_here
from rmt_pipeline.replica.work.mutate import MutateHere, mutate_here
from rmt_pipeline.replica.work.replace import ReplaceHere, replace_here
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import in_a_thread

YOUNG_S = 5.0  # since an entry was written
MADE_TOGETHER_MAX = 128  # they must not wait long for a large part that comes after them
QUICK_S = 0.5  # for a part: several that are made in less are published together
HELD_MAX_S = 1.0  # before such parts are published


@dataclass(frozen=True, slots=True)
class ClaimedEntry:
    """An entry that is going to run. `how` says whether its part is fetched from a source, made or
    dropped here.
    """

    node: str
    entry: LogEntry
    how: PartSource | MergeHere | MutateHere | AttachHere | DropHere | ReplaceHere | PutBack

    @property
    def part(self) -> PartName:
        return self.how.part

    @property
    def produces(self) -> tuple[PartName, ...]:
        """The parts that its claim names."""
        if isinstance(self.how, DropHere | ReplaceHere):
            return virtual_parts(self.entry)
        return tuple(dict.fromkeys([*virtual_parts(self.entry), self.part]))


@dataclass(slots=True)
class Batch:
    """Claimed entries that are carried out together: all of them are fetched, or merged, or
    mutated, and so on.

    `left` are those whose claims `holder` still holds. Only the thread that carries the batch out
    changes it.
    """

    tasks: tuple[ClaimedEntry, ...]
    holder: Holder
    left: dict[str, ClaimedEntry] = field(init=False)

    def __post_init__(self) -> None:
        self.left = {task.node: task for task in self.tasks}


@dataclass(frozen=True, slots=True)
class Tools:
    """What work needs besides the replica: peers to fetch from, a merger, a mutator; and `spawn`,
    which begins something beside the loop: in a thread, or in a simulated world as a task. `run_id`
    is the Dagster run that works, for the part log.
    """

    peers: Peers
    merger: Merger
    mutator: Mutator
    spawn: Callable[[Callable[[], None]], object] = in_a_thread
    run_id: str = ""


class BatchCarrier:
    """Carries out the batches of one pool of one replica. `backoff` keeps what failed, and when it
    may be tried again.
    """

    def __init__(self, replica: Replica, tools: Tools, backoff: Backoff) -> None:
        self._replica = replica
        self._tools = tools
        self._backoff = backoff
        self._has_adopted = False

    def carry_out(self, batch: Batch) -> Generator[PartDone, None, None]:
        """Carry out a batch; yields what became of each entry, as it is done.

        Failures of single entries are among the results, whatever broke; an error that ends the
        session is raised. However this ends, no claim of the batch is held afterwards.
        """
        try:
            yield from self._results(batch)
        except ReplicaRetired:
            raise
        except Exception as error:  # noqa: BLE001  noted for people and given to the caller
            for task in tuple(batch.left.values()):
                yield self._failed_task(batch, task, error)
        finally:
            self.give_back(batch)

    @staticmethod
    def give_back(batch: Batch) -> None:
        """Give back the claims of the entries that are left: they are not carried out here."""
        batch.holder.give_back(batch.left)
        batch.left.clear()

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
        elif isinstance(hows[0], PutBack):
            yield from self._put_back(batch, started_s)
        elif merges := [how for how in hows if isinstance(how, MergeHere)]:
            left = self._may_be_left(batch.tasks)
            with closing(
                merge_here(self._replica, self._tools.merger, merges, left)
            ) as results:
                yield from self._made(batch, results, started_s)
        elif mutations := [how for how in hows if isinstance(how, MutateHere)]:
            left = self._may_be_left(batch.tasks)
            with closing(
                mutate_here(self._replica, self._tools.mutator, mutations, left)
            ) as results:
                yield from self._made(batch, results, started_s)

    def _attached(self, batch: Batch, started_s: float) -> Iterator[PartDone]:
        """Attach copies that were detached here. If a copy is not what it was, it stays in
        `detached/`, and the part is fetched at the next try.
        """
        replica = self._replica
        for task in batch.tasks:
            assert isinstance(task.how, AttachHere)
            with attach_here(replica, task.how) as made:
                if isinstance(made, RmtError):
                    replica.memory.fetch_instead.learn({task.part: None})
                seconds = replica.clock.monotonic_s() - started_s
                done = self._arrived(batch, task, made, seconds)
            yield done

    def _put_back(self, batch: Batch, started_s: float) -> Iterator[PartDone]:
        """Publish what this disk has left of parts that no other replica has, if it is whole after
        all.
        """
        clock = self._replica.clock
        for task in batch.tasks:
            made: StagedPart | RmtError
            try:
                made = stage_what_is_left(self._replica, task.node, task.part)
            except RmtError as error:
                made = error
            yield self._arrived(batch, task, made, clock.monotonic_s() - started_s)

    def _swept(self, batch: Batch) -> Iterator[PartDone]:
        """Carry out drops and replacements one after another, in the order of the queue."""
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
            if not swept.is_claimed:  # the claim went with the entry
                del batch.left[task.node]
            yield PartDone(
                part=task.part,
                kind=kind_name(task.entry),
                rows=swept.rows,
                size_bytes=swept.size_bytes,
                rows_in=swept.rows_gone,
                bytes_in=swept.bytes_gone,
                sources=swept.gone,
                came=task.entry.new_parts if isinstance(task.entry, ReplaceRange) else (),
                detaches=isinstance(task.how, DropHere) and task.how.entry.detach,
                source_replica=task.entry.source_replica,
                entry_id=task.entry.entry_id,
                asked_by=task.entry.asked_by,
                lag_s=replica.clock.now_s() - task.entry.create_time,
                seconds=replica.clock.monotonic_s() - started_s,
            )

    def _fetched(
        self, batch: Batch, sources: Sequence[PartSource], started_s: float
    ) -> Iterator[PartDone]:
        """Fetch and publish parts. A part that an earlier attempt has fetched before its session
        ended or its process died is not fetched again, if it is what was promised.
        """
        tasks = {
            task.how.request: task for task in batch.tasks if isinstance(task.how, PartSource)
        }
        by_part = {source.part: tasks[source.request] for source in sources}
        kept = self._fetched_before(sources, by_part)
        yield from self._arrived_together(
            batch, [(by_part[part], staged) for part, staged in kept.items()], started_s
        )
        requests = [source.request for source in sources if source.part not in kept]
        for together in self._tools.peers.fetch(requests, self._replica.store):
            arrived = [(tasks[request], outcome) for request, outcome in together]
            yield from self._arrived_together(batch, arrived, started_s)

    def _may_be_left(self, tasks: Iterable[ClaimedEntry]) -> frozenset[PartName]:
        """The parts of these entries that an earlier attempt may have fetched or made.

        To find them, the table's directory is listed, with all parts that are in it. A process that
        dies holds its claims for longer than an entry is young, so a young one is looked for only
        once in a session: this process may have left it. At worst a part is fetched or made once
        more.
        """
        now_s, is_first = self._replica.clock.now_s(), not self._has_adopted
        self._has_adopted = True
        return frozenset(
            task.part for task in tasks if is_first or now_s - task.entry.create_time >= YOUNG_S
        )

    def _fetched_before(
        self, sources: Sequence[PartSource], tasks: Mapping[PartName, ClaimedEntry]
    ) -> dict[PartName, StagedPart]:
        """Those parts that an earlier attempt has fetched, if they are what was promised."""
        left = self._may_be_left([tasks[source.part] for source in sources])
        wanted = [source for source in sources if source.part in left]
        if not wanted:
            return {}
        kept = self._replica.store.adopt(
            "fetch", {source.part: partial(_is_theirs, source) for source in wanted}
        )
        for source in wanted:
            if source.part in kept and self._differs(source, kept[source.part]):
                del kept[source.part]
        return kept

    def _made(
        self,
        batch: Batch,
        results: Iterable[tuple[PartName, StagedPart | RmtError]],
        started_s: float,
    ) -> Iterator[PartDone]:
        """Publish parts that were made here: together as many as are made in no time, such as small
        merges, and parts that only got another name (clones); others one by one.
        """
        clock = self._replica.clock
        tasks = {task.part: task for task in batch.tasks}
        ready: list[Ready] = []
        accounts = Accounts(self._replica, [task.entry for task in batch.tasks])
        held_s = started_s
        for count, (part, made) in enumerate(results, 1):
            task, outcome = tasks[part], self._checked(accounts, tasks[part], made)
            now_s = clock.monotonic_s()
            if isinstance(outcome, RmtError):
                yield self._failed_task(batch, task, outcome)
            elif (settled := self._settled(task, outcome)) is not None:
                yield self._told(batch, task, settled, now_s - started_s)
            else:
                ready.append(Ready(task.node, part, outcome))
            is_quick = now_s - started_s <= count * QUICK_S and now_s - held_s <= HELD_MAX_S
            is_quick = is_quick or all(one.staged.is_clone for one in ready)
            if not is_quick or len(ready) == MADE_TOGETHER_MAX:
                yield from self._published(batch, ready, started_s)
                ready.clear()
                held_s = clock.monotonic_s()
        yield from self._published(batch, ready, started_s)

    def _settled(self, task: ClaimedEntry, staged: StagedPart) -> Exception | None:
        """Settle the notes about what the part covers (see `settle_notes`); an error is of this
        part alone. A clone covers what its source covers.
        """
        try:
            if not staged.is_clone:
                settle_notes(self._replica, task.part)
        except ReplicaRetired:
            raise
        except Exception as error:  # noqa: BLE001  of this part alone
            return error
        return None

    def _checked(
        self, accounts: Accounts, task: ClaimedEntry, made: StagedPart | RmtError
    ) -> StagedPart | RmtError:
        """The part that was made, or the error why it may not be published. In the latter case it
        stays staged for the next try, unless it is a clone, which is made in no time.
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
        arrived: Sequence[tuple[ClaimedEntry, StagedPart | RmtError]],
        started_s: float,
    ) -> Iterator[PartDone]:
        """Publish parts that were fetched, with one multi; or give their entries back with the
        reason.
        """
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
        yield from self._published(batch, ready, started_s)

    def _published(
        self, batch: Batch, ready: Sequence[Ready], started_s: float
    ) -> Iterator[PartDone]:
        """Publish these parts, if there are any; yields what became of each."""
        clock = self._replica.clock
        for one, published in publish_batch(self._replica, ready) if ready else ():
            seconds = clock.monotonic_s() - started_s
            yield self._told(batch, batch.left[one.node], published, seconds)

    def _differs(self, source: PartSource, staged: StagedPart) -> Corruption | None:
        promised, sender = source.header, source.replica
        return broken_promise(self._replica, source.part, staged, promised, sender)

    def _compared(self, task: ClaimedEntry, staged: StagedPart) -> Ready:
        """The part, ready to be published. Raises Corruption, and discards it, if it is not what
        ZooKeeper has promised for it.
        """
        assert isinstance(task.how, PartSource)
        source = task.how
        if (error := self._differs(source, staged)) is not None:
            raise error
        settle_notes(self._replica, task.part)
        awaited = awaited_parts(task.entry)
        return Ready(task.node, task.part, staged, source.header is not None, awaited)

    def _arrived(
        self, batch: Batch, task: ClaimedEntry, outcome: StagedPart | RmtError, seconds: float
    ) -> PartDone:
        """Publish the part that was made; or give the entry back with the reason."""
        if isinstance(outcome, RmtError):
            return self._failed_task(batch, task, outcome)
        try:
            parts = awaited_parts(task.entry)
            settle_notes(self._replica, task.part)
            published = publish(self._replica, task.node, task.part, outcome, awaited=parts)
        except ReplicaRetired:
            raise
        except Exception as error:  # noqa: BLE001  of this part alone
            return self._told(batch, task, error, seconds)
        return self._told(batch, task, published, seconds)

    def _told(
        self, batch: Batch, task: ClaimedEntry, published: Published | Exception, seconds: float
    ) -> PartDone:
        """The result of a task that was published or failed. A failed entry is given back."""
        if isinstance(published, PartDiffers):
            self._replica.memory.fetch_instead.learn({task.part: None})
            return replace(self._failed_task(batch, task, published), differs=True)
        if isinstance(published, Exception):
            return self._failed_task(batch, task, published)
        if not published.is_claimed:  # the claim went with the entry
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

    def _taken_in(self, task: ClaimedEntry) -> tuple[int, int]:
        """Rows and bytes of the sources that a part was made of; 0 for a part that was fetched."""
        if isinstance(task.how, PartSource):
            return 0, 0
        looks = (manifest_seen(self._replica, part) for part in sources_of(task.entry))
        found = [one for one in looks if one is not None]
        return sum(one.rows for one in found), sum(one.bytes_on_disk for one in found)

    def _failed_task(self, batch: Batch, task: ClaimedEntry, error: Exception) -> PartDone:
        peer = task.how.replica if isinstance(task.how, PartSource) else ""
        failed = self.failed(task.node, task.entry, error, batch.holder, peer)
        del batch.left[task.node]
        return failed

    def failed(
        self,
        node: str,
        entry: LogEntry,
        error: Exception,
        holder: Holder | None = None,
        peer: str = "",
    ) -> PartDone:
        """Record that an entry failed, and give back the claim of `holder`. The wait before the
        next try begins before the claim is given back, so that the next look sees both.
        """
        tries = self._backoff.failed(
            node,
            self._replica.clock.monotonic_s(),
            longest_wait_s(self._replica, entry),
            peer=peer,
        )
        code = error.code if isinstance(error, RmtError) else "LOGICAL_ERROR"
        self._replica.store.errors.add(code, str(error), self._replica.clock.now_s())
        is_bug = not isinstance(error, RmtError | OSError)
        reason = shortened(f"unexpected {error!r}" if is_bug else str(error))
        try:
            record_failure(
                self._replica,
                node,
                tries,
                reason,
                holder=holder,
                is_unseen=any(is_unseen(self._replica, part) for part in parts_brought(entry)),
            )
        except ReplicaRetired:
            if is_bug:  # the bug matters more than that it can't be noted in ZooKeeper
                raise error from None
            raise
        return PartDone(
            part=subject_of(entry),
            kind=kind_name(entry),
            error=reason,
            bug=error if is_bug else None,
        )


def _is_theirs(source: PartSource, manifest: Manifest) -> bool:
    """Whether a part with this manifest is, according to ZooKeeper, what that replica would
    send.
    """
    expected = source.header
    return expected is not None and manifest.header().difference(expected) is None
