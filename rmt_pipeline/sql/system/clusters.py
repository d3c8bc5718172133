"""system.clusters, and the statements ON CLUSTER in system.distributed_ddl_queue."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rmt_pipeline.cluster.queue import running_servers, tasks_in
from rmt_pipeline.config import Address
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.nodes.tasks import Task, TaskOutcome
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import SystemScope
from rmt_pipeline.syntax.statements.nodes import OnCluster
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.zookeeper.keeper import Stat
from rmt_pipeline.zookeeper.paths import TaskPaths, TaskQueuePaths

CLUSTERS: Columns = (
    ("cluster", "String"),
    ("shard_num", "UInt32"),
    ("replica_num", "UInt32"),
    ("host_name", "String"),
    ("port", "UInt16"),
    ("is_local", "UInt8"),
    # Whether the server runs and carries statements ON CLUSTER out.
    ("is_active", "Nullable(UInt8)"),
    # The server's name in the configuration.
    ("server", "String"),
)


def clusters(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    """Rows of system.clusters: one for each server of each shard. ZooKeeper is asked only when the
    query uses `is_active`.
    """
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
    """Rows of system.distributed_ddl_queue: one for each statement and each of its servers."""
    keeper = scope.server.keeper()
    queue = TaskQueuePaths(scope.server.config.distributed_ddl.path)
    tasks = [(queue.task(name), task) for name, task in tasks_in(keeper, queue)]
    roots = keeper.exists_many([paths.root for paths, _ in tasks])
    hosts = [(paths, host) for paths, task in tasks for host in task.hosts]
    # In this order: a server that finishes in between is shown as finished.
    active = keeper.exists_many([paths.active_on(host) for paths, host in hosts])
    finished = keeper.get_many([paths.finished_on(host) for paths, host in hosts])
    states = zip(active, finished, strict=True)
    for (paths, task), root in zip(tasks, roots, strict=True):
        of_hosts = [(host, *next(states)) for host in task.hosts]
        if root is not None:  # else the statement was removed meanwhile
            yield from _rows_of(paths, task, root, of_hosts)


def _rows_of(
    paths: TaskPaths,
    task: Task,
    root: Stat,
    of_hosts: Sequence[tuple[str, Stat | None, tuple[bytes, Stat] | None]],
) -> Iterator[tuple[object, ...]]:
    """The rows of one statement. `of_hosts`: each server with its nodes `active` and `finished`."""
    initiator, cluster = Address.parse(task.initiator), _cluster_of(task.query)
    for host, active, finished in of_hosts:
        address = Address.parse(host)
        status = "Inactive" if active is None else "Active"
        ended: tuple[object, ...] = (None, None, None, None)
        if finished is not None:
            status, outcome = "Finished", TaskOutcome.decode(finished[0])
            finished_ms = finished[1].created_ms
            duration_ms = max(0, finished_ms - root.created_ms)
            ended = (outcome.status, outcome.message, _time(finished_ms), duration_ms)
        yield (
            paths.name,
            initiator.host,
            initiator.port,
            cluster,
            task.query,
            list(task.settings),
            _time(root.created_ms),
            address.host,
            address.port,
            status,
            *ended,
        )


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, UTC)


def _cluster_of(query: str) -> str:
    """The cluster's name as typed; "" if the statement is of another version."""
    try:
        parsed = parse(query)
    except UserError:
        return ""
    return parsed.cluster if isinstance(parsed, OnCluster) else ""
