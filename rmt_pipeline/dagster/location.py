"""The tables of some servers as Dagster definitions, for a code location to merge with its own.

Making the definitions does no I/O: no session is opened and no file is read. The environment may
say which servers and tables a location has: RMT_REPLICA names servers, and RMT_TABLES names tables
(`database.table`), with commas between the names.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import dagster as dg

from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.instance import SERVERS_VARIABLE
from rmt_pipeline.dagster.maintenance.jobs import STORES_NOTHING, maintenance_jobs
from rmt_pipeline.dagster.replicas import replica_asset, replica_specs
from rmt_pipeline.dagster.spark import SparkResource
from rmt_pipeline.dagster.upkeep.checks import checks_of, checks_schedule
from rmt_pipeline.dagster.upkeep.clean_up import clean_up_job, clean_up_schedule
from rmt_pipeline.dagster.work.sensors import sensors_of
from rmt_pipeline.dagster.work.workers import worker_job
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.work.pools import POOLS
from rmt_pipeline.sql.define.table import define_table
from rmt_pipeline.syntax.statements.nodes import CreateTable
from rmt_pipeline.syntax.statements.parse import parse

TABLES_VARIABLE = "RMT_TABLES"
DEFAULT_DATABASE = "default"
LAPTOP = ("r1", "r2")
"""The names of the two servers of the embedded default."""


def rmt_table(
    table: str | TableDefinition,
    *,
    servers: Sequence[str],
    ingest: Sequence[dg.AssetKey | dg.AssetsDefinition | str] = (),
    jobs: bool = True,
) -> dg.Definitions:
    """A replicated table beside a project's own assets, in one statement:

        defs = dg.Definitions.merge(
            dg.Definitions(assets=[orders]),
            rmt_table("CREATE TABLE orders (…) ENGINE = … ORDER BY id", servers=["r1", "r2"],
                      ingest=[orders]),
        )

    On each of `servers` the definitions have an asset that creates the replica, the assets of its
    parts and partitions, and its checks. The jobs of workers and clean-up, the schedules and the
    sensors are there once for all tables of a server.

    `jobs`: False when another code location has the jobs and sensors of these servers. They serve
    all tables of a server; here are then this table's assets and checks, and a schedule for these.

    `ingest`: the assets that insert into the table. The location has to provide the resources, see
    `rmt_resources`. Raises ValueError without servers, and a UserError that names what is wrong
    with the CREATE TABLE.
    """
    definition = definition_of(table) if isinstance(table, str) else table
    _require_any(servers)
    given = machinery if jobs else checking
    return dg.Definitions.merge(*map(given, servers), assets_of(definition, servers, ingest))


def assets_of(
    table: TableDefinition,
    servers: Sequence[str],
    ingest: Sequence[dg.AssetKey | dg.AssetsDefinition | str] = (),
) -> dg.Definitions:
    """The part of `rmt_table` that belongs to the table itself: its assets and checks on each
    server.
    """
    keys = [key for each in ingest for key in _keys(each)]
    return dg.Definitions.merge(
        dg.Definitions(assets=[replica_asset(table, server) for server in servers]),
        *_parts_and_checks(servers, {table.full_name: keys}),
    )


@functools.cache
def rmt_resources(config_path: str = "") -> Mapping[str, object]:
    """The resources that `rmt_table` needs in a location: `engine` and `spark`, both configured by
    rmt.toml. Returns the same objects each time, so that definitions with them may be merged.
    """
    engine = EngineResource.configure_at_launch().get_resource_definition()
    return MappingProxyType(
        {
            # The launchpad does not ask for what is configured here.
            "engine": engine.configured({"config_path": config_path}),
            "spark": SparkResource(config_path=config_path),
        }
    )


def definition_of(sql: str) -> TableDefinition:
    """The table of a CREATE TABLE statement. Raises UserError, also for any other statement."""
    statement = parse(sql)
    if not isinstance(statement, CreateTable):
        raise UserError(
            f"rmt_table takes a CREATE TABLE statement, not {type(statement).__name__}"
        )
    if statement.syntax is None or not statement.syntax.columns or statement.query is not None:
        raise UserError(
            "rmt_table takes a CREATE TABLE statement that says all of the table: columns and"
            " engine, without AS"
        )
    return define_table(statement.table, statement.syntax, DEFAULT_DATABASE)


def _keys(of: dg.AssetKey | dg.AssetsDefinition | str) -> Sequence[dg.AssetKey]:
    if isinstance(of, dg.AssetsDefinition):
        return list(of.keys)
    return [of if isinstance(of, dg.AssetKey) else dg.AssetKey.from_user_string(of)]


def replicated_tables(
    servers: Sequence[str], tables: Mapping[str, Sequence[dg.AssetKey]]
) -> dg.Definitions:
    """Assets and checks of tables that are created elsewhere, and the jobs, schedules and sensors
    of `servers`.

    `tables`: those that get assets and checks of their own, each with the assets that insert into
    it. Sensors and workers serve every table of a server, whether it is named here or not.
    Definitions of several calls may be merged. Raises ValueError when there is no server.
    """
    _require_any(servers)
    return dg.Definitions.merge(
        *(machinery(server) for server in servers), *_parts_and_checks(servers, tables)
    )


def _require_any(servers: Sequence[str]) -> None:
    if not servers:
        raise ValueError(
            f"{SERVERS_VARIABLE} names no server; write e.g. {SERVERS_VARIABLE}=r1"
        )


def _parts_and_checks(
    servers: Sequence[str], tables: Mapping[str, Sequence[dg.AssetKey]]
) -> list[dg.Definitions]:
    return [
        dg.Definitions(
            assets=replica_specs(table, server, deps),
            asset_checks=checks_of(table, server),
        )
        for server in servers
        for table, deps in tables.items()
    ]


@functools.cache
def machinery(server: str) -> dg.Definitions:
    """The jobs, schedules and sensors that a server has once, however many tables it holds. Returns
    the same objects each time, which Dagster takes for one when definitions are merged.
    """
    workers = [worker_job(server, pool) for pool in POOLS]
    clean_up = clean_up_job(server)
    return dg.Definitions.merge(
        checking(server),
        dg.Definitions(
            jobs=[*workers, clean_up, *maintenance_jobs(server)],
            schedules=[clean_up_schedule(server, clean_up)],
            sensors=sensors_of(server, workers),
            resources={STORES_NOTHING: dg.mem_io_manager},
        ),
    )


@functools.cache
def checking(server: str) -> dg.Definitions:
    """The schedule of the checks of this location's tables on a server; the same object each
    time.
    """
    return dg.Definitions(schedules=[checks_schedule(server)])


def servers_of_location() -> tuple[str, ...]:
    """The servers that RMT_REPLICA names; if it is not set, the two servers of the embedded
    default.
    """
    return _names(os.environ.get(SERVERS_VARIABLE, ",".join(LAPTOP)))


def tables_of_location() -> tuple[str, ...]:
    """The tables that RMT_TABLES names; if it is not set, none."""
    return _names(os.environ.get(TABLES_VARIABLE, ""))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
