"""The loop that works one pool of one replica: pull the log, have entries carried out, wait for
watches (design §6).

The same loop serves Dagster's runs (which end after some idle seconds), `rmt worker` and `rmt serve
--work` (which never end by themselves). The loop looks, claims, assigns and reports; everything
that takes long is done beside it, by its hands. So a large entry holds up only entries that need
it.
"""

import math
import threading
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal
from zlib import crc32

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import (
    Corruption,
    OutcomeUnknown,
    ReplicaDropped,
    ReplicaRetired,
    RmtError,
    TableDetached,
    Unavailable,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.duty import MergeDuty, MutationDuty
from rmt_pipeline.replica.assign.merges import Assigned
from rmt_pipeline.replica.pull_log import PutOff, pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import suspect
from rmt_pipeline.replica.work import net as nets
from rmt_pipeline.replica.work.carry import Batch, Tools
from rmt_pipeline.replica.work.execute import Executor, Look
from rmt_pipeline.replica.work.net import Counts, SafetyNet
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.step import PartDone, Step, events_of
from rmt_pipeline.system import Signal, Waker
from rmt_pipeline.zookeeper.keeper import Keeper

BATCHES_MAX = 64  # at once, of one pool; slots are a closer limit unless batches are tiny
SAFETY_NET_S = 300.0  # a watch that was missed costs at most this
PATIENCE_FIRST_S, PATIENCE_MAX_S = 1.0, 8.0
"""Before a look for what no watch reports; it doubles after each look that finds nothing."""
WAIT_MIN_S = 0.001  # a clock may not measure shorter times
STOP_LOOK_S = 1.0  # between looks at `should_stop`, if the loop ends when it is idle
REST_MAX_S = 0.01  # between looks that find something, while the hands are busy
HANDS_WAIT_S = 1.0  # at most; the hands wake the loop when something is done
OWN_CHANGES_S = 0.5  # before a queue that we emptied is listed again without a new log entry
OWN_INSERTS_REST_S = 0.02  # after a look at the log that found only what was inserted here
TROUBLE_WAIT_S = 0.5  # after an error; doubles each time that there is one again
TROUBLE_WAIT_MAX_S = 8.0
MERGE_LOOK_EVERY_S, MERGE_LOOK_EVERY_MAX_S = 0.2, 0.8
"""A busy log wakes the merge pool at most this often; the pause doubles each time that nothing was
found.
"""
MERGE_LOOK_SOON_S = 0.01  # the first such pause if a merge waits, usually for a part to arrive


Stop = Literal["", "idle", "deadline", "asked", "detached"]


@dataclass(frozen=True, slots=True)
class Flush:
    """Entries that were carried out, or failed, since the last flush."""

    table: str
    replica: str
    parts: tuple[PartDone, ...]


@dataclass(slots=True)
class WorkSummary:
    """What one call of `work` did, and why the entries that still waited at its end did so."""

    parts: int = 0
    rows: int = 0
    size_bytes: int = 0
    failures: int = 0
    differed: int = 0
    """How many results were not what another replica had published; theirs were fetched."""
    assigned: int = 0
    finished_without_work: int = 0
    stopped: Stop = ""
    waiting: tuple[tuple[str, str], ...] = field(default=())

    def looked(self, step: Step) -> None:
        self.finished_without_work += step.finished_without_work
        self.waiting = step.waiting

    def add(self, parts: Collection[PartDone]) -> None:
        for done in parts:
            if done.error:
                self.failures += 1
                self.differed += done.differs
                continue
            self.parts += 1
            self.rows += done.rows
            self.size_bytes += done.size_bytes


class Hands:
    """Carries out batches beside the loop, each in its own thread or task (`spawn`).
    Thread-safe.
    """

    def __init__(self, tools: Tools, waker: Waker) -> None:
        """The waker is woken whenever an entry is done: others may be possible then."""
        self._spawn = tools.spawn
        self._waker = waker
        self._lock = threading.Lock()
        self._running: list[Batch] = []
        self._done: list[PartDone] = []
        self._ended = 0
        self._broke: Exception | None = None

    @property
    def count(self) -> int:
        """How many batches are being carried out."""
        with self._lock:
            return len(self._running)

    @property
    def ended(self) -> int:
        """How many batches have ended, whatever became of them."""
        with self._lock:
            return self._ended

    @property
    def are_busy(self) -> bool:
        return self.count > 0

    @property
    def have_done(self) -> bool:
        """Whether there are results, or an error, that `taken` has not told yet."""
        with self._lock:
            return bool(self._done) or self._broke is not None

    def begin(self, executor: Executor, batch: Batch) -> None:
        with self._lock:
            self._running.append(batch)
        try:
            self._spawn(lambda: self._run(executor, batch))
        except BaseException:
            with self._lock:
                self._running.remove(batch)
            executor.give_back(batch)
            raise

    def taken(self) -> tuple[PartDone, ...]:
        """The entries that were carried out, or failed, since the last call. If there are none,
        raises an error that belongs to no entry, if there was one: what was done before it is told
        first.
        """
        with self._lock:
            done, self._done = self._done, []
            broke = None
            if not done:
                broke, self._broke = self._broke, None
        if broke is not None:
            raise broke
        return tuple(done)

    def made_elsewhere(self, session: Keeper) -> frozenset[PartName]:
        """The parts that batches of earlier sessions are still making. Their claims ended with
        those sessions, so the entries may be claimed again; the worker that does so then finds the
        finished part.
        """
        with self._lock:
            others = [one for one in self._running if one.holder.replica.session is not session]
        return frozenset(task.part for batch in others for task in list(batch.left.values()))

    def _run(self, executor: Executor, batch: Batch) -> None:
        try:
            with closing(executor.carry_out(batch)) as results:
                for done in results:
                    with self._lock:
                        self._done.append(done)
                    self._waker.wake()
        except RmtError:
            pass  # the session is over or ZooKeeper is silent; the loop finds out by itself
        except Exception as error:  # noqa: BLE001  raised in the loop
            with self._lock:
                self._broke = error
        finally:
            with self._lock:
                self._running.remove(batch)
                self._ended += 1
            self._waker.wake()


class Worker:
    """Works one pool of one replica, bound to its session. `turn` looks at what may have changed.

    Watches tell what changed: the log, which the fetch pool pulls; the queue; and claims, while
    there are entries that wait for those of other workers. What no watch reports is looked at when
    it is due. When nothing is left to do, everything is looked at once every few minutes
    (`SAFETY_NET_S`), in case a watch was missed. With a `net`, which its process shares, it is then
    looked at only if something has changed since the last time.
    """

    def __init__(
        self,
        replica: Replica,
        tools: Tools,
        pool: Pool,
        waker: Waker,
        *,
        select: bool,
        is_endless: bool = False,
        net: SafetyNet | None = None,
    ) -> None:
        """With `select`, the merge pool also assigns merges and mutations of parts (a leader's
        duty, spec §6.1), and notes which mutations are finished. A worker that `is_endless` may put
        off what no client waits for.
        """
        self.replica = replica
        self.pool = pool
        self.executor = Executor(replica, tools, pool)
        self._waker = waker
        self._select = select
        self._mutations = MutationDuty(replica)
        self._merges = MergeDuty(replica)
        self._log = Signal(waker)
        self._queue = Signal(waker)
        self._to_merge = Signal(waker)
        if pool == "merge":
            replica.memory.wakers.learn({pool: self._to_merge.fire})
        self.has_got_merge = False
        """Whether a merge or a mutation was copied to the queue before the last turn."""
        self._waiting: tuple[tuple[str, str], ...] = ()
        self._retry_s = math.inf
        self._pulled_to: int | None = None
        self._rested_s = -math.inf
        self._put_off = PutOff() if is_endless else None
        replica.memory.passes_by = replica.memory.passes_by or is_endless
        self._patience_s = PATIENCE_FIRST_S
        self._all_next_s = -math.inf
        self._net = net
        self._seen: Counts = ()
        """The counts of `net` from before everything was last looked at."""

    def turn(
        self, *, progress: bool = False, elsewhere: Collection[PartName] = ()
    ) -> tuple[Look, list[Assigned]]:
        """The fetch pool pulls the log; the merge pool follows the queue that this fills. Returns
        the look, with the batches that it claimed for the caller to carry out, and what was
        assigned.

        `progress`: something was done since the last turn. If this raises, nothing is claimed, and
        the next turn looks at everything. A part that can't be read stops nothing else: it is
        fetched again, and the next turn goes on without it.
        """
        look = Look(Step())
        self.has_got_merge = self._to_merge.take()
        try:
            claimer = None if elsewhere else self.executor
            if self._now_s() >= self._all_next_s:
                self._look_at_net()
                claimer = None  # hardly anything has come
            is_filled = self.pool == "fetch" and self._pull(claimer)
            look = Look(Step(waiting=self._waiting), self.executor.taken_with_the_pull())
            found = self._look(progress=progress, is_filled=is_filled, elsewhere=elsewhere)
            look = Look(found.step, (*look.batches, *found.batches))
            return look, self._propose(look, progress=progress)
        except BaseException as error:
            self._log.renew()
            self._queue.renew()
            for batch in (*look.batches, *self.executor.taken_with_the_pull()):
                self.executor.give_back(batch)
            if not isinstance(error, Corruption):
                raise
            problem = suspect(self.replica, error)
            if problem is None or error.part is None:
                raise
            return Look(Step(done=(PartDone(error.part, "CHECK_PART", error=problem),))), []

    def _look_at_net(self) -> None:
        """Look at everything in this turn, unless the net says that nothing has changed; and set
        the time of the next look that no watch asks for. That time differs between tables, so that
        they do not all look at once.

        The log pointer is read again, too: a clone by another process may have moved it back, to
        that of a source that was behind, and then no watch tells that there is something to copy.
        """
        before = self._seen
        self._seen = () if self._net is None else self._net.look(self.replica)
        if self._net is not None and before == self._seen:
            self._merges.still_true()
        else:
            self.replica.memory.pointer = None
            self._log.renew()
            self._mutations.look_again()
            if self._net is not None:  # without one, `MergeDuty` trusts its view for an hour
                self._merges.look_again()
            self._retry_s = 0.0
        name = f"{self.replica.paths.root} {self.pool}".encode()
        most_s = SAFETY_NET_S - (0.0 if self._net is None else nets.VALID_S)
        self._all_next_s = self._now_s() + most_s * (0.6 + 0.4 * crc32(name) / 2**32)

    def _pull(self, claimer: Executor | None) -> bool:
        """Pull the log if its watch fired, or if entries that were put off are due. Returns whether
        the queue got entries that are not claimed yet, from us or from another loop that was
        faster.
        """
        if self._is_pulling_stopped():
            return False  # the log's watch stays fired until pulling goes on
        if self._now_s() < self._pull_due_s():
            return False
        self._log.take()
        pulled = pull_log(self.replica, self._log.fire, put_off=self._put_off, claimer=claimer)
        is_ours = not pulled.queued and self._put_off is not None and self._put_off.entries
        self._rested_s = self._now_s() + OWN_INSERTS_REST_S if is_ours else -math.inf
        before, self._pulled_to = self._pulled_to, pulled.pointer
        is_left = pulled.queued > self.executor.pulled_count
        return is_left or pulled.pointer - pulled.entries != before

    def _pull_due_s(self) -> float:
        """When the log is to be read next. A replica that takes inserts reads an entry for each
        insert, only to put it off. So after a look that found nothing else, it rests before it
        looks again: then one look finds several of them.
        """
        due_s = math.inf if self._put_off is None else self._put_off.due_s
        return min(due_s, self._rested_s) if self._log.is_fired else due_s

    def _is_pulling_stopped(self) -> bool:
        return Background.PULLING_REPLICATION_LOG in self.replica.store.marks.stopped()

    def _look(
        self, *, progress: bool, is_filled: bool, elsewhere: Collection[PartName]
    ) -> Look:
        """Look at the queue if it changed, if something was done, or if a retry is due.

        Our own pulls and fetches change the queue as well, for which the watch fires. If all that
        was in it has been begun, only the log fills it: so if another process has added an entry
        just then, that may wait for a moment.
        """
        is_due = self._now_s() >= self._retry_s
        if self._queue.take() or is_filled or progress:
            self._patience_s = PATIENCE_FIRST_S
            self._merges.look_again()
            if is_filled or self.pool != "fetch" or not self.executor.has_begun_all:
                is_due = True
            else:
                self._retry_s = min(self._retry_s, self._now_s() + OWN_CHANGES_S)
        if not is_due:
            return Look(Step(waiting=self._waiting))
        look = Look(Step())
        queue = self.executor.glance(self._queue.fire)
        if queue:
            look = self.executor.look(self._queue.fire, elsewhere, queue)
        step = look.step
        waits = [math.inf if step.next_retry_s is None else step.next_retry_s]
        if step.left and (look.batches or step.did_something):
            waits.append(0.0)
        elif step.left:
            waits.append(self._patience_s)
            self._patience_s = min(2 * self._patience_s, PATIENCE_MAX_S)
        self._waiting = step.waiting
        self._retry_s = self._now_s() + min(waits)
        return look

    def _propose(self, look: Look, *, progress: bool) -> list[Assigned]:
        if not self._select or self._is_pulling_stopped():
            return []
        if look.batches:
            return []  # they are begun first: an assignment takes a dozen requests
        did_something = progress or look.step.did_something
        assigned = self._mutations.turn(self._waker.wake, progress=did_something)
        if not assigned and not look.step.did_something:
            assigned = self._merges.turn()
        return assigned

    @property
    def has_come(self) -> bool:
        """Whether a merge or a mutation was copied to the queue since the last turn began."""
        return self._to_merge.is_fired

    def idle_s(self) -> float:
        """For how many seconds there is nothing to do, unless a watch fires earlier."""
        now_s = self._now_s()
        waits = [self._retry_s - now_s, self._all_next_s - now_s]
        stopped = self.replica.store.marks.stopped()
        if stopped:
            waits.append(PATIENCE_MAX_S)  # no watch reports when it is started again
        if Background.PULLING_REPLICATION_LOG in stopped:
            return max(0.0, min(waits))  # nothing is pulled or assigned then
        if self.pool == "fetch":
            waits.append(self._pull_due_s() - now_s)
        if self._select:
            waits += [self._merges.next_s(now_s), self._mutations.next_s(now_s)]
        return max(0.0, min(waits))

    def _now_s(self) -> float:
        return self.replica.clock.monotonic_s()


def work(
    replica: Callable[[], Replica],
    tools: Tools,
    pool: Pool,
    *,
    waker: Waker,
    linger_s: float | None,
    max_s: float | None = None,
    select: bool = False,
    net: SafetyNet | None = None,
    on_flush: Callable[[Flush], None],
    should_stop: Callable[[], bool],
) -> WorkSummary:
    """Work until idle for `linger_s` seconds (None: for ever), at most `max_s` seconds, or until
    the table is detached; then wait until what was begun is done.

    With `linger_s` None the caller must wake the `waker` when `should_stop` changes its answer.
    `replica` returns a Replica with a living session: when a session ends, it is asked for the next
    one. Raises ZooKeeperUnreachable when there is none, and ReplicaDropped.
    """
    loop = _Loop(
        replica,
        tools,
        pool,
        waker,
        select=select,
        is_endless=linger_s is None,
        net=net,
        on_flush=on_flush,
    )
    try:
        clock = replica().clock
    except TableDetached:
        return WorkSummary(stopped="detached")
    started_s = clock.monotonic_s()
    loop.busy_s = started_s
    try:
        while not loop.summary.stopped:
            now_s = clock.monotonic_s()
            idle_s = loop.idle_s(now_s)
            loop.summary.stopped = _why_stop(
                should_stop(), now_s - started_s, max_s, idle_s, linger_s
            )
            if not loop.summary.stopped:
                lingers_s = math.inf
                if linger_s is not None:  # then nothing wakes us when `should_stop` changes
                    lingers_s = min(linger_s - idle_s, STOP_LOOK_S)
                goes_on_s = math.inf if max_s is None else started_s + max_s - now_s
                try:
                    loop.turn(max(WAIT_MIN_S, min(lingers_s, goes_on_s)))
                except TableDetached:
                    loop.summary.stopped = "detached"
    except Exception:
        loop.finish()
        raise
    loop.finish()
    return loop.summary


class _Loop:
    """Looks, has its hands carry out what it finds, and waits for more."""

    def __init__(
        self,
        replica: Callable[[], Replica],
        tools: Tools,
        pool: Pool,
        waker: Waker,
        *,
        select: bool,
        is_endless: bool,
        net: SafetyNet | None,
        on_flush: Callable[[Flush], None],
    ) -> None:
        self.summary = WorkSummary()
        self.busy_s = 0.0
        """When there was something to do last, on the monotonic clock."""
        self._replica = replica
        self._tools = tools
        self._pool: Pool = pool
        self._waker = waker
        self._select = select
        self._is_endless = is_endless
        self._net = net
        self._on_flush = on_flush
        self._hands = Hands(tools, waker)
        self._worker: Worker | None = None
        self._ended = 0
        self._trouble_s = 0.0
        self._rest_s = MERGE_LOOK_EVERY_S

    def idle_s(self, now_s: float) -> float:
        """For how many seconds there has been nothing to do; 0 while a batch is being carried
        out.
        """
        if self._hands.are_busy or self._hands.have_done:
            self.busy_s = now_s
        return now_s - self.busy_s

    def turn(self, longest_s: float) -> None:
        """Look, begin what was found, and wait for something to do, at most `longest_s` seconds."""
        living = self._replica()
        if self._worker is None or self._worker.replica is not living:
            self._worker = Worker(
                living,
                self._tools,
                self._pool,
                self._waker,
                select=self._select,
                is_endless=self._is_endless,
                net=self._net,
            )
        worker, clock = self._worker, living.clock
        began_s = clock.monotonic_s()
        ended, before = self._hands.ended, self._ended
        progress = self._flush(self._hands.taken()) or ended > before
        if self._hands.count >= BATCHES_MAX:
            self.busy_s = began_s
            self._waker.wait_s(HANDS_WAIT_S)
            return
        looked = self._looked(worker, progress=progress)
        if looked is None:
            return
        look, assigned = looked
        self._trouble_s = 0.0
        self._ended = ended
        self._begin(worker, look)
        self.summary.looked(look.step)
        self.summary.assigned += len(assigned)
        found = bool(look.batches) or look.step.did_something or bool(assigned)
        self._flush(look.step.done)
        now_s = clock.monotonic_s()
        if found or progress or self._hands.are_busy:
            self.busy_s = now_s
        if found or progress or worker.has_got_merge:
            self._rest_s = MERGE_LOOK_SOON_S if look.step.left else MERGE_LOOK_EVERY_S
        if not found:
            self._wait(worker, longest_s)
        elif self._hands.are_busy:
            # The next look finds more at once. But what a slow look has made wait, because
            # ZooKeeper or the processor was busy, must not wait as long again.
            clock.sleep_s(min(now_s - began_s, REST_MAX_S))

    def _looked(self, worker: Worker, *, progress: bool) -> tuple[Look, list[Assigned]] | None:
        """What `Worker.turn` returns. After an error None, when it is time for the next try; or the
        error is raised, if another try does not help.
        """
        living = worker.replica
        try:
            return worker.turn(
                progress=progress, elsewhere=self._hands.made_elsewhere(living.session)
            )
        except (ReplicaRetired, Unavailable, OutcomeUnknown) as error:
            if isinstance(error, ReplicaDropped) and self._is_dropped(living):
                raise
            # No claim is held: requests without an answer are settled by the session itself, or
            # their effect is found when we look again.
            self._pause(error)
        except Exception as error:
            # It is raised when what was begun is done. That may take hours: until then we look
            # again, because the disk may have been full, or have failed, for a moment only.
            if not self._hands.are_busy:
                raise
            code = error.code if isinstance(error, RmtError) else "LOGICAL_ERROR"
            living.store.errors.add(code, str(error), living.clock.now_s())
            self._pause(error)
        return None

    def _begin(self, worker: Worker, look: Look) -> None:
        for number, batch in enumerate(look.batches):
            try:
                self._hands.begin(worker.executor, batch)
            except BaseException:
                for later in look.batches[number + 1 :]:
                    worker.executor.give_back(later)
                raise

    def _wait(self, worker: Worker, longest_s: float) -> None:
        self._waker.wait_s(min(worker.idle_s(), longest_s))
        if self._pool == "merge":
            self._rest(worker)

    def _rest(self, worker: Worker) -> None:
        """Let a busy log fill the queue, which wakes the merge pool with each insert, until there
        is something to merge or to report.
        """
        clock = worker.replica.clock
        until_s = clock.monotonic_s() + self._rest_s
        while not self._hands.have_done and not worker.has_come:
            left_s = until_s - clock.monotonic_s()
            if left_s < WAIT_MIN_S:
                self._rest_s = min(2 * self._rest_s, MERGE_LOOK_EVERY_MAX_S)
                break
            self._waker.wait_s(left_s)

    def finish(self) -> None:
        """Wait for what was begun, and report it. Raises the first error that belongs to no entry,
        at the end.
        """
        broke: Exception | None = None
        while self._hands.are_busy or self._hands.have_done:
            try:
                self._flush(self._hands.taken())
            except Exception as error:  # noqa: BLE001  raised below
                broke = broke or error
            if self._hands.are_busy:
                self._waker.wait_s(HANDS_WAIT_S)
        if broke is not None:
            raise broke

    def _flush(self, parts: tuple[PartDone, ...]) -> bool:
        self.summary.add(parts)
        if parts and self._worker is not None:
            living = self._worker.replica
            events = events_of(parts, living.clock.now_s(), self._tools.run_id)
            living.store.part_log.note(events)
            self._on_flush(Flush(living.definition.full_name, living.name, parts))
        return bool(parts)

    @staticmethod
    def _is_dropped(living: Replica) -> bool:
        """Whether the replica is gone from ZooKeeper. Synced first: a new session may see the tree
        as it was before the replica was made.
        """
        try:
            living.keeper.sync(living.table.root)
            return living.keeper.exists(living.paths.queue) is None
        except RmtError:
            return False  # ask again later

    def _pause(self, error: Exception) -> None:
        """Wait before the next try, twice as long each time that it fails again. After the end of a
        session the first try comes at once.
        """
        if self._trouble_s or not isinstance(error, ReplicaRetired):
            self._waker.wait_s(max(self._trouble_s, TROUBLE_WAIT_S))
        self._trouble_s = min(max(2 * self._trouble_s, TROUBLE_WAIT_S), TROUBLE_WAIT_MAX_S)


def _why_stop(
    asked: bool, worked_s: float, max_s: float | None, idle_s: float, linger_s: float | None
) -> Stop:
    if asked:
        return "asked"
    if max_s is not None and worked_s >= max_s:
        return "deadline"
    return "idle" if linger_s is not None and idle_s >= linger_s else ""
