"""What things are called in Dagster: asset keys, groups, partitions, jobs, tags.

One home for every name: renaming one loses the history that Dagster has under the old name.
"""

import re

import dagster as dg

from rmt_pipeline.replica.work.pools import Pool

WORKER_TAG = "rmt/worker"
SERVER_TAG = "rmt/server"

_DEFAULT_DATABASE = "default."
_NOT_IN_IDENTIFIERS = re.compile(r"[^A-Za-z0-9_]")


def table_key(table: str) -> tuple[str, ...]:
    """`default.flights` is `flights`, `sales.orders` is `sales/orders`."""
    return tuple(table.removeprefix(_DEFAULT_DATABASE).split(".", 1))


# Dagster's lineage shows the last part of a key only: so the server is in it.


def replica_key(table: str, server: str) -> dg.AssetKey:
    """The asset of a table's replica on one server: `flights/s1_replica`."""
    return dg.AssetKey([*table_key(table), f"{server}_replica"])


def parts_key(table: str, server: str) -> dg.AssetKey:
    """The asset of the parts that workers of one server make: `flights/s1_parts`."""
    return dg.AssetKey([*table_key(table), f"{server}_parts"])


def partitions_key(table: str, server: str) -> dg.AssetKey:
    """The partitioned asset that shows a table's partitions on one server:
    `flights/s1_partitions`.
    """
    return dg.AssetKey([*table_key(table), f"{server}_partitions"])


def health_key(table: str, server: str) -> dg.AssetKey:
    """What the checks belong to."""
    return dg.AssetKey([*table_key(table), f"{server}_health"])


def export_key(table: str, server: str, form: str) -> dg.AssetKey:
    """The asset of a table's export by one server; `form` is delta or iceberg:
    `flights/s1_delta`.
    """
    return dg.AssetKey([*table_key(table), f"{server}_{form}"])


def group_name(table: str) -> str:
    """The group that all assets of a table are in, whichever server they are of."""
    return dagster_name("_".join(table_key(table)))


def partitions_of(table: str) -> dg.DynamicPartitionsDefinition:
    """The table's partitions, by their ids; the replicas share them."""
    return dg.DynamicPartitionsDefinition(name=partitions_name(table))


def partitions_name(table: str) -> str:
    """What Dagster calls the set of the table's partitions: `flights_partition`."""
    return f"{'_'.join(table_key(table))}_partition"


def worker_tag(server: str, pool: Pool) -> str:
    """The value of WORKER_TAG: at most one run per value is active."""
    return f"{server}:{pool}"


def worker_job_name(server: str, pool: Pool) -> str:
    """The job whose runs work in one pool of a server: `merge_parts_s1`."""
    return f"{pool}_parts_{dagster_name(server)}"


def dagster_name(text: str) -> str:
    """`text` as a name that Dagster takes for jobs, ops, sensors and groups."""
    return _NOT_IN_IDENTIFIERS.sub("_", text)
