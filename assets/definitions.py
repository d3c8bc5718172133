"""The code location: everything merged. `workspace.yaml` points here.

Loading it does no I/O: it opens no session and reads no file. Two things come from the
environment, names with commas between them: RMT_REPLICA, the servers of this location, and
RMT_TABLES, tables (`database.table`) beside the flights that have assets and checks of their own.
Sensors and workers serve every table of a server, whether it is named here or not.
"""

import os
from collections.abc import Sequence

import dagster as dg

from assets import names
from assets.checks import checks_of
from assets.ingest import TABLE, ingest_asset
from assets.instance import SERVERS_VARIABLE
from assets.replicas import replica_asset, replica_specs
from assets.schedules import checks_schedule, clean_up_schedule
from assets.sensors import sensors_of
from assets.upkeep import clean_up_job
from assets.workers import worker_job
from resources.engine import EngineResource
from resources.spark import SparkResource

TABLES_VARIABLE = "RMT_TABLES"
LAPTOP = ("r1", "r2")


def build_definitions(
    servers: Sequence[str] = LAPTOP,
    tables: Sequence[str] = (),
    *,
    engine: EngineResource | None = None,
) -> dg.Definitions:
    """Everything for `servers`: all of a laptop's, or one host's; `tables` beside the flights."""
    if not servers:
        raise ValueError(
            f"{SERVERS_VARIABLE} names no server; write e.g. {SERVERS_VARIABLE}=r1"
        )
    ingest = ingest_asset(tuple(servers))
    sources = {TABLE: [ingest.key], **{table: [] for table in tables if table != TABLE}}
    checks = {
        server: [check for table in sources for check in checks_of(table, server)]
        for server in servers
    }
    workers = {server: [worker_job(server, pool) for pool in names.POOLS] for server in servers}
    clean_up = {server: clean_up_job(server) for server in servers}
    return dg.Definitions(
        assets=[
            ingest,
            *(replica_asset(server) for server in servers),
            *(
                spec
                for table, deps in sources.items()
                for server in servers
                for spec in replica_specs(table, server, deps)
            ),
        ],
        asset_checks=[check for server in servers for check in checks[server]],
        jobs=[job for server in servers for job in [*workers[server], clean_up[server]]],
        schedules=[
            *(checks_schedule(server, checks[server]) for server in servers),
            *(clean_up_schedule(server, clean_up[server]) for server in servers),
        ],
        sensors=[
            sensor for server in servers for sensor in sensors_of(server, workers[server])
        ],
        resources={
            "engine": engine or EngineResource(),
            "spark": SparkResource(config_path=engine.config_path if engine else ""),
        },
        executor=dg.in_process_executor,
    )


def servers_of_location() -> tuple[str, ...]:
    """What RMT_REPLICA says, else the two servers of the embedded default."""
    return _names(os.environ.get(SERVERS_VARIABLE, ",".join(LAPTOP)))


def tables_of_location() -> tuple[str, ...]:
    return _names(os.environ.get(TABLES_VARIABLE, ""))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


defs = build_definitions(servers_of_location(), tables_of_location())
