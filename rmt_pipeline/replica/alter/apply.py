"""Carrying out ALTER_METADATA: this replica takes up the table's next structure (spec §8.2).

    the definition on this host's disk ──► R/metadata, R/columns, R/metadata_version; entry gone

The disk comes first: if the worker dies in between, the entry is found again and everything is
repeated. An older entry that a slow worker carries out once more changes nothing, because versions
only grow.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.history import history_of
from rmt_pipeline.protocol.alter.texts import definition_of_texts
from rmt_pipeline.protocol.errors import Corruption, OutcomeUnknown, ReplicaRetired, RmtError
from rmt_pipeline.protocol.log.entry import AlterMetadata, LogEntry, MutatePart, sources_of
from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.protocol.nodes.formats import number_of
from rmt_pipeline.protocol.queue.state import Lane
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.backoff import Backoff, record_failure
from rmt_pipeline.replica.finish import finish_entries
from rmt_pipeline.replica.mutations.mutations import load_mutations
from rmt_pipeline.replica.replica import Replica, not_meant
from rmt_pipeline.zookeeper.alter_transactions import alter_records, applied_alter
from rmt_pipeline.zookeeper.keeper import RefusalKind, Refused
from rmt_pipeline.zookeeper.snapshot import noted_mutations

QueuedEntries = Sequence[tuple[str, LogEntry]]
"""Queue nodes and their entries."""


def alters_first(
    replica: Replica, ready: QueuedEntries, backoff: Backoff
) -> tuple[int, list[tuple[str, LogEntry]], dict[str, str]]:
    """Carry out the ALTERs among entries that may run. Returns how many were done, the entries to
    carry out now, and by queue node why others must wait. If an ALTER was done, no entry is left
    for now: the rest needs a Replica with the new definition.
    """
    done = 0
    others: list[tuple[str, LogEntry]] = []
    for node, entry in ready:
        if isinstance(entry, AlterMetadata):
            done += _applied(replica, node, entry, backoff)
        else:
            others.append((node, entry))
    if done:
        return done, [], {}
    next_ones = others[: limits.ENTRIES_PER_CLAIM_MAX]  # one step claims no more
    awaiting = structures_awaited(replica, next_ones)
    return 0, [one for one in next_ones if one[0] not in awaiting], awaiting


def _applied(replica: Replica, node: str, entry: AlterMetadata, backoff: Backoff) -> bool:
    try:
        apply_alter_metadata(replica, node, entry)
    except (OutcomeUnknown, ReplicaRetired):
        raise
    except (RmtError, OSError) as error:  # of this entry alone: others go on
        tries = backoff.failed(node, replica.clock.monotonic_s())
        record_failure(replica, node, tries, str(error))
        return False
    return True


def apply_alter_metadata(replica: Replica, node: str, entry: AlterMetadata) -> None:
    """Carry out the entry at `node`: change this host's definition, then the texts in ZooKeeper.
    May be repeated. A Replica with the old definition must be replaced by a new one afterwards.

    Raises MetadataMismatch if the entry changes what can't be altered, DiskFull.
    """
    [read] = replica.keeper.get_many([replica.paths.metadata_version])
    applied = 0 if read is None else number_of(read[0])
    if entry.alter_version < applied:  # a clone jumped over it
        finish_entries(replica, {node: entry})
        return
    take_up(replica, entry.metadata_text, entry.columns_text, entry.alter_version)
    try:
        replica.keeper.multi(
            applied_alter(
                replica.paths,
                node,
                metadata=entry.metadata_text.encode(),
                columns=entry.columns_text.encode(),
                version=entry.alter_version,
            )
        )
    except Refused as refused:
        if refused.kind is not RefusalKind.NO_NODE:
            raise  # else another worker of this replica was faster


def take_up(replica: Replica, metadata: str, columns: str, version: int) -> TableDefinition:
    """Make these texts the definition on this host's disk, unless that is newer already. Raises
    ReplicaDropped if the replica that is meant was made again since.
    """
    records = alter_records(replica.keeper, replica.table, version)
    history = history_of(records)

    def change(before: TableDefinition) -> TableDefinition:
        if before.creation != replica.definition.creation:
            raise not_meant(replica)
        if before.metadata_version >= version:
            return before
        return definition_of_texts(before, metadata, columns, version, history)

    return replica.update_definition(change)


def unfinished_alters(replica: Replica, view: QueueView) -> frozenset[int]:
    """Versions of ALTERs whose mutation this replica has not finished. Looked up only if an ALTER
    is queued, because only an ALTER waits for them.
    """
    if not view.count([Lane.ALTERS]):
        return frozenset()
    mutations = load_mutations(replica)
    finished = noted_mutations(replica.keeper, replica.paths).finished
    return frozenset(
        entry.alter_version
        for mutation_id, entry in mutations.entries.items()
        if entry.alter_version != -1 and mutation_id not in finished
    )


def knows_its_ttl(replica: Replica) -> bool:
    """Whether the table's TTL is the one that this process knows, or there is none. By an older one
    rows could expire that are to stay: then a merge takes none, and a later one does (P20).
    """
    from rmt_pipeline.compute.rows.computed import ttl_rules  # noqa: PLC0415  start-up

    if not ttl_rules(replica.definition):
        return True
    newest = replica.keeper.exists(replica.table.metadata)
    return newest is not None and newest.version <= replica.definition.metadata_version


def structures_awaited(replica: Replica, entries: QueuedEntries) -> dict[str, str]:
    """Why merges and mutations must wait for a newer structure than this process knows, by queue
    node: a source was written with a newer one, or a command may name what only a newer one has
    (spec §16.8 U9).
    """
    known = replica.definition.metadata_version
    mutations: Mutations | None = None
    alters: list[tuple[str, int]] = []
    found: dict[str, str] = {}
    for node, entry in entries:
        newest, what = _newest_source(replica, entry), "a source was written with"
        if isinstance(entry, MutatePart) and newest <= known:
            if mutations is None:
                mutations = load_mutations(replica)
                alters = _alters(mutations)
            newest, what = (
                _version_of_commands(mutations, alters, entry),
                "its mutation is after",
            )
        if newest > known:
            found[node] = (
                f"{what} ALTER {newest}, and this worker knows the table as of {known}"
            )
    return found


def _newest_source(replica: Replica, entry: LogEntry) -> int:
    versions = [0]
    for source in sources_of(entry):
        # If a source is not here, or broken, the result is fetched.
        with suppress(Corruption):
            versions.append(replica.store.manifest(source).metadata_version)
    return max(versions)


def _alters(mutations: Mutations) -> list[tuple[str, int]]:
    return [
        (mutation_id, entry.alter_version)
        for mutation_id, entry in mutations.entries.items()
        if entry.alter_version != -1
    ]


def _version_of_commands(
    mutations: Mutations, alters: Sequence[tuple[str, int]], entry: MutatePart
) -> int:
    """The version of the last ALTER whose mutation is not after the last of the entry's mutations:
    the names in their commands are those of that version. Ids and versions grow together.
    """
    if not alters:
        return 0
    ids = [one for one, _ in mutations.between(entry.source, entry.result.data_version)]
    count = bisect_right(alters, ids[-1], key=lambda one: one[0]) if ids else 0
    return alters[count - 1][1] if count else 0
