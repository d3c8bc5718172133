"""docs/deploy.md as it is written: an ensemble of three ZooKeepers, Postgres, two replicas with a
code location each, a Spark cluster. Each of them is lost once.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.flights.ports import free_port
from rmt_pipeline.context import ServerContext
from rmt_pipeline.processes.java import find_java
from rmt_pipeline.processes.spark import ConnectServer
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.sql.run.session import Session
from tests.support.ensemble import Ensemble
from tests.support.postgres import Postgres, find_postgres
from tests.support.production import SERVERS, Production, production
from tests.support.spark_cluster import cluster
from tests.support.time_limit import time_limit

PROGRAMS = find_postgres()

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.spark,
    pytest.mark.zookeeper,
    pytest.mark.skipif(
        PROGRAMS is None, reason="no PostgreSQL (Debian: apt install postgresql)"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("dagster_postgres") is None,
        reason="no dagster-postgres (pip install dagster-postgres)",
    ),
]

WORKERS = 2
MANY = 20_000
"""So many rows are merged by Spark and by nobody else, also when it takes long to start."""
DAY_S = 2400.0


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that runs, and who asks."""

    running: Production
    ensemble: Ensemble
    storage: Postgres
    spark: Path
    r1: ServerContext
    r2: ServerContext

    def insert(self, day: str, first: int, rows: int = 10) -> None:
        """Said again until there is an answer, as every client does."""
        values = ", ".join(f"('{day}', {first + n}, {n}.50)" for n in range(rows))
        statement = f"INSERT INTO orders VALUES {values}"

        def is_in() -> bool:
            try:
                Session(self.r1).execute(statement)
            except RmtError:
                return False
            return True

        self.running.until("an insert", is_in)

    def ids(self, server: ServerContext) -> list[int]:
        try:
            rows = server.table("orders").dataset().to_table(columns=["id"])
        except RmtError:
            return []
        return sorted(rows["id"].to_pylist())

    def until_on_both(self, rows: int) -> None:
        expected = list(range(rows))
        self.running.until(
            f"{rows} rows on both replicas",
            lambda: self.ids(self.r1) == self.ids(self.r2) == expected,
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    assert PROGRAMS is not None
    root = tmp_path_factory.mktemp("production")
    java_home = find_java().env["JAVA_HOME"]
    (root / "spark").mkdir()
    with (
        time_limit("the start of a whole deployment", DAY_S),
        Ensemble(root, force_sync=False) as ensemble,
        Postgres(PROGRAMS) as storage,
        cluster(root / "spark", WORKERS, java_home) as master,
        ConnectServer(
            root / "connect.log", port=free_port(), master=master, java_home=java_home
        ) as connect,
        production(root, ensemble.hosts, storage, connect.url) as running,
        ServerContext.open(running.config, "r1", purpose="test") as r1,
        ServerContext.open(running.config, "r2", purpose="test") as r2,
    ):
        for server in SERVERS:
            running.start(f"rmt-server@{server}", f"rmt-location@{server}")
        running.until("the code locations", running.locations_answer)
        running.start("dagster-daemon", "dagster-webserver")
        running.until("Dagster", running.dagster.is_ready)
        yield Site(running, ensemble, storage, root / "spark", r1, r2)


def test_a_deployment_that_loses_each_of_its_parts_loses_no_row(site: Site) -> None:
    with time_limit("a day of a deployment", DAY_S):
        makes_the_table_and_replicates(site)
        merges_in_the_cluster(site)
        goes_on_without_one_zookeeper(site)
        goes_on_without_postgres(site)
        goes_on_when_a_location_was_killed(site)
        goes_on_when_a_server_was_upgraded(site)


def makes_the_table_and_replicates(site: Site) -> None:
    """Each replica is created by a run of its own host's location."""
    for server in SERVERS:
        run = site.running.dagster.materialize(
            [["orders", f"{server}_replica"]], location=server
        )
        site.running.wait_for_run(run)
    site.insert("2026-01-01", 0)
    site.until_on_both(10)
    fetched = site.running.dagster.runs(pipelineName="fetch_parts_r2")
    assert fetched, "a run has fetched it"
    assert int(site.storage.ask("SELECT count(*) FROM runs")) >= 3, "Dagster's runs are there"


def merges_in_the_cluster(site: Site) -> None:
    for first in (10, 10 + MANY // 2):
        site.insert("2026-01-02", first, MANY // 2)
    Session(site.r1).execute("OPTIMIZE TABLE orders FINAL SETTINGS alter_sync = 2")
    site.until_on_both(10 + MANY)
    for server in (site.r1, site.r2):
        [part] = server.table("orders").parts()
        assert part.name.level > 0
    for number in range(WORKERS):
        assert list((site.spark / f"work-{number}").glob("app-*")), "a worker had no executor"


def goes_on_without_one_zookeeper(site: Site) -> None:
    member = site.ensemble.kill(0)
    site.insert("2026-01-03", 10 + MANY)
    site.until_on_both(20 + MANY)
    member.start()


def goes_on_without_postgres(site: Site) -> None:
    """Inserts do not need it; what they brought is fetched when it is back."""
    site.storage.stop()
    site.insert("2026-01-04", 20 + MANY)
    assert len(site.ids(site.r1)) == 30 + MANY
    site.storage.start()
    site.until_on_both(30 + MANY)


def goes_on_when_a_location_was_killed(site: Site) -> None:
    """systemd starts it again (Restart=always): the run that was in it is over, and another one
    does its work.
    """
    unit = "rmt-location@r2"
    site.running.kill(unit)
    site.insert("2026-01-05", 30 + MANY)
    site.running.start(unit)
    site.until_on_both(40 + MANY)


def goes_on_when_a_server_was_upgraded(site: Site) -> None:
    """In the order of the page: the location and the server of one host, then those of the next."""
    for number, server in enumerate(SERVERS, 4):
        units = (f"rmt-location@{server}", f"rmt-server@{server}")
        site.running.stop(*units)
        site.running.start(*reversed(units))
        site.insert("2026-01-06", 10 * number + MANY)
        site.until_on_both(10 * (number + 1) + MANY)
