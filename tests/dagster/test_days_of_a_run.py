"""A run of several days: what becomes of the others when one of them is wrong."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import ReaderConfig, RmtIOManager, names
from rmt_pipeline.dagster import io_manager as io_managers
from rmt_pipeline.table import Table
from tests.support.site import Site

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]

DAYS = [f"2026-01-0{day}" for day in (5, 6, 7, 8)]


@pytest.fixture
def io_manager(site: Site) -> Iterator[RmtIOManager]:
    create = (
        "CREATE TABLE stored (day Date, id UInt64) "
        "ENGINE = ReplicatedMergeTree('/t/stored', '{replica}') PARTITION BY day ORDER BY id"
    )
    with site.having("stored", create):
        yield site.io_manager()


def store(
    io_manager: RmtIOManager,
    instance: dg.DagsterInstance,
    given: Callable[[], Mapping[str, Any]],
    partition_expr: str = "day",
) -> dg.ExecuteInProcessResult:
    """A run of all days, whose asset returns what is given."""

    @dg.asset(
        partitions_def=dg.DailyPartitionsDefinition(DAYS[0], end_date="2026-02-01"),
        metadata={"partition_expr": partition_expr},
    )
    def stored() -> Mapping[str, Any]:
        return given()

    span = {
        "dagster/asset_partition_range_start": DAYS[0],
        "dagster/asset_partition_range_end": DAYS[-1],
    }
    return dg.materialize(
        [stored],
        resources={"io_manager": io_manager},
        instance=instance,
        tags=span,
        raise_on_error=False,
    )


def days_in(site: Site) -> list[str]:
    found = site.r1.table("stored").dataset().to_table(["day"])["day"].to_pylist()
    return sorted(map(str, found))


def parts_told(instance: dg.DagsterInstance) -> list[object]:
    """How many parts of inserts each event of the ledger has."""
    told = instance.fetch_materializations(names.parts_key("default.stored", "r1"), limit=9)
    events = [record.asset_materialization for record in told.records]
    return [event.metadata["parts insert"].value for event in events if event is not None]


def test_a_bad_day_of_a_run_fails_alone(
    site: Site, io_manager: RmtIOManager, tmp_path: Path
) -> None:
    """The days before and after it are stored, and Dagster has them and their parts."""
    files = {day: tmp_path / f"{day}.csv" for day in DAYS}
    for day, file in files.items():
        file.write_text(f"day,id\n{day},{'x' if day == DAYS[1] else 1}\n", encoding="utf-8")
    files[DAYS[3]].unlink()
    with dg.instance_for_test() as instance:
        result = store(
            io_manager, instance, lambda: {day: ReaderConfig().file(files[day]) for day in DAYS}
        )
        [failure] = [each for each in result.all_events if each.is_step_failure]
        there = instance.get_materialized_partitions(dg.AssetKey("stored"))
        told = parts_told(instance)
        run = instance.get_run_by_id(result.run_id)
        logged = [entry.message for entry in instance.all_logs(result.run_id)]
    assert not result.success
    assert days_in(site) == sorted(there) == [DAYS[0], DAYS[2]]
    assert told == [2]
    said = str(failure.step_failure_data.error)
    assert "06.csv" in said
    assert f"2 partitions have failed: {DAYS[1]}, {DAYS[3]}. The rows of the other 2" in said
    [line] = [message for message in logged if message.startswith("stored: ")]
    assert "06.csv" in line
    assert f"2 partitions have failed: {DAYS[1]}" in line
    assert run is not None
    assert run.tags["dagster/retry_on_asset_or_op_failure"] == "false"


def test_days_that_no_table_can_have_fail_alone(site: Site, io_manager: RmtIOManager) -> None:
    first = dt.date.fromisoformat(DAYS[0])
    many = [{"day": first + dt.timedelta(days=days), "id": 1} for days in range(101)]
    each = [
        pa.table([[1], [2]], names=["id", "id"]),
        many,
        *([{"day": day}] for day in DAYS[2:]),
    ]
    with dg.instance_for_test() as instance:
        result = store(io_manager, instance, lambda: dict(zip(DAYS, each, strict=True)))
        there = instance.get_materialized_partitions(dg.AssetKey("stored"))
        run = instance.get_run_by_id(result.run_id)
        [failure] = [one for one in result.all_events if one.is_step_failure]
    said = str(failure.step_failure_data.error)
    assert f"2 partitions have failed: {DAYS[0]}, {DAYS[1]}" in said
    assert days_in(site) == sorted(there) == DAYS[2:]
    assert run is not None
    assert run.tags["dagster/retry_on_asset_or_op_failure"] == "false"


def test_the_rows_of_a_table_are_hashed_once_if_nobody_knows_which_are_of_a_day(
    site: Site, io_manager: RmtIOManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table whose rows have to be read for that may be large, and a run have hundreds of days."""
    asked: list[Sequence[str]] = []
    row_hash = io_managers.row_hash

    def noted(server: ServerContext, table: Table, conditions: Sequence[str]) -> str:
        asked.append(conditions)
        return row_hash(server, table, conditions)

    monkeypatch.setattr(io_managers, "row_hash", noted)
    given = {day: [{"day": day, "id": "x" if day == DAYS[1] else 1}] for day in DAYS}
    with dg.instance_for_test() as instance:
        assert not store(io_manager, instance, lambda: given, partition_expr="").success
        there = instance.get_materialized_partitions(dg.AssetKey("stored"))
    assert sorted(there) == [DAYS[0], *DAYS[2:]]
    assert len(asked) == 1


def test_what_was_inserted_before_a_run_failed_is_told(
    site: Site, io_manager: RmtIOManager
) -> None:
    given = {DAYS[0]: [{"day": DAYS[0], "id": 1}], DAYS[1]: "no rows, whatever this is"}
    with dg.instance_for_test() as instance:
        assert not store(io_manager, instance, lambda: given).success
        assert parts_told(instance) == [1]
        assert not instance.get_materialized_partitions(dg.AssetKey("stored"))
    assert days_in(site) == [DAYS[0]]
