"""Dagster's processes are killed in the middle of a backfill, or are there twice: no row is lost,
none is there twice, and somebody says what happened. Real processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.location import definition_of
from tests.support.real_dagster import DAEMON, LOCATION, RealDagster, real_dagster
from tests.support.site import Site
from tests.support.time_limit import time_limit
from tests.support.waiting import until

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.zookeeper,
    pytest.mark.filterwarnings("ignore:Function `AssetSelection.sources`"),  # Dagster's own
]

CREATE = (
    "CREATE TABLE stays (day Date, id UInt64) "
    "ENGINE = ReplicatedMergeTree('/t/stays', '{replica}') PARTITION BY toYYYYMM(day) ORDER BY id"
)
AT_ONCE = 2  # the third run of the backfill is queued meanwhile: default_limit in dagster.yaml
DEFINITIONS = '''
import os, time
from pathlib import Path
import dagster as dg
from rmt_pipeline.dagster import RmtIOManager, rmt_resources, rmt_table

HERE, CONFIG = Path({here!r}), {config!r}

class Holding(RmtIOManager):
    """The rows are in the table, and Dagster does not know it yet."""
    def handle_output(self, context, obj):
        super().handle_output(context, obj)
        (HERE / f"stored-{{context.partition_key}}").touch()
        while (HERE / "hold").exists():
            time.sleep(0.05)

@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-03-01"),
    metadata={{"partition_expr": "day"}},
    pool="two_at_once",
)
def stays(context):
    return [{{"day": context.partition_key, "id": number}} for number in range(3)]

defs = dg.Definitions.merge(
    rmt_table({create!r}, servers=["r1", "r2"], ingest=[stays]),
    dg.Definitions(
        assets=[stays],
        resources={{
            **rmt_resources(CONFIG), "io_manager": Holding(server="r1", config_path=CONFIG)
        }},
        executor=dg.in_process_executor,
    ),
)
'''


class World:
    """The table on both servers, and where runs of its asset are held up."""

    def __init__(self, site: Site, directory: Path) -> None:
        self.site, self.directory = site, directory
        self.definitions = directory / "definitions.py"
        code = DEFINITIONS.format(
            here=str(directory), config=str(site.config.path), create=CREATE
        )
        self.definitions.write_text(code)

    def hold(self) -> None:
        (self.directory / "hold").touch()

    def go_on(self) -> None:
        (self.directory / "hold").unlink()

    def stored(self) -> set[str]:
        """The days whose rows some run has stored."""
        files = self.directory.glob("stored-*")
        return {file.name.removeprefix("stored-") for file in files}

    def rows(self, server: ServerContext) -> list[tuple[str, int]]:
        found = server.table("stays").dataset().to_table(["day", "id"]).to_pylist()
        return sorted((str(row["day"]), row["id"]) for row in found)

    def until_on_both(self, dagster: RealDagster, *days: str) -> None:
        wanted = [(day, number) for day in sorted(days) for number in range(3)]
        for server in (self.site.r1, self.site.r2):
            until(
                lambda server=server: len(self.rows(server)) >= len(wanted),
                dagster.logs,
                limit_s=LIMIT_S,
            )
            assert self.rows(server) == wanted


@pytest.fixture
def world(site: Site, tmp_path: Path) -> Iterator[World]:
    definition = definition_of(CREATE)
    for server in (site.r1, site.r2):
        server.create_table(definition)
    yield World(site, tmp_path)
    for server in (site.r1, site.r2):
        server.drop_table("default", "stays")


DAYS = [f"2026-01-{number:02}" for number in range(1, 4)]
LIMIT_S = 1800.0
"""Of a test: Dagster's processes start one after the other, and others beside them."""


@contextmanager
def killed_in_the_middle(world: World, process: str) -> Iterator[tuple[RealDagster, str]]:
    """Of a backfill of three runs: two have stored their rows, the third one is queued. Then it is
    started again, and the backfill, whose id comes second, comes to its end.
    """
    with (
        time_limit("a backfill", LIMIT_S),
        real_dagster(world.directory / "dagster", world.definitions) as dagster,
    ):
        world.hold()
        backfill = dagster.backfill("stays", DAYS)
        until(lambda: len(world.stored()) == AT_ONCE, dagster.logs, limit_s=LIMIT_S)
        dagster.kill(process)
        world.go_on()
        dagster.start(process)
        until(lambda: dagster.is_over(backfill), dagster.logs, limit_s=LIMIT_S)
        yield dagster, backfill


def test_a_location_that_is_killed_in_the_middle_of_a_backfill(world: World) -> None:
    with killed_in_the_middle(world, LOCATION) as (dagster, backfill):
        said = dagster.said(backfill)
        assert said.count("its code location was started again, and does not have") == AT_ONCE
        world.until_on_both(dagster, *DAYS)


def test_a_daemon_that_is_killed_in_the_middle_of_a_backfill(world: World) -> None:
    """Its runs go on without it, and the next one goes on with the rest."""
    with killed_in_the_middle(world, DAEMON) as (dagster, _):
        world.until_on_both(dagster, *DAYS)
