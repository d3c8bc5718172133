"""A world of hosts, processes and one ZooKeeper, in which production code runs under a schedule.

Every task is a greenlet. Every effect (ZooKeeper, disk, peer) passes through `World.effect`, where
another task may run, and where the schedule may make something go wrong:

| Boundary  | Faults that the system must survive                  | Not promised               |
|-----------|------------------------------------------------------|----------------------------|
| ZooKeeper | request lost; answer lost; write lands late; session | losing committed writes    |
|           | expires at any point; stale reads; refused multis    |                            |
| Disk      | crash of the host: unsynced bytes and names vanish;  | every replica losing the   |
|           | death in the middle of a write or a removal; full;   | same part                  |
|           | input/output errors in writing and in reading, for a |                            |
|           | moment or, of single files, for good                 |                            |
| Peer      | unreachable; breaks off; sends a covering part       | wrong bytes, right hash    |
| Process   | dies anywhere; freezes past its session and wakes up |                            |
| Clock     | jumps, differs between hosts                         | used for correctness       |

A killed task can't do anything any more: whatever its `finally` blocks try ends in `Killed`.
"""

import errno
import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from greenlet import getcurrent, greenlet

from rmt_pipeline.protocol.errors import DiskFull, OutcomeUnknown, RmtError, Unavailable
from rmt_pipeline.zookeeper.keeper import Op, Refused
from tests.support.fake_disk import BadSector, FakeDisk, FakeLock
from tests.support.fake_keeper import FakeKeeper, FakeZooKeeper
from tests.support.schedule import Fault, Kind, Schedule

T = TypeVar("T")

EFFECT_S = 0.005  # how long an effect takes, in the world's time
NEWS_S = 0.5  # until a server that is behind hears of them, at most
SESSION_TIMEOUT_S = 1.0
UNTIL_EVERY = 8  # tasks between looks at whether a run is over
TASKS_PER_STEP_MAX = 20  # beyond that nobody does anything but wait
BURST_MAX = 60  # effects of one task before others get their turn, whatever the schedule
EPOCH_S = 1_700_000_000.0


class Killed(BaseException):
    """The process of this task died. Production code must not be able to catch its own death."""


class Broken(Exception):
    """The program is wrong: an assertion failed, or an error that no caller expects."""


@dataclass(slots=True, eq=False)
class Host:
    """A machine: its disk outlives its processes, its clock may be wrong."""

    name: str
    disk: FakeDisk
    skew: list[float]
    """One number, in seconds: how far its clock is ahead."""
    processes: list["Process"] = field(default_factory=list)
    down_until_s: float = 0.0
    """The machine is switched off."""


@dataclass(slots=True, eq=False)
class Process:
    """Something that can die. What it held is gone then, and its sessions soon after."""

    world: "World"
    host: Host
    name: str
    is_alive: bool = True
    frozen_until_s: float = 0.0
    sessions: list[FakeKeeper] = field(default_factory=list)
    locks: list[FakeLock] = field(default_factory=list)
    means: set[str] = field(default_factory=set)
    """The creations of the replicas that it acts for."""
    tasks: list["Task"] = field(default_factory=list)
    on_end: list[Callable[[], None]] = field(default_factory=list)
    label: str = field(init=False)

    def __post_init__(self) -> None:
        self.label = f"{self.host.name}/{self.name}"

    def __str__(self) -> str:
        return self.label

    def spawn(self, run: Callable[[], None]) -> "Task":
        return self.world.add_task(self, run)


@dataclass(slots=True, eq=False)
class Task:
    process: Process
    greenlet: greenlet
    ticket: int = 0
    """Changes at every wake-up: an old timer must not wake a newer sleep."""


Event = tuple[float, str, str, str]
"""When, who, what, where."""


