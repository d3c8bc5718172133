"""`rmt status` and `rmt reload`: how every table is doing, in words."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from urllib3.exceptions import ProtocolError, ReadTimeoutError, SSLError

from rmt_pipeline.catalog.entries import DetachedTable
from rmt_pipeline.config import Config, ServerConfig
from rmt_pipeline.context import ServerContext
from rmt_pipeline.exchange import control
from rmt_pipeline.exchange.control import PROBE_TIMEOUT_S, Health
from rmt_pipeline.protocol.errors import (
    RmtError,
    Unavailable,
    UserError,
    ZooKeeperUnreachable,
)
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import describe_entry
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.quorum import read_quorums
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.replica.upkeep.lag import lag_of
from rmt_pipeline.replica.upkeep.lost import lost_parts
from rmt_pipeline.replica.work.queue_status import QueueStatus, queue_status
from rmt_pipeline.system import SystemClock
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.connect import unreachable
from rmt_pipeline.zookeeper.four_letters import ServerLoad, server_load
from rmt_pipeline.zookeeper.snapshot import active_parts, gone, replica_states

FROZEN = f"it is frozen, or has more to do than {PROBE_TIMEOUT_S:.0f} s are enough for"
REASONS_MAX = 5
LOAD_OVER_S = 1.0
COMPARED_MAX = 20_000  # parts: reading the headers of more takes too long

Load = ServerLoad | OSError | None
"""The load that a ZooKeeper server reports; the error if it can't be asked; None if its answer is
not one.
"""


def run_status(config: Config, only: str | None) -> int:
    """Print the status, each line as soon as it is known. The exit status is 1 when a server is
    down, a table may not be written, or something can't be looked at; the rest is still shown.

    All servers are asked at the same time, so that a frozen one costs its timeout only once. Raises
    UserError for an unknown server.
    """
    servers = [config.server(only)] if only else list(config.servers.values())
    healthy = True
    with ThreadPoolExecutor(len(servers) + 1) as asking:
        asked = {
            server.name: asking.submit(control.how_it_is, config, server) for server in servers
        }
        loads = asking.submit(_loads, config)
        zookeeper: _ZooKeeper | None = None
        for server in servers:
            print(f"server {server.name}: ", end="", flush=True)
            health = asked[server.name].result()
            print(_server_words(server, health), flush=True)
            healthy &= not isinstance(health, Unavailable) and health["status"] == "ok"
            for reason in _waiting(health):
                print(f"  {reason}")
            zookeeper = zookeeper or _ZooKeeper.that_answers(config, loads.result())
            try:
                healthy &= _print_tables(zookeeper, server, health)
            except RmtError as error:
                print(f"  its tables can't be looked at: {error.code}. {error}", flush=True)
                healthy = False
    print("who may ask:")
    for server in servers:
        print(f"  {server.name}: {who_may_ask(config, server)}")
    for line in _port_lines(config):
        print(f"  {line}")
    for line in _zookeeper_lines(loads.result()):
        print(line, flush=True)
    return 0 if healthy else 1


@dataclass(slots=True)
class _ZooKeeper:
    """ZooKeeper as this command finds it: the hosts to ask, and the error once it
    can't be reached.
    """

    config: Config
    away: ZooKeeperUnreachable | None = None

    @classmethod
    def that_answers(cls, config: Config, loads: Mapping[str, Load]) -> Self:
        """Leave out the hosts that do not answer. Otherwise a client that tries one of them first
        would wait for it.
        """
        hosts, slash, chroot = config.zookeeper_hosts.partition("/")
        found = [
            host
            for host in hosts.split(",")
            if not isinstance(loads.get(host.strip()), OSError)
        ]
        if not found:
            return cls(config, unreachable(config.zookeeper_hosts, PROBE_TIMEOUT_S))
        if len(found) < len(hosts.split(",")):
            hosts = ",".join(found) + slash + chroot
            config = replace(config, zookeeper=replace(config.zookeeper, hosts=hosts))
        return cls(config)

    def require(self, context: ServerContext) -> None:
        """Raises ZooKeeperUnreachable."""
        try:
            if self.away is None:
                context.keeper(PROBE_TIMEOUT_S)
        except ZooKeeperUnreachable as error:
            self.away = error
        if self.away is not None:
            raise self.away


def _loads(config: Config) -> dict[str, Load]:
    """The load of each ZooKeeper server, by address. With TLS none is asked, since this question
    can only be asked without encryption.
    """
    if config.zookeeper.tls:
        return {}
    hosts = config.zookeeper_hosts.partition("/")[0].split(",")
    addresses = [host.strip() for host in hosts if host.rpartition(":")[2].strip().isdigit()]
    with ThreadPoolExecutor(max(1, len(addresses))) as asking:
        return dict(zip(addresses, asking.map(_load, addresses), strict=True))


def _load(address: str) -> Load:
    host, _, port = address.rpartition(":")
    try:
        return server_load(host.strip("[]"), int(port), PROBE_TIMEOUT_S)
    except OSError as error:
        return error


def _zookeeper_lines(before: Mapping[str, Load]) -> Iterator[str]:
    """A line for each ZooKeeper server with the load by all its clients, measured over at least a
    second.
    """
    clock = SystemClock()
    for address, earlier in before.items():
        load = earlier
        if isinstance(earlier, ServerLoad):
            clock.sleep_s(max(0.0, earlier.asked_s + LOAD_OVER_S - clock.monotonic_s()))
            load = _load(address)
        if isinstance(load, ServerLoad) and isinstance(earlier, ServerLoad):
            words = (
                f"{load.mode}, {load.requests_per_s(earlier):.0f} requests per second, "
                f"{load.outstanding} waiting, {load.nodes} znodes"
            )
        elif isinstance(load, TimeoutError):
            words = f"does not answer: {FROZEN}"
        elif isinstance(load, OSError):
            words = f"not running: nothing answers ({load})"
        else:
            words = "does not report its state (srvr)"
        yield f"ZooKeeper at {address}: {words}"


def _print_tables(zookeeper: _ZooKeeper, server: ServerConfig, health: Health) -> bool:
    """Print the tables of a server. Returns whether all could be read, and looked up in ZooKeeper.
    One that fails hides no other.
    """
    asked = True
    opened = ServerContext.open(zookeeper.config, server.name, purpose="status")
    with closing(opened) as context:
        before = {*context.catalog.names()}
        tables, detached = context.tables(), context.catalog.detached()
        damaged = context.catalog.damaged()
        # One whose directory can't be made is left out; others came or went meanwhile.
        found = {(one.definition_then.database, one.definition_then.name) for one in tables}
        are_read = before.intersection(context.catalog.names()) <= found
        if not tables and not detached and not damaged:
            print("  no tables")
        for problem in damaged:
            print(f"  {problem}")
        for one in detached:
            for line in _detached_lines(one):
                print(f"  {line}")
        for table in tables:
            try:
                try:
                    zookeeper.require(context)
                    lines = list(_table_lines(table, health))
                except ZooKeeperUnreachable as error:
                    lines = list(_lines_without_zookeeper(table, f": {error}" if asked else ""))
                    asked = False
            except OSError as error:
                are_read = False
                lines = [f"{table.definition_then.full_name}: its directory fails: {error}"]
            for line in lines:
                print(f"  {line}", flush=True)
    return asked and are_read and not damaged


def run_reload(config: Config, name: str) -> int:
    """Make a server look at its tables now, and print the state of each.

    The exit status is 1 when a table is read-only. Raises Unavailable, UserError.
    """
    peer = control.peer_of(config, config.server(name))
    with closing(ServerContext.open(config, name, purpose="reload")) as context:
        tables = control.reload_tables(peer, context.secret(), config.tls.files)
    for table, reason in sorted(tables.items()):
        print(f"{table}: {f'read-only: {reason}' if reason else 'active'}")
    return 1 if any(tables.values()) else 0


def _server_words(server: ServerConfig, health: Health) -> str:
    if isinstance(health, Unavailable) and isinstance(health.__cause__, ReadTimeoutError):
        return f"does not answer at {server.advertised_address}: {FROZEN}"
    if nothing := control.nothing_answers(health, server):
        return f"not running: {nothing}"
    if isinstance(health, Unavailable):  # it answers, but refuses us
        return (
            f"something answers at {server.advertised_address}, but not this command: {health}"
        )
    if not health.get("session"):
        return f"running at {server.advertised_address}, but {control.without_session(health)}"
    return f"running at {server.advertised_address}"


def _waiting(health: Health) -> list[str]:
    """What holds up statements ON CLUSTER or of databases. Servers of older versions do not report
    it.
    """
    if isinstance(health, Unavailable) or not health.get("session"):
        return []
    return list(health.get("waiting", []))


def who_may_ask(config: Config, server: ServerConfig) -> str:
    """Which clients get an answer from a server, in a line."""
    reached = (
        "this host alone" if server.listen_address.is_local else "anyone who reaches the port"
    )
    if config.tls.client_certificates:
        reached += f" with a certificate signed by {config.tls.ca}"
    kept = "[exchange] of rmt.toml" if config.secrets_of(server.name) else "ZooKeeper"
    looks = "a token of [monitoring], or that secret" if config.monitoring.token else "nothing"
    return (
        f"{server.listen} ({config.scheme}) answers {reached}: parts and control need the "
        f"exchange secret in {kept}, /health and /metrics need {looks}"
    )


def _port_lines(config: Config) -> Iterator[str]:
    """The other ports of this deployment that we open, and which hosts can reach them."""
    ports = [("Dagster's UI", config.dagster.port)]
    if config.spark.is_ours:
        ports.append(("Spark Connect", config.spark.port))
    if config.zookeeper.embedded:
        ports.append(("ZooKeeper", config.zookeeper.port))
    for what, port in ports:
        yield f"{what}, if it runs: 127.0.0.1:{port} answers this host alone, and needs nothing"


def _table_lines(table: Table, health: Health) -> Iterator[str]:
    yield f"{table.definition.full_name}: {_state_words(table, health)}"
    try:
        replica = table.replica
    except UserError as error:  # it has a setting of a newer version
        yield f"  {error}"
        return
    yield f"  replica {replica.name} of {replica.table.root}"
    yield from _stopped_lines(replica)
    try:
        if replica.keeper.exists(replica.paths.root) is None:
            yield f"  {gone(replica.paths)}"
            return
        yield f"  replicas: {_replicas_words(replica)}"
        yield f"  log: {_log_words(replica)}"
        now_s = replica.clock.now_s()
        for line in _queue_lines(queue_status(replica), now_s):
            yield f"  {line}"
        yield from _failing_lines(replica)
        yield from _quorum_lines(replica)
        lost = sorted(lost_parts(replica))
        if lost:
            named = ", ".join(map(str, lost[:REASONS_MAX]))
            yield f"  LOST on all replicas, and empty now: {named}; see system.lost_parts"
        names = active_parts(replica.keeper, replica.paths)
        yield f"  parts: {_part_words(names)}"
        yield f"  znodes: {_znode_words(replica)}"
        yield f"  differences: {_difference_words(replica, len(names))}"
    except RmtError as error:
        yield f"  {error}"


def _part_words(names: Collection[PartName]) -> str:
    """How many parts are promised, and which partition has most of them: inserts into that one are
    slowed down first.
    """
    active = PartSet(names)
    words = f"{len(active)} active, {len(names)} in all"
    partitions = Counter(part.partition for part in active)
    if len(partitions) < 2:
        return words
    fullest, count = max(partitions.items(), key=lambda one: (one[1], one[0]))
    return f"{words}; in {len(partitions)} partitions, most in {fullest}: {count}"


def _znode_words(replica: Replica) -> str:
    """The number of children of each node that grows, so that one can see which never stops
    growing.
    """
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
    """How the rows of the replicas differ, by the hashes in ZooKeeper."""
    if parts > COMPARED_MAX:
        return f"not looked for among {parts} parts; Dagster's check replicas_equal does"
    found = compare_replicas(replica)
    if not found.different:
        return "none, every partition has the same rows on every replica"
    named = ", ".join(found.different[:REASONS_MAX])
    words = f"{len(found.different)} partition{'s'[: len(found.different) > 1]}: {named}"
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


def _lines_without_zookeeper(table: Table, why: str) -> list[str]:
    """`why` is told with the first table alone: a server may have hundreds."""
    name, seen = table.definition.full_name, table.store.marks.active_seen()
    if seen is None:
        return [f"{name}: no ZooKeeper, nothing can be read{why}"]
    since = datetime.fromtimestamp(seen.seen_s, tz=UTC).isoformat(timespec="seconds")
    return [
        f"{name}: no ZooKeeper, nothing can be written{why}",
        f"  reads go on from the parts that the server knew at {since}: {len(seen.parts)}",
    ]


def _state_words(table: Table, health: Health) -> str:
    definition = table.definition
    if isinstance(health, Unavailable) and isinstance(
        health.__cause__, SSLError | ProtocolError
    ):
        return "not known whether it is served, because the server did not answer this command"
    told = {} if isinstance(health, Unavailable) else health
    for served in told.get("tables", []):
        if (served["database"], served["table"]) == (definition.database, definition.name):
            if served["readonly"]:
                looks_s = served.get("looks_again_s", 0.0)
                again = f" (the server looks again in {looks_s:.0f} s; rmt reload: now)"
                return f"read-only: {served['reason']}{again if looks_s >= 1 else ''}"
            broken = ", ".join(served.get("broken", [])[:REASONS_MAX])
            words = (
                f"broken or gone, and fetched again: {broken}; reads fail until they are here"
            )
            return words if broken else "active"
    return "not served: it takes no writes, and its parts cannot be fetched"


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
    """Parts of inserts that wait until more replicas have them, if there are any."""
    waiting = sorted(read_quorums(replica).entries(), key=lambda entry: entry.part)
    if waiting:
        count = "1 part waits" if len(waiting) == 1 else f"{len(waiting)} parts wait"
        yield f"  quorum: {count} for it"
    for one in waiting[:REASONS_MAX]:
        on = ", ".join(one.replicas)
        yield f"    {one.part} is on {on}: {len(one.replicas)} of {one.required} replicas"


def _log_words(replica: Replica) -> str:
    lag = lag_of(replica)
    words = f"{_entries(lag.entries)} behind" if lag.entries else "up to date"
    if lag.seconds:
        words += f"; the oldest part that it lacks is {lag.seconds:.0f} s old"
    return words


def _failing_lines(replica: Replica) -> Iterator[str]:
    """Entries of the queue that have failed, with the last error of each. The notes of entries that
    are done stay until the next clean-up.
    """
    keeper, paths = replica.keeper, replica.paths
    nodes = sorted({*keeper.children(paths.attempts)} & {*keeper.children(paths.queue)})
    tries = keeper.get_many([paths.attempts_of(node) for node in nodes])
    failed = [
        (node, tried)
        for node, read in zip(nodes, tries, strict=True)
        if read is not None and (tried := Attempts.read(read[0])).last_exception
    ]
    shown = failed[:REASONS_MAX]
    entries = keeper.get_many([paths.queue_entry(node) for node, _ in shown])
    for (node, tried), read in zip(shown, entries, strict=True):
        entry = node if read is None else describe_entry(decode(read[0]))
        times = "once" if tried.tries == 1 else f"{tried.tries} times"
        yield f"    {entry} failed {times}, last: {tried.last_exception}"
    if len(failed) > REASONS_MAX:
        yield f"    and {len(failed) - REASONS_MAX} more have failed; see rmt queue"


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _queue_lines(found: QueueStatus, now_s: float) -> Iterator[str]:
    ready, waiting = sum(found.ready.values()), len(found.waiting)
    if not ready and not waiting:
        yield "queue: empty"
        return
    age = "" if found.oldest_s is None else f", the oldest {now_s - found.oldest_s:.0f} s old"
    pools = ", ".join(f"{count} to {pool}" for pool, count in found.ready.items() if count)
    can = f"{ready} can run now ({pools})" if ready else "none can run now"
    yield f"queue: {_entries(ready + waiting)}{age}: {can}"
    for one in found.waiting[:REASONS_MAX]:
        yield f"  {one.entry} waits: {one.reason}"
    if waiting > REASONS_MAX:
        yield f"  and {waiting - REASONS_MAX} more wait; see system.replication_queue"
