"""Servers of one cluster in this process, over a ZooKeeper in memory: each works statements ON
CLUSTER off when the test says so.
"""

from pathlib import Path

from rmt_pipeline.cluster.worker import TaskWorker
from rmt_pipeline.config import Address, Config, load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.server.tables import Identity, Tables
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.tasks.task import StatementCarrier, TaskContext
from rmt_pipeline.system import EventWaker, RandomIds
from rmt_pipeline.zookeeper.paths import TaskQueuePaths
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import StillClock

SHARDS = (("r1", "r2"), ("r3",))


class Server:
    """One process of one server, from its start to its end."""

    def __init__(self, servers: "Servers", name: str) -> None:
        self.name = name
        self.keeper = servers.zookeeper.connect()
        self.looking = servers.zookeeper.connect()  # of the tables, as in `rmt serve`
        self.context = TaskContext(servers.config, name, clock=servers.clock)
        address = Address.parse(servers.config.server(name).listen)
        identity = Identity(name, RandomIds().new_id(), address)
        self.tables = Tables(
            self.context.catalog, servers.clock, RandomIds(), identity, lambda: None
        )
        carrier = StatementCarrier(self.context, EventWaker(), lambda: False)
        self.worker = TaskWorker(
            self.keeper,
            TaskQueuePaths(servers.config.distributed_ddl.path),
            str(address),
            lambda: carrier,
            lambda: None,
        )

    def start(self) -> None:
        self.worker.announce()
        self.look()

    def look(self) -> None:
        """At the catalog, as the supervisor does all the time."""
        self.tables.follow_catalog(self.looking)
        self.tables.look(self.looking)

    def turn(self) -> int:
        """What is in the queue now, and the tables after it."""
        self.look()
        done = self.worker.turn()
        self.look()
        return done

    def uuid_of(self, table: str, database: str = "default") -> str:
        catalog = self.context.catalog
        has = database in catalog.databases() and catalog.has(database, table)
        return catalog.definition(database, table).uuid if has else ""


class Servers:
    """Those of the cluster `c`: two shards, of r1 and r2, and of r3."""

    def __init__(self, directory: Path, shards: tuple[tuple[str, ...], ...] = SHARDS) -> None:
        self.clock = StillClock()
        self.zookeeper = FakeZooKeeper(self.clock)
        self.config = cluster_config(directory, shards)
        self.queue = TaskQueuePaths(self.config.distributed_ddl.path)

    def start(self, name: str) -> Server:
        server = Server(self, name)
        server.start()
        return server

    def session(self, name: str = "r1", **settings: str) -> Session:
        """`rmt sql` on the host of this server."""
        context = ServerContext(self.config, name, clock=self.clock)
        context.use(self.zookeeper.connect())
        return Session(context, settings)

    def kill(self, *servers: Server) -> None:
        """Their sessions end a while after."""
        for server in servers:
            for keeper in (server.keeper, server.looking):
                self.zookeeper.expire(keeper.session_id)

    def host(self, name: str) -> str:
        return str(self.config.server(name).advertised_address)


def cluster_config(directory: Path, shards: tuple[tuple[str, ...], ...]) -> Config:
    lines = ["[zookeeper]", 'hosts = "127.0.0.1:1"']
    port = 20000
    for number, shard in enumerate(shards, 1):
        for name in shard:
            port += 1
            lines += [
                f"[servers.{name}]",
                f"data = '{directory / name}'",
                f"listen = '127.0.0.1:{port}'",
                f"macros = {{shard = '{number}', replica = '{name}', cluster = 'c'}}",
            ]
    lines += ["[clusters.c]", f"shards = {[list(shard) for shard in shards]}"]
    file = directory / "rmt.toml"
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines))
    return load_config(file)
