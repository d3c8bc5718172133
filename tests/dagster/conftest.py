"""Two real servers and a real ZooKeeper for tests that run assets, jobs and sensors in process."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from examples.flights import source
from examples.flights.definitions import build_definitions
from examples.flights.laptop import Everything, write_config
from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.io_manager import RmtIOManager
from rmt_pipeline.replica.replica import Replica
from tests.support.site import Site
from tests.support.stored_assets import CREATE
from tests.support.waiting import LASTING_S, until

os.environ["DAGSTER_DISABLE_TELEMETRY"] = "yes"


@pytest.fixture(scope="session", autouse=True)
def migrations_are_read_once() -> Iterator[None]:
    """Each database that a Dagster makes, one for each run and three for itself, asks which of its
    ninety migration scripts is the newest: reading them takes half of the time.
    """
    read, known = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def read_once(config: Config) -> ScriptDirectory:
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = read(config)
        return known[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", read_once)
        yield


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as directory:
        file = write_config(Path(directory)).path
        assert file is not None
        lasting = f"[zookeeper]\nsession_timeout_s = {LASTING_S}"
        file.write_text(file.read_text().replace("[zookeeper]", lasting))
        config = load_config(file)
        assert config.path is not None
        less = ("--no-dagster", "--no-spark", "--no-work")
        engine = EngineResource(config_path=str(config.path))
        with (
            Everything(config.path, Path(directory) / "up.log", *less) as processes,
            ServerContext.open(config, "r1", purpose="test") as r1,
            ServerContext.open(config, "r2", purpose="test") as r2,
        ):
            definitions = build_definitions(config_path=str(config.path))
            for server in (r1, r2):
                server.create_table(source.TABLE, if_not_exists=True)
            yield Site(config, processes, engine, definitions, r1, r2)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as opened:
        yield opened


@pytest.fixture
def nothing_to_do(site: Site) -> None:
    """Both replicas are active, and nothing of an earlier test is left in their queues."""
    for server in (site.r1, site.r2):
        replica = server.table(source.TABLE.name).replica

        def is_active(replica: Replica = replica) -> bool:
            site.processes.require_alive()
            return replica.keeper.exists(replica.paths.is_active) is not None

        until(is_active, lambda: "the server did not make its table active")
    site.work_off()


@pytest.fixture
def io_manager(site: Site) -> Iterator[RmtIOManager]:
    """With its table `stored`."""
    with site.having("stored", CREATE.replace("{uuid}", "stored")):
        yield site.io_manager()
