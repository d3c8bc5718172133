"""Reads whose order matters, each in one function with its argument.

A session sees the tree move forward only, and its requests are answered in order. So reads that
are sent one after another in one session see states that follow one another, also pipelined.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rmt_pipeline.protocol.errors import Corruption, ReplicaDropped
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import LogEntry, virtual_parts
from rmt_pipeline.protocol.mutations import FinishedMutations
from rmt_pipeline.protocol.nodes.formats import QuorumStatus
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper.keeper import Keeper, Refused, Stat, Watch
from rmt_pipeline.zookeeper.known import KnownEntries, KnownQueue, Listed, Queued
from rmt_pipeline.zookeeper.paths import (
    ReplicaPaths,
    TablePaths,
    log_entry_name,
    sequence_number,
)

FINISHED_KNOWN_MAX = 100  # beyond twice what is queued


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """What a replica has to do, is doing, and has; with the versions that guard acting on it."""

    entries: Mapping[str, LogEntry]
    names: Collection[str]
    """As they were listed: of those without an entry each has gone since."""
    claims: Mapping[str, Claim]
    parts: Holdings
    executing_version: int
    is_lost: bool
    is_lost_version: int
    beside: Mapping[str, tuple[bytes, Stat] | None] = field(default_factory=dict)
    """What was read `beside`, by its path."""


def queue_snapshot(
    keeper: Keeper,
    replica: ReplicaPaths,
    known: KnownQueue,
    watch: Watch | None = None,
    claims_watch: Watch | None = None,
    *,
    queue: Queued | Collection[str] | None = None,
    before: QueueSnapshot | None = None,
    beside: Sequence[str] = (),
    with_claims: bool = True,
) -> QueueSnapshot:
    """The queue first, then the claims, then the parts: an entry moves from queue and claims to
    parts in one multi, so it may be seen twice, which is harmless, but never not at all. One that
    is missing from the queue, or was listed and is gone when it is read itself, was finished before
    the parts were read. `is_lost` before all: who acts on what is *not* queued asserts its version,
    so that a clone between these reads is noticed. The version of `executing` before the claims: if
    somebody claims in between, our own claim is refused, and we read again. So none are listed when
    that read says that there are none, and the parts' stat, which was read behind it, serves. The
    watches are for changes of the queue, and for claims that are taken or end.

    `queue`: its names as the caller has just listed them, who acts on nothing but entries that are
    there, and asserts these; or who has read `is_lost` before it, and compares. Then `is_lost` is
    read later, and all is one request. So it is with one that is known: the stat says, before the
    claims and the parts are read, that it is what a listing would have given now; else it is
    listed, and all is read anew. `beside` is read with that request, in no order that matters.

    Entries that are there still are taken from `before`, which the caller has read earlier. What is
    `known` saves reads and decides nothing, whatever other threads forget meanwhile.
    """
    lost = None
    names = queue.names if isinstance(queue, Queued) else queue
    if names is None:
        [lost] = keeper.get_many([replica.is_lost])
        if with_claims:
            names = _children(keeper, replica, replica.queue, watch)
        else:
            names = list_queue(keeper, replica, known, watch)
    entries = _entries(keeper, replica, names, known.entries, before)
    listed = known.listed(replica)
    now_lost, queue_node, executing, parts_node, *rest = keeper.get_many(
        [replica.is_lost, replica.queue, replica.executing, replica.parts, *beside]
    )
    lost = lost or now_lost
    if lost is None or queue_node is None or executing is None or parts_node is None:
        raise gone(replica)
    if isinstance(queue, Queued) and not is_as_known(keeper, replica, queue, queue_node):
        again = list_queue(keeper, replica, known, watch) if with_claims else None
        return queue_snapshot(
            keeper, replica, known, watch, claims_watch, queue=again, with_claims=with_claims
        )
    claimed: list[str] = []
    if with_claims and (claims_watch is not None or executing[1].children_count):
        claimed = _children(keeper, replica, replica.executing, claims_watch)
        parts = parts_now(keeper, replica, known)
    else:
        parts = _parts_at(keeper, replica, known, listed, parts_node[1])
    return QueueSnapshot(
        entries=entries,
        names=names,
        claims=_claims(keeper, replica, claimed, entries),
        parts=parts,
        executing_version=executing[1].version,
        is_lost=lost[0] == b"1",
        is_lost_version=lost[1].version,
        beside=dict(zip(beside, rest, strict=True)),
    )


def _parts_at(
    keeper: Keeper, replica: ReplicaPaths, known: KnownQueue, listed: Listed | None, stat: Stat
) -> Holdings:
    """As they are known, if this stat of their node says so, else as they are listed now."""
    still = as_listed(keeper, replica, known, listed, stat)
    return _list_parts(keeper, replica, known) if still is None else still


def sweep_snapshot(keeper: Keeper, replica: ReplicaPaths, known: KnownQueue) -> QueueSnapshot:
    """As `queue_snapshot`, without the claims: for who takes entries and parts away, whoever is at
    them, and acts on there being no others. So `is_lost` is read before the queue. While its stat
    says that the queue is the one that is known, all of it is one request.
    """
    return queue_snapshot(
        keeper, replica, known, queue=known.queued(replica), with_claims=False
    )


def _claims(
    keeper: Keeper,
    replica: ReplicaPaths,
    claimed: Sequence[str],
    entries: Mapping[str, LogEntry],
) -> dict[str, Claim]:
    """By node. A claim that was listed and is gone when it is read may have been finished after the
    parts were listed: its part would be missing and its entry look free. It counts as claimed
    still.
    """
    claims = keeper.get_many([replica.claim(node) for node in claimed])
    return {
        node: Claim.decode(read[0]) if read is not None else _just_ended(entries[node])
        for node, read in zip(claimed, claims, strict=True)
        if read is not None or node in entries
    }


def is_as_known(
    keeper: Keeper,
    replica: ReplicaPaths,
    queued: Queued,
    node: tuple[bytes, Stat] | None,
) -> bool:
    """Whether the replica's queue, as this session has read its node since, has the entries that
    are known. Raises ReplicaDropped.
    """
    if node is None:
        raise gone(replica)
    return queued.is_still(node[1], keeper.session_id)


def list_queue(
    keeper: Keeper, replica: ReplicaPaths, known: KnownQueue, watch: Watch | None
) -> Mapping[str, None]:
    """The names of the queue's nodes, in order; `known` remembers them for the next look. Raises
    ReplicaDropped.
    """
    try:
        names, stat = keeper.children_stat(replica.queue, watch)
    except Refused as refused:
        raise gone(replica) from refused
    found = Queued(stat.created_zxid, stat.children_version, dict.fromkeys(names))
    known.found(replica, found)
    return found.names


def _children(
    keeper: Keeper, replica: ReplicaPaths, path: str, watch: Watch | None
) -> list[str]:
    """Of a node that a replica has. Raises ReplicaDropped."""
    try:
        return keeper.children(path, watch)
    except Refused as refused:
        raise gone(replica) from refused


def parts_now(keeper: Keeper, replica: ReplicaPaths, known: KnownQueue) -> Holdings:
    """Every part that the replica promises, covered ones included.

    The listing that is known is still true if the stat that we read is the one it was made at: the
    node counts every child that comes or goes, and is known from one of its name that was made anew
    by who created it. So it is what a listing in place of our read would have given, however long
    ago, and in whichever session, it was made. Otherwise it is listed, which is a later read: what
    the caller had to read before it was read before it.
    """
    listed = known.listed(replica)
    if listed is not None:
        stat = keeper.exists(replica.parts)
        if stat is None:
            raise gone(replica)
        found = as_listed(keeper, replica, known, listed, stat)
        if found is not None:
            return found
    return _list_parts(keeper, replica, known)


def as_listed(
    keeper: Keeper,
    replica: ReplicaPaths,
    known: KnownQueue,
    listed: Listed | None,
    stat: Stat,
) -> Holdings | None:
    """The parts at this stat, which this session has read since it had `listed`, if it proves which
    they are.
    """
    found = None if listed is None else listed.at(stat, keeper.session_id)
    if found is None:
        return None
    if found is not listed:
        known.parts.learn({replica.parts: found})
    return found.holdings


def _list_parts(keeper: Keeper, replica: ReplicaPaths, known: KnownQueue) -> Holdings:
    listed = known.listed(replica)
    try:
        names, stat = keeper.children_stat(replica.parts)
    except Refused as refused:
        raise gone(replica) from refused
    before = Holdings.of(()) if listed is None else listed.holdings
    found = Listed(stat.created_zxid, stat.children_version, before.renamed(names))
    known.parts.learn({replica.parts: found})
    return found.holdings


def _just_ended(entry: LogEntry) -> Claim:
    return Claim("somebody who has just finished", virtual_parts(entry))


def gone(replica: ReplicaPaths) -> ReplicaDropped:
    """What to raise for a replica whose nodes are not in ZooKeeper."""
    return ReplicaDropped(
        f"{replica.root} is gone from ZooKeeper: the replica was dropped, or ZooKeeper lost its "
        "data. If somebody dropped it on purpose, DROP TABLE here too, or create it again; else "
        "SYSTEM RESTORE REPLICA makes it again from this disk"
    )


def _entries(
    keeper: Keeper,
    replica: ReplicaPaths,
    names: Collection[str],
    known: KnownEntries,
    earlier: QueueSnapshot | None = None,
) -> Mapping[str, LogEntry]:
    """In the order of the names; without those that were finished or dropped since the listing."""
    before: Mapping[str, LogEntry] = {} if earlier is None else earlier.entries
    if earlier is not None and names is earlier.names and len(before) == len(names):
        return before
    came = [name for name in names if name not in before] if before else names
    found = before
    if len(before) + len(came) != len(names):
        there = names if isinstance(names, dict) else dict.fromkeys(names)
        found = {name: entry for name, entry in before.items() if name in there}
    if not came:
        return found
    hinted = known.of(came)
    new = [name for name in came if name not in hinted]
    read_now: dict[str, LogEntry] = {}
    for name, read in zip(
        new, keeper.get_many([replica.queue_entry(name) for name in new]), strict=True
    ):
        if read is None:
            continue
        try:
            read_now[name] = decode(read[0], ctime_s=read[1].created_ms // 1000)
        except Corruption as error:
            raise Corruption(f"{replica.queue_entry(name)}: {error}") from error
    known.learn(read_now, most=2 * len(names) + FINISHED_KNOWN_MAX)
    hinted |= read_now
    found = {**found, **{name: hinted[name] for name in came if name in hinted}}
    if before and min(came) < max(before):
        return {name: found[name] for name in names if name in found}
    return found


def queued_entries(
    keeper: Keeper, replica: ReplicaPaths, known: KnownQueue, watch: Watch | None = None
) -> Mapping[str, LogEntry]:
    """What a replica, also another one, has queued, by node. Raises ReplicaDropped."""
    names = list_queue(keeper, replica, known, watch)
    return _entries(keeper, replica, names, known.entries)


def entries_to_come(
    keeper: Keeper, table: TablePaths, replica: ReplicaPaths, known: KnownQueue
) -> list[LogEntry]:
    """What a replica has yet to carry out: of the log what it has not copied, then its queue. An
    entry goes from there to here, so it may be seen twice, and never not at all.
    """
    pointer, _ = keeper.get(replica.log_pointer)
    first = log_entry_name(int(pointer or b"0"))
    names = [table.log_entry(name) for name in keeper.children(table.log) if name >= first]
    logged = [decode(read[0]) for read in keeper.get_many(names) if read is not None]
    return [*logged, *queued_entries(keeper, replica, known).values()]


@dataclass(frozen=True, slots=True)
class ClaimsAndParts:
    """What this replica promises, by name, or somebody is about to promise."""

    claimed: frozenset[PartName]
    names: frozenset[str]

    def is_free(self, part: PartName) -> bool:
        return part not in self.claimed and str(part) not in self.names


def claims_and_parts(keeper: Keeper, replica: ReplicaPaths) -> ClaimsAndParts:
    """The claims first, then the parts: what is published in between is seen as a part, and what is
    claimed after the first read has yet to look at the disk.
    """
    keeper.sync(replica.root)  # else this may be an answer from the past
    nodes, listed = keeper.children_many([replica.executing, replica.parts])
    claims = keeper.get_many([replica.claim(node) for node in nodes or ()])
    if None in claims:  # that one may have been published after the parts were listed
        listed = keeper.children(replica.parts)
    if nodes is None or listed is None:
        raise gone(replica)
    return ClaimsAndParts(
        frozenset(
            part for read in claims if read is not None for part in Claim.decode(read[0]).parts
        ),
        frozenset(listed),
    )


def active_parts(
    keeper: Keeper, replica: ReplicaPaths, partitions: Collection[str] | None = None
) -> tuple[PartName, ...]:
    """Every part that the replica promises (of these partitions), covered ones included."""
    names = keeper.children(replica.parts)
    if partitions is not None:
        prefixes = tuple(f"{one}_" for one in partitions)
        names = [name for name in names if name.startswith(prefixes)]
    return tuple(map(PartName.parse, names))


def committing_blocks(
    keeper: Keeper, table: TablePaths, partitions: list[str]
) -> dict[str, frozenset[int]]:
    """Block numbers that are allocated and not yet in the log, of the given partitions."""
    listed = keeper.children_many([table.partition(partition) for partition in partitions])
    return {
        partition: frozenset(sequence_number(name) for name in names or [])
        for partition, names in zip(partitions, listed, strict=True)
    }


@dataclass(frozen=True, slots=True)
class NotedMutations:
    """What a replica has noted as finished, with the versions that guard noting more."""

    finished: FinishedMutations
    pointer_version: int
    is_lost_version: int


def noted_mutations(keeper: Keeper, replica: ReplicaPaths) -> NotedMutations:
    """Which mutations the replica has noted as finished. The order of the reads matters.

    `is_lost` first: a replica that is cloned forgets what it had finished, and by then `is_lost`
    has another version. The pointer before what is finished beyond it: when it moves in between,
    something that is finished may look unfinished, and never the other way round.
    """
    lost, pointer, beyond = keeper.get_many(
        [replica.is_lost, replica.mutation_pointer, replica.finished_mutations]
    )
    if lost is None or pointer is None:
        raise gone(replica)
    return NotedMutations(
        FinishedMutations.decode(pointer[0], b"" if beyond is None else beyond[0]),
        pointer[1].version,
        lost[1].version,
    )


def replica_states(keeper: Keeper, table: TablePaths) -> dict[str, str]:
    """Every replica of the table: `active`, `inactive` (its server does not run, or can't), or why
    it is not active and will not be by itself: `lost` (too far behind, to be cloned), `detached`
    as its server was told, both.
    """
    names = keeper.children(table.replicas)
    replicas = [table.replica(name) for name in names]
    paths = [path for one in replicas for path in (one.is_active, one.is_lost, one.detached)]
    reads = iter(keeper.get_many(paths))
    states = {}
    for name, active, lost, detached in zip(names, reads, reads, reads, strict=True):
        words = [] if detached is None else [detached[0].decode(errors="replace")]
        words += ["lost"] if lost is not None and lost[0] == b"1" else []
        states[name] = "active" if active is not None else ", ".join(words) or "inactive"
    return states


def awaiting_quorum(keeper: Keeper, table: TablePaths) -> frozenset[PartName]:
    """Parts that wait for their quorum, and those whose quorum failed.

    The failed ones last: a part goes from the others to them in one multi. One that is in neither
    has reached its quorum, and keeps it; or it never asked for one.
    """
    [status] = keeper.get_many([table.quorum_status])
    listed = keeper.children_many([table.quorum_parallel, table.quorum_failed_parts])
    found = {PartName.parse(name) for names in listed for name in names or ()}
    return frozenset(
        found.union(() if status is None else QuorumStatus.decode(status[0]).parts)
    )


def living_replicas(keeper: Keeper, table: TablePaths) -> dict[str, bool]:
    """Every replica of the table, and whether it is active."""
    names = keeper.children(table.replicas)
    active = keeper.exists_many([table.replica(name).is_active for name in names])
    return {name: stat is not None for name, stat in zip(names, active, strict=True)}
