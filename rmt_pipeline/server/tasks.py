"""A server's loops over statements: one for those ON CLUSTER, and one for each Replicated database.
ZooKeeper wakes them, and they ask nothing while there are no new statements (docs/decisions/0019).
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.replicated import ReplicatedDatabase, replicated_database
from rmt_pipeline.cluster.database import (
    Picture,
    log_is_whole,
    log_pointer,
    move_pointer,
    picture,
    skip_to,
    why_not_registered,
)
from rmt_pipeline.cluster.queue import clean_queue
from rmt_pipeline.cluster.worker import Carrier, TaskWorker
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    RmtError,
    Unavailable,
)
from rmt_pipeline.server.log import get_log
from rmt_pipeline.system import EventWaker, Signal
from rmt_pipeline.zookeeper.keeper import LivingKeeper
from rmt_pipeline.zookeeper.paths import DatabasePaths, TaskQueuePaths

if TYPE_CHECKING:
    from rmt_pipeline.sql.tasks.catch_up import DatabaseCarrier

RETRY_S = 1.0
RETRY_LATER_S = 10.0  # a person has to do something about it
LOOK_ANYWAY_S = 300.0  # in case an event was missed
JOIN_S = 1.0
PATIENCE_S = 2.0  # with a ZooKeeper that does not answer, since `stop` has to wait that long

log = get_log("tasks")


class TaskLoop:
    """Works off the queue of statements ON CLUSTER that the configuration names. It has a thread
    and a session of its own: writes of the statements may end their session, and the server's
    `is_active` must not end with it.
    """

    def __init__(self, config: Config, server: str) -> None:
        self._config = config
        self._name = server
        self._context = ServerContext(config, server, purpose="tasks")
        self._waker = EventWaker()
        self._signal = Signal(self._waker)
        self._stop = threading.Event()
        self._carrier: Carrier | None = None
        self._cleaned_at_s = float("-inf")
        self._said = ""
        self.is_behind = False
        """Whether tables are missing here, or out of date, because of what the loop waits for."""
        self._thread = threading.Thread(target=self._run, name="rmt-tasks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look again, since there may be something to do. From any thread."""
        self._signal.fire()

    def ask_to_stop(self) -> None:
        """Tell the loop to end, without waiting for that."""
        self._stop.set()
        self._waker.wake()

    def stop(self) -> None:
        """End the loop. A statement that is being carried out is cut off; the next start takes it
        up again.
        """
        self.ask_to_stop()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)
        self._context.close()

    def _run(self) -> None:
        worker: TaskWorker | None = None
        while not self._stop.is_set():
            worker, retry_s = self._attempt(worker)
            self._waker.wait_s(retry_s if self._signal.is_fired else LOOK_ANYWAY_S)

    def _attempt(self, worker: TaskWorker | None) -> tuple[TaskWorker | None, float]:
        """Look once. Return the worker to use from now on, and the seconds after which to look
        again if something is left to do.
        """
        retry_s = RETRY_S
        try:
            worker = self._current(worker)
            self._look(worker)
            self._said, self.is_behind = "", False
        except RmtError as error:
            self._say(str(error))
            self.is_behind |= isinstance(error, (NotCaughtUp, AltersUnderWay))
            self._signal.renew()
            retry_s = RETRY_LATER_S if isinstance(error, NotCaughtUp) else RETRY_S
        except Exception as error:
            log.exception("statements ON CLUSTER failed; trying again")
            self._said = repr(error)
            self._signal.renew()
        return worker, retry_s

    @property
    def waits_for(self) -> str:
        """Why the last look could not be finished; "" when it could."""
        return self._said

    def _say(self, reason: str) -> None:
        """Log the reason, once for all attempts that fail with it."""
        if reason != self._said:
            log.warning("statements ON CLUSTER wait", reason=reason)
        self._said = reason

    def _current(self, worker: TaskWorker | None) -> TaskWorker:
        """A worker in a living session, which is announced in ZooKeeper."""
        keeper = self._context.keeper(PATIENCE_S)
        if worker is not None and worker.keeper is keeper:
            return worker
        self._signal.renew()
        worker = self._begin(keeper)
        worker.announce()
        return worker

    def _begin(self, keeper: LivingKeeper) -> TaskWorker:
        host = str(self._context.server.advertised_address)
        queue = TaskQueuePaths(self._config.distributed_ddl.path)
        return TaskWorker(keeper, queue, host, self._carry, self._signal.fire, _tell)

    def _look(self, worker: TaskWorker) -> None:
        self._signal.take()
        worker.turn()
        self._clean(worker)

    def _clean(self, worker: TaskWorker) -> None:
        clock, ddl = self._context.clock, self._config.distributed_ddl
        if clock.monotonic_s() < self._cleaned_at_s + ddl.cleanup_delay_period:
            return
        removed = clean_queue(
            worker.keeper,
            worker.queue,
            now_s=clock.now_s(),
            lifetime_s=ddl.task_max_lifetime,
            tasks_max=ddl.max_tasks_in_queue,
            first_needed=self._first_needed(worker.keeper),
        )
        self._cleaned_at_s = clock.monotonic_s()
        if removed:
            log.info("old statements ON CLUSTER removed", count=len(removed), last=removed[-1])

    def _first_needed(self, keeper: LivingKeeper) -> Callable[[], int] | None:
        """The first statement that `clean_queue` must keep; None here. When a server has missed a
        statement ON CLUSTER, a person has to repeat it there.
        """
        del keeper
        return None

    def _carry(self) -> Carrier:
        if self._carrier is None:  # a server without such statements does not load SQL
            from rmt_pipeline.sql.tasks.task import (  # noqa: PLC0415  start-up
                StatementCarrier,
                TaskContext,
            )

            context = TaskContext(self._config, self._name, purpose="tasks")
            self._carrier = StatementCarrier(context, self._waker, self._stop.is_set)
        return self._carrier


