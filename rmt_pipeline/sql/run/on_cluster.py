"""A statement ON CLUSTER in the session that runs it: it is put into the queue, and waited for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rmt_pipeline.cluster.queue import (
    HostResult,
    put_in,
    running_servers,
    wait_for_hosts,
)
from rmt_pipeline.config import Address, ClusterConfig, Config, expand
from rmt_pipeline.protocol.errors import RmtError, Unfinished
from rmt_pipeline.protocol.nodes.tasks import Task
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.settings.setting import BadSetting
from rmt_pipeline.sql.formats.rows import Columns, Done, Result, rows_of
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.syntax.settings import Settings
from rmt_pipeline.syntax.statements.nodes import (
    AlterPartitions,
    AlterTable,
    MutateRows,
    OnCluster,
    Optimize,
    Statement,
    Truncate,
)
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.paths import TaskPaths, TaskQueuePaths

OUTPUT_MODES = (
    "throw",
    "none",
    "null_status_on_timeout",
    "never_throw",
    "throw_only_active",
    "none_only_active",
    "null_status_on_timeout_only_active",
)
_ONLY_ACTIVE = "_only_active"

_ANSWER: Columns = (
    ("host", "String"),
    ("port", "UInt16"),
    ("status", "Nullable(Int64)"),
    ("error", "Nullable(String)"),
    ("num_hosts_remaining", "UInt64"),
    ("num_hosts_active", "UInt64"),
)


class StillDue(Unfinished):
    """Some servers have not carried the statement out within the time. They still will."""

    code = "TIMEOUT_EXCEEDED"


class FailedOnServer(RmtError):
    """A server could not carry the statement out. `code` is that of its error."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def ask_servers(session: SessionContext, statement: OnCluster) -> Result:
    """Put the statement into the queue, and wait as `distributed_ddl_task_timeout` says. The answer
    has a row for each server, in the order in which they finished.

    Raises UnknownCluster; StillDue, which names the servers that have not finished; FailedOnServer,
    after all have finished; OutcomeUnknown when it is not known whether the statement is in the
    queue.
    """
    server = session.server
    own = own_settings(statement.statement)
    require_mode(session, own)
    name = expand(statement.cluster, server.server.macros_for())
    cluster = server.config.cluster(name)
    hosts = hosts_of(server.config, cluster)
    task = Task(
        statement.text,
        tuple(hosts),
        str(server.server.advertised_address),
        server.ids.new_id(),
        session.database,
        tuple(sorted(session.settings.items())),
    )
    queue = TaskQueuePaths(server.config.distributed_ddl.path)
    paths = put_in(server.keeper(), queue, task, server.clock)
    names = {host: f"{name} ({host})" for host, name in hosts.items()}
    return wait_and_answer(
        session, queue, paths, AskedServers(names, f"cluster {name}", _ANSWER, _row), own
    )


def own_settings(statement: Statement) -> Settings:
    """The statement's own SETTINGS, if its kind has any."""
    match statement:
        case Truncate() | AlterTable() | MutateRows() | Optimize():
            return statement.settings
        case AlterPartitions():
            return statement.answer.settings
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class AskedServers:
    """The servers that are asked: `names` has each name in ZooKeeper with the one to show, and `of`
    says what they belong to; `columns` and `row` make the answer.
    """

    names: Mapping[str, str]
    of: str
    columns: Columns
    row: Callable[[HostResult], tuple[object, ...]]


def wait_and_answer(
    session: SessionContext,
    queue: TaskQueuePaths,
    paths: TaskPaths,
    asked: AskedServers,
    own: Settings,
) -> Result:
    """Wait for the servers and make the answer, as the session's settings say, overridden by the
    statement's own. Raises StillDue, FailedOnServer.
    """
    server, query = session.server, session.query_settings(own)
    mode, timeout_s = _mode(query), query.distributed_ddl_task_timeout
    if timeout_s == 0:
        return Done(f"{paths.name} is in the queue of {asked.of}: {', '.join(asked.names)}")
    waited = list(asked.names)
    if mode.endswith(_ONLY_ACTIVE):
        running = running_servers(server.keeper(), queue, waited)
        waited = [host for host in waited if host in running]
    results = wait_for_hosts(
        server.keeper,
        paths,
        waited,
        timeout_s=None if timeout_s < 0 else timeout_s,
        waker=EventWaker(),
        clock=server.clock,
    )
    return _answer(session, queue, paths, results, asked, plain=mode.removesuffix(_ONLY_ACTIVE))


def hosts_of(config: Config, cluster: ClusterConfig) -> dict[str, str]:
    """The `host:port` of each server of a cluster, in order, with the server's name."""
    return {str(config.server(name).advertised_address): name for name in cluster.servers}


def require_mode(session: SessionContext, own: Settings) -> None:
    """To be called before the statement is in the queue: raises BadSetting for a bad output mode,
    by the session's settings or the statement's own.
    """
    _mode(session.query_settings(own))


def _mode(query: QuerySettings) -> str:
    """The output mode. Raises BadSetting."""
    mode = query.distributed_ddl_output_mode
    if mode not in OUTPUT_MODES:
        known = ", ".join(OUTPUT_MODES)
        raise BadSetting(f"{mode!r} is no distributed_ddl_output_mode; there are: {known}")
    return mode


def _answer(
    session: SessionContext,
    queue: TaskQueuePaths,
    paths: TaskPaths,
    results: Sequence[HostResult],
    asked: AskedServers,
    *,
    plain: str,
) -> Result:
    """The answer from the results. `plain` is the output mode without its suffix about active
    servers.
    """
    failed = [one for one in results if one.outcome is not None and one.outcome.code]
    due = [one for one in results if one.outcome is None]
    if failed and plain != "never_throw":
        first = failed[0].outcome
        assert first is not None
        raise FailedOnServer(
            f"{paths.name}: {_words(session, queue, results, asked)}", first.code
        )
    if due and plain in ("throw", "none"):
        raise StillDue(
            f"{paths.name} was not done everywhere within distributed_ddl_task_timeout: "
            f"{_words(session, queue, results, asked)}. It goes on in the background; "
            "system.distributed_ddl_queue shows it"
        )
    if plain == "none":
        return Done()
    return rows_of(asked.columns, [asked.row(one) for one in results])


def _row(result: HostResult) -> tuple[object, ...]:
    address, outcome = Address.parse(result.host), result.outcome
    status: tuple[object, object] = (None, None)
    if outcome is not None:
        error = f"Code: {outcome.code}. {outcome.message}" if outcome.code else ""
        status = (outcome.status, error)
    return (address.host, address.port, *status, result.remaining, result.active)


def _words(
    session: SessionContext,
    queue: TaskQueuePaths,
    results: Sequence[HostResult],
    asked: AskedServers,
) -> str:
    """Each server with its result; of those that have not finished, whether they run."""
    due = [one.host for one in results if one.outcome is None]
    running = running_servers(session.server.keeper(), queue, due)
    said = []
    for one in results:
        if one.outcome is not None:
            words = one.outcome.message or "done"
        elif one.host in running:
            words = "still due"
        else:
            words = "still due, and its server does not run: start it with rmt serve"
        said.append(f"{asked.names[one.host]}: {words}")
    return "; ".join(said)
