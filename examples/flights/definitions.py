"""The code location of the flights: the table on each server, the ingest asset, and jobs and
sensors.
"""

from collections.abc import Sequence

import dagster as dg

from examples.flights import source
from examples.flights.ingest import ingest_asset
from rmt_pipeline.dagster.location import (
    LAPTOP,
    replicated_tables,
    rmt_resources,
    servers_of_location,
)
from rmt_pipeline.dagster.replicas import replica_asset


def build_definitions(
    servers: Sequence[str] = LAPTOP, *, config_path: str = ""
) -> dg.Definitions:
    """All definitions for `servers`. `config_path` is passed to the engine resource."""
    ingest = ingest_asset(tuple(servers))
    return dg.Definitions.merge(
        replicated_tables(servers, {source.TABLE.full_name: [ingest.key]}),
        dg.Definitions(
            assets=[ingest, *(replica_asset(source.TABLE, server) for server in servers)],
            resources=dict(rmt_resources(config_path)),
            executor=dg.in_process_executor,
        ),
    )


defs = build_definitions(servers_of_location())
