"""The life of a server process: its session, its tables, and what happens when one of them is lost.

    start: read-only ──► session ──► tables active ◄──► catalog changed, a table due for a retry
                 ▲                        │
                 └── session over: everything read-only, close, start over

The process is crash-only: a kill loses nothing, and `stop` only makes the end faster.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from rmt_pipeline.catalog.contents import CatalogVersion
from rmt_pipeline.protocol.errors import (
    AccessDenied,
    Conflict,
    OutcomeUnknown,
    ReplicaIsAlreadyActive,
    ReplicaRetired,
    RmtError,
    Timeout,
    Unavailable,
    ZooKeeperUnreachable,
)
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.server.log import get_log
from rmt_pipeline.server.status import Counters
from rmt_pipeline.server.tables import ReadOnly, Tables
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper

LOOK_EVERY_S = 0.2  # between looks at the catalog: a new table waits this long at most
RELOAD_TIMEOUT_S = 30.0
PAUSE_FIRST_S = 0.2  # between attempts to open a session
PAUSE_MAX_S = 5.0
NO_SESSION = (Unavailable, ReplicaRetired, Conflict, OutcomeUnknown)
"""Errors of an attempt to open a session after which another one may succeed."""
FAILS_MAX_S = 60.0
"""For so long looks may fail one after the other, for want of descriptors or so."""

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
        open_session: Callable[[], KazooKeeper],
        give_up_after_s: float | None = None,
        loops: WorkLoops | None,
        should_stop: Callable[[], bool],
        on_catalog: Callable[[], None] = lambda: None,
    ) -> None:
        """`open_session` tries once to open a session. Without a session so long after the start,
        the server gives up; with None, it tries for ever. `on_catalog` is called when the catalog
        has changed and there is a session.
        """
        self._on_catalog = on_catalog
        self._tables = tables
        self._waker = waker
        self._counters = counters
        self._open_session = open_session
        self._give_up_after_s = give_up_after_s
        self._waits_for = ""
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

    @property
    def waits_for(self) -> str:
        """Why there is no session, as the last attempt found; "" if that succeeded."""
        return self._waits_for

    def run(self) -> None:
        """Serve until `should_stop`. Raises ReplicaIsAlreadyActive when another process serves one
        of our replicas at the start, and still does so after its session's timeout; what `_session`
        raises.
        """
        while (keeper := self._session()) is not None:
            is_first = not self._counters.sessions
            self._keeper = keeper
            self._counters.sessions += 1
            keeper.on_retired(self._waker.wake)
            log.info("session begun", session=f"{keeper.session_id:#x}")
            give_up_s = float("inf")  # later we wait for another process with our replica
            if is_first:
                now_s = self._tables.clock.monotonic_s()
                give_up_s = now_s + 2 * keeper.session_timeout_s + 1
            try:
                self._serve_session(keeper, give_up_s)
            finally:
                self._end_session(keeper)

    def _session(self) -> KazooKeeper | None:
        """The next session; None when `should_stop`. Meanwhile the tables are read-only, and say
        what they wait for (spec §11.7).

        Raises AccessDenied, if there was no session yet: then the configuration is wrong, which is
        read at the start. ZooKeeperUnreachable as `give_up_after_s` says; what `open_session` and
        `_try_to_look` raise.
        """
        clock, pause_s = self._tables.clock, PAUSE_FIRST_S
        began_s = clock.monotonic_s()
        self._version = self._fails_since_s = None
        while not self._should_stop():
            self._try_to_look(None)
            try:
                keeper = self._open_session()
            except NO_SESSION as error:
                is_first = not self._counters.sessions
                if is_first and isinstance(error, AccessDenied):
                    raise
                waited_s = clock.monotonic_s() - began_s
                if is_first and self._give_up_after_s and waited_s >= self._give_up_after_s:
                    raise ZooKeeperUnreachable(
                        f"no session in {waited_s:.0f} s, and --connect-timeout-s is "
                        f"{self._give_up_after_s:g}: {error}"
                    ) from error
                self._wait_for(error)
            else:
                self._waits_for = ""
                return keeper
            self._waker.wait_s(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
        return None

    def _wait_for(self, error: RmtError) -> None:
        """Tell why there is no session: the log once, and each table that it is read-only."""
        words = f"this server has no ZooKeeper session, and goes on trying: {error}"
        if words != self._waits_for and not self._should_stop():
            log.warning("no ZooKeeper session; trying again", reason=str(error))
        self._waits_for = words
        self._tables.close_for_writes(words)

    def reload(self) -> dict[str, str]:
        """Look at the catalog, and at every table that is due, now. Return for each table why it is
        read-only, or "" if it is active.

        Raises Unavailable while there is no session, and Timeout.
        """
        if self.keeper is None:
            raise Unavailable(
                self._waits_for
                or "this server has no ZooKeeper session now; it is starting over"
            )
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

    def _try_to_look(self, keeper: KazooKeeper | None) -> None:
        """Look at the tables; without a session, only at the catalog. An error of the system, or a
        file of the catalog that could not be written, is logged once; it may pass before the next
        look. Raises OSError, RmtError, or RuntimeError (no further thread can be started), if it
        does not pass within FAILS_MAX_S.
        """
        now_s = self._tables.clock.monotonic_s()
        try:
            self._look(keeper)
            self._fails_since_s = None
        except (OSError, RuntimeError, RmtError) as error:
            if self._fails_since_s is None:
                self._fails_since_s = now_s
                log.warning("looking at the tables failed; trying again", reason=str(error))
            elif now_s - self._fails_since_s > FAILS_MAX_S:
                raise

    def _look(self, keeper: KazooKeeper | None) -> None:
        with self._looks:
            self._looks_begun += 1
            begun, known = self._looks_begun, self._version
        version = self._tables.catalog.version()
        if version != known:
            self._tables.follow_catalog(keeper)
        if keeper is not None:
            if version != known:
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
