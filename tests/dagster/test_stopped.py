"""A worker that somebody starts by hand for a replica whose server is stopped."""

import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from examples.flights.ports import free_port
from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.location import definition_of, replicated_tables, rmt_resources
from rmt_pipeline.processes.child import Child
from rmt_pipeline.sql.run.session import Session
from tests.support.site import Site
from tests.support.waiting import until

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]

TABLE = definition_of(
    "CREATE TABLE away (n UInt64) ENGINE = ReplicatedMergeTree('/t/away', '{replica}') ORDER BY n"
)


@pytest.fixture
def r3(site: Site, tmp_path: Path) -> Iterator[ServerContext]:
    """A third server of the same ZooKeeper, which is not running."""
    assert site.config.path is not None
    file = site.config.path.with_name("three.toml")
    file.write_text(
        f"{site.config.path.read_text()}\n[servers.r3]\ndata = '{tmp_path}'\n"
        f"listen = '127.0.0.1:{free_port()}'\nmacros = {{shard = '01', replica = 'r3'}}\n"
    )
    with ServerContext.open(load_config(file), "r3", purpose="test") as server:
        yield server


def serving(r3: ServerContext) -> Child:
    command = ["-m", "rmt_pipeline.cli", "--config", str(r3.config.path), "serve", "--server"]
    return Child([sys.executable, *command, "r3"])


def test_a_run_by_hand_without_the_server_says_so_and_does_nothing(
    site: Site, r3: ServerContext
) -> None:
    definitions = dg.Definitions.merge(
        replicated_tables(["r3"], {}),
        dg.Definitions(resources=dict(rmt_resources(str(r3.config.path)))),
    )
    for server in (site.r1, r3):
        server.create_table(TABLE)
    table = r3.table("away")

    def is_active() -> bool:
        return table.replica.keeper.exists(table.replica.paths.is_active) is not None

    def is_cloned() -> bool:
        found = table.replica.keeper.get(table.replica.paths.is_lost)
        return found is not None and found[0] == b"0"

    def rows() -> list[int]:
        return sorted(table.dataset().to_table()["n"].to_pylist())

    def run(instance: dg.DagsterInstance) -> str:
        job = definitions.resolve_job_def("fetch_parts_r3")
        result = job.execute_in_process(
            instance=instance,
            run_config={"ops": {"work_fetch_parts_r3": {"config": {"linger_s": 0.5}}}},
            raise_on_error=False,
        )
        return "\n".join(entry.message for entry in instance.all_logs(result.run_id))

    with dg.instance_for_test() as instance:
        with serving(r3):
            until(is_cloned)  # else what is said is that it is lost
        until(lambda: not is_active())
        Session(site.r1).execute("INSERT INTO away VALUES (1), (2)")
        said = run(instance)
        assert "nothing was worked: default.away" in said
        assert "is not active, so it follows no other replica; start its server" in said
        assert rows() == []
        with serving(r3):
            until(is_active)
            for _ in range(2):
                run(instance)
                assert rows() == [1, 2]
    for server in (site.r1, r3):
        server.drop_table("default", "away")
