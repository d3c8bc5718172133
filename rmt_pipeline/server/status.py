"""A server's status, `/health` and `/ready` for people and probes and `/metrics` for Prometheus;
and the server's HTTP application, which also has the exchange of parts and `/reload`.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from rmt_pipeline.exchange.guard import Admits, guarded
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.protocol.nodes.formats import number_of
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.readable import readable_parts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.server.tables import ReadOnly, ServedTable, Tables
from rmt_pipeline.zookeeper.keeper import Keeper, Stat


@dataclass(slots=True)
class Counters:
    """Counts of this process alone, since its start. Each is written by one thread at a time. What
    all processes of the host count together is in the stores (`TableStatus.events`).
    """

    sessions: int = 0
    parts_sent: int = 0
    bytes_sent: int = 0
    sends_refused: int = 0


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of one table. `queue_size` and `parts` are None while there is no session to ask
    with. `broken`: parts whose rows can't be read until they are fetched again.
    """

    database: str
    table: str
    replica: str
    zookeeper_path: str
    readonly: bool
    reason: str
    needs_somebody: bool
    """Whether it stays read-only until a person does something about the reason."""
    queue_size: int | None
    parts: int | None
    looks_again_s: float = 0.0
    """In how many seconds the server looks whether the reason still holds."""
    broken: tuple[str, ...] = ()
    log_lag: int | None = None
    """How many log entries are not copied to the queue yet."""
    oldest_entry_s: float | None = None
    """The age of the oldest queue entry in seconds; 0 when the queue is empty."""
    stopped: tuple[str, ...] = ()
    """The background work that was stopped by hand."""
    lost_parts: int | None = None
    """How many parts were ever lost on all replicas, and replaced by empty ones."""
    awaiting_quorum: int | None = None
    """How many parts of inserts wait until more replicas have them."""
    events: Mapping[str, int] = field(default_factory=dict)
    """How often each event, by the original's name, happened to this table, in all processes of
    this host.
    """


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The status of a server. `session` is empty while there is none. `healthy`: every table may be
    read and written. The disk is that of the data directory.

    `damaged`: files of the catalog that can't be read, with what to do about each; their tables are
    not served. `waiting`: why there is no session; else what holds up statements ON CLUSTER, or the
    log of a Replicated database.
    `behind`: Replicated databases whose tables are missing here or out of date, so that clients of
    this server do not find them.
    """

    server: str
    session: str
    tables: tuple[TableStatus, ...]
    disk_free_bytes: int = 0
    disk_total_bytes: int = 0
    damaged: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        return self.words == "ok"

    @property
    def words(self) -> str:
        if not self.session:
            return "no session"
        if any(table.readonly for table in self.tables):
            return "read-only"
        if self.damaged:
            return "damaged files"
        if self.behind:
            return "databases behind"
        return "broken parts" if any(table.broken for table in self.tables) else "ok"

    @property
    def not_ready(self) -> list[str]:
        """What the server still waits for until it can take writes and be followed by others."""
        if not self.session:
            return list(self.waiting) or ["no ZooKeeper session yet"]
        tables = [
            f"{one.database}.{one.table} is read-only: {one.reason}"
            for one in self.tables
            if one.readonly
        ]
        return [*tables, *(f"database {name} is behind" for name in self.behind)]

    def as_json(self) -> dict[str, object]:
        return {"status": self.words, **asdict(self)}


def server_status(
    server: str,
    keeper: Keeper | None,
    tables: Tables,
    waiting: tuple[str, ...] = (),
    behind: tuple[str, ...] = (),
) -> ServerStatus:
    """The status of the server. Asks ZooKeeper about all tables together."""
    served = [tables.all[name] for name in sorted(tables.all)]
    sizes = _sizes(keeper, served)
    free, total, damaged = 0, 0, tables.damaged
    try:
        total, _, free = shutil.disk_usage(tables.catalog.data)
    except OSError as error:
        damaged = (*damaged, f"the data directory can't be read: {error}")
    return ServerStatus(
        server,
        f"{keeper.session_id:#x}" if keeper is not None else "",
        tuple(
            _status(table, size, tables.clock.monotonic_s())
            for table, size in zip(served, sizes, strict=True)
        ),
        free,
        total,
        damaged,
        waiting,
        behind,
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Numbers of one table from ZooKeeper; None when they can't be read."""

    queue: int | None = None
    parts: int | None = None
    log_lag: int | None = None
    oldest_entry_s: float | None = None
    lost_parts: int | None = None
    awaiting_quorum: int | None = None


