"""system.merges: the merges and mutations that run now on the replicas of this server."""

from collections.abc import Iterator
from contextlib import suppress

from rmt_pipeline.protocol.errors import ReplicaRetired
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.running import RunningMerge, running_merges
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import SystemScope

MERGES: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("elapsed", "Float64"),
    ("progress", "Float64"),
    ("num_parts", "UInt64"),
    ("source_part_names", "Array(String)"),
    ("result_part_name", "String"),
    ("source_part_paths", "Array(String)"),
    ("result_part_path", "String"),
    ("partition_id", "String"),
    ("partition", "String"),
    ("is_mutation", "UInt8"),
    ("total_size_bytes_compressed", "UInt64"),
    ("total_size_bytes_uncompressed", "UInt64"),
    ("bytes_read_uncompressed", "UInt64"),
    ("rows_read", "UInt64"),
    ("bytes_written_uncompressed", "UInt64"),
    ("rows_written", "UInt64"),
    ("merge_type", "String"),
    ("total_rows", "UInt64"),  # of the sources: what rows_read ends at
    ("replica_name", "String"),
    ("executed_by", "String"),  # the worker that has claimed it (design §4)
)
_MERGE_TYPES = {1: "Regular", 2: "TTLDelete", 3: "TTLRecompress"}


def merges(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    """Those of every table here, the one that runs longest first. A dropped replica has none."""
    for definition in scope.server.catalog.definitions():
        replica = scope.server.table_of(definition).replica
        with suppress(ReplicaRetired):
            for merge in running_merges(replica):
                yield _row(replica, merge)


def _row(replica: Replica, merge: RunningMerge) -> tuple[object, ...]:
    definition, entry = replica.definition, merge.entry
    return (
        definition.database,
        definition.name,
        merge.elapsed_s,
        merge.share_done,
        len(merge.sources),
        [str(source) for source in merge.sources],
        str(merge.result),
        [f"{replica.store.directory(source)}/" for source in merge.sources],
        f"{replica.store.directory(merge.result)}/",
        merge.result.partition,
        merge.partition,
        int(merge.is_mutation),
        merge.bytes_on_disk,
        merge.bytes_uncompressed,
        merge.done.bytes_read,
        merge.done.rows_read,
        merge.done.bytes_written,
        merge.done.rows_written,
        _MERGE_TYPES[entry.merge_type] if isinstance(entry, MergeParts) else "",
        merge.rows,
        replica.name,
        merge.worker,
    )
