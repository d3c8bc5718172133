"""The code location of one replica's host, named by RMT_REPLICA. Your own assets go beside it."""

import dagster as dg

from rmt_pipeline.dagster import rmt_resources, rmt_table
from rmt_pipeline.dagster.location import servers_of_location

defs = dg.Definitions.merge(
    rmt_table(
        "CREATE TABLE orders (day Date, id UInt64, amount Decimal(18, 2)) "
        "ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/orders', '{replica}') "
        "PARTITION BY toYYYYMM(day) ORDER BY id",
        servers=servers_of_location(),
    ),
    dg.Definitions(resources=dict(rmt_resources())),
)
