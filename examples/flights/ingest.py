"""The ingest asset: a day of flights is one insert, exactly once, wherever and however often.

What belongs here: partition key → rows → one insert → metadata. Your own ingest assets look
like this one. What does not: reading the source (`source`), writing events (`ledger`).
"""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from examples.flights import source
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.ledger import EventMetadata, Recorder, inserted
from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.replica.work.step import PartDone

TABLE = source.TABLE.full_name
DAYS_PER_RUN_MAX = 92
"""Of a backfill: a quarter. A run takes seconds to start, a day some milliseconds to insert."""
POOL = "ingest_flights"
"""dagster.yaml says how many runs of one pool are active at once."""

days = dg.DailyPartitionsDefinition(source.FIRST_DAY, end_date=source.END_DAY)


class IngestConfig(dg.Config):
    """Where the rows go, and in how large blocks. Neither matters for what arrives."""

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
    """The flights, daily. `servers[0]` takes them unless a run's configuration says else."""

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

        Each day is one insert with a token made of the asset, the day and the source's rows:
        run it again, on another replica, in other blocks, and it is answered as a duplicate.
        """
        server_name = config.server or servers[0]
        done: list[PartDone] = []
        with engine.server(server_name) as server:
            table = server.table(source.TABLE.name)
            for day in context.partition_keys:
                rows = source.flights_of(day)
                result = table.insert(
                    rows,
                    token=f"flights/{day}/{source.digest(rows)}",
                    settings={"max_insert_block_size": config.max_insert_block_size},
                    run_id=context.run.run_id,
                )
                done += inserted(table, result.parts)
                context.add_asset_metadata(
                    insert_metadata(result, server_name), partition_key=day
                )
            Recorder(context, table, server_name).parts(done)
        yield dg.MaterializeResult()

    return ingest


def insert_metadata(result: InsertResult, server: str) -> EventMetadata:
    """What became of one insert: rows that are new, rows that were there, and why."""
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
