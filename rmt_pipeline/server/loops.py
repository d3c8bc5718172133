"""Works a server's queues in this process, without Dagster: `serve --work` and `rmt worker`.

Each pool of each table has a thread that looks at the queue and claims entries. Threads beside it
carry the entries out, and end with that work. All of them use a ZooKeeper session of their own:
when the outcome of a write is unknown they end their session, and the server's `is_active` must not
end with it.
"""

import gc
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from rmt_pipeline.compute.jobs.aside import Aside
from rmt_pipeline.compute.jobs.merge import SparkMerger
from rmt_pipeline.compute.jobs.mutate import SparkMutator
from rmt_pipeline.compute.jobs.spark import SparkSessions
from rmt_pipeline.config import Config, SparkConfig
from rmt_pipeline.context import ServerContext
from rmt_pipeline.processes.java import find_java
from rmt_pipeline.protocol.errors import ReplicaDropped, RmtError
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import Flush, WorkSummary, work
from rmt_pipeline.replica.work.net import SafetyNet
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.server.log import get_log
from rmt_pipeline.server.upkeep import UpkeepLoop
from rmt_pipeline.system import EventWaker, RandomIds

RETRY_S = 2.0
DROPPED_RETRY_S = 60.0  # a replica that is gone from ZooKeeper may be created again
JOIN_S = 2.0
UPKEEP_JOIN_S = 0.5

log = get_log("worker")


def spark_sessions(config: SparkConfig) -> SparkSessions:
    """The Spark sessions that `[spark]` describes; nothing is connected yet. Raises NoJava.

    When the configuration leaves Spark to us and no `rmt spark` runs, the merges of this process
    run in a session of its own: `serve --work` needs no other process but ZooKeeper.
    """
    if config.remote is not None:
        return SparkSessions(remote=config.remote)
    java_home = find_java().env.get("JAVA_HOME")
    if config.master is not None:
        return SparkSessions(master=config.master, java_home=java_home)
    return SparkSessions(
        remote=config.connect_url, fallback_master="local[*]", java_home=java_home
    )


@dataclass(frozen=True, slots=True)
class _Key:
    """Identifies a loop: a table and a pool. `table` is the table's uuid, or its name when it has
    no uuid. So a table that is altered or renamed keeps its loops, which look at its definition at
    each turn.
    """

    table: str
    pool: Pool
    definition: TableDefinition = field(compare=False)


class _Loop:
    """Works one pool of one table, in a thread, until `stop`."""

    def __init__(
        self,
        key: _Key,
        context: ServerContext,
        sessions: SparkSessions,
        is_ending: Callable[[], bool],
        *,
        net: SafetyNet,
        aside: Aside,
    ) -> None:
        self._key = key
        self._aside = aside
        self._net = net
        self._is_ending = is_ending
        self._definition = key.definition
        self._context = context
        self._sessions = sessions
        self._stop = threading.Event()
        self._cancel = threading.Event()
        self._waker = EventWaker()
        self.dropped: ReplicaDropped | None = None
        """Set while the replica is gone from ZooKeeper, so that nothing can be worked."""
        name = f"rmt-{key.pool}-{key.definition.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def follow(self, definition: TableDefinition) -> None:
        """Take note of the table's definition after an ALTER: new settings may mean more to do."""
        if definition != self._definition:
            self._definition = definition
            self._waker.wake()

    def stop(self, *, cancel: bool) -> None:
        """End after the parts that are being made. With `cancel`, fetches are cut off between two
        chunks. When only the session is over, they go on, so that the next session need not fetch
        the same again.
        """
        if cancel:
            self._cancel.set()
        self._stop.set()
        self._waker.wake()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.dropped, pause_s = None, RETRY_S
            try:
                run_pool(
                    self._context,
                    self._key.definition,
                    self._key.pool,
                    self._sessions,
                    waker=self._waker,
                    linger_s=None,
                    should_stop=self._stop.is_set,
                    is_cancelled=lambda: self._cancel.is_set() or self._is_ending(),
                    net=self._net,
                    aside=self._aside,
                    on_flush=log_flush,
                )
            except ReplicaDropped as error:
                self.dropped, pause_s = error, DROPPED_RETRY_S
                log.warning("nothing to work on", **self._about(), reason=str(error))
            except RmtError as error:
                log.warning("work paused", **self._about(), reason=str(error))
            except Exception:
                log.exception("work failed; trying again", **self._about())
            self._stop.wait(pause_s)

    def _about(self) -> dict[str, str]:
        return {"table": self._key.definition.full_name, "pool": self._key.pool}


