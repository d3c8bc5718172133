"""What a server says about itself: `/health` for people and probes, `/metrics` for Prometheus."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.readable import readable_parts
from rmt_pipeline.server.tables import Active, ServedTable, Tables
from rmt_pipeline.zookeeper.keeper import Keeper


@dataclass(slots=True)
class Counters:
    """Since the start of the process. Each is written by one thread at a time."""

    sessions: int = 0
    parts_sent: int = 0
    bytes_sent: int = 0
    sends_refused: int = 0
    parts_broken: int = 0
    parts_differing: int = 0


@dataclass(frozen=True, slots=True)
class TableStatus:
    """`queue_size` and `parts` are None while there is no session to ask. `broken`: parts whose
    rows nobody is given until they are fetched again.
    """

    database: str
    table: str
    replica: str
    zookeeper_path: str
    readonly: bool
    reason: str
    queue_size: int | None
    parts: int | None
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """`session` is empty while there is none. `healthy`: every table may be read and written."""

    server: str
    session: str
    tables: tuple[TableStatus, ...]

    @property
    def healthy(self) -> bool:
        return self.words == "ok"

    @property
    def words(self) -> str:
        if not self.session:
            return "no session"
        if any(table.readonly for table in self.tables):
            return "read-only"
        return "broken parts" if any(table.broken for table in self.tables) else "ok"

    def as_json(self) -> dict[str, object]:
        return {"status": self.words, **asdict(self)}


def server_status(server: str, keeper: Keeper | None, tables: Tables) -> ServerStatus:
    """Asks ZooKeeper for the sizes of the queues, in one go."""
    served = [tables.all[name] for name in sorted(tables.all)]
    sizes = _sizes(keeper, served)
    return ServerStatus(
        server,
        f"{keeper.session_id:#x}" if keeper is not None else "",
        tuple(_status(table, *size) for table, size in zip(served, sizes, strict=True)),
    )


def _sizes(
    keeper: Keeper | None, served: list[ServedTable]
) -> list[tuple[int | None, int | None]]:
    unknown: list[tuple[int | None, int | None]] = [(None, None)] * len(served)
    if keeper is None:
        return unknown
    replicas = [table.replica for table in served]
    asked = [replica.paths for replica in replicas if replica is not None]
    try:
        stats = keeper.exists_many([path for one in asked for path in (one.queue, one.parts)])
    except RmtError:
        return unknown
    counts = [stat.children_count if stat is not None else None for stat in stats]
    pairs = iter(zip(counts[::2], counts[1::2], strict=True))
    return [(None, None) if replica is None else next(pairs) for replica in replicas]


def _status(table: ServedTable, queue_size: int | None, parts: int | None) -> TableStatus:
    definition, state = table.definition, table.state
    active = isinstance(state, Active)
    return TableStatus(
        database=definition.database,
        table=definition.name,
        replica=definition.engine.replica,
        zookeeper_path=definition.engine.zookeeper_path,
        readonly=not active,
        reason="" if isinstance(state, Active) else state.reason,
        queue_size=queue_size,
        parts=parts,
        broken=tuple(map(str, _broken(table))),
    )


def _broken(table: ServedTable) -> Sequence[PartName]:
    """While ZooKeeper can't be asked, what is marked."""
    marked, replica = table.store.marks.given_up(), table.replica
    if not marked or replica is None:
        return marked
    try:
        return readable_parts(replica).absent
    except RmtError:
        return marked


class ServerCollector(Collector):
    """Asked at every scrape; keeps nothing."""

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
            ("rmt_parts_broken", "Parts found broken while sent", counters.parts_broken),
            (
                "rmt_parts_differing",
                "Merges and mutations here (--work) whose result another replica has differently",
                counters.parts_differing,
            ),
        ):
            yield CounterMetricFamily(name, text, value=value)
        labels = ["database", "table", "replica"]
        readonly = GaugeMetricFamily("rmt_readonly", "1 while read-only", labels=labels)
        queue = GaugeMetricFamily("rmt_queue_size", "Entries in the queue", labels=labels)
        parts = GaugeMetricFamily("rmt_parts", "Parts promised in ZooKeeper", labels=labels)
        broken = GaugeMetricFamily(
            "rmt_parts_given_up", "Broken parts that are not fetched again yet", labels=labels
        )
        for table in status.tables:
            key = [table.database, table.table, table.replica]
            readonly.add_metric(key, float(table.readonly))
            broken.add_metric(key, len(table.broken))
            if table.queue_size is not None:
                queue.add_metric(key, table.queue_size)
            if table.parts is not None:
                parts.add_metric(key, table.parts)
        yield from (readonly, queue, parts, broken)


def metrics_page(status: Callable[[], ServerStatus], counters: Counters) -> bytes:
    """Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(ServerCollector(status, counters))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))
