"""Everything at once, in real processes: what `rmt up` starts, asked as the UI asks it."""

from collections.abc import Iterator

import pytest

from examples.flights import report
from rmt_pipeline.dagster import names
from tests.support.laptop import TABLE, Laptop, running_laptop

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

DAYS = [f"2013-01-{day:02d}" for day in range(1, 32)]
ROWS = 27_004
"""Flights of January 2013 in New York."""


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """Running, with January inserted on r1."""
    with running_laptop(tmp_path_factory.mktemp("laptop")) as running:
        running.backfill("January on r1", DAYS)
        yield running


def test_sensors_replicate_and_merge_what_a_backfill_inserted(laptop: Laptop) -> None:
    laptop.wait("replication and merges", laptop.is_settled)
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
    [last, *_] = laptop.events(names.parts_key(TABLE, "r1"))
    assert last["dagster/row_count"] == ROWS, "of the table, not of the last flush"
    partitions = {
        event["partition"] for event in laptop.events(names.partitions_key(TABLE, "r2"))
    }
    assert {"201301", "201302"} <= partitions
