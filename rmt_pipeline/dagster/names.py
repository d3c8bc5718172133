"""The names of things in Dagster: asset keys, groups, partitions, jobs, tags.

All names are made here. Renaming one loses the history that Dagster keeps under the old name.
"""

import hashlib
import re

import dagster as dg

from rmt_pipeline.replica.work.pools import Pool

WORKER_TAG = "rmt/worker"
SERVER_TAG = "rmt/server"
KIND_TAG = "rmt/kind"
"""What a job is for: worker, clean-up or check, which start by themselves; or maintenance, which a
person starts. Dagster has no groups of jobs; its page of runs can be filtered by tags.
"""

_DEFAULT_DATABASE = "default"
_NOT_IN_IDENTIFIERS = re.compile(r"[^A-Za-z0-9_]")
_IN_KEYS = re.compile(r"[A-Za-z0-9_-]+")


def table_key(table: str) -> tuple[str, ...]:
    """The beginning of a table's asset keys: `flights` for `default.flights`, `sales/orders` for
    `sales.orders`. Dagster makes names of ops from asset keys: of a name that has other characters
    than these may have, `über`, they are replaced, and a hash of it is added, `_ber_b51c85`.
    """
    database, dot, name = table.partition(".")
    if not dot:
        database, name = _DEFAULT_DATABASE, table
    return tuple(map(_key_part, [name] if database == _DEFAULT_DATABASE else [database, name]))


def _key_part(name: str) -> str:
    if _IN_KEYS.fullmatch(name):
        return name
    return f"{dagster_name(name)}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


# Dagster's lineage shows only the last part of a key, so the server's name is in that part.


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
    """The asset that the checks of a table on one server belong to: `flights/s1_health`."""
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
    """The table's partitions, named by their ids. All replicas share this definition."""
    return dg.DynamicPartitionsDefinition(name=partitions_name(table))


def partitions_name(table: str) -> str:
    """Dagster's name for the set of the table's partitions: `flights_partition`,
    `sales.orders_partition`.
    """
    return f"{'.'.join(table_key(table))}_partition"


def earlier_partitions_name(table: str) -> str:
    """As `partitions_name` was in earlier builds: `sales_orders_partition`, which is that of the
    table `default.sales_orders`, too.
    """
    return f"{'_'.join(table_key(table))}_partition"


def worker_tag(server: str, pool: Pool) -> str:
    """The value of WORKER_TAG. At most one run with the same value is active."""
    return f"{server}:{pool}"


def worker_job_name(server: str, pool: Pool) -> str:
    """The job whose runs work in one pool of a server: `merge_parts_s1`."""
    return f"{pool}_parts_{dagster_name(server)}"


def dagster_name(text: str) -> str:
    """`text` with everything replaced that Dagster forbids in names of jobs, ops, sensors and
    groups.
    """
    return _NOT_IN_IDENTIFIERS.sub("_", text)
