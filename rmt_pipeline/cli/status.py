"""`rmt status` and `rmt reload`: how every table is doing, in words."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from rmt_pipeline.catalog.entries import DetachedTable
from rmt_pipeline.config import Config, ServerConfig
from rmt_pipeline.context import ServerContext
from rmt_pipeline.exchange import control
from rmt_pipeline.protocol.errors import RmtError, Unavailable, ZooKeeperUnreachable
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.quorum import read_quorums
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.replica.upkeep.lost import lost_parts
from rmt_pipeline.replica.work.outlook import QueueStatus, queue_status
from rmt_pipeline.system import SystemClock
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.four_letters import ServerLoad, server_load
from rmt_pipeline.zookeeper.paths import sequence_number
from rmt_pipeline.zookeeper.snapshot import active_parts, replica_states

PROBE_TIMEOUT_S = 5.0
REASONS_MAX = 5
LOAD_OVER_S = 1.0
COMPARED_MAX = 20_000  # parts: of more the headers are no quick look

Health = dict[str, Any] | Unavailable
"""What a server says about itself, or why it doesn't."""


def run_status(config: Config, only: str | None) -> int:
    """Print it. The exit status is 1 when a server is down, a table may not be written, or what a
    server has can't be looked at, which does not keep the others from being shown.

    Raises UserError for an unknown server.
    """
    servers = [config.server(only)] if only else list(config.servers.values())
    healthy, before = True, _loads(config)
    for server in servers:
        health = _health(config, server)
        print(f"server {server.name}: {_server_words(server, health)}")
        healthy &= not isinstance(health, Unavailable) and health["status"] == "ok"
        for reason in _waiting(health):
            print(f"  {reason}")
        try:
            healthy &= _print_tables(config, server, health)
        except RmtError as error:
            print(f"  its tables can't be looked at: {error.code}. {error}")
            healthy = False
    print("who may ask:")
    for server in servers:
        print(f"  {server.name}: {who_may_ask(config, server)}")
    for line in _port_lines(config):
        print(f"  {line}")
    for line in _zookeeper_lines(config, before):
        print(line)
    return 0 if healthy else 1


def _loads(config: Config) -> dict[str, ServerLoad | None]:
    """By address; none are asked where everything is encrypted: they answer in the clear only."""
    if config.zookeeper.tls:
        return {}
    hosts = config.zookeeper_hosts.partition("/")[0].split(",")
    found = (host.strip().rpartition(":") for host in hosts)
    return {
        f"{host}:{port}": server_load(host.strip("[]"), int(port), PROBE_TIMEOUT_S)
        for host, _, port in found
        if port.isdigit()
    }


def _zookeeper_lines(config: Config, before: Mapping[str, ServerLoad | None]) -> Iterator[str]:
    """What all of its clients ask of each ZooKeeper server, measured over a second at least."""
    first = min((one.asked_s for one in before.values() if one is not None), default=0.0)
    if any(before.values()):
        clock = SystemClock()
        clock.sleep_s(max(0.0, first + LOAD_OVER_S - clock.monotonic_s()))
    for address, load in _loads(config).items() if before else ():
        earlier = before.get(address)
        if load is None or earlier is None:
            yield f"ZooKeeper at {address}: does not say how it is (srvr)"
            continue
        yield (
            f"ZooKeeper at {address}: {load.mode}, {load.requests_per_s(earlier):.0f} requests per "
            f"second, {load.outstanding} waiting, {load.nodes} znodes"
        )


def _print_tables(config: Config, server: ServerConfig, health: Health) -> bool:
    """Whether all of them could be read, and ZooKeeper asked about them."""
    asked = True
    with closing(ServerContext.open(config, server.name, purpose="status")) as context:
        tables, detached = context.tables(), context.catalog.detached()
        damaged = context.catalog.damaged()
        if not tables and not detached and not damaged:
            print("  no tables")
        for problem in damaged:
            print(f"  {problem}")
        for one in detached:
            for line in _detached_lines(one):
                print(f"  {line}")
        for table in tables:
            try:
                context.keeper(PROBE_TIMEOUT_S)
                lines = list(_table_lines(table, health))
            except ZooKeeperUnreachable as error:
                asked, lines = False, _lines_without_zookeeper(table, error)
            for line in lines:
                print(f"  {line}")
    return asked and not damaged


def run_reload(config: Config, name: str) -> int:
    """Have a server look at its tables now; print how each is doing when it has.

    The exit status is 1 when a table is read-only. Raises Unavailable, UserError.
    """
    peer = control.peer_of(config, config.server(name))
    with closing(ServerContext.open(config, name, purpose="reload")) as context:
        tables = control.reload_tables(peer, context.secret(), config.tls.files)
    for table, reason in sorted(tables.items()):
        print(f"{table}: {f'read-only: {reason}' if reason else 'active'}")
    return 1 if any(tables.values()) else 0


