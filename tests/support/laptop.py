"""What `rmt up` starts, in real processes, asked as the UI asks it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from examples.flights import source
from examples.flights.dagster_client import DagsterClient
from examples.flights.laptop import Everything, write_config
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.system import SystemClock
from rmt_pipeline.table import Table
from tests.support.waiting import LIMIT_S

TABLE = source.TABLE.full_name
WAIT_S = 2 * LIMIT_S


@dataclass(frozen=True, slots=True)
class Laptop:
    """A running deployment, and the table of both its servers."""

    config: Config
    dagster: DagsterClient
    processes: Everything
    r1: Table
    r2: Table

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.config.dagster.port}"

    def wait(self, what: str, done: Callable[[], bool], wait_s: float = WAIT_S) -> None:
        clock = SystemClock()
        until_s = clock.monotonic_s() + wait_s
        while not done():
            self.processes.require_alive()
            assert clock.monotonic_s() < until_s, f"{what}: not within {wait_s} s"
            clock.sleep_s(0.5)

    def wait_for_run(self, run_id: str) -> None:
        def is_over() -> bool:
            [run] = self.dagster.runs(runIds=[run_id])
            assert run["status"] not in ("FAILURE", "CANCELED"), run
            return bool(run["status"] == "SUCCESS")

        self.wait(f"run {run_id}", is_over)

    def backfill(self, title: str, days: Sequence[str], **config: Any) -> None:
        backfill_id = self.dagster.backfill(
            ["flights"], days, title=title, run_config={"ops": {"flights": {"config": config}}}
        )

        def is_over() -> bool:
            state = self.dagster.backfill_state(backfill_id)
            assert not state.failed, state
            return state.is_over

        self.wait(title, is_over)
        assert self.dagster.backfill_state(backfill_id).succeeded

    def is_settled(self) -> bool:
        """Both replicas hold the same rows, and something was merged."""
        comparison = compare_replicas(self.r1.replica)
        merged = [part for part in self.r2.parts() if part.name.level > 0]
        return bool(merged) and not comparison.behind and not comparison.different

    def events(self, key: dg.AssetKey) -> list[dict[str, Any]]:
        """Metadata of the asset's materializations, newest first, with their partitions."""
        with dg.DagsterInstance.from_config(str(self.config.dagster.home)) as instance:
            records = instance.fetch_materializations(key, limit=1000).records
        found = [record.asset_materialization for record in records]
        return [
            {"partition": event.partition, **{k: v.value for k, v in event.metadata.items()}}
            for event in found
            if event is not None
        ]


@contextmanager
def running_laptop(directory: Path) -> Iterator[Laptop]:
    """With the table on both servers, and nothing in it. Fails when the end is not in order."""
    config = write_config(directory)
    assert config.path is not None
    processes = Everything(config.path, directory / "up.log")
    with (
        processes,
        DagsterClient(f"http://127.0.0.1:{config.dagster.port}") as dagster,
        ServerContext.open(config, "r1", purpose="test") as r1,
        ServerContext.open(config, "r2", purpose="test") as r2,
    ):
        tables = [server.table_of(server.expanded(source.TABLE)) for server in (r1, r2)]
        running = Laptop(config, dagster, processes, tables[0], tables[1])
        running.wait("Dagster", dagster.is_ready)
        keys = [names.replica_key(TABLE, server).path for server in ("r1", "r2")]
        running.wait_for_run(dagster.materialize(keys))
        yield running
        assert processes.stop(), f"something had to be killed; see {processes.log}"