class QueueLoops:
    """The loops of all active tables. It is what the supervisor calls `WorkLoops`."""

    def __init__(self, config: Config, server: str, pools: Sequence[Pool]) -> None:
        self._context = ServerContext.open(config, server, purpose="worker")
        self._sessions = spark_sessions(config.spark)
        self._pools = tuple(pools)
        self._loops: dict[_Key, _Loop] = {}
        self._ending = threading.Event()
        clock = self._context.clock
        self._net = SafetyNet(clock)
        self._aside = Aside(clock)
        self._upkeep = UpkeepLoop(self._context.replica, clock, random.Random())  # noqa: S311
        self._upkeep.start()
        # All modules are loaded by now. Without this, each full collection of garbage looks at
        # their hundred thousand objects, and all threads wait for 50 to 90 ms.
        gc.collect()
        gc.freeze()

    def follow(self, tables: Sequence[TableDefinition]) -> None:
        """Work these tables and no others. Only for one thread."""
        wanted = {
            _Key(table.uuid or table.full_name, pool, table)
            for table in tables
            for pool in self._pools
        }
        ended = [key for key in self._loops if key not in wanted]
        known = self._known_tables() if ended else frozenset()
        for key in ended:  # nobody needs parts of a table that was dropped or detached any more
            self._loops.pop(key).stop(cancel=key.table not in known)
        for key in wanted:
            if key in self._loops:
                self._loops[key].follow(key.definition)
            else:
                self._loops[key] = _Loop(
                    key,
                    self._context,
                    self._sessions,
                    self._ending.is_set,
                    net=self._net,
                    aside=self._aside,
                )
        self._upkeep.follow(tables)

    def _known_tables(self) -> frozenset[str]:
        """The tables that the catalog has, each as in `_Key`. It reads the files of all of them: at
        the end of a session, when the loops of all tables end, once for all.
        """
        known = self._context.catalog.definitions()
        return frozenset(one.uuid or one.full_name for one in known)

    def require_something(self) -> None:
        """Raises ReplicaDropped when every replica that is worked is gone from ZooKeeper."""
        dropped = [loop.dropped for loop in self._loops.values()]
        if dropped and None not in dropped:
            assert dropped[0] is not None
            raise dropped[0]

    def stop(self) -> None:
        """End after the parts that are being made, at most two seconds later; fetches are cut off
        between two chunks. Entries that are still being worked then lose their claims with the
        session.
        """
        self._ending.set()
        self._upkeep.stop()
        loops = list(self._loops.values())
        self._loops.clear()
        for loop in loops:
            loop.stop(cancel=True)
        for loop in loops:
            loop.join(JOIN_S / len(loops))
        self._upkeep.join(UPKEEP_JOIN_S)
        self._aside.close()
        self._context.close()


def log_flush(flush: Flush) -> None:
    """Log a line for the parts that were made, and one for each failure."""
    for done in flush.parts:
        if done.bug is not None:
            about = {"table": flush.table, **_about(done)}
            log.error("entry failed with an unexpected error", **about, exc_info=done.bug)
        elif done.error:
            log.warning("entry failed", table=flush.table, **_about(done), error=done.error)
    made = [done for done in flush.parts if not done.error]
    if len(made) == 1:
        log.info("part made", table=flush.table, replica=flush.replica, **_about(made[0]))
    elif made:
        log.info(
            "parts made",
            table=flush.table,
            replica=flush.replica,
            parts=len(made),
            rows=sum(done.rows for done in made),
            last=str(made[-1].part),
        )


def _about(done: PartDone) -> dict[str, object]:
    about: dict[str, object] = {"part": str(done.part), "kind": done.kind}
    if not done.error:
        about |= {"rows": done.rows, "lag_s": round(done.lag_s, 3)}
    return about


def run_pool(
    context: ServerContext,
    definition: TableDefinition,
    pool: Pool,
    sessions: SparkSessions,
    *,
    waker: EventWaker,
    linger_s: float | None,
    should_stop: Callable[[], bool],
    is_cancelled: Callable[[], bool] = lambda: False,
    net: SafetyNet | None = None,
    aside: Aside | None = None,
    on_flush: Callable[[Flush], None] = log_flush,
) -> WorkSummary:
    """Work one pool until it has been idle for `linger_s` seconds; if that is None, until
    `should_stop`. Fetches are cut off when `is_cancelled`.

    Raises ZooKeeperUnreachable, ReplicaDropped.
    """
    ids = RandomIds()
    with closing(context.peers(definition, is_cancelled)) as peers:
        return work(
            lambda: context.replica(definition),
            Tools(peers, SparkMerger(sessions, ids, aside), SparkMutator(sessions, ids)),
            pool,
            waker=waker,
            linger_s=linger_s,
            select=pool == "merge",
            net=net,
            on_flush=on_flush,
            should_stop=should_stop,
        )
