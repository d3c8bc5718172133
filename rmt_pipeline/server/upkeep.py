"""Clean-up beside the work loops: a server whose queues are worked without Dagster also cleans its
tables (spec §10). With Dagster there is a schedule for it, and people have `rmt cleanup`.

A table in which nothing was left to clean is not cleaned again before something has changed.
Whether it has is asked for all tables together that are due, or soon will be.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import AccessDenied, RmtError
from rmt_pipeline.protocol.retention import HYSTERESIS
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.clean_up import (
    CleanedUp,
    Read,
    Settled,
    carry_out,
    is_settled,
    nodes_to_read,
    plan_clean_up,
)
from rmt_pipeline.server.log import get_log
from rmt_pipeline.system import Clock

LOOK_EVERY_S = 0.5
SLOWDOWN = 1.5  # by which a table's pause grows each time there is nothing to clean
TOGETHER = 0.5  # of its pause: a table's turn may come this much sooner, with another table's
CLEAN_ANYWAY_S = 86_400.0  # in case a change was missed

log = get_log("worker")


@dataclass(slots=True)
class _Turn:
    """When (monotonic) a table's turn is, and the pause before it, without the random addition."""

    at_s: float
    pause_s: float
    settled: Settled | None = None
    """The table's state when there was nothing to clean and nothing would grow old; else None."""
    cleaned_s: float = 0.0


class UpkeepLoop:
    """One thread for all tables, until `stop`."""

    def __init__(
        self,
        replica_of: Callable[[TableDefinition], Replica],
        clock: Clock,
        chance: random.Random,
    ) -> None:
        """`replica_of` returns a replica with a living session, or raises ZooKeeperUnreachable."""
        self._replica_of = replica_of
        self._clock = clock
        self._chance = chance
        self._tables: tuple[TableDefinition, ...] = ()
        self._turns: dict[str, _Turn] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rmt-upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def follow(self, tables: Sequence[TableDefinition]) -> None:
        """Clean these tables and no others. From any thread."""
        self._tables = tuple(tables)

    def stop(self) -> None:
        """Begin nothing more. A clean-up that is under way may be cut off anywhere."""
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        """After `stop`: wait for the clean-up that is under way, at most for
        `timeout_s` seconds.
        """
        self._thread.join(timeout_s)

    def look(self) -> None:
        """Clean the tables whose turn it is. When one table fails, the others are still cleaned."""
        tables = {table.full_name: table for table in self._tables}
        self._turns = {name: turn for name, turn in self._turns.items() if name in tables}
        now_s = self._clock.monotonic_s()
        for name, table in tables.items():
            if name not in self._turns:
                settings = _settings_of(table)
                self._plan(name, settings, float(settings.cleanup_delay_period))
        if not any(now_s >= turn.at_s for turn in self._turns.values()):
            return
        due = [
            table
            for name, table in tables.items()
            if now_s >= (turn := self._turns[name]).at_s
            or (turn.settled is not None and now_s >= turn.at_s - TOGETHER * turn.pause_s)
        ]
        replicas = [(table, self._replica(table)) for table in due]
        reads = self._read([replica for _, replica in replicas if replica is not None])
        for table, replica in replicas:
            if self._stop.is_set():
                return
            self._take_turn(table, replica, reads)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self.look()

    def _replica(self, table: TableDefinition) -> Replica | None:
        try:
            return self._replica_of(table)
        except RmtError as error:
            log.warning("clean-up paused", table=table.full_name, reason=str(error))
        except Exception:
            log.exception("clean-up failed; trying again", table=table.full_name)
        return None

    def _read(self, replicas: Sequence[Replica]) -> dict[str, list[Read]]:
        """For each replica, the nodes that tell whether something has changed, with as few requests
        as possible. Replicas are left out when there is no answer: then each is cleaned, and meets
        the error itself.
        """
        nodes = [nodes_to_read(replica) for replica in replicas]
        try:
            paths = [path for some in nodes for path in some]
            found = iter(replicas[0].keeper.get_many(paths) if replicas else [])
        except AccessDenied:  # to a node of one replica
            half = len(replicas) // 2
            if not half:
                return {}
            return self._read(replicas[:half]) | self._read(replicas[half:])
        except Exception as error:  # noqa: BLE001  each is then cleaned alone
            log.debug("tables could not be read together", reason=str(error))
            return {}
        return {
            replica.paths.root: [next(found) for _ in some]
            for replica, some in zip(replicas, nodes, strict=True)
        }

    def _take_turn(
        self,
        table: TableDefinition,
        replica: Replica | None,
        reads: Mapping[str, Sequence[Read]],
    ) -> None:
        settings = _settings_of(table)
        shortest_s = float(settings.cleanup_delay_period)
        name, turn = table.full_name, self._turns[table.full_name]
        if replica is None:
            self._plan(name, settings, shortest_s)
            return
        found = reads.get(replica.paths.root, ())
        now_s, slower_s = self._clock.monotonic_s(), turn.pause_s * SLOWDOWN
        slower_s = max(shortest_s, min(slower_s, float(settings.max_cleanup_delay_period)))
        before = turn.settled if now_s < turn.cleaned_s + CLEAN_ANYWAY_S else None
        with suppress(Exception):  # the clean-up meets the error too, and logs it
            if before is not None and found and Settled.now(replica, found) == before:
                self._plan(name, settings, slower_s, before, turn.cleaned_s)
                return
        was_clean, settled = self._clean(table, replica, found)
        self._plan(name, settings, slower_s if was_clean else shortest_s, settled, now_s)

    def _plan(
        self,
        name: str,
        settings: TableSettings,
        pause_s: float,
        settled: Settled | None = None,
        cleaned_s: float = 0.0,
    ) -> None:
        added_s = self._chance.uniform(0, settings.cleanup_delay_period_random_add)
        at_s = self._clock.monotonic_s() + pause_s + added_s
        self._turns[name] = _Turn(at_s, pause_s, settled, cleaned_s)

    def _clean(
        self, table: TableDefinition, replica: Replica, found: Sequence[Read]
    ) -> tuple[bool, Settled | None]:
        """Clean a table. Return whether there was nothing to clean, and the state in which that
        stays so, if it is known. `found` are the nodes that were read before.
        """
        try:
            if Background.CLEANUP in replica.store.marks.stopped():
                return False, None
            seen = Settled.now(replica, found)
            plan = plan_clean_up(replica, hysteresis=self._chance.uniform(*HYSTERESIS))
            done = carry_out(replica, plan)
            if done == CleanedUp():
                is_over = bool(found) and is_settled(replica, found, plan, done)
                return True, seen if is_over else None
            log.info("cleaned", table=table.full_name, did=done.words())
        except RmtError as error:
            log.warning("clean-up paused", table=table.full_name, reason=str(error))
        except Exception:
            log.exception("clean-up failed; trying again", table=table.full_name)
        return False, None


def _settings_of(table: TableDefinition) -> TableSettings:
    """If there is one of a newer version, the defaults; then the table can't be cleaned, and each
    try says so.
    """
    try:
        return TableSettings.of(dict(table.settings))
    except RmtError:
        return TableSettings()
