"""Jobs that work the queues of a server: one run is a worker for one pool, in all tables.

The log sensor starts them; started by hand from the launchpad they do the same. Two workers at once
are harmless: claims in ZooKeeper keep them apart.
"""

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from queue import SimpleQueue

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError
from pydantic import Field

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource, table_named
from rmt_pipeline.dagster.record.ledger import Recorder
from rmt_pipeline.dagster.record.untold import untold
from rmt_pipeline.dagster.spark import SparkResource
from rmt_pipeline.dagster.work.presence import Presence
from rmt_pipeline.dagster.work.runs import ended_badly
from rmt_pipeline.dagster.work.watching import QueueWatch
from rmt_pipeline.protocol.errors import (
    TABLE_FAILS,
    ReplicaRetired,
    UnknownTable,
    ZooKeeperUnreachable,
)
from rmt_pipeline.replica.assign.explain import Explained, ExplainedRange, explain_merges
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import Flush, WorkSummary, work
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.system import EventWaker
from rmt_pipeline.table import Table

LINGER_S = 8.0
"""Longer than a sensor's tick (5 s) and a launch (3 s): so a steady stream of work stays in one
run.
"""
RUN_MAX_S = 300.0
RECORD_EVERY_S = 2.0
"""An event costs 7 ms or more, a part much less. So events are written for many parts at once."""
PRIORITY = "10"
"""Dagster launches queued runs one after the other. Workers go before the many runs of
a backfill.
"""
RANGES_SHOWN_MAX = 50
TABLES_EXPLAINED_MAX = 20
TABLES_MAX = 16
"""How many tables are worked at once; another one has its turn when one of them has no
more work.
"""
END_MAX_S = 180.0
"""How long after its time a run may still take before Dagster ends it: a merge may take so long."""

_RANGES_SCHEMA = dg.TableSchema(
    columns=[
        dg.TableColumn("partition", "string"),
        dg.TableColumn("parts", "string"),
        dg.TableColumn("bytes", "int"),
        dg.TableColumn(
            "score", "float", description="The smallest that may be merged comes next"
        ),
        dg.TableColumn(
            "verdict", "string", description="May be merged, or the rule that forbids it now"
        ),
    ]
)


class WorkConfig(dg.Config):
    """One worker: the tables it works, and for how long."""

    tables: list[str] = Field(
        default_factory=list,
        description="The tables to work on, as database.table. Empty: all tables of the server.",
    )
    linger_s: float = Field(
        default=LINGER_S,
        ge=0,
        description="How many seconds to wait for more work before the run ends.",
    )
    max_s: float = Field(
        default=RUN_MAX_S,
        gt=0,
        le=RUN_MAX_S,
        description="After this many seconds the run ends even if there is more work; the log "
        "sensor starts the next one.",
    )


def worker_job(server: str, pool: Pool) -> dg.JobDefinition:
    """The job that works the entries of one pool in the queues of all tables of a server."""
    name = names.worker_job_name(server, pool)

    @dg.op(
        name=f"work_{name}",
        description=f"Carries out the {pool} entries in the queues of server {server}.",
    )
    def work_pool(
        context: dg.OpExecutionContext,
        config: WorkConfig,
        engine: EngineResource,
        spark: SparkResource,
    ) -> None:
        with engine.server(server, purpose=f"run {context.run_id[:8]}") as opened:
            team = Team(context, config, opened, pool, spark)
            is_complete = True
            try:
                team.work()
            except DagsterExecutionInterruptedError:
                run = context.instance.get_run_by_id(context.run_id)
                if run is None or run.status is dg.DagsterRunStatus.CANCELING:
                    raise
                # Dagster ends, and so does this process: the next log sensor finds what is left.
                is_complete = False
                context.log.info("asked to end, with the processes of Dagster")
            for table, summary in sorted(team.summaries.items()):
                context.log.info("%s: %s", table, _words(summary))
            if pool == "merge" and is_complete:
                explain(context, team.worked())
            team.raise_if_all_failed()

    @dg.job(
        name=name,
        executor_def=dg.in_process_executor,
        tags={
            names.SERVER_TAG: server,
            names.KIND_TAG: "worker",
            names.WORKER_TAG: names.worker_tag(server, pool),
            "dagster/priority": PRIORITY,
            "dagster/max_runtime": str(int(RUN_MAX_S + END_MAX_S)),
            "dagster/max_retries": "0",  # the log sensor asks for the next one, and says why not
        },
        description=(
            f"A worker for the {pool} pool of server {server}, for all its tables. The log sensor "
            f"starts it when there is work. It ends when there was none for {LINGER_S:g} s, and "
            f"after {RUN_MAX_S:g} s at the latest."
        ),
    )
    def job() -> None:
        work_pool()

    return job


