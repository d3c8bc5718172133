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

from rmt_pipeline.protocol.errors import (
    OutcomeUnknown,
    ReplicaDropped,
    ReplicaRetired,
    RmtError,
    TableDetached,
    Unavailable,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import Assigned
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.carry import Batch, Tools
from rmt_pipeline.replica.work.execute import Executor, Look
from rmt_pipeline.replica.work.net import SafetyNet
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.step import PartDone, Step, events_of
from rmt_pipeline.replica.work.worker import Worker
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.keeper import Keeper

BATCHES_MAX = 64  # at once, of one pool; slots are a closer limit unless batches are tiny
WAIT_MIN_S = 0.001  # a clock may not measure shorter times
STOP_LOOK_S = 1.0  # between looks at `should_stop`, if the loop ends when it is idle
REST_MAX_S = 0.01  # between looks that find something, while the hands are busy
HANDS_WAIT_S = 1.0  # at most; the hands wake the loop when something is done
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
        if self._hands.have_done:
            return  # an error that belongs to no entry: it may have come with what was told, and
            # nobody wakes us for it once more
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
