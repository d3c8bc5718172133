"""system.clusters, and the statements ON CLUSTER in system.distributed_ddl_queue."""

from collections.abc import Iterator
from datetime import UTC, datetime

from rmt_pipeline.cluster.queue import running_servers, tasks_in
from rmt_pipeline.config import Address
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.nodes.tasks import Task, TaskOutcome
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import SystemScope
from rmt_pipeline.syntax.statements.nodes import OnCluster
from rmt_pipeline.zookeeper.keeper import Keeper
from rmt_pipeline.zookeeper.paths import TaskPaths, TaskQueuePaths

CLUSTERS: Columns = (
    ("cluster", "String"),
    ("shard_num", "UInt32"),
    ("replica_num", "UInt32"),
    ("host_name", "String"),
    ("port", "UInt16"),
    ("is_local", "UInt8"),
    # Whether the server runs and works ON CLUSTER off.
    ("is_active", "Nullable(UInt8)"),
    # Its name in the configuration.
    ("server", "String"),
)


def clusters(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    config = scope.server.config
    hosts = {name: str(config.server(name).advertised_address) for name in config.servers}
    running: set[str] | None = None
    if scope.mentions("is_active"):
        queue = TaskQueuePaths(config.distributed_ddl.path)
        running = running_servers(scope.server.keeper(), queue, list(hosts.values()))
    for cluster_name, cluster in sorted(config.clusters.items()):
        for shard_number, shard in enumerate(cluster.shards, 1):
            for replica_number, name in enumerate(shard, 1):
                address = config.server(name).advertised_address
                yield (
                    cluster_name,
                    shard_number,
                    replica_number,
                    address.host,
                    address.port,
                    int(name == scope.server.server.name),
                    None if running is None else int(hosts[name] in running),
                    name,
                )


DISTRIBUTED_DDL_QUEUE: Columns = (
    ("entry", "String"),
    ("initiator_host", "String"),
    ("initiator_port", "UInt16"),
    ("cluster", "String"),
    ("query", "String"),
    ("settings", "Map(String, String)"),
    ("query_create_time", "DateTime"),
    ("host", "String"),
    ("port", "UInt16"),
    ("status", "Enum8('Inactive' = 0, 'Active' = 1, 'Finished' = 2)"),
    ("exception_code", "Nullable(UInt16)"),
    ("exception_text", "Nullable(String)"),
    ("query_finish_time", "Nullable(DateTime)"),
    ("query_duration_ms", "Nullable(UInt64)"),
)


def distributed_ddl_queue(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    """One row for each statement and each of its servers."""
    keeper = scope.server.keeper()
    queue = TaskQueuePaths(scope.server.config.distributed_ddl.path)
    for name, task in tasks_in(keeper, queue):
        yield from _rows_of(keeper, queue.task(name), task)


def _rows_of(keeper: Keeper, paths: TaskPaths, task: Task) -> Iterator[tuple[object, ...]]:
    count = len(task.hosts)
    reads = keeper.get_many([paths.root, *(paths.finished_on(host) for host in task.hosts)])
    active = keeper.exists_many([paths.active_on(host) for host in task.hosts])
    if reads[0] is None:
        return  # removed meanwhile
    created_ms = reads[0][1].created_ms
    initiator = Address.parse(task.initiator)
    for number in range(count):
        address, read = Address.parse(task.hosts[number]), reads[number + 1]
        status = "Inactive" if active[number] is None else "Active"
        ended: tuple[object, ...] = (None, None, None, None)
        if read is not None:
            status, outcome = "Finished", TaskOutcome.decode(read[0])
            finished_ms = read[1].created_ms
            duration_ms = max(0, finished_ms - created_ms)
            ended = (outcome.status, outcome.message, _time(finished_ms), duration_ms)
        yield (
            paths.name,
            initiator.host,
            initiator.port,
            _cluster_of(task.query),
            task.query,
            list(task.settings),
            _time(created_ms),
            address.host,
            address.port,
            status,
            *ended,
        )


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, UTC)


def _cluster_of(query: str) -> str:
    """As typed; "" of a statement of another version."""
    from rmt_pipeline.syntax.statements.parse import parse  # noqa: PLC0415  start-up

    try:
        parsed = parse(query)
    except UserError:
        return ""
    return parsed.cluster if isinstance(parsed, OnCluster) else ""