def _health(config: Config, server: ServerConfig) -> Health:
    try:
        return control.health(config, server, PROBE_TIMEOUT_S)
    except Unavailable as error:
        return error


def _server_words(server: ServerConfig, health: Health) -> str:
    if isinstance(health, Unavailable):
        return f"not running: nothing answers at {server.advertised_address} ({health})"
    if not health.get("session"):
        return "running, without a ZooKeeper session; it is starting over"
    return f"running at {server.advertised_address}"


def _waiting(health: Health) -> list[str]:
    """What holds up statements for all servers; a server of an older version does not say it."""
    return [] if isinstance(health, Unavailable) else health.get("waiting", [])


def who_may_ask(config: Config, server: ServerConfig) -> str:
    reached = (
        "this host alone" if server.listen_address.is_local else "whoever reaches the port"
    )
    if config.tls.client_certificates:
        reached += f" with a certificate signed by {config.tls.ca}"
    secret = "the configured secret" if config.secrets_of(server.name) else "ZooKeeper's secret"
    looks = "a token of [monitoring], or the secret" if config.monitoring.token else "nothing"
    return (
        f"{server.listen} ({config.scheme}) for {reached}: parts and control show {secret}, "
        f"/health and /metrics {looks}"
    )


def _port_lines(config: Config) -> Iterator[str]:
    """The other ports of this deployment that are ours, and whom they are for."""
    ports = [("Dagster's UI", config.dagster.port)]
    if config.spark.is_ours:
        ports.append(("Spark Connect", config.spark.port))
    if config.zookeeper.embedded:
        ports.append(("ZooKeeper", config.zookeeper.port))
    for what, port in ports:
        yield f"{what}, if it runs: 127.0.0.1:{port} for this host alone, which shows nothing"


def _table_lines(table: Table, health: Health) -> Iterator[str]:
    replica = table.replica
    yield f"{table.definition.full_name}: {_state_words(table, health)}"
    yield f"  replica {replica.name} of {replica.table.root}"
    yield from _stopped_lines(replica)
    try:
        yield f"  replicas: {_replicas_words(replica)}"
        yield f"  log: {_log_words(replica)}"
        now_s = replica.clock.now_s()
        for line in _queue_lines(queue_status(replica), now_s):
            yield f"  {line}"
        yield from _quorum_lines(replica)
        lost = sorted(lost_parts(replica))
        if lost:
            named = ", ".join(map(str, lost[:REASONS_MAX]))
            yield f"  LOST on all replicas, and empty now: {named}; see system.lost_parts"
        names = active_parts(replica.keeper, replica.paths)
        yield f"  parts: {len(PartSet(names))} active, {len(names)} in all"
        yield f"  znodes: {_znode_words(replica)}"
        yield f"  differences: {_difference_words(replica, len(names))}"
    except RmtError as error:
        yield f"  {error}"


def _znode_words(replica: Replica) -> str:
    """Children of each node that grows, so that one sees which does not stop to."""
    table, paths = replica.table, replica.paths
    partitions = [table.partition(one) for one in replica.keeper.children(table.block_numbers)]
    nodes = {
        "log": table.log,
        "blocks": table.blocks,
        "inserts": table.inserts,
        "mutations": table.mutations,
        f"{replica.name}/queue": paths.queue,
        f"{replica.name}/parts": paths.parts,
        f"{replica.name}/attempts": paths.attempts,
    }
    stats = replica.keeper.exists_many([*nodes.values(), *partitions])
    counts = [0 if stat is None else stat.children_count for stat in stats]
    found = [f"{name} {count}" for name, count in zip(nodes, counts, strict=False)]
    locks = f"block_numbers {len(partitions)} and {sum(counts[len(nodes) :])} in them"
    return ", ".join([*found, locks])


def _difference_words(replica: Replica, parts: int) -> str:
    """Between the rows of the replicas, by the hashes in ZooKeeper."""
    if parts > COMPARED_MAX:
        return f"not looked for among {parts} parts; Dagster's check replicas_equal does"
    found = compare_replicas(replica)
    if not found.different:
        return "none, every partition has the same rows on every replica"
    named = ", ".join(found.different[:REASONS_MAX])
    words = f"{len(found.different)} partitions: {named}"
    if found.behind:
        return (
            f"{words}; {', '.join(found.behind)} have entries left, and may differ until then"
        )
    return f"{words}; no replica has anything left to do: rmt check reads what is here"


