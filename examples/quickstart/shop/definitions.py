"""A file of the shop's orders, stored by days in a table on two servers, and the revenue of each
day.
"""

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from rmt_pipeline.dagster import RmtIOManager, rmt_resources, rmt_table

FILE = Path(__file__).with_name("orders.csv")
SERVERS = ["r1", "r2"]
AMOUNT = pa.decimal128(18, 2)

days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")


@dg.asset(
    partitions_def=days,
    backfill_policy=dg.BackfillPolicy.single_run(),
    deps=[["orders", f"{server}_replica"] for server in SERVERS],
    metadata={"partition_expr": "day"},  # which rows of the table are of a day
)
def orders(context: dg.AssetExecutionContext) -> dict[str, pa.Table]:
    """The orders of each day. However often this is run, the table has each of them once."""
    types = csv.ConvertOptions(column_types={"day": pa.string(), "amount": AMOUNT})
    rows = csv.read_csv(FILE, convert_options=types)
    return {day: rows.filter(pc.field("day") == day) for day in context.partition_keys}


@dg.asset
def revenue(orders: pa.Table) -> dg.MaterializeResult[None]:
    """The revenue of all days, read from the table."""
    by_day = orders.group_by("day").aggregate([("amount", "sum")]).sort_by("day")
    records = [
        dg.TableRecord({"day": str(row["day"]), "revenue": str(row["amount_sum"])})
        for row in by_day.to_pylist()
    ]
    return dg.MaterializeResult(
        metadata={
            "revenue": float(pc.sum(orders["amount"]).as_py()),
            "by day": dg.MetadataValue.table(records),
        }
    )


defs = dg.Definitions.merge(
    rmt_table(
        "CREATE TABLE orders (day Date, id UInt64, product String, amount Decimal(18, 2)) "
        "ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/orders', '{replica}') "
        "PARTITION BY toYYYYMM(day) ORDER BY (product, id)",
        servers=SERVERS,
        ingest=[orders],
    ),
    dg.Definitions(
        assets=[orders, revenue],
        resources={**rmt_resources(), "io_manager": RmtIOManager(server=SERVERS[0])},
        executor=dg.in_process_executor,
    ),
)
