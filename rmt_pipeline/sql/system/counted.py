"""What is counted and measured on this host: system.events, errors, metrics, disks, and the fetches
and statements that run. The server's `/metrics` gives Prometheus the same events, for each table.
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from rmt_pipeline.catalog.running import running_statements
from rmt_pipeline.protocol.errors import ReplicaDropped, UnknownTable
from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.parts.set import of_disk
from rmt_pipeline.replica.work.running import running_merges
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import Row, SystemScope
from rmt_pipeline.store.tally import ErrorCount, total

EVENTS: Columns = (("event", "String"), ("value", "UInt64"), ("description", "String"))


def events(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.events: those that happened since the tables were made here, in
    all processes.
    """
    counts = total(table.store.part_log.counts.read() for table in scope.server.tables())
    for event in ProfileEvent:
        if counts[event]:
            yield event.event, counts[event], event.text


ERRORS: Columns = (
    ("name", "String"),
    ("value", "UInt64"),
    ("last_error_time", "DateTime"),
    ("last_error_message", "String"),
)


def errors(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.errors: errors of statements and of queue entries, in all processes of this
    host.
    """
    found: dict[str, ErrorCount] = {}
    counted = [scope.server.errors, *(table.store.errors for table in scope.server.tables())]
    for one in counted:
        for code, error in one.read().items():
            before = found.get(code, ErrorCount(0, 0, ""))
            latest = max(before, error, key=lambda other: other.last_s)
            found[code] = latest._replace(times=before.times + error.times)
    for code, error in sorted(found.items()):
        yield code, error.times, datetime.fromtimestamp(error.last_s, UTC), error.last_message


METRICS: Columns = (("metric", "String"), ("value", "Int64"), ("description", "String"))


def metrics(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.metrics: the current values."""
    tables = scope.server.tables()
    merges = mutations = readonly = active = outdated = fetches = 0
    for table in tables:
        fetches += len(table.store.fetches())
        with suppress(ReplicaDropped, UnknownTable):
            replica = table.replica
            running = [isinstance(one.entry, MergeParts) for one in running_merges(replica)]
            merges += sum(running)
            mutations += len(running) - sum(running)
            readonly += replica.keeper.exists(replica.paths.is_active) is None
        parts = table.store.parts()
        here = len(of_disk(parts))
        active += here
        outdated += len(parts) - here
    yield "Merge", merges, "Merges that run on this host"
    yield "PartMutation", mutations, "Mutations of a part that run on this host"
    yield "ReplicatedFetch", fetches, "Parts that are being fetched by this host"
    yield "ReadonlyReplica", readonly, "Tables of this server that are read-only"
    yield "PartsActive", active, "Parts on this disk that no other one contains"
    yield "PartsOutdated", outdated, "Parts on this disk that wait for clean-up"


DISK_NAME = "default"
DISKS: Columns = (
    ("name", "String"),
    ("path", "String"),
    ("free_space", "UInt64"),
    ("total_space", "UInt64"),
    ("unreserved_space", "UInt64"),
    ("type", "String"),
)


def disks(scope: SystemScope) -> Iterator[Row]:
    """The row of system.disks: the disk of the data directory."""
    data = scope.server.catalog.data
    usage = shutil.disk_usage(data)
    yield DISK_NAME, f"{data}/", usage.free, usage.total, usage.free, "Local"


REPLICATED_FETCHES: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("elapsed", "Float64"),
    ("progress", "Float64"),
    ("result_part_name", "String"),
    ("result_part_path", "String"),
    ("partition_id", "String"),
    ("total_size_bytes_compressed", "UInt64"),
    ("bytes_read_compressed", "UInt64"),
    ("source_replica_path", "String"),
    ("source_replica_hostname", "String"),
    ("source_replica_port", "UInt16"),
    ("interserver_scheme", "String"),
    ("URI", "String"),
)


def replicated_fetches(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.replicated_fetches: the fetches that run now, in all processes of
    this host.
    """
    now_s = scope.server.clock.now_s()
    return scope.of_replicas(
        lambda table: (
            (
                max(0.0, now_s - note.started_s),
                received / note.total_bytes if note.total_bytes else 0.0,
                str(part),
                f"{table.store.directory(part)}/",
                part.partition,
                note.total_bytes,
                received,
                note.source_path,
                note.host,
                note.port,
                note.scheme,
                note.uri,
            )
            for part, note, received in table.store.fetches()
        )
    )


PROCESSES: Columns = (
    ("is_initial_query", "UInt8"),
    ("user", "String"),
    ("query_id", "String"),
    ("elapsed", "Float64"),
    ("is_cancelled", "UInt8"),
    ("query", "String"),
    ("current_database", "String"),
    ("pid", "UInt32"),
)


def processes(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.processes: the statements that run now, in all processes of this host. The
    `pid` is ours.
    """
    now_s = scope.server.clock.now_s()
    for one, is_cancelled in running_statements(scope.server.catalog.data, now_s):
        yield (
            1,
            one.user,
            one.query_id,
            max(0.0, now_s - one.started_s),
            int(is_cancelled),
            one.query,
            one.database,
            one.pid,
        )
