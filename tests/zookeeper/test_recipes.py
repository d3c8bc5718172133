"""Each recipe of docs/operations.md does what the page says, as it is written there.

A recipe is a block of shell commands with a name behind ```sh. Here stands, under that name, the
trouble that it is for, and what is well again afterwards. Two servers over a ZooKeeper that may be
lost: one for all recipes that leave everything as it was, and one for each of the others.
`zkCli.sh` is the shell in ZooKeeper's own jars, started as its script does.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from examples.flights.ports import free_port
from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.exchange.secret import SECRET_PATH
from rmt_pipeline.processes.java import find_java
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from rmt_pipeline.protocol.errors import AccessDenied
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from tests.support.lasting import lasting
from tests.support.serving import Served, config_at
from tests.support.waiting import LASTING_S, LIMIT_S, until

pytestmark = pytest.mark.zookeeper

HOUSE = Path(__file__).parents[2]
PAGE = (HOUSE / "docs" / "operations.md").read_text(encoding="utf-8")
JARS = Path(pyspark.__file__).parent / "jars"
ZKCLI = "org.apache.zookeeper.ZooKeeperMain"
BLOCK = re.compile(r"^```sh(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
RECIPES = {name.strip(): text for name, text in BLOCK.findall(PAGE)}
CREATE = """CREATE TABLE t (n UInt64)
ENGINE = ReplicatedMergeTree('/tables/t', '{replica}') ORDER BY n
SETTINGS max_suspicious_broken_parts = 0"""


class Site:
    """A ZooKeeper and two servers, which work their queues; and a shell with `rmt`."""

    def __init__(self, directory: Path, session_timeout_s: float) -> None:
        self.directory = directory
        self.session_timeout_s = session_timeout_s
        self.port = free_port()
        self.zookeeper = EmbeddedZooKeeper(directory / "zookeeper", self.port, force_sync=False)
        self.servers: dict[str, Served] = {}
        self.begun: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        self.zookeeper.start()
        self.config = config_at(
            self.directory,
            self.zookeeper.hosts,
            session_timeout_s=self.session_timeout_s,
        )
        for name in ("r1", "r2"):
            self.serve(name)

    def serve(self, name: str) -> None:
        self.servers[name] = Served(self.config, name, work=True)
        self.servers[name].__enter__()

    def stop(self, name: str) -> None:
        self.servers.pop(name).stop()

    def end(self) -> None:
        for process in self.begun:  # what a recipe has begun with `&` is of its group
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for name in list(self.servers):
            self.stop(name)
        self.zookeeper.stop()

    def sql(self, server: str, statement: str) -> None:
        with ServerContext.open(self.config, server) as context, Session(context) as session:
            session.execute(statement)

    def rows(self, server: str) -> list[int]:
        with ServerContext.open(self.config, server) as context:
            return sorted(context.table("t").dataset().to_table().column("n").to_pylist())

    def until_rows(self, server: str, *wanted: int) -> None:
        until(lambda: self.rows(server) == list(wanted), lambda: self.rows(server))

    def table(self) -> None:
        """`t` on both, with two parts."""
        for name, served in self.servers.items():
            self.sql(name, CREATE)
            served.until(served.is_active)
        self.sql("r1", "INSERT INTO t VALUES (1)")
        self.sql("r1", "INSERT INTO t VALUES (2)")
        self.until_rows("r2", 1, 2)

    def follow(self, recipe: str) -> tuple[int, str]:
        """Carry it out, each command if those before it went well; status and words."""
        shell, printed = self.directory / "bin", self.directory / "printed"
        shell.mkdir(exist_ok=True)
        (shell / "rmt").write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m rmt_pipeline.cli "$@"\n', encoding="utf-8"
        )
        java = find_java()
        (shell / "zkCli.sh").write_text(
            f'#!/bin/sh\nexec "{java.path}" -cp "{JARS}/*" {ZKCLI} "$@"\n',
            encoding="utf-8",
        )
        for program in shell.iterdir():
            program.chmod(0o755)
        environment = {
            **os.environ,
            **java.env,
            "ZOOKEEPER": self.zookeeper.hosts,
            "PATH": f"{shell}:{os.environ['PATH']}",
            "PYTHONPATH": str(HOUSE),
            "RMT_CONFIG": str(self.directory / "rmt.toml"),
        }
        with printed.open("wb") as out:
            process = subprocess.Popen(
                ["/bin/bash", "-ec", RECIPES[recipe]],
                env=environment,
                cwd=self.directory,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.begun.append(process)
            status = process.wait(2 * LIMIT_S)
        return status, printed.read_text(encoding="utf-8")

    def data_of(self, server: str) -> Path:
        return self.config.server(server).data

    def spoil(self, server: str) -> None:
        """Flip a bit in one of its parts."""
        with ServerContext.open(self.config, server) as context:
            store = context.table("t").store
            [path] = [one for one in store.files(store.parts()[0]) if one.endswith("parquet")]
        data = bytearray(Path(path).read_bytes())
        data[len(data) // 2] ^= 1
        Path(path).write_bytes(bytes(data))


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory) -> Iterator[Site]:
    yield from begun(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def own_site(tmp_path, recipe: str) -> Iterator[Site]:
    """Sessions of a ZooKeeper that lost everything are over as late as if it were away."""
    timeout_s = 20.0 if recipe.startswith("ZooKeeper") else LASTING_S
    yield from begun(tmp_path, timeout_s)


def begun(directory: Path, session_timeout_s: float = LASTING_S) -> Iterator[Site]:
    site = Site(directory, session_timeout_s)
    try:
        site.begin()
        yield site
    finally:
        site.end()


@contextmanager
def nothing_wrong(site: Site) -> Iterator[None]:
    site.table()
    yield
    assert site.rows("r1") == [1, 2]


@contextmanager
def stopped_by_hand(site: Site) -> Iterator[None]:
    site.table()
    site.sql("r1", "SYSTEM STOP FETCHES t")
    site.sql("r2", "INSERT INTO t VALUES (3)")
    yield
    site.until_rows("r1", 1, 2, 3)


@contextmanager
def detached(site: Site) -> Iterator[None]:
    site.table()
    site.sql("r1", "DETACH TABLE t")
    yield
    assert site.rows("r1") == [1, 2]


@contextmanager
def broken_at_start(site: Site) -> Iterator[None]:
    site.table()
    site.stop("r1")
    with ServerContext.open(site.config, "r1") as context:
        store = context.table("t").store
        Path(store.files(store.parts()[0])[0]).unlink()
    site.serve("r1")
    site.servers["r1"].until(
        lambda: "max_suspicious_broken_parts" in str(site.servers["r1"].health())
    )
    yield
    site.servers["r1"].until(site.servers["r1"].is_active)
    site.until_rows("r1", 1, 2)


@contextmanager
def rotten(site: Site) -> Iterator[None]:
    site.table()
    site.spoil("r1")
    yield
    site.until_rows("r1", 1, 2)


@contextmanager
def frozen(site: Site) -> Iterator[None]:
    site.table()
    site.sql("r1", "ALTER TABLE t FREEZE WITH NAME 'monday'")
    site.sql("r1", "INSERT INTO t VALUES (7)")
    site.sql("r2", "ALTER TABLE t DELETE WHERE n = 1 SETTINGS mutations_sync = 2")
    yield
    for server in ("r1", "r2"):
        site.until_rows(server, 1, 2)
    site.sql("r1", "SYSTEM UNFREEZE WITH NAME 'monday'")


@contextmanager
def host_gone(site: Site) -> Iterator[None]:
    site.table()
    site.stop("r1")
    shutil.rmtree(site.data_of("r1"))
    yield
    site.until_rows("r1", 1, 2)
    site.sql("r1", "INSERT INTO t VALUES (3)")
    site.until_rows("r2", 1, 2, 3)


def lose_zookeeper(site: Site) -> None:
    site.zookeeper.stop()
    shutil.rmtree(site.directory / "zookeeper")
    site.zookeeper.start()


@contextmanager
def zookeeper_lost(site: Site) -> Iterator[None]:
    site.table()
    lose_zookeeper(site)
    for served in site.servers.values():
        served.until(lambda served=served: "SYSTEM RESTORE REPLICA" in str(served.health()))
    yield
    for served in site.servers.values():
        served.until(served.is_active)
    site.sql("r2", "INSERT INTO t VALUES (3)")
    site.until_rows("r1", 1, 2, 3)


@contextmanager
def zookeeper_and_a_host_lost(site: Site) -> Iterator[None]:
    site.table()
    with ServerContext.open(site.config, "r1") as context:
        marks = context.table("t").store.marks
        until(lambda: marks.replicas_seen() == ("r1", "r2"), marks.replicas_seen)
    site.stop("r2")
    lose_zookeeper(site)
    first = site.servers["r1"]
    first.until(lambda: "SYSTEM RESTORE REPLICA" in str(first.health()))
    yield
    first.until(first.is_active)
    site.sql("r1", "INSERT INTO t VALUES (3)")
    assert site.rows("r1") == [1, 2, 3]


@contextmanager
def database_replica_gone(site: Site) -> Iterator[None]:
    for name in ("r1", "r2"):
        site.sql(
            name, "CREATE DATABASE d ENGINE = Replicated('/databases/d', '01', '{replica}')"
        )
    site.sql("r1", "CREATE TABLE d.u (n UInt64) ENGINE = ReplicatedMergeTree ORDER BY n")
    site.stop("r2")
    yield
    site.sql("r1", "CREATE TABLE d.v (n UInt64) ENGINE = ReplicatedMergeTree ORDER BY n")


@contextmanager
def part_lost(site: Site) -> Iterator[None]:
    """On both disks, and there is a copy elsewhere."""
    site.table()
    for name in ("r1", "r2"):
        site.sql(name, "SYSTEM STOP CLEANUP t")
    lost = "data/default/t/all_0_0_0"
    shutil.copytree(site.directory / "r1" / lost, site.directory / "backup" / "all_0_0_0")
    for name in ("r1", "r2"):
        shutil.rmtree(site.directory / name / lost)
    with connect_to(site) as keeper:
        nodes = [f"/tables/t/replicas/{name}/parts/all_0_0_0" for name in ("r1", "r2")]
        until(lambda: keeper.exists_many(nodes) == [None, None])
    yield
    for name in ("r1", "r2"):
        site.until_rows(name, 1, 2)


@contextmanager
def open_nodes(site: Site) -> Iterator[None]:
    site.table()
    for name in ("r1", "r2"):
        site.stop(name)
    with connect_to(site) as stranger:
        before = stranger.get(SECRET_PATH)
        file = site.directory / "rmt.toml"
        file.write_text(
            file.read_text().replace("[zookeeper]", '[zookeeper]\nidentity = "user:password"')
        )
        site.config = load_config(file)
        yield
        for name in ("r1", "r2"):
            site.serve(name)
        for served in site.servers.values():
            served.until(served.is_active)
        site.sql("r1", "INSERT INTO t VALUES (3)")
        site.until_rows("r2", 1, 2, 3)
        for node in (SECRET_PATH, "/tables/t/log", "/tables/t/replicas/r1/parts/all_0_0_0"):
            with pytest.raises(AccessDenied):
                stranger.get(node)
    with ServerContext.open(site.config, "r1") as context:
        assert context.keeper().get(SECRET_PATH)[0] != before[0]


@contextmanager
def connect_to(site: Site) -> Iterator[KazooKeeper]:
    """As somebody whom ZooKeeper does not know."""
    with closing(lasting(site.zookeeper.hosts)) as keeper:
        yield keeper


Situation = Callable[[Site], AbstractContextManager[None]]
SITUATIONS: Mapping[str, Situation] = {
    "looking": nothing_wrong,
    "stopped by hand": stopped_by_hand,
    "detached": detached,
    "broken at start": broken_at_start,
    "rotten": rotten,
    "a snapshot comes back": frozen,
    "a lost part comes back": part_lost,
    "nodes that were made before": open_nodes,
    "a host is gone": host_gone,
    "ZooKeeper lost everything": zookeeper_lost,
    "ZooKeeper and a host are gone": zookeeper_and_a_host_lost,
    "a server of a Replicated database is gone": database_replica_gone,
}
DESTRUCTIVE = {  # or needs a table whose name nobody had before: its directory is named
    "a snapshot comes back",
    "a lost part comes back",
    "nodes that were made before",
    "a host is gone",
    "ZooKeeper lost everything",
    "ZooKeeper and a host are gone",
    "a server of a Replicated database is gone",
}
STATUS = {"rotten": 1}
"""Of recipes that tell something by it."""


def test_every_recipe_has_its_trouble_here():
    assert set(RECIPES) == set(SITUATIONS)


def carry_out(site: Site, recipe: str) -> None:
    with SITUATIONS[recipe](site):
        status, printed = site.follow(recipe)
        is_made = recipe == "a lost part comes back" and "Node already exists" in printed
        assert is_made or status == STATUS.get(recipe, 0), printed


@pytest.mark.parametrize("recipe", sorted(SITUATIONS.keys() - DESTRUCTIVE))
def test_recipe(shared_site: Site, recipe: str):
    try:
        carry_out(shared_site, recipe)
    finally:
        for server in ("r1", "r2"):
            shared_site.sql(server, "DROP TABLE t SYNC")


@pytest.mark.parametrize("recipe", sorted(DESTRUCTIVE))
def test_recipe_for_what_is_gone(own_site: Site, recipe: str):
    carry_out(own_site, recipe)
