"""Jobs that work a replica's queue: one run is one worker for one pool of one table's replica.

The sensors start them; by hand they do the same from the launchpad. Two at once are harmless:
claims in ZooKeeper keep them apart.
"""

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from queue import SimpleQueue

import dagster as dg
from pydantic import Field

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource, table_named
from rmt_pipeline.dagster.ledger import Recorder
from rmt_pipeline.dagster.spark import SparkResource
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.assign.explain import Explained, ExplainedRange, explain_merges
from rmt_pipeline.replica.work.execute import PartDone, Pool, Tools
from rmt_pipeline.replica.work.worker import Flush, WorkSummary, work
from rmt_pipeline.system import EventWaker
from rmt_pipeline.table import Table

LINGER_S = 8.0
"""Longer than a sensor's tick (5 s) and a launch (3 s): a steady stream stays in the run."""
RUN_MAX_S = 300.0
RECORD_EVERY_S = 2.0
"""An event costs 7 ms and more, a part much less: events are written for many parts at once."""
PRIORITY = "10"
"""Dagster launches queued runs one after the other: a backfill's many runs come after workers."""
RANGES_SHOWN_MAX = 50

_RANGES_SCHEMA = dg.TableSchema(
    columns=[
        dg.TableColumn("partition", "string"),
        dg.TableColumn("parts", "string"),
        dg.TableColumn("bytes", "int"),
        dg.TableColumn("score", "float", description="The smallest that may be merged is next"),
        dg.TableColumn("verdict", "string", description="Or the rule that forbids it now"),
    ]
)


class WorkConfig(dg.Config):
    """One worker: whose queue, and for how long."""

    table: str = Field(description="database.table")
    linger_s: float = Field(
        default=LINGER_S, ge=0, description="Seconds to wait for more work before the run ends."
    )
    max_s: float = Field(
        default=RUN_MAX_S, gt=0, description="Seconds after which the run ends even when busy."
    )


def worker_job(server: str, pool: Pool) -> dg.JobDefinition:
    name = names.worker_job_name(server, pool)

    @dg.op(
        name=f"work_{name}",
        description=f"Works the {pool} entries in a queue of server {server}.",
    )
    def work_pool(
        context: dg.OpExecutionContext,
        config: WorkConfig,
        engine: EngineResource,
        spark: SparkResource,
    ) -> None:
        with engine.server(server, purpose=f"run {context.run_id[:8]}") as opened:
            summary = _work(context, config, opened, pool, spark)
            if pool == "merge":
                explain(context, table_named(opened, config.table))
        context.log.info(_words(summary))

    @dg.job(
        name=name,
        executor_def=dg.in_process_executor,
        tags={names.SERVER_TAG: server, "dagster/priority": PRIORITY},
        description=(
            f"A worker for the {pool} pool of server {server}: claims entries, works them off, "
            f"waits {LINGER_S:g} s for more, ends after {RUN_MAX_S:g} s at the latest."
        ),
    )
    def job() -> None:
        work_pool()

    return job


def _work(
    context: dg.OpExecutionContext,
    config: WorkConfig,
    server: ServerContext,
    pool: Pool,
    spark: SparkResource,
) -> WorkSummary:
    """The work is done in a thread; this one writes the events, some seconds behind.

    So a part never waits for Dagster's storage. And Dagster raises its interrupt in the main
    thread, wherever that is: here it only waits, and the worker ends after the part it is at.
    """
    table = table_named(server, config.table)
    recorder = Recorder(context, table, server.server.name)
    done: SimpleQueue[PartDone] = SimpleQueue()
    stop = threading.Event()

    def on_flush(flush: Flush) -> None:
        for part in flush.parts:
            done.put(part)

    with (
        closing(server.peers(table.definition)) as peers,
        ThreadPoolExecutor(1, thread_name_prefix="worker") as thread,
    ):
        working = thread.submit(
            work,
            lambda: table.replica,
            Tools(peers, merger=spark, mutator=spark),
            pool,
            waker=EventWaker(),
            linger_s=config.linger_s,
            max_s=config.max_s,
            select=pool == "merge",
            on_flush=on_flush,
            should_stop=stop.is_set,
        )
        try:
            while not wait([working], RECORD_EVERY_S).done:
                recorder.parts(_taken(done))
        finally:
            stop.set()
            wait([working])
            recorder.parts(_taken(done))
        return working.result()


def explain(context: dg.OpExecutionContext, table: Table) -> None:
    """What is worth merging now and what is not, for whoever looks at the run."""
    try:
        context.add_output_metadata(explained_metadata(explain_merges(table.replica)))
    except RmtError as error:  # the work is done; it needs no explanation to count
        context.log.warning("merges could not be explained: %s", error)


def explained_metadata(explained: Explained) -> dict[str, str | dg.TableMetadataValue]:
    """What `rmt explain merges` says: `merge ranges` are the best ones;
    `merge limit` is there when nothing may be assigned.
    """
    records = [dg.TableRecord(_range(one)) for one in explained.ranges[:RANGES_SHOWN_MAX]]
    ranges = dg.MetadataValue.table(records, schema=_RANGES_SCHEMA)
    if explained.limit:
        return {"merge limit": explained.limit, "merge ranges": ranges}
    return {"merge ranges": ranges}


def _range(one: ExplainedRange) -> dict[str, str | int | float]:
    first, last = one.parts[0], one.parts[-1]
    few = " ".join(one.parts)
    return {
        "partition": one.partition,
        "parts": few if len(one.parts) <= 3 else f"{len(one.parts)} parts {first} … {last}",
        "bytes": one.size_bytes,
        "score": 0.0 if one.score is None else round(one.score, 1),
        "verdict": one.reason or "may be merged",
    }


def _taken(done: SimpleQueue[PartDone]) -> list[PartDone]:
    return [done.get() for _ in range(done.qsize())]


def _words(summary: WorkSummary) -> str:
    done = (
        f"{summary.parts} parts with {summary.rows} rows, {summary.failures} failures, "
        f"{summary.assigned} merges assigned; ended: {summary.stopped}"
    )
    if summary.differed:
        done += (
            f"; {summary.differed} results differed from another replica's, which is fetched"
        )
    waiting = "; ".join(f"{node} waits: {reason}" for node, reason in summary.waiting)
    return f"{done}. {waiting}" if waiting else done