class AltersUnderWay(Unavailable):
    """An ALTER is not finished, so it is not known yet what the tables of a Replicated database
    are.
    """


class NotCaughtUp(Unavailable):
    """Tables of a Replicated database could not be made here."""


class DatabaseLoop(TaskLoop):
    """Works off the log of one Replicated database. Whenever the database or the catalog has
    changed, it also compares the tables here with the database's.
    """

    def __init__(
        self, config: Config, server: str, name: str, database: ReplicatedDatabase
    ) -> None:
        super().__init__(config, server)
        self._database = name
        self._replica = database.name
        self._paths = DatabasePaths(database.path)
        self._tables: DatabaseCarrier | None = None

    def _begin(self, keeper: LivingKeeper) -> TaskWorker:
        """A worker for the new session. Raises UserError when this replica is not in ZooKeeper."""
        problem = why_not_registered(
            keeper, self._paths, self._database, self._replica, self._name
        )
        if problem is not None:
            raise problem
        worker = TaskWorker(
            keeper,
            self._paths.queue,
            self._replica,
            self._compare_with,
            self._signal.fire,
            _tell,
            is_open=False,
        )
        self._go_on(worker, log_pointer(keeper, self._paths, self._replica))
        return worker

    def _go_on(self, worker: TaskWorker, pointer: int | None) -> None:
        """Go on after the statement `pointer`. If it is None, or if later statements were removed
        from the log, first make the tables as the database has them now, and go on at the end of
        the log.
        """
        keeper = worker.keeper
        if pointer is None or not log_is_whole(keeper, self._paths, pointer):
            now = self._settled_picture(keeper)
            problems = self._compare_with().catch_up(keeper, now, is_settled=True)
            if problems:
                self._say("; ".join(problems))
            self._carry_out_what_nobody_will(worker, now, problems)
            pointer = now.last_task
            skip_to(keeper, self._paths, self._replica, pointer)
        worker.skip_to(pointer)

    def _carry_out_what_nobody_will(
        self, worker: TaskWorker, now: Picture, problems: Sequence[str]
    ) -> None:
        """Carry out the ALTERs that are in the log but not in the picture, and that no other
        replica will come to, because all of them, like this one, go on after the end of the log.
        Raises NotCaughtUp when there are such ALTERs, and tables with problems too; other problems
        are reported by the look. Without this:

        1. An ALTER is in the log of a database whose only replica is r1.
        2. Before r1 comes to it, it loses its disk, and CREATE DATABASE is run there again: r1
           looks at everything anew, and notes all statements as done.
        3. The ALTER is reported as done, and never happened.
        """
        left = self._compare_with().alters_left(worker.keeper, now, self._replica)
        if left and problems:
            raise NotCaughtUp("; ".join(problems))
        for name in left:
            worker.carry_out(name)

    def _settled_picture(self, keeper: LivingKeeper) -> Picture:
        """A picture that has the effect of each ALTER before its end. Raises AltersUnderWay while a
        replica has still to carry one out, and Conflict. Without that:

        1. An ALTER is in the log. r1 is to carry it out and then to update the table's record, but
           r1 is still at an earlier statement.
        2. r3, which is alone in its shard, makes the table as the record has it, and goes on after
           the end of the log.
        3. r1 carries the ALTER out. In the shard of r3, no replica does.

        The same happens when r1 is dead in step 2 and comes back in step 3.
        """
        before = picture(keeper, self._paths)
        under_way = self._compare_with().log(keeper, before).under_way(self._replica)
        if under_way:
            name, replica = under_way[0]
            raise AltersUnderWay(
                f"{name} of {self._paths.root} is an ALTER that replica {replica!r} has still to "
                "carry out: what it makes of the table is not known before that. If its server "
                "does not run, start it, or SYSTEM DROP DATABASE REPLICA when it is gone for good"
            )
        now = picture(keeper, self._paths)  # with what the records have since
        if now.last_task != before.last_task:
            raise Conflict(f"{self._paths.root} changed meanwhile; trying again")
        return now

    def _look(self, worker: TaskWorker) -> None:
        """Carry out new statements, and compare the tables. Raises NotCaughtUp at the end, so that
        a problem with one table holds up nothing else.
        """
        self._signal.take()
        worker.turn()
        now = picture(worker.keeper, self._paths)
        if now.last_task > worker.reached:  # a statement came in between, or was removed
            self._go_on(worker, worker.reached)
            self._signal.fire()  # the next look carries out what is there
            return
        problems = self._compare_with().catch_up(worker.keeper, now)
        if self._compare_with().is_behind:
            problems = self._made_settled(worker.keeper, now)
        if problems:
            raise NotCaughtUp("; ".join(problems))
        if now.last_task != log_pointer(worker.keeper, self._paths, self._replica):
            move_pointer(worker.keeper, self._paths, self._replica, now.last_task)
        self._clean(worker)

    def _first_needed(self, keeper: LivingKeeper) -> Callable[[], int]:
        """The first statement that has to stay in the log. Those before it were worked off by every
        server that runs, and the tables' records have their effects. Otherwise:

        1. r1 carries an ALTER out, which is then in the queue of the table's replicas.
        2. Many statements come, and the ALTER is cleaned from the log.
        3. r3, which is new, or was away, finds it neither in the log nor in the table's record.
        """

        def first() -> int:
            now = picture(keeper, self._paths)
            return self._compare_with().log(keeper, now).first_needed()

        return first

    def _made_settled(self, keeper: LivingKeeper, now: Picture) -> list[str]:
        """Alter those tables here that have missed an ALTER, and return the problems. Raises as
        `_settled_picture`. A table may have missed one like this:

        1. r3 goes on after the end of the log, and could not alter a table as other replicas had:
           the table was read-only, or the ALTER was in the record only a moment later.
        2. r3 is done with all statements, and its table still differs.
        """
        settled = self._settled_picture(keeper)
        if settled.last_task != now.last_task:
            raise Conflict(f"{self._paths.root} changed meanwhile; trying again")
        return self._compare_with().catch_up(keeper, settled, is_settled=True)

    def _compare_with(self) -> "DatabaseCarrier":
        if self._tables is None:
            from rmt_pipeline.sql.tasks.catch_up import DatabaseCarrier  # noqa: PLC0415  start-up
            from rmt_pipeline.sql.tasks.task import TaskContext  # noqa: PLC0415  start-up

            context = TaskContext(self._config, self._name, purpose="tasks")
            self._tables = DatabaseCarrier(
                context, self._waker, self._stop.is_set, self._database
            )
        return self._tables


