"""The tables of the database `system`.

A table is made when a query names it, and only then its source is read. The columns are the
original's, as far as this engine knows a truthful value for them (spec §14). A column whose value
would never change, because it is not counted here, is left out.
"""

from collections.abc import Iterator

from rmt_pipeline.sql.system import clusters as system_clusters
from rmt_pipeline.sql.system import counted, local, work
from rmt_pipeline.sql.system import parts as system_parts
from rmt_pipeline.sql.system import replication as system_replication
from rmt_pipeline.sql.system import zookeeper as system_zookeeper
from rmt_pipeline.sql.system.scope import SystemScope, SystemTable


def _one(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    del scope
    yield (0,)


_OF_PARTS = (("bytes", "UInt64", "bytes_on_disk"), ("part_name", "String", "name"))

SYSTEM_TABLES: dict[str, SystemTable] = {
    "build_options": SystemTable(local.BUILD_OPTIONS, local.build_options),
    "clusters": SystemTable(
        system_clusters.CLUSTERS, system_clusters.clusters, (("name", "String", "cluster"),)
    ),
    "columns": SystemTable(local.COLUMNS, local.columns, (("column", "String", "name"),)),
    "databases": SystemTable(
        local.DATABASES, local.databases, (("database", "String", "name"),)
    ),
    "disks": SystemTable(counted.DISKS, counted.disks),
    "errors": SystemTable(counted.ERRORS, counted.errors),
    "events": SystemTable(counted.EVENTS, counted.events, (("name", "String", "event"),)),
    "metrics": SystemTable(counted.METRICS, counted.metrics, (("name", "String", "metric"),)),
    "replicated_fetches": SystemTable(counted.REPLICATED_FETCHES, counted.replicated_fetches),
    "detached_parts": SystemTable(system_parts.DETACHED_PARTS, system_parts.detached_parts),
    "detached_tables": SystemTable(local.DETACHED_TABLES, local.detached_tables),
    "distributed_ddl_queue": SystemTable(
        system_clusters.DISTRIBUTED_DDL_QUEUE, system_clusters.distributed_ddl_queue
    ),
    "dropped_tables": SystemTable(local.DROPPED_TABLES, local.dropped_tables),
    "formats": SystemTable(local.FORMATS, local.formats),
    "functions": SystemTable(local.FUNCTIONS, local.functions),
    "inserts": SystemTable(work.INSERTS, work.remembered_inserts),
    "lost_parts": SystemTable(system_parts.LOST_PARTS, system_parts.parts_lost),
    "macros": SystemTable(local.MACROS, local.macros),
    "merge_tree_settings": SystemTable(local.MERGE_TREE_SETTINGS, local.merge_tree_settings),
    "merges": SystemTable(work.MERGES, work.merges),
    "mutations": SystemTable(work.MUTATIONS, work.mutations),
    # Queries read it without making its rows, which have no end.
    "numbers": SystemTable((("number", "UInt64"),), lambda _: ()),
    "numbers_mt": SystemTable((("number", "UInt64"),), lambda _: ()),
    "one": SystemTable((("dummy", "UInt8"),), _one),
    "part_log": SystemTable(system_parts.PART_LOG, system_parts.part_log),
    "parts": SystemTable(system_parts.PARTS, system_parts.parts, _OF_PARTS),
    "parts_columns": SystemTable(
        system_parts.PARTS_COLUMNS, system_parts.parts_columns, _OF_PARTS
    ),
    "processes": SystemTable(counted.PROCESSES, counted.processes),
    "replicas": SystemTable(system_replication.REPLICAS, system_replication.replicas),
    "replication_queue": SystemTable(
        system_replication.REPLICATION_QUEUE, system_replication.replication_queue
    ),
    "settings": SystemTable(local.SETTINGS, local.settings),
    "table_engines": SystemTable(local.TABLE_ENGINES, local.table_engines),
    "tables": SystemTable(local.TABLES, local.tables, (("table", "String", "name"),)),
    "zookeeper": SystemTable(system_zookeeper.ZOOKEEPER, system_zookeeper.zookeeper),
}
