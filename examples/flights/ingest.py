"""The ingest asset: each day of flights is one insert, and arrives exactly once, however often and
on whichever server it is inserted.

This module takes a partition key, gets its rows, makes one insert and returns metadata; your own
ingest assets look like it. Reading the source is in `source`, writing events in `ledger`.
"""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from examples.flights import source
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.record.ledger import EventMetadata, Recorder, inserted
from rmt_pipeline.replica.insert.result import InsertResult

TABLE = source.TABLE.full_name
DAYS_PER_RUN_MAX = 92
"""A run of a backfill has a quarter: it takes seconds to start, and milliseconds to
insert a day.
"""
POOL = "ingest_flights"
"""dagster.yaml says how many runs of one pool may be active at once."""

days = dg.DailyPartitionsDefinition(source.FIRST_DAY, end_date=source.END_DAY)


class IngestConfig(dg.Config):
    """The server that takes the rows, and the size of blocks. Neither changes which rows arrive."""

    server: str = Field(
        default="",
        description="The server that takes the rows. Empty: the first of this location.",
    )
    max_insert_block_size: int = Field(
        default=1_048_449,
        ge=1,
        description="Rows per block; each block is a part per partition.",
    )


def ingest_asset(servers: tuple[str, ...]) -> dg.AssetsDefinition:
    """The asset of the daily flights. `servers[0]` takes them unless a run's configuration names
    another.
    """

    @dg.asset(
        name="flights",
        group_name=names.group_name(TABLE),
        partitions_def=days,
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=DAYS_PER_RUN_MAX),
        deps=[names.replica_key(TABLE, server) for server in servers],
        kinds={"parquet"},
        pool=POOL,
    )
    def ingest(
        context: dg.AssetExecutionContext, config: IngestConfig, engine: EngineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        """Every flight that left New York City in 2013, by day.

        Each day is one insert with a token made of the asset, the day and the source's rows. Run it
        again, on another replica or in other blocks, and the insert is answered as a duplicate.
        """
        server_name = config.server or servers[0]
        with engine.server(server_name) as server:
            table = server.table(source.TABLE.name)
            with Recorder(context, table, server_name).recording() as done:
                for day in context.partition_keys:
                    rows = source.flights_of(day)
                    result = table.insert(
                        rows,
                        token=f"flights/{day}/{source.digest(rows)}",
                        settings={"max_insert_block_size": config.max_insert_block_size},
                        run_id=context.run.run_id,
                    )
                    done.extend(inserted(table, result.parts))
                    context.add_asset_metadata(
                        insert_metadata(result, server_name), partition_key=day
                    )
        yield dg.MaterializeResult()

    return ingest


def insert_metadata(result: InsertResult, server: str) -> EventMetadata:
    """What became of one insert: how many rows were new, how many were there already, and why."""
    return {
        "dagster/row_count": result.rows,
        "rows duplicate": result.rows_duplicate,
        "parts": len(result.parts),
        "part names": " ".join(str(part) for part in result.parts),
        "outcome": result.outcome.value,
        "in words": result.words(),
        "insert id": result.insert_id,
        "server": server,
    }
