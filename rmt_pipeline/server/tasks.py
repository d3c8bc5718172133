"""A server's loop over the statements ON CLUSTER. It is woken by ZooKeeper, and asks nothing while
nobody puts one in (docs/decisions/0019).
"""

import logging
import threading
from collections.abc import Mapping

from rmt_pipeline.cluster.queue import clean_queue
from rmt_pipeline.cluster.worker import Carrier, TaskWorker
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.server.log import get_log
from rmt_pipeline.system import EventWaker, Signal
from rmt_pipeline.zookeeper.paths import TaskQueuePaths

RETRY_S = 1.0
LOOK_ANYWAY_S = 300.0  # should an event be missed after all
JOIN_S = 1.0
PATIENCE_S = 2.0  # with a ZooKeeper that does not answer: `stop` waits for it

log = get_log("tasks")


class TaskLoop:
    """One thread, with a session of its own: the statements' writes may end it, and `is_active`
    must not end with it.
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
        self._thread = threading.Thread(target=self._run, name="rmt-tasks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """A statement that is being carried out is cut off; the next start takes it up again."""
        self._stop.set()
        self._waker.wake()
        self._thread.join(JOIN_S)
        self._context.close()

    def _run(self) -> None:
        worker: TaskWorker | None = None
        while not self._stop.is_set():
            try:
                worker = self._current(worker)
                self._look(worker)
                self._said = ""
            except RmtError as error:
                self._say(str(error))
                self._signal.renew()
            except Exception:
                log.exception("statements ON CLUSTER failed; trying again")
                self._signal.renew()
            self._waker.wait_s(RETRY_S if self._signal.is_fired else LOOK_ANYWAY_S)

    def _say(self, reason: str) -> None:
        """Once, however often it is tried."""
        if reason != self._said:
            log.warning("statements ON CLUSTER wait", reason=reason)
        self._said = reason

    def _current(self, worker: TaskWorker | None) -> TaskWorker:
        """A worker in a living session, announced."""
        keeper = self._context.keeper(PATIENCE_S)
        if worker is not None and worker.keeper is keeper:
            return worker
        self._signal.renew()
        host = str(self._context.server.advertised_address)
        queue = TaskQueuePaths(self._config.distributed_ddl.path)
        worker = TaskWorker(keeper, queue, host, self._carry, self._signal.fire, _tell)
        worker.announce()
        return worker

    def _look(self, worker: TaskWorker) -> None:
        self._signal.take()
        worker.turn()
        clock, ddl = self._context.clock, self._config.distributed_ddl
        if clock.monotonic_s() < self._cleaned_at_s + ddl.cleanup_delay_period:
            return
        removed = clean_queue(
            worker.keeper,
            worker.queue,
            now_s=clock.now_s(),
            lifetime_s=ddl.task_max_lifetime,
            tasks_max=ddl.max_tasks_in_queue,
        )
        self._cleaned_at_s = clock.monotonic_s()
        if removed:
            log.info("old statements ON CLUSTER removed", count=len(removed), last=removed[-1])

    def _carry(self) -> Carrier:
        if self._carrier is None:  # who has no such statement does not load the language
            from rmt_pipeline.sql.run.task import (  # noqa: PLC0415  start-up
                StatementCarrier,
                TaskContext,
            )

            context = TaskContext(self._config, self._name, purpose="tasks")
            self._carrier = StatementCarrier(context, EventWaker(), self._stop.is_set)
        return self._carrier


def _tell(event: str, about: Mapping[str, object]) -> None:
    log.log(logging.WARNING if about.get("error") else logging.INFO, event, **about)
