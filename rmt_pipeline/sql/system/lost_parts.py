"""system.lost_parts: parts that no replica had any more, and the inserts to repeat. Ours."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from rmt_pipeline.protocol.errors import ReplicaRetired
from rmt_pipeline.replica.upkeep.lost import lost_parts
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import SystemScope

LOST_PARTS: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("name", "String"),
    ("partition_id", "String"),
    ("replaced_time", "DateTime"),
    ("replica_name", "String"),
    # Of the inserts that are remembered, those that had rows in it.
    ("insert_ids", "Array(String)"),
)


def parts_lost(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    for definition in scope.server.catalog.definitions():
        with suppress(ReplicaRetired):
            found = lost_parts(scope.server.table_of(definition).replica)
            for part, note in sorted(found.items()):
                yield (
                    definition.database,
                    definition.name,
                    str(part),
                    part.partition,
                    datetime.fromtimestamp(note.replaced_s, UTC),
                    note.replica,
                    list(note.inserts),
                )