class Team:
    """The tables that one run works, each in a thread of its own while it has work.

    The threads do the work, and the main thread writes the events, some seconds later. So no part
    waits for Dagster's storage. Dagster also raises its interrupt in the main thread, at whatever
    line that is: here this thread only waits and records, and the others end after their current
    parts.
    """

    def __init__(
        self,
        context: dg.OpExecutionContext,
        config: WorkConfig,
        server: ServerContext,
        pool: Pool,
        spark: SparkResource,
    ) -> None:
        self.summaries: dict[str, WorkSummary] = {}
        """What was done in each table that had work."""
        self._failed: dict[str, BaseException] = {}
        self._only = [table_named(server, name).definition.full_name for name in config.tables]
        self._context = context
        self._config = config
        self._server = server
        self._pool: Pool = pool
        self._spark = spark
        self._stop = threading.Event()
        self._members: dict[str, _Member] = {}
        self._tables: dict[str, Table] = {}
        self._ends_s = server.clock.monotonic_s() + config.max_s

    def worked(self) -> list[Table]:
        """The tables that had work. One of them may have been dropped since."""
        return [self._tables[name] for name in self.summaries]

    def raise_if_all_failed(self) -> None:
        """Raise the error of a table if no table could be worked. If only some tables failed, their
        errors are in the log, and the run has done its work.
        """
        if self._failed and not self.summaries:
            raise next(iter(self._failed.values()))

    def work(self) -> None:
        """Work until there was nothing to do for a while, or the time is over. Raises
        ZooKeeperUnreachable.
        """
        clock = self._server.clock
        presence = Presence(self._server, self._context.run_id)
        queues = QueueWatch(self._server, self._only)
        lingers_until_s = clock.monotonic_s() + self._config.linger_s
        with ThreadPoolExecutor(TABLES_MAX, thread_name_prefix="worker") as threads:
            try:
                presence.renew()
                self._tell_of_the_dead()
                while True:
                    presence.renew()
                    self._record()
                    now_s = clock.monotonic_s()
                    if now_s < self._ends_s:
                        but = {*self._members, *self._failed}
                        self._begin(threads, queues.ready(self._pool, but))
                    has_worked = self.summaries or self._failed
                    if not self._members and (has_worked or now_s >= lingers_until_s):
                        if not has_worked:  # for a person who has started it by hand
                            self._context.log.info(
                                "nothing was worked: %s", queues.look({}).words()
                            )
                        return  # each table's thread has lingered for more work
                    queues.wait_s(RECORD_EVERY_S)
            finally:
                self._stop.set()
                wait([member.working for member in self._members.values()])
                self._record()
                presence.close()

    def _tell_of_the_dead(self) -> None:
        """Record what earlier workers did, in any table, but could not record before they ended."""
        runs = ended_badly(self._context.instance, self._context.job_name)
        server = self._server.server.name
        for table in self._server.tables() if runs else ():
            try:
                parts = untold(table, server, self._context.instance, runs)
                Recorder(self._context, table, server).parts(parts)
            except ZooKeeperUnreachable:
                raise
            # If this run fails too, the next one tries again.
            except TABLE_FAILS as error:
                name = table.definition.full_name
                self._context.log.warning("%s: its last worker's parts: %s", name, error)
                continue
            if parts:
                ended = ", ".join(record.dagster_run.run_id[:8] for record in runs)
                self._context.log.info(
                    "told %d parts for workers that ended before they could: %s",
                    len(parts),
                    ended,
                )

    def _begin(self, threads: ThreadPoolExecutor, ready: Collection[str]) -> None:
        for name in list(ready)[: TABLES_MAX - len(self._members)]:
            try:
                table = self._tables[name] = table_named(self._server, name)
            except UnknownTable:
                continue  # it was dropped since it was looked at
            done: SimpleQueue[PartDone] = SimpleQueue()
            recorder = Recorder(self._context, table, self._server.server.name)
            working = threads.submit(self._work, table, done)
            self._members[name] = _Member(working, recorder, done)

    def _work(self, table: Table, done: SimpleQueue[PartDone]) -> WorkSummary:
        def on_flush(flush: Flush) -> None:
            for part in flush.parts:
                done.put(part)

        with closing(self._server.peers(table.definition, self._stop.is_set)) as peers:
            return work(
                lambda: table.replica,
                Tools(
                    peers,
                    merger=self._spark,
                    mutator=self._spark,
                    run_id=self._context.run_id,
                ),
                self._pool,
                waker=EventWaker(),
                linger_s=self._config.linger_s,
                max_s=max(0.0, self._ends_s - self._server.clock.monotonic_s()),
                select=self._pool == "merge",
                on_flush=on_flush,
                should_stop=self._stop.is_set,
            )

    def _record(self) -> None:
        """Write the events of what was done in all tables, in one transaction, and remove the
        members whose threads have ended.
        """
        # For start-up time: it loads SQLAlchemy, a quarter of what a code location would load.
        from rmt_pipeline.dagster.record.storage import one_transaction  # noqa: PLC0415

        ended = {name for name, one in self._members.items() if one.working.done()}
        done = {name: _taken(one.done) for name, one in self._members.items()}
        with one_transaction(self._context.instance):
            for name, parts in done.items():
                try:
                    self._members[name].recorder.parts(parts)
                except (UnknownTable, ReplicaRetired) as gone:  # dropped or detached since
                    self._context.log.warning(
                        "%s: %d parts are not recorded: %s", name, len(parts), gone
                    )
        for name in ended:
            member = self._members.pop(name)
            error = member.working.exception()
            if error is None:
                self.summaries[name] = _both(self.summaries.get(name), member.working.result())
            else:
                self._failed[name] = error
                self._context.log.error("%s can't be worked: %s", name, error)


