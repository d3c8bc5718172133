"""Work one pool of one replica: pull, carry out, linger on the watch (design §6).

The same loop for Dagster's runs (which linger some seconds), `rmt worker` and `rmt serve --work`
(which never end by themselves).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from rmt_pipeline.protocol.errors import (
    Corruption,
    OutcomeUnknown,
    ReplicaRetired,
    TableIsReadOnly,
    Unavailable,
)
from rmt_pipeline.replica.assign import Assigned, select_and_assign
from rmt_pipeline.replica.check import suspect
from rmt_pipeline.replica.execute import Executor, PartDone, Pool, Step, Tools
from rmt_pipeline.replica.mutation_duty import MutationDuty
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.system import Waker

__all__ = ["Flush", "Tools", "WorkSummary", "Worker", "work"]

WAIT_MAX_S = 1.0  # between looks at `should_stop`; a watch that was missed costs at most this
READ_ONLY_WAIT_S = 0.5
MERGE_LOOK_EVERY_S = 0.2  # a busy log wakes the merge pool at most this often


Stop = Literal["", "idle", "deadline", "asked"]


@dataclass(frozen=True, slots=True)
class Flush:
    """Entries that were carried out, or failed, since the last flush."""

    table: str
    replica: str
    pool: Pool
    parts: tuple[PartDone, ...]


@dataclass(slots=True)
class WorkSummary:
    """What one call of `work` did, and the reasons of what still waited when it ended."""

    parts: int = 0
    rows: int = 0
    size_bytes: int = 0
    failures: int = 0
    differed: int = 0
    """Results that were not what another replica had published; theirs were fetched."""
    assigned: int = 0
    finished_without_work: int = 0
    stopped: Stop = ""
    waiting: tuple[tuple[str, str], ...] = field(default=())

    def add(self, step: Step) -> None:
        for done in step.done:
            if done.error:
                self.failures += 1
                self.differed += done.differs
                continue
            self.parts += 1
            self.rows += done.rows
            self.size_bytes += done.size_bytes
        self.finished_without_work += step.finished_without_work
        self.waiting = step.waiting


class Worker:
    """One pool of one replica, bound to its session. `turn` is one look at the queue."""

    def __init__(self, replica: Replica, tools: Tools, pool: Pool, *, select: bool) -> None:
        """With `select`, the merge pool also proposes merges and pieces of mutations (a leader's
        duty, spec §6.1), and notes which mutations are finished.
        """
        self.replica = replica
        self.pool = pool
        self._executor = Executor(replica, tools, pool)
        self._select = select
        self._mutations = MutationDuty(replica)
        self._select_next_s = 0.0
        self._select_sleep_s = replica.settings.merge_selecting_sleep_ms / 1000

    def turn(self, waker: Waker) -> tuple[Step, list[Assigned]]:
        """The fetch pool pulls the log; the merge pool follows the queue that this fills.

        A part that can't be read stops nobody: it is fetched again, and the next turn goes on
        without it.
        """
        try:
            return self._turn(waker)
        except Corruption as error:
            problem = suspect(self.replica, error)
            if problem is None or error.part is None:
                raise
            return Step(done=(PartDone(error.part, "CHECK_PART", error=problem),)), []

    def _turn(self, waker: Waker) -> tuple[Step, list[Assigned]]:
        if self.pool == "fetch":
            pull_log(self.replica, waker.wake)
            step = self._executor.step(None)
        else:
            step = self._executor.step(waker.wake)
        assigned: list[Assigned] = []
        if self._select:
            assigned = self._mutations.turn(waker.wake, progress=step.did_something)
            if not assigned and not step.did_something:
                assigned = self._assign()
        return step, assigned

    def _assign(self) -> list[Assigned]:
        """At most every `merge_selecting_sleep_ms`, slower and slower while nothing is found."""
        settings, now = self.replica.settings, self.replica.clock.monotonic_s()
        if now < self._select_next_s:
            return []
        outcome = select_and_assign(self.replica, aggressive=False)
        shortest_s = settings.merge_selecting_sleep_ms / 1000
        if isinstance(outcome, Assigned):
            self._select_sleep_s = shortest_s
            self._select_next_s = now
            return [outcome]
        if not outcome.changed:
            slower_s = self._select_sleep_s * settings.merge_selecting_sleep_slowdown_factor
            self._select_sleep_s = min(slower_s, settings.max_merge_selecting_sleep_ms / 1000)
        self._select_next_s = now + self._select_sleep_s
        return []

    def idle_s(self, step: Step) -> float:
        """How long nothing is to be done unless a watch fires."""
        waits = [WAIT_MAX_S]
        if step.next_retry_s is not None:
            waits.append(step.next_retry_s)
        if self._select:
            now = self.replica.clock.monotonic_s()
            waits += [self._select_next_s - now, self._mutations.next_s(now)]
        return max(0.0, min(waits))


def work(
    replica: Callable[[], Replica],
    tools: Tools,
    pool: Pool,
    *,
    waker: Waker,
    linger_s: float | None,
    max_s: float | None = None,
    select: bool = False,
    on_flush: Callable[[Flush], None],
    should_stop: Callable[[], bool],
) -> WorkSummary:
    """Work until idle for `linger_s` seconds (None: for ever), at most `max_s` seconds.

    `replica` gives one with a living session: when a session ends, the next one is asked for.
    Raises ZooKeeperUnreachable when there is none to be had.
    """
    summary = WorkSummary()
    worker: Worker | None = None
    clock = replica().clock
    started_s = busy_s = clock.monotonic_s()
    while True:
        now_s = clock.monotonic_s()
        summary.stopped = _why_stop(
            should_stop(), now_s - started_s, max_s, now_s - busy_s, linger_s
        )
        if summary.stopped:
            return summary
        living = replica()
        if worker is None or worker.replica is not living:
            worker = Worker(living, tools, pool, select=select)
        try:
            step, assigned = worker.turn(waker)
        except OutcomeUnknown:
            # Whether a claim or a part landed is open. Ending the session settles it: claims go
            # with it, and the next look at the queue sees what is true.
            living.keeper.close()
            continue
        except ReplicaRetired:
            continue
        except (TableIsReadOnly, Unavailable):
            waker.wait_s(READ_ONLY_WAIT_S)
            continue
        summary.add(step)
        summary.assigned += len(assigned)
        if step.done:
            on_flush(Flush(living.definition.full_name, living.name, pool, step.done))
        if step.did_something or assigned:
            busy_s = clock.monotonic_s()
            continue
        linger_left_s = WAIT_MAX_S if linger_s is None else linger_s - (now_s - busy_s)
        waker.wait_s(min(worker.idle_s(step), max(linger_left_s, 0.0)))
        if pool == "merge":
            clock.sleep_s(MERGE_LOOK_EVERY_S)


def _why_stop(
    asked: bool, worked_s: float, max_s: float | None, idle_s: float, linger_s: float | None
) -> Stop:
    if asked:
        return "asked"
    if max_s is not None and worked_s >= max_s:
        return "deadline"
    return "idle" if linger_s is not None and idle_s >= linger_s else ""
