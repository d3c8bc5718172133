"""Everything at once, in real processes: what `rmt up` starts, asked as the UI asks it."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from examples.flights import report, source
from examples.flights.dagster_client import DagsterClient
from examples.flights.laptop import Everything, write_config
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.system import SystemClock
from rmt_pipeline.table import Table

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

TABLE = source.TABLE.full_name
DAYS = [f"2013-01-{day:02d}" for day in range(1, 32)]
ROWS = 27_004
"""Flights of January 2013 in New York."""
WAIT_S = 180.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


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

    def backfill(self, title: str, **config: Any) -> None:
        backfill_id = self.dagster.backfill(
            ["flights"], DAYS, title=title, run_config={"ops": {"flights": {"config": config}}}
        )

        def is_over() -> bool:
            state = self.dagster.backfill_state(backfill_id)
            assert not state.failed, state
            return state.is_over

        self.wait(title, is_over)
        assert self.dagster.backfill_state(backfill_id).succeeded

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


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """Running, with the table on both servers and January inserted on r1."""
    directory = tmp_path_factory.mktemp("laptop")
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
        running.backfill("January on r1")
        yield running
        assert processes.stop(), f"something had to be killed; see {processes.log}"


def test_sensors_replicate_and_merge_what_a_backfill_inserted(laptop: Laptop) -> None:
    def is_settled() -> bool:
        comparison = compare_replicas(laptop.r1.replica)
        merged = [part for part in laptop.r2.parts() if part.name.level > 0]
        return bool(merged) and not comparison.behind and not comparison.different

    laptop.wait("replication and merges", is_settled)
    for table in (laptop.r1, laptop.r2):
        held = report.held(table)
        assert (held.rows, held.distinct) == (ROWS, ROWS)

    def kinds() -> set[object]:
        """Of both servers: which of them merges, and which fetches the result, is open."""
        return {
            row.data["kind"]
            for server in ("r1", "r2")
            for event in laptop.events(names.parts_key(TABLE, server))
            for row in event["parts"].records
        }

    laptop.wait("the ledger, some seconds behind", lambda: kinds() >= {"FETCH", "MERGE_PARTS"})
    partitions = {
        event["partition"] for event in laptop.events(names.partitions_key(TABLE, "r2"))
    }
    assert {"201301", "201302"} <= partitions


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")
def test_the_ui_shows_the_tables_their_parts_and_why_nothing_happens(
    laptop: Laptop, tmp_path: Path
) -> None:
    """Screenshots go to SCREENSHOTS, if that is set."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  only this test needs it

    pictures = Path(os.environ.get("SCREENSHOTS", tmp_path))
    asset = f"{laptop.url}/assets/flights/r2_parts"
    location = "examples.flights.definitions"
    pages = {
        "graph": (f"{laptop.url}/asset-groups/__repository__@{location}/flights", "r2_parts"),
        "parts": (f"{asset}?view=events", "MERGE_PARTS"),
        "sensor": (
            f"{laptop.url}/locations/{location}/sensors/log_r2",
            "Copies new entries of every table's log",
        ),
        "backfill": (f"{laptop.url}/runs/?tab=backfills", "31 partitions"),
        "launchpad": (
            f"{laptop.url}/locations/{location}/jobs/fetch_parts_r1/playground",
            "linger_s",
        ),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        outside: list[str] = []
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.on(
            "request",
            lambda request: (
                outside.append(request.url)
                if not request.url.startswith((laptop.url, "data:", "blob:"))
                else None
            ),
        )
        for name, (url, text) in pages.items():
            page.goto(url)
            page.get_by_text(text).first.wait_for(timeout=30_000)
            page.wait_for_timeout(1_500)
            page.screenshot(path=pictures / f"{name}.png")
        browser.close()
    assert outside == [], "the UI asks nobody outside"
