"""system.inserts (ours: the original has none), system.merges and system.mutations."""

from collections.abc import Iterator
from datetime import UTC, datetime

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.replica.insert.report import InsertReport
from rmt_pipeline.replica.mutations.request import MutationReport
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.running import RunningMerge, running_merges
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import Row, SystemScope
from rmt_pipeline.syntax.mutation import parse_commands

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
    # Partitions in which some blocks of the insert are missing.
    ("incomplete_partition_ids", "Array(String)"),
    # The active parts here that have its rows now, perhaps with other rows.
    ("parts", "Array(String)"),
    ("parts_awaiting_quorum", "Array(String)"),
)


def remembered_inserts(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.inserts: the inserts that are remembered."""
    return scope.of_replicas(lambda table: map(_insert_row, table.inserts()))


def _insert_row(report: InsertReport) -> Row:
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
    ("total_rows", "UInt64"),  # of the sources: the final value of rows_read
    ("replica_name", "String"),
    ("executed_by", "String"),  # the worker that has claimed it (design §4)
)
_MERGE_TYPES = {1: "Regular", 2: "TTLDelete", 3: "TTLRecompress"}


def merges(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.merges: what runs in every table here, in each the oldest claim first."""
    return scope.of_replicas(
        lambda table: (_merge_row(table.replica, one) for one in running_merges(table.replica))
    )


def _merge_row(replica: Replica, merge: RunningMerge) -> Row:
    entry = merge.entry
    return (
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


MUTATIONS: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("mutation_id", "String"),
    ("command", "String"),
    ("create_time", "DateTime"),
    ("block_numbers.partition_id", "Array(String)"),
    ("block_numbers.number", "Array(Int64)"),
    ("parts_in_progress_names", "Array(String)"),
    ("parts_to_do_names", "Array(String)"),
    ("parts_to_do", "Int64"),
    ("is_done", "UInt8"),
    ("latest_failed_part", "String"),
    ("latest_fail_time", "DateTime"),
    ("latest_fail_reason", "String"),
    # What an unfinished mutation waits for, in words; the original does not show it.
    ("waits_for", "String"),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def mutations(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.mutations: one for each command, as in the original."""
    return scope.of_replicas(
        lambda table: (
            _mutation_row(report, command)
            for report in table.mutations()
            for command in _commands(report.status.entry.commands)
        )
    )


def _commands(text: str) -> list[str]:
    try:
        return [str(command) for command in parse_commands(text)]
    except UserError:
        return [text]  # of a newer version; it is shown as it is


def _mutation_row(report: MutationReport, command: str) -> Row:
    status, failure = report.status, report.failure
    numbers = status.entry.block_numbers
    return (
        status.mutation_id,
        command,
        datetime.fromtimestamp(status.entry.create_time, UTC),
        [partition for partition, _ in numbers],
        [number for _, number in numbers],
        [str(part) for part in report.in_progress],
        [str(part) for part in status.parts_to_do],
        len(status.parts_to_do),
        int(status.is_done),
        "" if failure is None else str(failure.part),
        _EPOCH if failure is None else datetime.fromtimestamp(failure.time_s, UTC),
        "" if failure is None else failure.reason,
        report.waits_for,
    )
