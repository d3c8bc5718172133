"""The life of a server process: its session, its tables, and what happens when one of them is lost.

    start ──► session ──► tables active ◄──► catalog changed, a table due for a retry
                 ▲               │
                 └── session over: everything read-only, close, start over ──┘

The process is crash-only: a kill loses nothing, and `stop` only makes the end faster.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from rmt_pipeline.catalog.contents import CatalogVersion
from rmt_pipeline.protocol.errors import ReplicaIsAlreadyActive, Timeout, Unavailable
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.server.log import get_log
from rmt_pipeline.server.status import Counters
from rmt_pipeline.server.tables import ReadOnly, Tables
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper

LOOK_EVERY_S = 0.2  # between looks at the catalog: a new table waits this long at most
RELOAD_TIMEOUT_S = 30.0
FAILS_MAX_S = (
    60.0  # for so long looks may fail one after the other, for want of descriptors or so
)

log = get_log("server")


class WorkLoops(Protocol):
    """Works the queues of the active tables in this process (`rmt serve --work`)."""

    def follow(self, tables: Sequence[TableDefinition]) -> None:
        """Work these tables, which are active now, and end the work on others."""
        ...

    def stop(self) -> None: ...


class Supervisor:
    """Runs the server. `run` is for the main thread; everything else may be called
    from any thread.
    """

    def __init__(
        self,
        tables: Tables,
        waker: EventWaker,
        counters: Counters,
        *,
        open_session: Callable[[], KazooKeeper | None],
        loops: WorkLoops | None,
        should_stop: Callable[[], bool],
        on_catalog: Callable[[], None] = lambda: None,
    ) -> None:
        """`open_session` tries until it has a session; it returns None when the server is to stop.
        `on_catalog` is called when the catalog has changed.
        """
        self._on_catalog = on_catalog
        self._tables = tables
        self._waker = waker
        self._counters = counters
        self._open_session = open_session
        self._loops = loops
        self._should_stop = should_stop
        self._keeper: KazooKeeper | None = None
        self._version: CatalogVersion | None = None
        self._fails_since_s: float | None = None
        self._looks = threading.Condition()
        self._looks_begun = self._looks_ended = 0

    @property
    def keeper(self) -> KazooKeeper | None:
        """The keeper of the living session; None while there is none."""
        keeper = self._keeper
        return None if keeper is None or keeper.is_retired else keeper

    def run(self, first: KazooKeeper) -> None:
        """Serve until `should_stop`. Raises ReplicaIsAlreadyActive when another process serves one
        of our replicas at the start, and still does so after its session's timeout.
        """
        keeper: KazooKeeper | None = first
        give_up_s = self._tables.clock.monotonic_s() + 2 * first.session_timeout_s + 1
        while keeper is not None:
            self._keeper = keeper
            self._counters.sessions += 1
            keeper.on_retired(self._waker.wake)
            log.info("session begun", session=f"{keeper.session_id:#x}")
            self._serve_session(keeper, give_up_s)
            self._end_session(keeper)
            give_up_s = float("inf")  # later we wait for another process with our replica
            keeper = None if self._should_stop() else self._open_session()

    def reload(self) -> dict[str, str]:
        """Look at the catalog, and at every table that is due, now. Return for each table why it is
        read-only, or "" if it is active.

        Raises Unavailable while there is no session, and Timeout.
        """
        if self.keeper is None:
            raise Unavailable("this server has no ZooKeeper session now; it is starting over")
        with self._looks:
            wanted = self._looks_begun + 1
            self._version = None
            self._waker.wake()
            if not self._looks.wait_for(lambda: self._looks_ended >= wanted, RELOAD_TIMEOUT_S):
                raise Timeout(
                    f"the server did not look at its tables in {RELOAD_TIMEOUT_S:g} s"
                )
        return {table.definition.full_name: table.reason for table in self._tables.all.values()}

    def _serve_session(self, keeper: KazooKeeper, give_up_s: float) -> None:
        self._version = None
        self._fails_since_s = None
        while not self._should_stop() and not keeper.is_retired:
            self._try_to_look(keeper)
            if self._tables.clock.monotonic_s() < give_up_s:
                self._waker.wait_s(self._pause_s())
                continue
            _raise_if_replaced(self._tables)
            give_up_s = float("inf")

    def _try_to_look(self, keeper: KazooKeeper) -> None:
        """Look at the tables. An error of the system is logged once; it may pass before the next
        look. Raises OSError if it does not pass within FAILS_MAX_S.
        """
        now_s = self._tables.clock.monotonic_s()
        try:
            self._look(keeper)
            self._fails_since_s = None
        except OSError as error:
            if self._fails_since_s is None:
                self._fails_since_s = now_s
                log.warning("looking at the tables failed; trying again", reason=str(error))
            elif now_s - self._fails_since_s > FAILS_MAX_S:
                raise

    def _look(self, keeper: KazooKeeper) -> None:
        with self._looks:
            self._looks_begun += 1
            begun, known = self._looks_begun, self._version
        version = self._tables.catalog.version()
        if version != known:
            self._tables.follow_catalog(keeper)
            self._on_catalog()
        self._tables.look(keeper)
        if self._loops is not None:
            served = self._tables.all.values()
            self._loops.follow([table.definition for table in served if table.replica])
        with self._looks:
            if self._version == known:  # else a reload has asked for another look meanwhile
                self._version = version
            self._looks_ended = begun
            self._looks.notify_all()

    def _pause_s(self) -> float:
        due_s = self._tables.next_look_s()
        return LOOK_EVERY_S if due_s is None else min(due_s, LOOK_EVERY_S)

    def _end_session(self, keeper: KazooKeeper) -> None:
        stopping = self._should_stop()
        reason = "the server is stopping" if stopping else "the ZooKeeper session is over"
        self._tables.close_for_writes(reason)
        self._keeper = None
        if not stopping:
            log.warning("session over; starting over", session=f"{keeper.session_id:#x}")
        if self._loops is not None:
            self._loops.follow([])
        keeper.close()


def _raise_if_replaced(tables: Tables) -> None:
    for table in tables.all.values():
        state = table.state
        if isinstance(state, ReadOnly) and isinstance(state.error, ReplicaIsAlreadyActive):
            raise state.error
