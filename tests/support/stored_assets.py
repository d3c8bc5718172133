"""An asset that is stored in the table `stored` of a real server, and what came of it."""

import datetime as dt
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster._core.definitions.data_version import DATA_VERSION_TAG

from rmt_pipeline.dagster import RmtIOManager
from tests.support.site import Site

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")
CREATE = (
    "CREATE TABLE stored (day Date, id UInt64, amount Decimal(9, 2)) "
    "ENGINE = ReplicatedMergeTree('/t/{uuid}', '{replica}') PARTITION BY toYYYYMM(day) ORDER BY id"
)


def rows_of(day: str, count: int = 3) -> pa.Table:
    date = dt.date.fromisoformat(day)
    return pa.table(
        {
            "day": [date] * count,
            "id": pa.array(range(count), pa.uint64()),
            "amount": pa.array([f"{number}.50" for number in range(count)]),
        }
    )


def materialize(
    io_manager: RmtIOManager,
    assets: list[dg.AssetsDefinition],
    instance: dg.DagsterInstance,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        assets, resources={"io_manager": io_manager}, instance=instance, **options
    )


def stored(given: Any) -> dg.AssetsDefinition:
    @dg.asset(name="stored", partitions_def=DAYS, metadata={"partition_expr": "day"})
    def asset(context: dg.AssetExecutionContext) -> Any:
        return given(context.partition_keys)

    return asset


def replacing(given: Any, **metadata: Any) -> dg.AssetsDefinition:
    metadata = {"partition_expr": "day", "rmt/write": "replace"} | metadata

    @dg.asset(name="stored", partitions_def=DAYS, metadata=metadata)
    def asset(context: dg.AssetExecutionContext) -> Any:
        return given(context.partition_keys)

    return asset


def stored_rows(site: Site) -> list[tuple[str, int]]:
    found = site.r1.table("stored").dataset().to_table(["day", "id"]).to_pylist()
    return sorted((str(row["day"]), row["id"]) for row in found)


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    [event] = [
        each.materialization
        for each in result.get_asset_materialization_events()
        if each.asset_key == dg.AssetKey("stored")
    ]
    return {name: value.value for name, value in event.metadata.items()}


def versions(instance: dg.DagsterInstance, asset: str = "stored") -> list[str]:
    """Of the materializations of 5 January, the oldest first."""
    of_the_day = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=["2026-01-05"])
    found = instance.fetch_materializations(of_the_day, limit=9)
    events = [record.asset_materialization for record in reversed(found.records)]
    return [event.tags[DATA_VERSION_TAG] for event in events if event is not None]
