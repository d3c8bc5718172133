"""system.inserts: the inserts that the tables here remember. Ours: the original has none."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from rmt_pipeline.protocol.errors import ReplicaRetired
from rmt_pipeline.replica.insert.report import InsertReport
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import SystemScope

INSERTS: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("insert_id", "String"),
    ("state", "String"),
    ("insert_time", "DateTime"),
    ("replica_name", "String"),
    ("run_id", "String"),
    ("rows", "UInt64"),
    ("rows_in", "UInt64"),
    ("blocks", "UInt64"),
    ("partition_ids", "Array(String)"),
    # Of these some blocks are lost and others are in.
    ("incomplete_partition_ids", "Array(String)"),
    # The active parts here that have its rows now, perhaps among others.
    ("parts", "Array(String)"),
    ("parts_awaiting_quorum", "Array(String)"),
)


def remembered_inserts(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    """Rows of system.inserts. Tables whose replica is gone from ZooKeeper are left out."""
    for definition in scope.server.catalog.definitions():
        with suppress(ReplicaRetired):
            for report in scope.server.table_of(definition).inserts():
                yield (definition.database, definition.name, *_row(report))


def _row(report: InsertReport) -> tuple[object, ...]:
    record = report.record
    return (
        report.insert_id,
        str(report.state),
        datetime.fromtimestamp(record.created_s, UTC),
        record.replica,
        record.run_id,
        record.rows,
        record.rows_there,
        record.blocks,
        sorted({line.partition for line in report.lines}),
        [one.partition for one in record.missing],
        [str(part) for part in report.parts],
        [str(part) for part in report.awaiting],
    )
