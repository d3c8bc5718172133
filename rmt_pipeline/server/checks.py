"""Checks parts that could not be sent as they should be, or whose directory is gone: a part that is
broken or missing is set aside, and fetched again.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import TABLE_FAILS, Corruption, MissingPart, RmtError
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.readable import note_active
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.rewound import remember_log, remember_replicas
from rmt_pipeline.server.log import get_log

WAITING_MAX = 1000  # when more parts than this are broken, the disk is broken
RETRY_S = 5.0
SETTLED_S = 10.0  # after a change: new names may still be waiting for their promise
LOOK_EVERY_S = 1.0  # between looks at each table's directory, for names that came or went

log = get_log("server")


@dataclass(frozen=True, slots=True)
class _Listing:
    """The names in a table's directory, the time when the directory last changed before they were
    read, and the promises that were noted then. `changed_s` is None while the names may still be
    incomplete, because the change was recent, or some of the parts that have gone could not be
    reported yet.
    """

    changed_s: float | None
    names: frozenset[str]
    noted: Holdings | None


class PartChecks:
    """One thread that checks the reported parts, one after the other (spec §5.9). It also reports
    parts whose directory was removed from outside while the server runs.
    """

    def __init__(
        self,
        replica_of: Callable[[str], Replica | None],
        replicas: Callable[[], Iterable[Replica]],
    ) -> None:
        """`replica_of` returns the active replica at a ZooKeeper path, or None while there is none.
        `replicas` returns all active replicas.
        """
        self._replica_of = replica_of
        self._replicas = replicas
        self._listings: dict[str, _Listing] = {}
        self._waiting: OrderedDict[tuple[str, PartName], None] = OrderedDict()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="rmt-checks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def report(self, endpoint: str, part: PartName, problem: Corruption) -> None:
        """Ask for a check of a part. From any thread; a part that waits for its check already is
        checked once.
        """
        with self._changed:
            if (endpoint, part) in self._waiting or len(self._waiting) >= WAITING_MAX:
                return
            self._waiting[endpoint, part] = None
            self._changed.notify_all()
        if not isinstance(problem, MissingPart):  # a missing part was merged away, most likely
            log.warning(
                "part is broken", part=str(part), replica=endpoint, problem=str(problem)
            )

    def stop(self) -> None:
        """Stop the thread without waiting for a check that is under way: it may be cut off
        anywhere.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping, LOOK_EVERY_S)
                if self._stopping:
                    return
                reported = self._waiting.popitem(last=False)[0] if self._waiting else None
            self.look_at_disks()
            if reported is None:
                continue
            endpoint, part = reported
            if not self._check(endpoint, part):
                with self._changed:
                    self._waiting[endpoint, part] = None  # checked later, after the others
                    self._changed.wait_for(lambda: self._stopping, RETRY_S)

    def look_at_disks(self) -> None:
        """Report the parts that are promised but whose directory has gone since the last look.

        A directory that has not changed is not listed, and ZooKeeper is asked only about names that
        have gone, most of which were merged away. A part is promised only after it has its name,
        and until it loses that name. So a part that is promised and has no name now is missing; the
        check itself asks again.
        """
        listings: dict[str, _Listing] = {}
        for replica in self._replicas():
            root = replica.paths.root
            known = self._listings.get(root)
            try:
                listings[root] = self._look(replica, known)
            except TABLE_FAILS as error:
                log.debug("directory not looked at", replica=root, error=str(error))
            except Exception:
                log.exception("directory not looked at", replica=root)
            if known is not None:
                listings.setdefault(root, known)
        self._listings = listings

    def _look(self, replica: Replica, known: _Listing | None) -> _Listing:
        changed_s = replica.store.names_changed_s()
        if known is not None and changed_s is not None and changed_s == known.changed_s:
            return known
        names = replica.store.names()
        before = frozenset[str]() if known is None else known.names
        parts = filter(None, map(PartName.try_parse, before - names))
        gone, later = self._that_fit(sorted(parts))
        if gone:
            _report_promised(replica, gone, self.report)
        remember_replicas(replica)
        remember_log(replica)  # a replica with new parts has seen new log entries
        noted = note_active(replica, None if known is None else known.noted)
        is_settled = changed_s is not None and replica.clock.now_s() - changed_s > SETTLED_S
        return _Listing(
            changed_s if is_settled and not later else None, names | set(map(str, later)), noted
        )

    def _that_fit(self, gone: list[PartName]) -> tuple[list[PartName], list[PartName]]:
        """Those of the parts that have room among the waiting ones, and the rest, which is reported
        later.
        """
        room = max(0, WAITING_MAX - len(self._waiting))
        return gone[:room], gone[room:]

    def _check(self, endpoint: str, part: PartName) -> bool:
        """Check a part. False when it could not be checked now, and has to wait.

        A part of a replica that is not active does not wait: it could be that of a dropped table,
        of which nothing is ever checked, and the list would be full for ever. When the replica
        becomes active, it looks for missing parts, and the next request for a broken one reports
        it again.
        """
        replica = self._replica_of(endpoint)
        if replica is None:
            return True
        try:
            problem = check_part(replica, part)
        except RmtError as error:
            log.warning("part check failed", part=str(part), error=str(error))
            return False
        except Exception:
            # A bug or a failing disk: the next request for the part reports it again.
            log.exception("part check failed", part=str(part))
            return True
        if problem is not None:
            log.warning("part is fetched again", part=str(part), problem=problem)
        return True


def _report_promised(
    replica: Replica,
    gone: list[PartName],
    report: Callable[[str, PartName, Corruption], None],
) -> None:
    promised = replica.keeper.get_many([replica.paths.part(part) for part in gone])
    for part, read in zip(gone, promised, strict=True):
        if read is not None:
            problem = MissingPart(f"the directory of {part} was removed", part=part)
            report(replica.paths.root, part, problem)