class TaskLoops:
    """The loop for the queue of the configuration, and one for each Replicated database in the
    catalog.
    """

    def __init__(self, config: Config, server: str, catalog: Catalog) -> None:
        self._config = config
        self._name = server
        self._catalog = catalog
        self._queue = TaskLoop(config, server)
        self._databases: dict[tuple[str, ReplicatedDatabase], DatabaseLoop] = {}

    def start(self) -> None:
        """Start all loops. Only once, when ZooKeeper answers."""
        self._queue.start()
        self.follow_catalog()

    def follow_catalog(self) -> None:
        """Start loops for new databases, and end those of databases that are gone. Only for one
        thread.
        """
        wanted: dict[tuple[str, ReplicatedDatabase], None] = {}
        for name in self._catalog.databases():
            try:
                found = replicated_database(self._catalog, name)
            except Corruption as error:
                log.warning("statements for a database wait", database=name, reason=str(error))
                wanted.update((key, None) for key in self._databases if key[0] == name)
                continue
            if found is not None and not found.is_dropping:
                wanted[name, found] = None
        for key in [key for key in self._databases if key not in wanted]:
            self._databases.pop(key).stop()
        for key in wanted:
            loop = self._databases.get(key)
            if loop is None:
                loop = DatabaseLoop(self._config, self._name, *key)
                loop.start()  # raises if no further thread can be started: then the next look does
                self._databases[key] = loop
            else:
                loop.wake()

    def waiting(self) -> tuple[str, ...]:
        """What holds up statements, in words. From any thread."""
        loops = [("statements ON CLUSTER wait", self._queue)]
        loops += [
            (f"database {name} waits", loop)
            for (name, _), loop in list(self._databases.items())
        ]
        return tuple(f"{what}: {loop.waits_for}" for what, loop in loops if loop.waits_for)

    def behind(self) -> tuple[str, ...]:
        """The databases with tables that are missing here, or out of date. From any thread."""
        return tuple(name for (name, _), loop in [*self._databases.items()] if loop.is_behind)

    def stop(self) -> None:
        loops = (self._queue, *self._databases.values())
        for loop in loops:
            loop.ask_to_stop()
        for loop in loops:
            loop.stop()
        self._databases.clear()


def _tell(event: str, about: Mapping[str, object]) -> None:
    log.log(logging.WARNING if about.get("error") else logging.INFO, event, **about)