class World:
    """One ZooKeeper and some hosts, driven by one schedule. Same schedule, same trace."""

    def __init__(self, schedule: Schedule, hosts: list[str]) -> None:
        self.schedule = schedule
        self.rng = schedule.rng
        self.now_s = EPOCH_S
        self.steps = 0
        self.trace: list[Event] = []
        self.zookeeper = FakeZooKeeper(_WorldClock(self))
        self.zookeeper.on_commit(lambda _: self._spread())
        self.hosts = {name: self._host(name) for name in hosts}
        self.everybody: list[Host] = list(self.hosts.values())
        """Also machines that never fail."""
        self.current: Task | None = None
        self.failure: BaseException | None = None
        self.is_calm = False
        self.ended_by: list[tuple[str, RmtError | BadSector]] = []
        """Processes that an error ended, as it would end a command."""
        self.work_s: tuple[float, ...] = (0.0,)
        """How long a merge, a mutation or a transfer may take."""
        self.oddity = 0.0
        """How likely a merge comes out in another order than elsewhere."""
        self.reads_failed: list[tuple[str, str]] = []
        """Host and path of each."""
        self.late_writes: dict[int, deque[Sequence[Op]]] = {}
        self.connected: dict[int, Process] = {}
        """By session."""
        self._behind: set[int] = set()
        self._hub = getcurrent()
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._ids = 0
        self._burst = 0

    def _host(self, name: str) -> Host:
        skew = [0.0]
        return Host(name, FakeDisk(lambda: self.now_s + skew[0]), skew)

    # --- running ---

    def run(
        self,
        steps_max: int,
        until: Callable[[], bool] = lambda: False,
        *,
        every: int = UNTIL_EVERY,
    ) -> bool:
        """Run tasks for `steps_max` more effects, or `until` is true (asked between tasks).

        True when it ended by `until`. Raises what broke a task, if it was not an RmtError.
        """
        end, tasks = self.steps + steps_max, 0
        while self.steps < end and tasks < TASKS_PER_STEP_MAX * steps_max:
            if tasks % every == 0 and until():
                return True
            tasks += 1
            task = self._next_task()
            if task is None:
                return until()
            self.current = task
            self._burst = 0
            task.greenlet.switch()
            self.current = None
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise Broken(f"{task.process} broke: {failure!r}") from failure
        return until()

    def _next_task(self) -> Task | None:
        while True:
            if self._timers and self._timers[0][0] <= self.now_s:
                self._fire_timers()
            while self._ready:
                position = int(self.rng.random() * len(self._ready))
                task = self._ready[position]
                self._ready[position] = self._ready[-1]
                self._ready.pop()
                if not task.process.is_alive:
                    continue
                if task.process.frozen_until_s > self.now_s:
                    self._wake_at(task, task.process.frozen_until_s)
                    continue
                return task
            if not self._timers:
                return None
            self.now_s = max(self.now_s, self._timers[0][0])

    def _fire_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_s:
            _, _, action = heapq.heappop(self._timers)
            action()

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        """Do something later, between tasks."""
        self._timer_count += 1
        heapq.heappush(self._timers, (when_s, self._timer_count, action))

    def add_task(self, process: Process, run: Callable[[], None]) -> Task:
        def body() -> None:
            try:
                if process.is_alive:
                    run()
            except Killed:
                pass
            except (RmtError, BadSector) as error:
                self.note(str(process), "ended by", f"{type(error).__name__}: {error}"[:300])
                self.ended_by.append((str(process), error))
                self.end_process(process, kill_others=True)
            except BaseException as error:  # noqa: BLE001  reported by `run`
                if process.is_alive:  # the dead may stumble over what they can't do any more
                    self.breaks(error)

        task = Task(process, greenlet(body, parent=self._hub))
        process.tasks.append(task)
        self._ready.append(task)
        return task

    def breaks(self, error: BaseException) -> None:
        """`run` raises it, whatever the task makes of it: what was first counts."""
        self.failure = self.failure or error

    # --- what tasks call ---

    def pause(self) -> None:
        """Let another task run; this one stays ready."""
        task = self._running()
        self._ready.append(task)
        self._hub.switch()
        self._require_alive(task.process)

    def maybe_pause(self, process: Process) -> None:
        """Something that changes nothing: another task may run before it, no more."""
        self._require_alive(process)
        if self.rng.random() < self.schedule.switch:
            self.pause()

    def look(self, process: Process, what: str) -> None:
        """Before something is read from a disk: others may run, and it may fail for a moment."""
        self.maybe_pause(process)
        if self.schedule.fault(Kind.LOOK, process.label) is not None:
            self.note(process.label, Fault.BAD_READ.value, what)
            self.reads_failed.append((process.host.name, what))
            raise BadSector(errno.EIO, "input/output error", what)

    def sleep_s(self, seconds: float) -> None:
        task = self._running()
        self._require_alive(task.process)
        self._wake_at(task, self.now_s + max(seconds, 0.0))
        self._hub.switch()
        self._require_alive(task.process)

    def take_time(self, process: Process) -> None:
        """Something that takes long; others go on meanwhile."""
        seconds = self.rng.choice(self.work_s)
        if seconds and not self.is_calm:
            self.note(process.label, "takes its time", f"{seconds} s")
            self.sleep_s(seconds)

    def wait(self, timeout_s: float) -> "Sleep":
        """Sleep that `Sleep.wake` can end; call `Sleep.until_woken` to begin it."""
        return Sleep(self, self._running(), timeout_s)

    def _running(self) -> Task:
        assert self.current is not None, "only a task may do this"
        return self.current

    def _wake_at(self, task: Task, when_s: float) -> None:
        task.ticket += 1
        ticket = task.ticket

        def wake() -> None:
            if task.ticket == ticket:
                self.make_ready(task)

        self.at(when_s, wake)

    def make_ready(self, task: Task) -> None:
        task.ticket += 1
        self._ready.append(task)

    @staticmethod
    def _require_alive(process: Process) -> None:
        if not process.is_alive:
            raise Killed

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:032x}"

    # --- effects ---

    def effect(
        self,
        process: Process,
        kind: Kind,
        what: str,
        where: str,
        act: Callable[[], T],
        *,
        session: FakeKeeper | None = None,
        late: Callable[[], None] | None = None,
        partly: Callable[[random.Random], object] | None = None,
    ) -> T:
        """Do `act`, or what the schedule makes of it.

        `late` remembers a write for later; `partly` does what a death in the middle leaves.
        """
        if not process.is_alive:
            raise Killed
        label = process.label
        self._burst += 1
        if self.rng.random() < self.schedule.switch or self._burst > BURST_MAX:
            self.pause()
        self.steps += 1
        self.now_s += EFFECT_S
        fault = self.schedule.fault(kind, label)
        if fault is not None:
            self.note(label, fault.value, f"{what} {where}")
            if fault is Fault.KILL_DURING and partly is not None:
                partly(self.rng)
            self._strike(fault, process, session)
            _refuse(fault, f"{what} {where}", late)
        try:
            result = act()
        except RmtError as error:
            self.trace.append((self.now_s, label, f"{what}: {error}", where))
            if fault is Fault.LOSE_ANSWER:
                raise OutcomeUnknown(f"no answer to {what} {where}") from None
            raise
        self.trace.append((self.now_s, label, what, where))
        if fault is Fault.KILL_AFTER:
            self._die(process)
        if fault is Fault.LOSE_ANSWER:
            raise OutcomeUnknown(f"no answer to {what} {where}")
        return result

    def _strike(self, fault: Fault, process: Process, session: FakeKeeper | None) -> None:
        """What happens to the process or its host, before the effect."""
        match fault:
            case Fault.KILL_BEFORE | Fault.KILL_DURING:
                self._die(process)
            case Fault.POWER_CUT:
                self.cut_power(process.host)
                raise Killed
            case Fault.EXPIRE:
                for one in [session] if session is not None else list(process.sessions):
                    self.expire(one)
            case Fault.FREEZE:
                self._freeze(process)
            case _:
                pass

    def _freeze(self, process: Process) -> None:
        frozen_s = self.rng.choice(self.schedule.freezes_s)
        process.frozen_until_s = self.now_s + frozen_s
        if frozen_s > SESSION_TIMEOUT_S:
            for session in process.sessions:
                self._expire_soon(session)
        self.pause()

    def note(self, owner: str, what: str, where: str) -> None:
        self.trace.append((self.now_s, owner, what, where))

    # --- life and death ---

    def start_process(self, host: Host, name: str) -> Process:
        process = Process(self, host, name)
        host.processes.append(process)
        return process

    def connect(self, process: Process) -> FakeKeeper:
        session = self.zookeeper.connect(self._lag)
        process.sessions.append(session)
        self.connected[session.session_id] = process
        return session

    def _lag(self, behind: int) -> int:
        if self.rng.random() < self.schedule.stale:
            return self.rng.randint(0, behind)
        return 0

    def _spread(self) -> None:
        """A server that is behind hears of what was decided before long, whether or not somebody
        asks it; and so do those who wait for it.
        """
        for session in self.zookeeper.sessions.values():
            if session.lag is not None and session.session_id not in self._behind:
                self._behind.add(session.session_id)
                delay_s = self.rng.uniform(0.0, NEWS_S) if self.schedule.stale else EFFECT_S
                self.at(self.now_s + delay_s, lambda session=session: self._hear(session))

    def _hear(self, session: FakeKeeper) -> None:
        self._behind.discard(session.session_id)
        session.see(self.zookeeper.zxid)

    def expire(self, session: FakeKeeper) -> None:
        """End a session. What it has written and ZooKeeper has not seen may still land before."""
        self.land_late(session)
        self.zookeeper.expire(session.session_id)

    def land_late(self, session: FakeKeeper) -> None:
        """Some of the session's delayed writes reach ZooKeeper now, in their order; the others
        never will: ZooKeeper carries out the requests of a session in the order they were made,
        also when it reconnects (what an older connection still brings is refused). Of a session
        that is over it carries out nothing.
        """
        for ops in self.late_writes.pop(session.session_id, ()):
            if self.rng.random() < 0.5 or session.is_retired:
                continue
            try:
                self.zookeeper.commit(session.session_id, ops)
            except Refused as refused:
                self.note("zookeeper", "refused a delayed write", str(refused))
            else:
                self.note("zookeeper", "a delayed write landed", ops[-1].path)

    def _expire_soon(self, session: FakeKeeper) -> None:
        self.at(
            self.now_s + self.rng.uniform(0, SESSION_TIMEOUT_S), lambda: self.expire(session)
        )

    def _die(self, process: Process) -> None:
        self.end_process(process, kill_others=True)
        raise Killed

    def end_process(self, process: Process, *, kill_others: bool) -> None:
        """The process is no more. Its sessions expire when ZooKeeper notices."""
        if not process.is_alive:
            return
        process.is_alive = False
        process.host.processes.remove(process)
        for lock in process.locks:
            lock.release()
        for session in process.sessions:
            self._expire_soon(session)
        if kill_others:
            for task in process.tasks:
                if task is not self.current:
                    self._unwind(task)
        for action in process.on_end:
            action()

    def _unwind(self, task: Task) -> None:
        """Let the `finally` blocks of a dead task run; whatever they try ends in Killed."""
        if task.greenlet and not task.greenlet.dead:
            self.at(self.now_s, lambda: task.greenlet.throw(Killed) or None)

    def cut_power(self, host: Host) -> None:
        self.note(host.name, "lost its power", "")
        for process in list(host.processes):
            self.end_process(process, kill_others=True)
        host.disk.crash(self.rng)

    def calm(self) -> None:
        """No more faults; clocks agree; disks have space."""
        self.schedule.calm()
        self.is_calm = True
        for host in self.hosts.values():
            host.skew[0] = 0.0
            host.disk.full = False

    def end(self) -> None:
        """Unwind every task, so that none wakes up in another world. The disks stay to look at."""
        for process in [process for host in self.everybody for process in host.processes]:
            process.is_alive = False
            for task in process.tasks:
                if task.greenlet and not task.greenlet.dead:
                    task.greenlet.throw(Killed)

    def story(self, last: int = 40) -> str:
        """The last effects, for people."""
        return "\n".join(
            f"{when - EPOCH_S:9.3f} {who:16} {what} {where}"
            for when, who, what, where in self.trace[-last:]
        )


