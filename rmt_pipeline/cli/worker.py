"""`rmt worker`: works a server's queues in the foreground."""

from concurrent.futures import ThreadPoolExecutor

from rmt_pipeline.catalog.directory import require_owner
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.work.loop import WorkSummary
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.server.log import get_log
from rmt_pipeline.server.loops import QueueLoops, run_pool, spark_sessions
from rmt_pipeline.server.process import StopSwitch, stopped_by_signals
from rmt_pipeline.system import EventWaker

POOLS: dict[str, tuple[Pool, ...]] = {
    "fetch": ("fetch",),
    "merge": ("merge",),
    "all": ("fetch", "merge"),
}
LOOK_EVERY_S = 0.5  # between looks at the catalog, for tables that are new or gone

log = get_log("worker")


def run_worker(
    config: Config,
    server: str,
    pools: tuple[Pool, ...],
    *,
    linger_s: float | None,
) -> int:
    """Work until a signal; with `linger_s`, until every queue was idle that long.

    The exit status is 1 when entries failed. Raises ZooKeeperUnreachable, UserError, and
    ReplicaDropped when no table's replica is in ZooKeeper any more (with `linger_s`: when one
    table's is not).
    """
    require_owner(config.server(server).data, server)
    switch = StopSwitch()
    with (
        stopped_by_signals(switch),
        ServerContext.open(config, server, purpose="worker") as own,
    ):
        if linger_s is None:
            _work_on(config, server, own, pools, switch)
            return 0
        summaries = _work_off(config, own, pools, switch, linger_s)
    failures = sum(summary.failures for summary in summaries)
    log.info(
        "idle",
        parts=sum(summary.parts for summary in summaries),
        rows=sum(summary.rows for summary in summaries),
        failures=failures,
        waiting=[f"{node}: {reason}" for one in summaries for node, reason in one.waiting],
    )
    return 1 if failures else 0


def _work_on(
    config: Config,
    server: str,
    own: ServerContext,
    pools: tuple[Pool, ...],
    switch: StopSwitch,
) -> None:
    own.keeper()  # better an error here than in a thread's log line
    loops = QueueLoops(config, server, pools)
    try:
        while not switch.is_asked():
            # The list is read before the look for replicas that were dropped from ZooKeeper: a
            # DROP TABLE on this server takes its table off the list first.
            loops.follow(own.catalog.definitions())
            loops.require_something()
            switch.wait_s(LOOK_EVERY_S)
    finally:
        loops.stop()


def _work_off(
    config: Config,
    own: ServerContext,
    pools: tuple[Pool, ...],
    switch: StopSwitch,
    linger_s: float,
) -> list[WorkSummary]:
    """Fetch and merge side by side, since each may bring what the other needs."""
    sessions = spark_sessions(config.spark)
    jobs = [(table, pool) for table in own.catalog.definitions() for pool in pools]

    def run(job: tuple[TableDefinition, Pool]) -> WorkSummary:
        table, pool = job
        return run_pool(
            own,
            table,
            pool,
            sessions,
            waker=EventWaker(),
            linger_s=linger_s,
            should_stop=switch.is_asked,
        )

    try:
        with ThreadPoolExecutor(max(len(jobs), 1), "rmt-work") as threads:
            return list(threads.map(run, jobs))
    finally:
        sessions.close()
