"""system.replicas and system.replication_queue: what ZooKeeper has about this server's replicas."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rmt_pipeline.context import READ_PATIENCE_S
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.log.entry import (
    AttachPart,
    DropPart,
    DropRange,
    GetPart,
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
    kind_name,
    result_of,
    sources_of,
)
from rmt_pipeline.protocol.nodes.formats import number_of
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.queue.facts import Wait
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.alter.apply import structures_awaited
from rmt_pipeline.replica.missing import why_missing
from rmt_pipeline.replica.quorum import read_quorums
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import manifest_seen
from rmt_pipeline.replica.upkeep.lag import lag_of
from rmt_pipeline.replica.work.pools import queue_facts
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.local import uuid_text
from rmt_pipeline.sql.system.scope import Row, SystemScope
from rmt_pipeline.store.tally import NEVER_POSTPONED
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.paths import TablePaths, sequence_number
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot, queue_snapshot, replica_states

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

REPLICAS: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("uuid", "UUID"),
    ("engine", "String"),
    ("is_leader", "UInt8"),
    ("can_become_leader", "UInt8"),
    ("is_readonly", "UInt8"),
    ("is_session_expired", "UInt8"),
    ("future_parts", "UInt32"),
    ("parts_to_check", "UInt32"),  # found broken or gone, and not fetched again yet
    ("zookeeper_path", "String"),
    ("replica_name", "String"),
    ("replica_path", "String"),
    ("columns_version", "Int32"),
    ("queue_size", "UInt32"),
    ("inserts_in_queue", "UInt32"),
    ("merges_in_queue", "UInt32"),
    ("part_mutations_in_queue", "UInt32"),
    ("queue_oldest_time", "DateTime"),
    ("inserts_oldest_time", "DateTime"),
    ("merges_oldest_time", "DateTime"),
    ("part_mutations_oldest_time", "DateTime"),
    ("oldest_part_to_get", "String"),
    ("oldest_part_to_merge_to", "String"),
    ("oldest_part_to_mutate_to", "String"),
    ("log_max_index", "UInt64"),
    ("log_pointer", "UInt64"),
    ("last_queue_update", "DateTime"),
    ("absolute_delay", "UInt64"),
    ("total_replicas", "UInt32"),
    ("active_replicas", "UInt32"),
    ("lost_part_count", "UInt64"),
    ("zookeeper_exception", "String"),
    ("replica_is_active", "Map(String, UInt8)"),
    ("replica_state", "Map(String, String)"),  # why one is not active: detached, lost (ours)
    ("parts_awaiting_quorum", "Array(String)"),
    ("stopped", "Array(String)"),  # by hand, with SYSTEM STOP (ours)
)


def replicas(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.replicas: one for each table of this server, except for those whose replica
    was dropped.

    While ZooKeeper does not answer, `zookeeper_exception` has the reason, and what only ZooKeeper
    knows is 0 or empty. That is waited for once, whatever the number of tables.
    """

    def row(table: Table) -> Iterator[Row]:
        try:
            scope.server.keeper(READ_PATIENCE_S)
            yield _replica_row(table.replica)
        except Unavailable as error:
            yield _unknown_row(table, str(error))

    return _of_replicated(scope, row)


def _unknown_row(table: Table, problem: str) -> Row:
    definition = table.definition
    engine = definition.engine
    known: dict[str, object] = {
        "database": definition.database,
        "table": definition.name,
        "uuid": uuid_text(definition.uuid),
        "engine": engine.name,
        "is_readonly": 1,
        "is_session_expired": 1,
        "zookeeper_path": engine.zookeeper_path,
        "replica_name": engine.replica,
        "replica_path": TablePaths(engine.zookeeper_path).replica(engine.replica).root,
        "zookeeper_exception": problem,
        "stopped": sorted(what.value for what in table.store.marks.stopped()),
    }
    return tuple(known.get(name, parse_type(data_type).default) for name, data_type in REPLICAS)