def _refuse(fault: Fault, what: str, late: Callable[[], None] | None) -> None:
    """What the process is told instead of an answer, when the effect does not happen now."""
    match fault:
        case Fault.LOSE_REQUEST:
            raise OutcomeUnknown(f"no answer to {what}")
        case Fault.LATE:
            if late is not None:
                late()
            raise OutcomeUnknown(f"no answer to {what}")
        case Fault.BREAK:
            raise Unavailable(f"no answer to {what}")
        case Fault.BAD_SECTOR:
            raise BadSector(errno.EIO, "input/output error", what)
        case Fault.DISK_FULL:
            raise DiskFull(f"no space left at {what}; nothing was published")
        case _:
            pass


class Sleep:
    """A wait that something else may end early."""

    def __init__(self, world: World, task: Task, timeout_s: float) -> None:
        self._world = world
        self._task = task
        self._timeout_s = timeout_s
        self._ticket = -1

    def until_woken(self) -> None:
        world, task = self._world, self._task
        world._wake_at(task, world.now_s + self._timeout_s)
        self._ticket = task.ticket
        world._hub.switch()
        world._require_alive(task.process)

    def wake(self) -> None:
        if self._task.ticket == self._ticket:
            self._world.make_ready(self._task)


class _WorldClock:
    """ZooKeeper's own clock."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_s(self) -> float:
        return self._world.now_s

    def monotonic_s(self) -> float:
        return self._world.now_s

    def sleep_s(self, seconds: float) -> None:
        raise AssertionError("ZooKeeper does not sleep")
