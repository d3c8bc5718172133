"""Clean-up beside the work loops: who works a server's queues without Dagster cleans its tables too
(spec §10; Dagster has a schedule for it, people have `rmt cleanup`).
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.retention import HYSTERESIS
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.clean_up import CleanedUp, carry_out, plan_clean_up
from rmt_pipeline.server.log import get_log
from rmt_pipeline.system import Clock

LOOK_EVERY_S = 0.5
SLOWDOWN = 1.5  # of the pause of a table that has nothing to clean, each time

log = get_log("worker")


@dataclass(slots=True)
class _Turn:
    """When (monotonic) a table's turn is, and the pause before it without what chance adds."""

    at_s: float
    pause_s: float


class UpkeepLoop:
    """One thread for all tables, until `stop`."""

    def __init__(
        self,
        replica_of: Callable[[TableDefinition], Replica],
        clock: Clock,
        chance: random.Random,
    ) -> None:
        """`replica_of` gives one with a living session, or raises ZooKeeperUnreachable."""
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
        """Nothing is begun any more. What is under way may be cut anywhere."""
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        """After `stop`: wait for what is under way, so long at most."""
        self._thread.join(timeout_s)

    def look(self) -> None:
        """Clean the tables whose turn it is. Whatever is wrong with one, the others get theirs."""
        tables = self._tables
        names = {table.full_name for table in tables}
        self._turns = {name: turn for name, turn in self._turns.items() if name in names}
        for table in tables:
            if self._stop.is_set():
                return
            self._look_at(table)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self.look()

    def _look_at(self, table: TableDefinition) -> None:
        now_s, name = self._clock.monotonic_s(), table.full_name
        settings = TableSettings.of(dict(table.settings))
        turn = self._turns.get(name)
        if turn is None:
            pause_s = float(settings.cleanup_delay_period)
        elif now_s < turn.at_s:
            return
        else:
            pause_s = self._clean(table, settings, turn.pause_s)
        added_s = self._chance.uniform(0, settings.cleanup_delay_period_random_add)
        self._turns[name] = _Turn(self._clock.monotonic_s() + pause_s + added_s, pause_s)

    def _clean(self, table: TableDefinition, settings: TableSettings, pause_s: float) -> float:
        """The pause until the next time: longer and longer while nothing is found."""
        shortest_s = float(settings.cleanup_delay_period)
        try:
            replica = self._replica_of(table)
            if Background.CLEANUP in replica.store.marks.stopped():
                return shortest_s
            plan = plan_clean_up(replica, hysteresis=self._chance.uniform(*HYSTERESIS))
            done = carry_out(replica, plan)
        except RmtError as error:
            log.warning("clean-up paused", table=table.full_name, reason=str(error))
            return shortest_s
        except Exception:
            log.exception("clean-up failed; trying again", table=table.full_name)
            return shortest_s
        if done == CleanedUp():
            return max(shortest_s, min(pause_s * SLOWDOWN, settings.max_cleanup_delay_period))
        log.info("cleaned", table=table.full_name, did=done.words())
        return shortest_s