def _replica_row(replica: Replica) -> Row:
    keeper, paths, table = replica.keeper, replica.paths, replica.table
    snapshot = _snapshot(replica)
    queue = _Queue.of(snapshot)
    states = replica_states(keeper, table)
    living = {name: state == "active" for name, state in states.items()}
    nodes = [
        paths.metadata_version,
        paths.log_pointer,
        table.lost_part_count,
    ]
    reads = keeper.get_many(nodes)
    version, pointer, lost = (number_of(read[0]) if read is not None else 0 for read in reads)
    pulled_ms = 0 if reads[1] is None else reads[1][1].modified_ms
    log = keeper.children(table.log)
    is_active = living.get(replica.name, False)
    can_lead = bool(replica.settings.replicated_can_become_leader)
    return (
        replica.definition.database,
        replica.definition.name,
        uuid_text(replica.definition.uuid),
        f"Replicated{replica.definition.engine.kind}",
        int(can_lead and is_active),
        int(can_lead),
        int(not is_active),
        int(states.get(replica.name) == "inactive"),
        queue.future_parts,
        _broken(replica, snapshot),
        table.root,
        replica.name,
        paths.root,
        version,
        *queue.row(),
        max(map(sequence_number, log), default=0),
        pointer,
        datetime.fromtimestamp(pulled_ms // 1000, UTC),
        int(lag_of(replica).seconds),
        len(living),
        sum(living.values()),
        lost,
        "",
        [(name, int(active)) for name, active in living.items()],
        list(states.items()),
        [str(part) for part in sorted(read_quorums(replica).parts())],
        sorted(what.value for what in replica.store.marks.stopped()),
    )


def _broken(replica: Replica, snapshot: QueueSnapshot) -> int:
    """How many parts are marked as broken or gone, and are not here again."""
    marked, here = replica.store.marks.given_up(), PartSet(snapshot.parts)
    return sum(here.containing(part) is None for part in marked)


@dataclass(frozen=True, slots=True)
class _Queue:
    """What system.replicas shows of a queue. `entries` are sorted, oldest first."""

    entries: tuple[LogEntry, ...]
    future_parts: int

    @classmethod
    def of(cls, snapshot: QueueSnapshot) -> "_Queue":
        entries = sorted(snapshot.entries.values(), key=lambda e: e.create_time)
        future = sum(len(claim.parts) for claim in snapshot.claims.values())
        return cls(tuple(entries), future)

    def row(self) -> Row:
        kinds = [(GetPart, AttachPart), (MergeParts,), (MutatePart,)]
        groups = [[e for e in self.entries if isinstance(e, kind)] for kind in kinds]
        return (
            len(self.entries),
            *(len(group) for group in groups),
            _oldest(self.entries),
            *(_oldest(group) for group in groups),
            *(str(result_of(group[0])) if group else "" for group in groups),
        )


def _oldest(entries: Iterable[LogEntry]) -> datetime:
    first = next(iter(entries), None)
    return _EPOCH if first is None else datetime.fromtimestamp(first.create_time, UTC)


REPLICATION_QUEUE: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("replica_name", "String"),
    ("position", "UInt32"),
    ("node_name", "String"),
    ("type", "String"),
    ("create_time", "DateTime"),
    ("required_quorum", "UInt32"),
    ("source_replica", "String"),
    ("new_part_name", "String"),
    ("parts_to_merge", "Array(String)"),
    ("is_detach", "UInt8"),
    ("is_currently_executing", "UInt8"),
    ("num_tries", "UInt32"),
    ("last_exception", "String"),
    ("last_exception_time", "DateTime"),
    ("last_attempt_time", "DateTime"),
    ("num_postponed", "UInt32"),
    ("postpone_reason", "String"),
    ("last_postpone_time", "DateTime"),
    ("merge_type", "String"),
    ("executed_by", "String"),  # the worker that has claimed it (design §4)
    ("asked_by", "String"),  # the account that gave a command on partitions or parts
)
_MERGE_TYPES = {1: "REGULAR", 2: "TTL_DELETE", 3: "TTL_RECOMPRESS"}


