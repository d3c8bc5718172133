"""A Replicated database `d` on servers in this process; each looks when the test says so."""

from contextlib import suppress

from rmt_pipeline.catalog.replicated import replicated_database
from rmt_pipeline.cluster.queue import clean_queue
from rmt_pipeline.server.tasks import DatabaseLoop, NotCaughtUp
from rmt_pipeline.sql.formats.rows import Rows
from rmt_pipeline.sql.run import databases, on_cluster, tables, upkeep
from rmt_pipeline.zookeeper.paths import DatabasePaths
from tests.support.servers import Servers

DATABASE = "CREATE DATABASE d ENGINE = Replicated('/databases/d', '{shard}', '{replica}')"
TABLE = "CREATE TABLE d.t (n UInt64) ENGINE = ReplicatedMergeTree ORDER BY n"
LATER = {"distributed_ddl_task_timeout": "0"}
PATHS = DatabasePaths("/databases/d")
LOOKS_MAX = 50


class Node:
    """One process of a server, with its loop over the database d, if it has that."""

    def __init__(self, servers: Servers, name: str) -> None:
        self.servers, self.name = servers, name
        self.server = servers.start(name)
        self.catalog = self.server.context.catalog
        self.loop: DatabaseLoop | None = None
        self.worker = None

    def look(self, mortal=lambda keeper: keeper) -> None:
        """Until there is nothing to do, in the session that `mortal` makes of its own."""
        self.server.turn()
        database = replicated_database(self.catalog, "d")
        if database is None or database.is_dropping:
            self.loop = None
            return
        if self.loop is None:
            self.loop = DatabaseLoop(self.servers.config, self.name, "d", database)
            self.loop._context.use(mortal(self.server.keeper))
            self.loop._context.clock = self.servers.clock  # ZooKeeper's: else all is too old
        self.loop._signal.fire()
        for _ in range(LOOKS_MAX):
            self.worker = self.loop._current(self.worker)
            self.loop._look(self.worker)
            if not self.loop._signal.is_fired:
                break
        else:
            raise AssertionError(f"{self.name} looks again and again, and finds nothing")
        self.server.look()

    def tables(self, database: str = "d") -> list[str]:
        return self.catalog.tables(database) if database in self.catalog.databases() else []


class Working:
    """Who waits has the servers work meanwhile; and time passes."""

    def __init__(self, servers: Servers, nodes: list[Node]) -> None:
        self.servers, self.nodes = servers, nodes

    def __call__(self) -> "Working":
        return self

    def wake(self) -> None: ...

    def wait_s(self, timeout_s: float) -> bool:
        for node in self.nodes:
            with suppress(NotCaughtUp):  # as the loop: it goes on
                node.look()
        self.servers.clock.passed_s += timeout_s
        return True


class Site:
    def __init__(self, directory, monkeypatch) -> None:
        self.servers = Servers(directory)
        self.nodes: dict[str, Node] = {}
        working = Working(self.servers, [])
        self.running = working.nodes
        monkeypatch.setattr(on_cluster, "EventWaker", working)
        monkeypatch.setattr(databases, "EventWaker", working)
        for statements in (tables, upkeep):
            monkeypatch.setattr(statements, "ACTIVE_WAIT_S", 0.0)

    def start(self, *names: str) -> None:
        for name in names:
            self.nodes[name] = Node(self.servers, name)
            self.running.append(self.nodes[name])

    def stop(self, name: str) -> None:
        node = self.nodes.pop(name)
        self.running.remove(node)
        self.servers.kill(node.server)

    def say(self, query: str, server: str = "r1", **settings: str):
        with self.servers.session(server, **settings) as session:
            return session.execute(query)

    def rows(self, query: str, server: str = "r1", **settings: str) -> list[tuple]:
        answer = self.say(query, server, **settings)
        assert isinstance(answer, Rows)
        return [
            values
            for batch in answer.batches
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        ]

    def look(self) -> None:
        for node in self.running:
            node.look()

    def below(self, path: str) -> list[str]:
        nodes = self.servers.zookeeper.nodes
        return sorted(one for one in nodes if one == path or one.startswith(f"{path}/"))


def started(site: Site, *names: str) -> Site:
    """Servers with the database."""
    names = names or ("r1", "r2", "r3")
    site.start(*names)
    for name in names:
        assert site.say(DATABASE, name).note == ""
    return site


def part(site: Site, name: str, table: str = "t", database: str = "d") -> None:
    """As if the table there had rows: a part among the detached ones."""
    definition = site.nodes[name].catalog.definition(database, table)
    directory = site.nodes[name].catalog.table_directory(definition) / "detached" / "all_0_0_0"
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")


def forgets(site: Site) -> None:
    """The log is cleaned but for its last statement, as when all before that are too old."""
    keeper, now_s = site.servers.zookeeper.connect(), site.servers.clock.now_s()
    clean_queue(keeper, PATHS.queue, now_s=now_s, lifetime_s=10**6, tasks_max=1)