@dataclass(frozen=True, slots=True)
class _Member:
    """A table that a thread works."""

    working: Future[WorkSummary]
    recorder: Recorder
    done: SimpleQueue[PartDone]


def _both(first: WorkSummary | None, second: WorkSummary) -> WorkSummary:
    """The sum of what a run did in a table that had work twice."""
    if first is None:
        return second
    return replace(
        second,
        parts=first.parts + second.parts,
        rows=first.rows + second.rows,
        size_bytes=first.size_bytes + second.size_bytes,
        failures=first.failures + second.failures,
        differed=first.differed + second.differed,
        assigned=first.assigned + second.assigned,
        finished_without_work=first.finished_without_work + second.finished_without_work,
    )


def explain(context: dg.OpExecutionContext, tables: Sequence[Table]) -> None:
    """Add to the run's metadata which merges are worth it now and which are not, for people who
    read it.
    """
    metadata: dict[str, str | dg.TableMetadataValue] = {}
    for table in tables[:TABLES_EXPLAINED_MAX]:
        name = table.definition.full_name
        try:
            explained = explained_metadata(explain_merges(table.replica))
        # The work is done, whether it can be explained or not.
        except TABLE_FAILS as error:
            context.log.warning("%s: merges could not be explained: %s", name, error)
            continue
        metadata |= {f"{name}: {key}": value for key, value in explained.items()}
    context.add_output_metadata(metadata)


def explained_metadata(explained: Explained) -> dict[str, str | dg.TableMetadataValue]:
    """What `rmt explain merges` shows, as metadata: `merge ranges` are the best ones, and `merge
    limit` is there when no merge may be assigned.
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
