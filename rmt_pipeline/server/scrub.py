"""The scrub: reads every part of every table whole once in `scrub_period`, so slowly that it
disturbs nothing. So damage on a disk is found before a reader comes to it, or a second replica is
lost.
"""

import threading
from collections.abc import Callable, Iterable

from rmt_pipeline.exchange.bandwidth import Bandwidth
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.scrub import check_whole, due_parts
from rmt_pipeline.server.log import get_log
from rmt_pipeline.system import Clock

LOOK_EVERY_S = 60.0

log = get_log("server")


class _Stopping(Exception):
    """The process is to end, and the part that is being read need not be read to its end."""


class Scrub:
    """One thread for all tables, until `stop`."""

    def __init__(
        self,
        replicas: Callable[[], Iterable[Replica]],
        on_broken: Callable[[Replica, PartName, str], None],
        clock: Clock,
    ) -> None:
        """`replicas` returns the active replicas."""
        self._replicas = replicas
        self._on_broken = on_broken
        self._stop = threading.Event()
        self._limit = 0
        self._rate = Bandwidth(lambda: self._limit, clock)
        self._thread = threading.Thread(target=self._run, name="rmt-scrub", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread without waiting for it."""
        self._stop.set()

    def look(self) -> None:
        """Read the parts that are due. When one table fails, the others are still read."""
        for replica in self._replicas():
            if self._stop.is_set():
                return
            settings = replica.settings
            self._limit = settings.scrub_bytes_per_second
            if not self._limit:
                continue
            try:
                self._scrub(replica, due_parts(replica, settings.scrub_period))
            except _Stopping:
                return
            except RmtError as error:
                log.warning("scrub paused", table=str(replica), reason=str(error))
            except Exception:
                log.exception("scrub failed; trying again later", table=str(replica))

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self.look()

    def _scrub(self, replica: Replica, parts: list[PartName]) -> None:
        for part in parts:
            try:
                found = check_whole(replica, part, self._pace)
            except OSError:  # it would be the first one again at the next look
                log.exception("part can't be read", table=str(replica), part=str(part))
                continue
            if found.problem:
                self._on_broken(replica, part, found.problem)
        if parts:
            log.info("scrubbed", table=str(replica), parts=len(parts))

    def _pace(self, size: int) -> None:
        if self._stop.wait(self._rate.wait_s(size)):
            raise _Stopping