def _sizes(keeper: Keeper | None, served: list[ServedTable]) -> list[_Sizes]:
    unknown = [_Sizes()] * len(served)
    if keeper is None:
        return unknown
    replicas = [table.replica for table in served]
    asked = [replica for replica in replicas if replica is not None]
    try:
        found = iter(_asked(keeper, asked))
    except RmtError:
        return unknown
    return [_Sizes() if replica is None else next(found) for replica in replicas]


def _asked(keeper: Keeper, replicas: Sequence[Replica]) -> list[_Sizes]:
    paths = [one.paths for one in replicas]
    queues = keeper.exists_many([one.queue for one in paths])
    parts = keeper.exists_many([one.parts for one in paths])
    pointers = keeper.get_many([one.log_pointer for one in paths])
    logs = keeper.exists_many([one.table.log for one in replicas])
    lost = keeper.get_many([one.table.lost_part_count for one in replicas])
    waiting = keeper.exists_many([one.table.quorum_parallel for one in replicas])
    alone = keeper.exists_many([one.table.quorum_status for one in replicas])
    filled = [
        one.queue
        for one, queue in zip(paths, queues, strict=True)
        if queue is not None and queue.children_count
    ]
    listed = keeper.children_many(filled)
    oldest = [
        f"{path}/{min(names)}" for path, names in zip(filled, listed, strict=True) if names
    ]
    made = dict(zip(oldest, keeper.exists_many(oldest), strict=True))
    born_ms = {
        path.rpartition("/")[0]: stat.created_ms
        for path, stat in made.items()
        if stat is not None
    }
    return [
        _Sizes(
            queue=None if queue is None else queue.children_count,
            parts=None if part is None else part.children_count,
            log_lag=None
            if log is None or (copied := _number(pointer)) is None
            else max(0, log.next_sequence - copied),
            oldest_entry_s=max(
                0.0,
                replica.clock.now_s()
                - born_ms.get(replica.paths.queue, replica.clock.now_s() * 1000) / 1000,
            ),
            lost_parts=_number(count),
            awaiting_quorum=None
            if beside is None
            else beside.children_count + (one is not None),
        )
        for replica, queue, part, pointer, log, count, beside, one in zip(
            replicas, queues, parts, pointers, logs, lost, waiting, alone, strict=True
        )
    ]


def _number(read: tuple[bytes, Stat] | None) -> int | None:
    """The number in a node; None if there is no node, or no number in it."""
    try:
        return None if read is None else number_of(read[0])
    except ValueError:
        return None


def _status(table: ServedTable, sizes: _Sizes, now_s: float) -> TableStatus:
    definition, state = table.definition, table.state
    found = state if isinstance(state, ReadOnly) else None
    status = TableStatus(
        database=definition.database,
        table=definition.name,
        replica=definition.engine.replica,
        zookeeper_path=definition.engine.zookeeper_path,
        readonly=found is not None,
        reason="" if found is None else found.reason,
        needs_somebody=found is not None and found.needs_somebody,
        looks_again_s=0.0 if found is None else max(0.0, found.retry_at_s - now_s),
        queue_size=sizes.queue,
        parts=sizes.parts,
        log_lag=sizes.log_lag,
        oldest_entry_s=sizes.oldest_entry_s,
        lost_parts=sizes.lost_parts,
        awaiting_quorum=sizes.awaiting_quorum,
    )
    try:
        Path(table.store.disk.local_path(table.store.root)).stat()  # it may be gone
        return replace(
            status,
            broken=tuple(map(str, _broken(table))),
            stopped=tuple(sorted(what.value for what in table.store.marks.stopped())),
            events={one.event: n for one, n in table.store.part_log.counts.read().items()},
        )
    except OSError as error:
        reason = f"its directory can't be read: {error}"
        return replace(status, readonly=True, reason=reason, needs_somebody=True)


def _broken(table: ServedTable) -> Sequence[PartName]:
    """The parts that can't be read; while ZooKeeper can't be asked, those that are marked as given
    up.
    """
    marked, replica = table.store.marks.given_up(), table.replica
    if not marked or replica is None:
        return marked
    try:
        return readable_parts(replica).absent
    except RmtError:
        return marked


