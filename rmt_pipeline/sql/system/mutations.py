"""system.mutations: every mutation of the tables here, as this server's replica sees it."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from rmt_pipeline.protocol.errors import ReplicaRetired, UserError
from rmt_pipeline.replica.mutations.request import MutationReport
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import SystemScope
from rmt_pipeline.syntax.mutation import parse_commands

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
    # What an unfinished one waits for, in words; the original leaves that to be guessed.
    ("waits_for", "String"),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def mutations(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    """One row for each command, as in the original."""
    for definition in scope.server.catalog.definitions():
        with suppress(ReplicaRetired):
            for report in scope.server.table_of(definition).mutations():
                for command in _commands(report.status.entry.commands):
                    yield (definition.database, definition.name, *_row(report, command))


def _commands(text: str) -> list[str]:
    try:
        return [str(command) for command in parse_commands(text)]
    except UserError:
        return [text]  # of a newer version; it is shown all the same


def _row(report: MutationReport, command: str) -> tuple[object, ...]:
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
