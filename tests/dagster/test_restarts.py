"""Dagster's processes are killed in the middle of a backfill, or are there twice: no row is lost,
none is there twice, and somebody says what happened. Real processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rmt_pipeline.dagster.location import definition_of
from rmt_pipeline.dagster.names import dagster_name
from tests.support.real_dagster import (
    DAEMON,
    LOCATION,
    OTHER_DAEMON,
    OTHER_LOCATION,
    RealDagster,
    real_dagster,
)
from tests.support.site import Site
from tests.support.stays import AT_ONCE, CREATE, DAYS, LIMIT_S, Stays
from tests.support.time_limit import time_limit
from tests.support.waiting import until

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.zookeeper,
    pytest.mark.filterwarnings("ignore:Function `AssetSelection.sources`"),  # Dagster's own
]


class World(Stays):
    """The table on both servers of the site."""

    def __init__(self, site: Site, directory: Path) -> None:
        super().__init__(site.config, directory)
        self.site = site

    def until_on_both(self, dagster: RealDagster, *days: str) -> None:
        for server in (self.site.r1, self.site.r2):
            self.until_on(server, dagster.logs, *days)


@pytest.fixture
def world(site: Site, tmp_path: Path) -> Iterator[World]:
    definition = definition_of(CREATE)
    for server in (site.r1, site.r2):
        server.create_table(definition)
    yield World(site, tmp_path)
    for server in (site.r1, site.r2):
        server.drop_table("default", "stays")


@contextmanager
def killed_in_the_middle(world: World, process: str) -> Iterator[tuple[RealDagster, str]]:
    """Of a backfill of three runs: two have stored their rows, and the third one is queued, unless
    Dagster began all three in its first look at a pool. Then it is started again, and the backfill,
    whose id comes second, comes to its end.
    """
    with (
        time_limit("a backfill", LIMIT_S),
        real_dagster(world.directory / "dagster", world.definitions) as dagster,
    ):
        world.hold()
        backfill = dagster.backfill("stays", DAYS)
        until(lambda: len(world.stored()) >= AT_ONCE, dagster.logs, limit_s=LIMIT_S)
        dagster.kill(process)
        world.go_on()
        dagster.start(process)
        until(lambda: dagster.is_over(backfill), dagster.logs, limit_s=LIMIT_S)
        yield dagster, backfill


def test_a_location_that_is_killed_in_the_middle_of_a_backfill(world: World) -> None:
    with killed_in_the_middle(world, LOCATION) as (dagster, backfill):
        said = dagster.said(backfill)
        assert said.count("its code location was started again, and does not have") >= AT_ONCE
        world.until_on_both(dagster, *DAYS)


def test_a_daemon_that_is_killed_in_the_middle_of_a_backfill(world: World) -> None:
    """Its runs go on without it, and the next one goes on with the rest."""
    with killed_in_the_middle(world, DAEMON) as (dagster, _):
        world.until_on_both(dagster, *DAYS)


def test_two_dagsters_for_the_same_servers(world: World) -> None:
    """Each with its daemon and its location, and the same backfill: it costs twice, which a tick of
    each one's sensors says, and nothing is there twice.
    """
    with (
        time_limit("two backfills", LIMIT_S),
        real_dagster(world.directory / "one", world.definitions) as one,
        real_dagster(world.directory / "other", world.definitions) as other,
    ):
        both = (one, other)
        backfills = [dagster.backfill("stays", DAYS) for dagster in both]
        for dagster, backfill in zip(both, backfills, strict=True):
            until(partial(dagster.is_over, backfill), dagster.logs, limit_s=LIMIT_S)
            assert dagster.succeeded(backfill)
        world.until_on_both(one, *DAYS)
        for dagster in both:
            until(partial(_warns, dagster), dagster.logs, limit_s=LIMIT_S)


OTHER = """
import dagster as dg
from rmt_pipeline.dagster import replicated_tables, rmt_resources
defs = dg.Definitions.merge(
    replicated_tables(["r1", "r2"], {{}}), dg.Definitions(resources=dict(rmt_resources({config!r})))
)
"""


def test_two_daemons_and_two_locations_of_one_dagster(world: World) -> None:
    """Both daemons carry the backfill out, and evaluate the sensors of both locations: each tick
    names the other location, Dagster's log the other daemon, and nothing is there twice.
    """
    other = world.directory / "other.py"
    other.write_text(OTHER.format(config=str(world.site.config.path)))
    with (
        time_limit("a backfill", LIMIT_S),
        real_dagster(world.directory / "dagster", world.definitions, other) as dagster,
    ):
        dagster.start(OTHER_DAEMON)
        backfill = dagster.backfill("stays", DAYS)
        until(lambda: dagster.is_over(backfill), dagster.logs, limit_s=LIMIT_S)
        assert dagster.succeeded(backfill)
        world.until_on_both(dagster, *DAYS)
        for location in (LOCATION, OTHER_LOCATION):
            words = f"{dagster_name(location)} on "
            until(partial(_warns, dagster, words), dagster.logs, limit_s=LIMIT_S)
        until(partial(_is_told_of_two, dagster), dagster.logs, limit_s=LIMIT_S)


def _is_told_of_two(dagster: RealDagster) -> bool:
    return any(
        "daemon is still sending heartbeats" in dagster.log_of(name)
        for name in (DAEMON, OTHER_DAEMON)
    )


def _warns(dagster: RealDagster, of: str = "") -> bool:
    return any(
        of in one and "watches r1 too: nothing is done twice" in one
        for one in dagster.ticks("log_r1")
    )