class ServerCollector(Collector):
    """Prometheus' collector. It gets a fresh status at every scrape, and keeps nothing."""

    def __init__(self, status: Callable[[], ServerStatus], counters: Counters) -> None:
        self._status = status
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        status, counters = self._status(), self._counters
        yield _gauge(
            "rmt_session", "1 while there is a ZooKeeper session", bool(status.session)
        )
        for name, text, value in (
            ("rmt_sessions", "ZooKeeper sessions opened", counters.sessions),
            ("rmt_parts_sent", "Parts sent to peers", counters.parts_sent),
            ("rmt_sent_bytes", "Bytes of parts sent to peers", counters.bytes_sent),
            ("rmt_sends_refused", "Requests for parts refused", counters.sends_refused),
        ):
            yield CounterMetricFamily(name, text, value=value)
        yield _gauge(
            "rmt_disk_free_bytes", "Free on the data directory's disk", status.disk_free_bytes
        )
        yield _gauge(
            "rmt_disk_total_bytes", "Size of the data directory's disk", status.disk_total_bytes
        )
        labels = ["database", "table", "replica"]
        told: list[tuple[str, str, Callable[[TableStatus], float | None]]] = [
            ("rmt_readonly", "1 while read-only", lambda one: one.readonly),
            ("rmt_queue_size", "Entries in the queue", lambda one: one.queue_size),
            ("rmt_parts", "Parts promised in ZooKeeper", lambda one: one.parts),
            (
                "rmt_parts_given_up",
                "Broken parts that are not fetched again yet",
                lambda one: len(one.broken),
            ),
            (
                "rmt_log_lag_entries",
                "Log entries that are not copied to the queue yet",
                lambda one: one.log_lag,
            ),
            (
                "rmt_queue_oldest_entry_seconds",
                "Age of the oldest queue entry",
                lambda one: one.oldest_entry_s,
            ),
            (
                "rmt_lost_parts",
                "Parts that no replica had any more, and that became empty ones",
                lambda one: one.lost_parts,
            ),
            (
                "rmt_parts_awaiting_quorum",
                "Parts of inserts that wait until more replicas have them",
                lambda one: one.awaiting_quorum,
            ),
        ]
        for name, text, value_of in told:
            metric = GaugeMetricFamily(name, text, labels=labels)
            for table in status.tables:
                number = value_of(table)
                if number is not None:
                    metric.add_metric([table.database, table.table, table.replica], number)
            yield metric
        yield from _events(status.tables, labels)
        stopped = GaugeMetricFamily(
            "rmt_stopped", "1 while it is stopped by hand", labels=[*labels, "what"]
        )
        for table in status.tables:
            for what in table.stopped:
                stopped.add_metric([table.database, table.table, table.replica, what], 1.0)
        yield stopped


def _events(tables: Sequence[TableStatus], labels: Sequence[str]) -> Iterator[Metric]:
    """The counters that `system.events` adds up over the tables. Several events may share one
    metric.
    """
    by_metric: dict[str, list[ProfileEvent]] = {}
    for event in ProfileEvent:
        by_metric.setdefault(event.metric, []).append(event)
    for name, events in by_metric.items():
        metric = CounterMetricFamily(name, events[0].text, labels=labels)
        for table in tables:
            value = sum(table.events.get(event.event, 0) for event in events)
            metric.add_metric([table.database, table.table, table.replica], value)
        yield metric


def metrics_page(status: Callable[[], ServerStatus], counters: Counters) -> bytes:
    """All metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(ServerCollector(status, counters))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def server_app(
    *,
    exchange: ASGIApp,
    guard: Admits,
    status: Callable[[], ServerStatus],
    reload: Callable[[], dict[str, str]],
    counters: Counters,
) -> ASGIApp:
    """The HTTP application of a server. `reload` looks at the catalog, and returns for each table
    why it is read-only, or "" if it is active.
    """

    async def health(_: Request) -> Response:
        found = await run_in_threadpool(status)
        return JSONResponse(found.as_json(), status_code=200 if found.healthy else 503)

    async def ready(_: Request) -> Response:
        missing = (await run_in_threadpool(status)).not_ready
        lines = "".join(f"{line}\n" for line in missing or ["ready"])
        return PlainTextResponse(lines, 503 if missing else 200)

    async def metrics(_: Request) -> Response:
        page = await run_in_threadpool(metrics_page, status, counters)
        return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def reload_tables(_: Request) -> Response:
        try:
            tables = await run_in_threadpool(reload)
        except RmtError as error:
            return PlainTextResponse(str(error), 503)
        return JSONResponse({"tables": tables})

    def stranger() -> None:
        counters.sends_refused += 1

    app = Starlette(
        routes=[
            Route("/health", health),
            Route("/ready", ready),
            Route("/metrics", metrics),
            Route("/reload", reload_tables, methods=["POST"]),
            Mount("/", exchange),
        ]
    )
    return guarded(app, guard, stranger)