def replication_queue(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.replication_queue: what the replicas here have still to do, in order, and what
    each entry waits for.
    """

    def rows(table: Table) -> Iterator[Row]:
        replica = table.replica
        return _queue_rows(replica, _snapshot(replica))

    return _of_replicated(scope, rows)


def queue_of(replica: Replica) -> list[dict[str, Any]]:
    """The rows of one replica's queue, as dicts by column."""
    names = [name for name, _ in REPLICATION_QUEUE]
    rows = _queue_rows(replica, _snapshot(replica))
    return [dict(zip(names, row, strict=True)) for row in rows]


def _queue_rows(replica: Replica, snapshot: QueueSnapshot) -> Iterator[Row]:
    attempts = _attempts(replica, [*snapshot.entries])
    reasons = _reasons(replica, snapshot)
    failed = [entry for node, entry in snapshot.entries.items() if node in attempts]
    missing = why_missing(
        replica, {one.part for one in failed if isinstance(one, GetPart)} - {*snapshot.parts}
    )
    postponed, began = replica.store.postponed.read(), _begun(replica, snapshot)
    for position, (node, entry) in enumerate(snapshot.entries.items()):
        tried = attempts.get(node) or Attempts(0, "", 0, "")
        claim = snapshot.claims.get(node)
        left = postponed.get(node, NEVER_POSTPONED)
        failed_at = datetime.fromtimestamp(tried.last_attempt_s, UTC)
        yield (
            replica.definition.database,
            replica.definition.name,
            replica.name,
            position,
            node,
            kind_name(entry),
            datetime.fromtimestamp(entry.create_time, UTC),
            entry.quorum,
            entry.source_replica,
            _new_part(entry),
            [str(part) for part in sources_of(entry)],
            int(getattr(entry, "detach", False)),
            int(claim is not None),
            tried.tries + int(claim is not None),
            tried.last_exception,
            failed_at,
            failed_at if claim is None else began.get(node, failed_at),
            left.times,
            _postponed(
                entry,
                _with_failure(reasons.get(node) or tried.postpone_reason, attempts),
                missing,
            ),
            datetime.fromtimestamp(left.last_s, UTC),
            _MERGE_TYPES[entry.merge_type] if isinstance(entry, MergeParts) else "",
            claim.worker if claim is not None else "",
            entry.asked_by,
        )


def _with_failure(reason: str, attempts: Mapping[str, Attempts]) -> str:
    """The reason; and if it begins with an entry that is to come first, why that failed last."""
    tried = attempts.get(reason.partition(",")[0])
    if tried is None or not tried.last_exception:
        return reason
    return f"{reason} (it failed {tried.tries} times, last: {tried.last_exception})"


def _postponed(entry: LogEntry, reason: str, missing: Mapping[PartName, str]) -> str:
    """The reason, and the reason why a part that the entry makes, or needs, can't be fetched
    anywhere.
    """
    part = result_of(entry)
    words = [missing[one] for one in missing if part is not None and not part.disjoint(one)]
    return "; ".join(filter(None, [reason, *words]))


def _new_part(entry: LogEntry) -> str:
    """The part that the entry makes, or the range that it drops."""
    match entry:
        case DropRange() | ReplaceRange():
            return str(entry.range)
        case DropPart():
            return str(entry.part)
        case _:
            part = result_of(entry)
            return "" if part is None else str(part)


def _attempts(replica: Replica, nodes: list[str]) -> dict[str, Attempts]:
    reads = replica.keeper.get_many([replica.paths.attempts_of(node) for node in nodes])
    return {
        node: Attempts.read(read[0])
        for node, read in zip(nodes, reads, strict=True)
        if read is not None
    }


def _begun(replica: Replica, snapshot: QueueSnapshot) -> dict[str, datetime]:
    """When the current try of each claimed entry began."""
    stats = replica.keeper.exists_many([replica.paths.claim(node) for node in snapshot.claims])
    return {
        node: datetime.fromtimestamp(stat.created_ms // 1000, UTC)
        for node, stat in zip(snapshot.claims, stats, strict=True)
        if stat is not None
    }


def _reasons(replica: Replica, snapshot: QueueSnapshot) -> Mapping[str, str]:
    """Why entries wait now, by the same rules that a worker follows."""
    view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts)
    facts = queue_facts(replica, view, manifest_seen)
    decisions = {
        node: view.decide(node, facts) for node in view.entries if node not in view.claims
    }
    waiting = {
        node: decision.reason
        for node, decision in decisions.items()
        if isinstance(decision, Wait)
    }
    others = [
        (node, entry)
        for node, entry in view.entries.items()
        if node not in waiting and node not in view.claims
    ]
    return {**structures_awaited(replica, others), **waiting}


def _snapshot(replica: Replica) -> QueueSnapshot:
    return queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)


def _of_replicated(scope: SystemScope, rows: Callable[[Table], Iterable[Row]]) -> Iterator[Row]:
    return scope.of_tables(
        lambda table: () if table.definition_then.engine.is_private else rows(table)
    )
