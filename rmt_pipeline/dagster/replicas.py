"""The assets of a table on each server: its replica, its parts and its partitions.

Materializing `replica` creates it. `parts` and `partitions` are never materialized by a run of
their own: inserts and workers report events to them (`ledger`), which are their history. `health`
has the checks.
"""

import datetime as dt
import shlex
from collections.abc import Sequence
from dataclasses import replace

import dagster as dg

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.failures import log_failure, try_no_more
from rmt_pipeline.protocol.errors import DiskFull, UnknownDatabase, UserError
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.partitions.from_table import table_difference
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.types.escapes import quote_name

DELAY_MAX_S = 300.0
"""A replica that is this far behind the others, or further, is not up to date."""

DIFFERENCE = "differs from its declaration"
"""A key in the metadata of a replica that was there before, by another statement."""
_FRESHNESS = dg.FreshnessPolicy.time_window(
    fail_window=dt.timedelta(minutes=30), warn_window=dt.timedelta(minutes=15)
)
"""Clean-up materializes the replica's asset every five minutes while the replica is up to date."""


def replica_asset(table: TableDefinition, server: str) -> dg.AssetsDefinition:
    """The asset that creates `table` on a server. Materializing it again changes nothing.

    The table's path in ZooKeeper may contain the server's macros.
    """

    @dg.asset(
        key=names.replica_key(table.full_name, server),
        group_name=names.group_name(table.full_name),
        kinds={"zookeeper"},
        freshness_policy=_FRESHNESS,
        description=(
            f"The table's replica on server {server}. Materialize it to create the table there; "
            "if it is there, nothing changes. The clean-up job materializes it every five minutes "
            f"while it is less than {DELAY_MAX_S:.0f} s behind the other replicas, so a stale "
            "asset means a replica that is behind."
        ),
    )
    def replica(
        context: dg.AssetExecutionContext, engine: EngineResource
    ) -> dg.MaterializeResult[None]:
        with engine.server(server) as opened:
            created = _create(context, opened, table)
            definition = opened.table(table.name, table.database).definition
            metadata: dict[str, str | bool] = {
                "created": created,
                "zookeeper path": definition.engine.zookeeper_path,
                "replica": definition.engine.replica,
                "directory": str(opened.catalog.table_directory(definition)),
            }
            if difference := declared_otherwise(table, definition):
                metadata[DIFFERENCE] = difference
                context.log.warning(
                    "the first is declared, the second is there, and stays as it is: %s. ALTER "
                    "TABLE changes the table, on all replicas; or correct the declaration",
                    difference,
                )
            return dg.MaterializeResult(
                data_version=replica_version(definition), metadata=metadata
            )

    return replica


def _create(
    context: dg.AssetExecutionContext, server: ServerContext, table: TableDefinition
) -> bool:
    """Create the table unless it is there; whether it was created. Raises UserError, for which
    Dagster does not try again; DiskFull, for which it does: a disk gets room again.
    """
    try:
        return server.create_table(table, if_not_exists=True)
    except UserError as error:
        if isinstance(error, UnknownDatabase):
            error.add_note(
                f"It is made by: rmt sql --server {server.server.name} "
                f"{shlex.quote(f'CREATE DATABASE {quote_name(table.database)}')}"
            )
        log_failure(context.log, table.full_name, error)
        if not isinstance(error, DiskFull):
            try_no_more(context.instance, context.run.run_id)
        raise


def declared_otherwise(declared: TableDefinition, there: TableDefinition) -> str:
    """The first difference between a table and its declaration, in words; "" if none. The path and
    the replica's name of both may be written with macros.
    """
    if found := table_difference(declared, there):
        return found
    place = there.engine
    alike = replace(
        declared.engine,
        zookeeper_path=place.zookeeper_path,
        replica=place.replica,
        typed_path=place.typed_path,
        typed_replica=place.typed_replica,
    )
    first, second = _clauses(replace(declared, engine=alike)), _clauses(there)
    mine = next((line for line in first if line not in second), "")
    theirs = next((line for line in second if line not in first), "")
    if not (mine or theirs):
        return ""
    return f"{mine or 'nothing'} in the first, {theirs or 'nothing'} in the second"


def _clauses(definition: TableDefinition) -> list[str]:
    lines = create_query(definition, lines=True).splitlines()
    return [line.strip().removesuffix(",") for line in lines]


def replica_version(definition: TableDefinition) -> dg.DataVersion:
    """A data version that stays the same as long as it is the same replica. If it changed, each
    event which says that the replica keeps up would make the assets that insert into the table
    "unsynced".
    """
    engine = definition.engine
    return dg.DataVersion(f"{engine.zookeeper_path}/replicas/{engine.replica}")


def replica_specs(table: str, server: str, deps: Sequence[dg.AssetKey]) -> list[dg.AssetSpec]:
    """The two assets that inserts and workers report to, and the one that the checks belong to.
    `deps` are the assets that insert into the table.
    """
    group = names.group_name(table)
    parts = names.parts_key(table, server)
    tags = {names.SERVER_TAG: server}
    return [
        dg.AssetSpec(
            parts,
            deps=deps,
            group_name=group,
            tags=tags,
            kinds={"parquet"},
            description=(
                f"The parts of {table} on server {server}. Each event is an insert or a flush "
                "of a worker: which parts were inserted, fetched or merged, from what, and by "
                "which run."
            ),
        ),
        dg.AssetSpec(
            names.partitions_key(table, server),
            deps=[parts],
            group_name=group,
            tags=tags,
            partitions_def=names.partitions_of(table),
            kinds={"parquet"},
            description=(
                f"The partitions of {table} on server {server}: rows, bytes, active parts, and "
                "the row hash, which is equal on every replica that holds the same rows."
            ),
        ),
        dg.AssetSpec(
            names.health_key(table, server),
            deps=[parts],
            group_name=group,
            tags=tags,
            description=(
                f"The checks of {table} on server {server}. It is never materialized, so that a "
                "check's result stays until the check runs again."
            ),
        ),
    ]
