"""`rmt serve`: one process that serves one server's tables, from start to SIGTERM."""

import os
import signal
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.directory import (
    DirectoryLock,
    claim_data_directory,
    directory_owner,
    make_data_directory,
    require_owner,
)
from rmt_pipeline.config import Config, ServerConfig
from rmt_pipeline.exchange.bandwidth import Bandwidth
from rmt_pipeline.exchange.guard import RenewedGuard
from rmt_pipeline.exchange.secret import cluster_id, exchange_secret, put_back
from rmt_pipeline.exchange.server import exchange_app
from rmt_pipeline.protocol.errors import (
    RmtError,
    Unavailable,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.server.checks import PartChecks
from rmt_pipeline.server.listener import HttpListener
from rmt_pipeline.server.log import get_log
from rmt_pipeline.server.scrub import Scrub
from rmt_pipeline.server.status import Counters, ServerStatus, server_app, server_status
from rmt_pipeline.server.supervisor import Supervisor, WorkLoops
from rmt_pipeline.server.tables import Identity, Tables
from rmt_pipeline.server.tasks import TaskLoops
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import EventWaker, RandomIds, SystemClock, told_signals
from rmt_pipeline.tls import Renewed, distrust_of
from rmt_pipeline.zookeeper.access import Access
from rmt_pipeline.zookeeper.connect import connect
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper

END_S = 4.5  # after a signal, the process is ended whatever it is doing
ATTEMPT_S = 2.0  # for one attempt to reach ZooKeeper

log = get_log("server")


@dataclass(slots=True)
class StopSwitch:
    """Set by SIGTERM or SIGINT. All that waits in this process looks at it, or is woken by it."""

    waker: EventWaker = field(default_factory=EventWaker)
    _asked: threading.Event = field(default_factory=threading.Event)

    def is_asked(self) -> bool:
        return self._asked.is_set()

    def ask(self) -> None:
        """Ask the process to stop. From any thread, but not in a signal handler."""
        self._asked.set()
        self.waker.wake()

    def wait_s(self, seconds: float) -> bool:
        """Wait: True as soon as a stop is asked for, False after `seconds`."""
        return self._asked.wait(seconds)


@contextmanager
def stopped_by_signals(switch: StopSwitch) -> Iterator[None]:
    """SIGTERM and SIGINT set `switch`. For the main thread.

    When the end takes longer than END_S, the process is ended wherever it is. It is crash-only, and
    its callers count on 5 s.
    """

    def tell(number: signal.Signals) -> None:
        if not switch.is_asked():
            log.info("ending", signal=number.name)
            killer = threading.Timer(END_S, os._exit, [0])
            killer.daemon = True
            killer.start()
        switch.ask()

    with told_signals(tell):
        yield


def serve(
    config: Config, name: str, *, work: bool = False, connect_timeout_s: float | None = None
) -> None:
    """Serve the tables of server `name` until SIGTERM or SIGINT. For the main thread.

    Raises what `serve_until` raises.
    """
    switch = StopSwitch()
    with stopped_by_signals(switch):
        serve_until(switch, config, name, work=work, connect_timeout_s=connect_timeout_s)


def serve_until(
    switch: StopSwitch,
    config: Config,
    name: str,
    *,
    work: bool = False,
    connect_timeout_s: float | None = None,
) -> None:
    """Serve the tables of server `name` until `switch` is set.

    While ZooKeeper does not answer, at the start too, the tables are read-only, and the server goes
    on trying (spec §11.2, §11.7). With `connect_timeout_s` it ends when it has no session so long
    after its start.

    Raises BadConfiguration (the directory of another server or of another ZooKeeper, certificates
    that can't be used, a port that is open to strangers), ReplicaIsAlreadyActive (the server runs
    already), AddressInUse, ZooKeeperUnreachable (no session after `connect_timeout_s`),
    AccessDenied (at the start; later it is tried again).
    """
    server = config.server(name)
    config.require_guarded(name)
    with ExitStack() as opened:
        require_owner(server.data, name)
        make_data_directory(server.data, config.files.umask)
        opened.callback(DirectoryLock(server.data, name).release)
        tls = _listening_tls(config, server)
        listener = HttpListener(server.listen_address, f"[servers.{name}] listen", tls)
        opened.callback(listener.stop)
        loops = _work_loops(config, name) if work else None
        if loops is not None:
            opened.callback(loops.stop)
        process = _Process(config, name, switch, loops, connect_timeout_s)
        opened.callback(process.checks.stop)
        opened.callback(process.scrub.stop)
        opened.callback(process.tasks.stop)
        process.run(listener)


class _Process:
    """The objects of the server, of which none waits for ZooKeeper."""

    def __init__(
        self,
        config: Config,
        name: str,
        switch: StopSwitch,
        loops: WorkLoops | None,
        give_up_after_s: float | None,
    ) -> None:
        server, ids = config.server(name), RandomIds()
        who = claim_data_directory(server.data, name, ids=ids)
        identity = Identity(who, ids.new_id(), server.advertised_address, config.scheme)
        catalog = Catalog(server.data, ids)
        catalog.attach_again()
        self._config = config
        self._server = server
        self._switch = switch
        self._ids = ids
        self._guard = RenewedGuard(config, name)
        self._shared: tuple[str, str] | None = None
        """The id of the cluster and the secret that all servers share, once they are known."""
        self._sent = Bandwidth(lambda: config.exchange.sends_bandwidth, SystemClock())
        self._counters = Counters()
        self._sends: dict[str, Bandwidth] = {}
        self._tables = Tables(
            catalog, SystemClock(), ids, identity, switch.waker.wake, server.drop_delay_s
        )
        self.tasks = TaskLoops(config, name, catalog)
        self._supervisor = Supervisor(
            self._tables,
            switch.waker,
            self._counters,
            open_session=self._open_session,
            give_up_after_s=give_up_after_s,
            loops=loops,
            should_stop=switch.is_asked,
            on_catalog=self.tasks.follow_catalog,
        )
        self.checks = PartChecks(self._tables.replica_of, self._tables.replicas)
        self.scrub = Scrub(self._tables.replicas, self._found_broken, SystemClock())

    def run(self, listener: HttpListener) -> None:
        self.checks.start()
        self.scrub.start()
        exchange = exchange_app(
            self._find_store,
            self._guard,
            self.checks.report,
            on_answer=self._answered,
            sends_max=self._config.exchange.sends_at_once,
            bandwidth_of=self._bandwidth_of,
        )
        listener.start(
            server_app(
                exchange=exchange,
                guard=self._guard,
                status=self._status,
                reload=self._supervisor.reload,
                counters=self._counters,
            )
        )
        server = self._server
        log.info("serving", server=server.name, address=server.listen, data=str(server.data))
        self._supervisor.run()

    def _open_session(self) -> KazooKeeper:
        """Try once to open a session. Raises what `_join` raises."""
        keeper = connect(
            self._config.zookeeper_hosts,
            session_timeout_s=self._config.zookeeper.session_timeout_s,
            connect_timeout_s=ATTEMPT_S,
            access=Access.of(self._config.zookeeper),
            should_stop=self._switch.is_asked,
        )
        try:
            if self._shared is None:
                self._join(keeper)
            else:
                self._rejoin(keeper, self._shared)
        except BaseException:
            keeper.close()
            raise
        return keeper

    def _join(self, keeper: KazooKeeper) -> None:
        """Learn in the first session what all servers share. Raises BadConfiguration if this is
        another ZooKeeper than that of the directory; Corruption, Conflict, Unavailable,
        ReplicaRetired.
        """
        owner = directory_owner(self._server.data)
        cluster = cluster_id(keeper, self._ids, owner.cluster if owner is not None else "")
        claim_data_directory(self._server.data, self._server.name, cluster, self._ids)
        own = self._config.secrets_of(self._server.name)
        shared = "" if own else exchange_secret(keeper, self._ids)
        self._guard.learn(shared)
        self._shared = cluster, shared
        self.tasks.start()

    def _rejoin(self, keeper: KazooKeeper, shared: tuple[str, str]) -> None:
        """ZooKeeper may have lost everything meanwhile: put back what all servers share."""
        try:
            if not put_back(keeper, *shared):
                log.error(
                    "ZooKeeper has another cluster id or exchange secret than this server "
                    "began with: peers will be refused. Is it another ZooKeeper? If it is the "
                    "right one, start this server again"
                )
        except RmtError as error:  # if the session is bad, its next use ends it
            log.warning("cluster id and secret could not be read", reason=str(error))

    def _find_store(self, endpoint: str) -> PartStore | None:
        if self._switch.is_asked():
            raise Unavailable(f"server {self._server.name} is stopping")
        return self._tables.store_of(endpoint)

    def _bandwidth_of(self, endpoint: str) -> Bandwidth:
        """The limit for sending parts of a replica of this server, as its table's settings say at
        the moment, within the limit for all that the server sends.
        """
        known = self._sends.get(endpoint)
        if known is None:
            limit = partial(self._send_limit, endpoint)
            made = Bandwidth(limit, SystemClock(), within=self._sent)
            known = self._sends.setdefault(endpoint, made)  # of two threads' one is kept
        return known

    def _send_limit(self, endpoint: str) -> int:
        replica = self._tables.replica_of(endpoint)
        return 0 if replica is None else replica.settings.max_replicated_sends_network_bandwidth

    def _found_broken(self, replica: Replica, part: PartName, problem: str) -> None:
        log.warning(
            "scrub found a broken part", table=str(replica), part=str(part), problem=problem
        )

    def _answered(self, status: int, size_bytes: int) -> None:
        if status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            self._counters.parts_sent += status == HTTPStatus.OK  # 206 resumes a counted one
            self._counters.bytes_sent += size_bytes
        else:
            self._counters.sends_refused += 1

    def _status(self) -> ServerStatus:
        keeper, away = self._supervisor.keeper, self._supervisor.waits_for
        return server_status(
            self._server.name,
            keeper,
            self._tables,
            (away,) if keeper is None and away else self.tasks.waiting(),
            self.tasks.behind(),
        )


def _listening_tls(config: Config, server: ServerConfig) -> ssl.SSLContext | None:
    """The TLS context to listen with; None without TLS. Raises BadConfiguration."""
    files = config.tls.files
    if files is None:
        return None
    address = server.advertised_address
    reason = distrust_of(files, address.host)
    if reason:  # only a warning: it may be renewed while the server runs
        log.warning(
            "other servers will not fetch from this one: [tls] certificate is not good for the "
            "host in `advertise`",
            host=address.host,
            certificate=str(files.certificate),
            reason=reason,
        )
    return Renewed.server(files, client_certificates=config.tls.client_certificates)


def _work_loops(config: Config, name: str) -> WorkLoops:
    # Only a server that merges loads pyarrow and DuckDB; others need a quarter of the memory.
    from rmt_pipeline.server.loops import QueueLoops  # noqa: PLC0415  start-up

    return QueueLoops(config, name, ("fetch", "merge"))