def _stopped_lines(replica: Replica) -> Iterator[str]:
    """What was stopped by hand, and since when."""
    marks = replica.store.marks
    for what in sorted(marks.stopped(), key=lambda one: one.value):
        since = datetime.fromtimestamp(marks.stopped_s(what) or 0, tz=UTC)
        table = replica.definition.full_name
        yield (
            f"  stopped by hand since {since.isoformat(timespec='seconds')}: {what.value}; "
            f"SYSTEM START {what.value} {table}, or the server's next start, goes on"
        )


def _detached_lines(one: DetachedTable) -> Iterator[str]:
    engine = one.definition.engine
    yield f"{one.definition.full_name}: {one.words}: ATTACH TABLE takes it up again"
    yield f"  replica {engine.replica} of {engine.zookeeper_path} keeps its place there"


def _lines_without_zookeeper(table: Table, error: ZooKeeperUnreachable) -> list[str]:
    name, seen = table.definition.full_name, table.store.marks.active_seen()
    if seen is None:
        return [f"{name}: no ZooKeeper, nothing can be read: {error}"]
    since = datetime.fromtimestamp(seen.seen_s, tz=UTC).isoformat(timespec="seconds")
    return [
        f"{name}: no ZooKeeper, nothing can be written: {error}",
        f"  reads go on from the {len(seen.parts)} parts that the server knew at {since}",
    ]


def _state_words(table: Table, health: Health) -> str:
    definition = table.definition
    told = {} if isinstance(health, Unavailable) else health
    for served in told.get("tables", []):
        if (served["database"], served["table"]) == (definition.database, definition.name):
            if served["readonly"]:
                return f"read-only: {served['reason']}"
            broken = ", ".join(served.get("broken", [])[:REASONS_MAX])
            words = f"broken or gone, and fetched again: {broken}; nobody reads without them"
            return words if broken else "active"
    return "not served: nobody can write to it, and its parts cannot be fetched"


def _replicas_words(replica: Replica) -> str:
    states = replica_states(replica.keeper, replica.table)
    missing = [
        name if state == "inactive" else f"{name} ({state})"
        for name, state in sorted(states.items())
        if state != "active"
    ]
    words = f"{len(states) - len(missing)} of {len(states)} active"
    return f"{words}; not active: {', '.join(missing)}" if missing else words


def _quorum_lines(replica: Replica) -> Iterator[str]:
    """Inserts that wait until more replicas have their rows, if there are any."""
    waiting = sorted(read_quorums(replica).entries(), key=lambda entry: entry.part)
    if waiting:
        yield f"  quorum: {len(waiting)} parts wait for it"
    for one in waiting[:REASONS_MAX]:
        on = ", ".join(one.replicas)
        yield f"    {one.part} is on {on}: {len(one.replicas)} of {one.required} replicas"


def _log_words(replica: Replica) -> str:
    keeper = replica.keeper
    pointer = int(keeper.get(replica.paths.log_pointer)[0] or b"0")
    names = keeper.children(replica.table.log)
    behind = sorted(name for name in names if sequence_number(name) >= pointer)
    words = f"{len(behind)} entries behind" if behind else "up to date"
    late_s = _lag_s(replica, behind[0] if behind else "")
    return f"{words}, {late_s:.0f} s" if late_s else words


def _lag_s(replica: Replica, first: str) -> float:
    """How old the oldest is of what others have inserted and this replica has not; `first` is the
    first log entry that it has not copied.
    """
    keeper, now_s = replica.keeper, replica.clock.now_s()
    [unprocessed] = keeper.get_many([replica.paths.min_unprocessed_insert_time])
    since = [] if unprocessed is None else [float(unprocessed[0] or b"0")]
    stat = keeper.exists(replica.table.log_entry(first)) if first else None
    since += [] if stat is None else [stat.created_ms / 1000]
    return max((now_s - one for one in since if one), default=0.0)


def _queue_lines(found: QueueStatus, now_s: float) -> Iterator[str]:
    ready, waiting = sum(found.ready.values()), len(found.waiting)
    if not ready and not waiting:
        yield "queue: empty"
        return
    age = "" if found.oldest_s is None else f", the oldest {now_s - found.oldest_s:.0f} s old"
    pools = ", ".join(f"{count} to {pool}" for pool, count in found.ready.items() if count)
    can = f"{ready} can run now ({pools})" if ready else "none can run now"
    yield f"queue: {ready + waiting} entries{age}: {can}"
    for one in found.waiting[:REASONS_MAX]:
        yield f"  {one.entry} waits: {one.reason}"
    if waiting > REASONS_MAX:
        yield f"  and {waiting - REASONS_MAX} more wait; see system.replication_queue"
