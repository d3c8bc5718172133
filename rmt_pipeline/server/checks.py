"""Parts that could not be sent as they should be: looked at again, set aside, re-fetched."""

import threading
from collections import OrderedDict
from collections.abc import Callable

from rmt_pipeline.protocol.errors import Corruption, MissingPart, RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.server.log import get_log

WAITING_MAX = 1000  # more than that many broken parts is a broken disk
RETRY_S = 5.0

log = get_log("server")


class PartChecks:
    """One thread that checks the reported parts, one after the other (spec §5.9)."""

    def __init__(self, replica_of: Callable[[str], Replica | None]) -> None:
        """`replica_of` gives the active replica at a ZooKeeper path; None while there is none."""
        self._replica_of = replica_of
        self._waiting: OrderedDict[tuple[str, PartName], None] = OrderedDict()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="rmt-checks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def report(self, endpoint: str, part: PartName, problem: Corruption) -> None:
        """From any thread; a part that waits already is checked once."""
        with self._changed:
            if (endpoint, part) in self._waiting or len(self._waiting) >= WAITING_MAX:
                return
            self._waiting[endpoint, part] = None
            self._changed.notify_all()
        if not isinstance(problem, MissingPart):  # else it was merged away, most likely
            log.warning(
                "part is broken", part=str(part), replica=endpoint, problem=str(problem)
            )

    def stop(self) -> None:
        """Does not wait for a check that is under way: it may be cut anywhere."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                (endpoint, part), _ = self._waiting.popitem(last=False)
            if not self._check(endpoint, part):
                with self._changed:
                    self._waiting[endpoint, part] = None  # later, behind the others
                    self._changed.wait_for(lambda: self._stopping, RETRY_S)

    def _check(self, endpoint: str, part: PartName) -> bool:
        """False: it could not be checked now."""
        replica = self._replica_of(endpoint)
        if replica is None:
            return False
        try:
            problem = check_part(replica, part)
        except RmtError as error:
            log.warning("part check failed", part=str(part), error=str(error))
            return False
        except Exception:
            # A bug or a failing disk: whoever asks for the part next reports it again.
            log.exception("part check failed", part=str(part))
            return True
        if problem is not None:
            log.warning("part is fetched again", part=str(part), problem=problem)
        return True
