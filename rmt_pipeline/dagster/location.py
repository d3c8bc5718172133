"""The tables of some servers as Dagster definitions: what a code location merges with its own.

Making them does no I/O: it opens no session and reads no file. Which servers and tables a
location has may come from the environment, names with commas between them: RMT_REPLICA, the
servers, and RMT_TABLES, tables (`database.table`).
"""

import os
from collections.abc import Mapping, Sequence

import dagster as dg

from rmt_pipeline.dagster.checks import checks_of
from rmt_pipeline.dagster.clean_up import clean_up_job
from rmt_pipeline.dagster.instance import SERVERS_VARIABLE
from rmt_pipeline.dagster.replicas import replica_specs
from rmt_pipeline.dagster.schedules import checks_schedule, clean_up_schedule
from rmt_pipeline.dagster.sensors import sensors_of
from rmt_pipeline.dagster.workers import worker_job
from rmt_pipeline.replica.work.execute import POOLS

TABLES_VARIABLE = "RMT_TABLES"
LAPTOP = ("r1", "r2")
"""The two servers of the embedded default."""


def replicated_tables(
    servers: Sequence[str], tables: Mapping[str, Sequence[dg.AssetKey]]
) -> dg.Definitions:
    """Assets, checks, worker and clean-up jobs, schedules and sensors of `servers`.

    `tables`: those with assets and checks of their own, and the assets that insert into each.
    Sensors and workers serve every table of a server, whether it is named here or not. The
    resources `engine` (EngineResource) and `spark` (SparkResource) are the location's to give.
    Raises ValueError when there is no server.
    """
    if not servers:
        raise ValueError(
            f"{SERVERS_VARIABLE} names no server; write e.g. {SERVERS_VARIABLE}=r1"
        )
    return dg.Definitions.merge(*(_of_server(server, tables) for server in servers))


def _of_server(server: str, tables: Mapping[str, Sequence[dg.AssetKey]]) -> dg.Definitions:
    checks = [check for table in tables for check in checks_of(table, server)]
    workers = [worker_job(server, pool) for pool in POOLS]
    clean_up = clean_up_job(server)
    return dg.Definitions(
        assets=[
            spec
            for table, deps in tables.items()
            for spec in replica_specs(table, server, deps)
        ],
        asset_checks=checks,
        jobs=[*workers, clean_up],
        schedules=[
            *([checks_schedule(server, checks)] if checks else []),
            clean_up_schedule(server, clean_up),
        ],
        sensors=sensors_of(server, workers),
    )


def servers_of_location() -> tuple[str, ...]:
    """What RMT_REPLICA says, else the two servers of the embedded default."""
    return _names(os.environ.get(SERVERS_VARIABLE, ",".join(LAPTOP)))


def tables_of_location() -> tuple[str, ...]:
    """What RMT_TABLES says, else none."""
    return _names(os.environ.get(TABLES_VARIABLE, ""))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
