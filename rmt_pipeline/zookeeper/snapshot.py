"""Reads whose order matters: each function reads what belongs together, and argues why its order
is right.

Within a session ZooKeeper answers requests in order, and never from an older state than before. So
reads that a session sends one after another see states that follow one another, also when they are
pipelined.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rmt_pipeline.protocol.errors import Corruption, ReplicaDropped
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import LogEntry
from rmt_pipeline.protocol.mutations import FinishedMutations
from rmt_pipeline.protocol.nodes.formats import QuorumStatus, number_of
from rmt_pipeline.protocol.nodes.records import (
    Claim,
    InsertBatch,
    InsertRecord,
    decoded_batch,
)
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper.keeper import Keeper, Refused, Stat, Watch
from rmt_pipeline.zookeeper.known import Claims, KnownEntries, KnownQueue, Listed, Queued
from rmt_pipeline.zookeeper.paths import (
    ReplicaPaths,
    TablePaths,
    log_entry_name,
    sequence_number,
)

FINISHED_KNOWN_MAX = 100  # entries remembered, beyond twice as many as are queued


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """A replica's queue, claims and parts, with the versions that guard acting on them."""

    entries: Mapping[str, LogEntry]
    names: Collection[str]
    """The nodes of the queue as they were listed. A node without an entry was removed since."""
    claims: Mapping[str, Claim]
    parts: Holdings
    executing_version: int
    is_lost: bool
    is_lost_version: int
    beside: Mapping[str, tuple[bytes, Stat] | None] = field(default_factory=dict)
    """What was read at the paths `beside`. Empty if the known queue had to be listed again."""
    beside_is_last: bool = False
    """Whether nothing was read after `beside`: the parts were known."""


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
    """Read a replica's queue, claims and parts, in the order in which nothing can be missed.

    1. `is_lost`. A caller that acts on what is *not* queued asserts its version, so that a clone
       between these reads is noticed.
    2. The queue. An entry goes from queue and claims to parts in one multi, so we may see it twice,
       which is harmless, but never not at all. An entry that is missing from the queue, or is
       listed and gone when we read its node, was finished before we read the parts.
    3. The version of `executing`. If another worker claims after this read, our own claim is
       refused, and we read again. Step 4 is left out if the stat shows which claims there are
       (none, or the known ones) and there is no `claims_watch`, or without `with_claims`; then the
       stat of `parts`, read behind it in the same request, serves for step 5.
    4. The claims, and 5. the parts: of an entry that is finished between, the part is seen.

    `queue` saves the listing of step 2. It is one of

    * the names as the caller has just listed them, if the caller acts only on entries that are
      there and asserts them, or has read `is_lost` before its listing and compares the versions:
      `is_lost` is then read after the queue, and everything in one request;
    * the known queue: its stat, read before claims and parts, tells whether a listing would give
      the same now. If not, the queue is listed and everything is read again.

    `watch` fires at changes of the queue, if it is listed here; `claims_watch` when claims are
    taken or end. The nodes at `beside` are read by step 3, after all others. `known` and `before`,
    an earlier snapshot, only save reads. Raises ReplicaDropped; Corruption for an unreadable entry.
    """
    lost = None
    names = queue.names if isinstance(queue, Queued) else queue
    if names is None:
        [lost] = keeper.get_many([replica.is_lost])
        if with_claims:
            names = children_of(keeper, replica, replica.queue, watch)
        else:
            names = list_queue(keeper, replica, known, watch)
    entries = _entries(keeper, replica, names, known.entries, before)
    listed, claims = known.listed(replica), known.claimed(replica)
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
    still = _claims_at(keeper, replica, known, claims, executing[1])
    if with_claims and (claims_watch is not None or still is None):
        still = _list_claims(keeper, replica, known, claims_watch)
        parts, is_known = parts_now(keeper, replica, known), False
    else:
        parts, is_known = _parts_at(keeper, replica, known, listed, parts_node[1])
    return QueueSnapshot(
        entries=entries,
        names=names,
        claims=still if with_claims and still is not None else {},
        parts=parts,
        executing_version=executing[1].version,
        is_lost=lost[0] == b"1",
        is_lost_version=lost[1].version,
        beside=dict(zip(beside, rest, strict=True)),
        beside_is_last=is_known,
    )


@dataclass(frozen=True, slots=True)
class Foreknown:
    """What is known of a replica's queue, claims and parts before a request is sent. `paths` are to
    be read with it, in this order, and `snapshot` tells what they prove.
    """

    replica: ReplicaPaths
    known: KnownQueue
    queue: Queued
    claims: Claims | None
    parts: Listed

    @classmethod
    def now(cls, replica: ReplicaPaths, known: KnownQueue) -> "Foreknown | None":
        """None if the queue or the parts are not known."""
        claims, queue, parts = (
            known.claimed(replica),
            known.queued(replica),
            known.listed(replica),
        )
        if queue is None or parts is None:
            return None
        return cls(replica, known, queue, claims, parts)

    @property
    def paths(self) -> tuple[str, ...]:
        replica = self.replica
        return (replica.is_lost, replica.queue, replica.executing, replica.parts)

    def snapshot(
        self,
        keeper: Keeper,
        reads: Sequence[tuple[bytes, Stat] | None],
        before: QueueSnapshot | None,
    ) -> QueueSnapshot | None:
        """What `queue_snapshot` would give, without a request: None if what was known is not proven
        by what was read at the paths.
        """
        lost, queue, executing, parts = reads
        if lost is None or queue is None or executing is None or parts is None:
            return None
        claims = _claims_at(keeper, self.replica, self.known, self.claims, executing[1])
        listed = as_listed(keeper, self.replica, self.known, self.parts, parts[1])
        is_still = self.queue.is_still(queue[1], keeper.session_id)
        if claims is None or listed is None or not is_still:
            return None
        names = self.queue.names
        earlier: Mapping[str, LogEntry] = {} if before is None else before.entries
        new = self.known.entries.of([name for name in names if name not in earlier])
        entries = {
            name: entry
            for name in names
            if (entry := earlier.get(name) or new.get(name)) is not None
        }
        if len(entries) < len(names):
            return None
        return QueueSnapshot(
            entries=entries,
            names=names,
            claims=claims,
            parts=listed,
            executing_version=executing[1].version,
            is_lost=lost[0] == b"1",
            is_lost_version=lost[1].version,
        )


def _parts_at(
    keeper: Keeper, replica: ReplicaPaths, known: KnownQueue, listed: Listed | None, stat: Stat
) -> tuple[Holdings, bool]:
    """The replica's parts: the known ones, if this stat of `parts` proves them, else listed now.
    And whether they were known.
    """
    still = as_listed(keeper, replica, known, listed, stat)
    return (still, True) if still is not None else (_list_parts(keeper, replica, known), False)


def sweep_snapshot(
    keeper: Keeper, replica: ReplicaPaths, known: KnownQueue, beside: Sequence[str] = ()
) -> QueueSnapshot:
    """Like `queue_snapshot`, without the claims.

    For a caller that removes entries and parts even if a worker has claimed them, and relies on
    there being no others: so `is_lost` is read before the queue. As long as the queue's stat shows
    that the known queue is still right, this takes one request.
    """
    return queue_snapshot(
        keeper,
        replica,
        known,
        queue=known.queued(replica),
        beside=beside,
        with_claims=False,
    )


def _claims_at(
    keeper: Keeper,
    replica: ReplicaPaths,
    known: KnownQueue,
    claims: Claims | None,
    stat: Stat,
) -> Mapping[str, Claim] | None:
    """The replica's claims at this stat of `executing`, if it proves which they are; else None.
    `claims` are those that were known before this session read the stat.
    """
    if claims is not None and claims.is_still(stat, keeper.session_id):
        return claims.names
    if stat.children_count:
        return None
    none = Claims(stat.created_zxid, stat.children_version, {})
    known.claims.learn({replica.executing: none})
    return none.names


def _list_claims(
    keeper: Keeper, replica: ReplicaPaths, known: KnownQueue, watch: Watch | None
) -> Mapping[str, Claim]:
    """List the claims of the replica, by node, and remember them in `known`. Raises ReplicaDropped.

    A claim that is gone when we read it has ended. The caller reads the parts after this, so it
    sees the part if the entry was finished; an entry that was given back is free.
    """
    try:
        names, stat = keeper.children_stat(replica.executing, watch)
    except Refused as refused:
        raise gone(replica) from refused
    reads = keeper.get_many([replica.claim(node) for node in names])
    found = {
        node: Claim.decode(read[0])
        for node, read in zip(names, reads, strict=True)
        if read is not None
    }
    claims = Claims(stat.created_zxid, stat.children_version, found)
    known.claims.learn({replica.executing: claims})
    return found


def is_as_known(
    keeper: Keeper,
    replica: ReplicaPaths,
    queued: Queued,
    node: tuple[bytes, Stat] | None,
) -> bool:
    """Whether the queue still has the entries that are known (`queued`). `node` is the queue's
    node, which this session has read after it got `queued`. Raises ReplicaDropped if there is none.
    """
    if node is None:
        raise gone(replica)
    return queued.is_still(node[1], keeper.session_id)


def list_queue(
    keeper: Keeper, replica: ReplicaPaths, known: KnownQueue, watch: Watch | None
) -> Mapping[str, None]:
    """List the names of the queue's nodes, in order, and remember them in `known`. Raises
    ReplicaDropped.
    """
    try:
        names, stat = keeper.children_stat(replica.queue, watch)
    except Refused as refused:
        raise gone(replica) from refused
    found = Queued(stat.created_zxid, stat.children_version, dict.fromkeys(names))
    known.found(replica, found)
    return found.names


def children_of(
    keeper: Keeper, replica: ReplicaPaths, path: str, watch: Watch | None = None
) -> list[str]:
    """The children of a node that every replica, or every table, has. Raises ReplicaDropped."""
    try:
        return keeper.children(path, watch)
    except Refused as refused:
        raise gone(replica) from refused


def parts_now(keeper: Keeper, replica: ReplicaPaths, known: KnownQueue) -> Holdings:
    """Every part that the replica promises, covered ones included. Raises ReplicaDropped.

    The known listing is still true if the stat that we read has the counters of that listing: the
    node counts each creation and removal of a child, and a node that was created again has another
    `created_zxid`. So the known listing is what a listing now would give, however old it is and
    whichever session made it. Otherwise the parts are listed, which is a still later read: what
    the caller had to read before the parts was read before them.
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
    """The parts at this stat of `parts`, if it proves which they are; else None. This session must
    have read the stat after it got `listed`.
    """
    found = None if listed is None else listed.at(stat, keeper.session_id)
    if found is None:
        return None
    if found is not listed:
        known.parts.learn({replica.parts: found})
    return found.holdings


def _list_parts(keeper: Keeper, replica: ReplicaPaths, known: KnownQueue) -> Holdings:
    """List the replica's parts and remember them in `known`. Raises ReplicaDropped."""
    listed = known.listed(replica)
    try:
        names, stat = keeper.children_stat(replica.parts)
    except Refused as refused:
        raise gone(replica) from refused
    before = Holdings.of(()) if listed is None else listed.holdings
    found = Listed(stat.created_zxid, stat.children_version, before.renamed(names))
    known.parts.learn({replica.parts: found})
    return found.holdings


def gone(replica: ReplicaPaths) -> ReplicaDropped:
    """The error to raise for a replica whose nodes are not in ZooKeeper."""
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
    """The queue entries at these nodes, in the order of the names; without those that were finished
    or dropped since the listing. Entries that `earlier` or `known` has are not read again. Raises
    Corruption.
    """
    before: Mapping[str, LogEntry] = {} if earlier is None else earlier.entries
    if earlier is not None and names is earlier.names and len(before) == len(names):
        return before
    came = [name for name in names if name not in before] if before else names
    found = before
    if len(before) + len(came) != len(names):
        there = set(names)
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
    """The queue entries by node of this or another replica. Raises ReplicaDropped."""
    names = list_queue(keeper, replica, known, watch)
    return _entries(keeper, replica, names, known.entries)


def entries_to_come(
    keeper: Keeper, table: TablePaths, replica: ReplicaPaths, known: KnownQueue
) -> list[LogEntry]:
    """The entries that a replica has yet to carry out: those of the log that it has not copied,
    then its queue. Read in this order, since entries go from the log to the queue: one may be seen
    twice, but never not at all. Raises ReplicaDropped.
    """
    try:
        pointer, _ = keeper.get(replica.log_pointer)
        logged = entries_from(keeper, table, number_of(pointer))
    except Refused as refused:
        raise gone(replica) from refused
    return [*logged, *queued_entries(keeper, replica, known).values()]


def entries_from(keeper: Keeper, table: TablePaths, number: int) -> list[LogEntry]:
    """The entries of the log from this number on, as far as they are still in it."""
    first = log_entry_name(number)
    names = [table.log_entry(name) for name in keeper.children(table.log) if name >= first]
    return [decode(read[0]) for read in keeper.get_many(names) if read is not None]


@dataclass(frozen=True, slots=True)
class ClaimsAndParts:
    """The parts that workers of this replica are producing (`claimed`), and the names of those that
    it promises.
    """

    claimed: frozenset[PartName]
    names: frozenset[str]

    def is_free(self, part: PartName) -> bool:
        """Whether the part is neither claimed nor promised."""
        return part not in self.claimed and str(part) not in self.names


def claims_and_parts(keeper: Keeper, replica: ReplicaPaths) -> ClaimsAndParts:
    """Read a replica's claims, then its parts. Raises ReplicaDropped.

    In this order a part that is published between the two reads is seen among the parts. A worker
    that claims after the first read looks at the disk after us.
    """
    keeper.sync(replica.root)  # without it the server may answer from an older state
    nodes, listed = keeper.children_many([replica.executing, replica.parts])
    claims = keeper.get_many([replica.claim(node) for node in nodes or ()])
    if None in claims:  # its part may have been published after the parts were listed
        listed = keeper.children(replica.parts)
    if nodes is None or listed is None:
        raise gone(replica)
    return ClaimsAndParts(
        frozenset(
            part for read in claims if read is not None for part in Claim.decode(read[0]).parts
        ),
        frozenset(listed),
    )


def free_parts(
    keeper: Keeper, replica: ReplicaPaths, parts: Sequence[PartName]
) -> list[PartName]:
    """Those of these parts that are neither claimed nor promised. Raises ReplicaDropped.

    Like `claims_and_parts`, without a listing of all parts if nothing is claimed: the stat that
    tells it is read before the parts.
    """
    keeper.sync(replica.root)
    executing, *promised = keeper.get_many([replica.executing, *map(replica.part, parts)])
    if executing is None:
        raise gone(replica)
    if executing[1].children_count:
        view = claims_and_parts(keeper, replica)
        return [part for part in parts if view.is_free(part)]
    return [part for part, read in zip(parts, promised, strict=True) if read is None]


def active_parts(
    keeper: Keeper, replica: ReplicaPaths, partitions: Collection[str] | None = None
) -> tuple[PartName, ...]:
    """Every part that the replica promises, covered ones included; with `partitions` only those of
    these partitions. Raises ReplicaDropped.
    """
    names = children_of(keeper, replica, replica.parts)
    if partitions is not None:
        prefixes = tuple(f"{one}_" for one in partitions)
        names = [name for name in names if name.startswith(prefixes)]
    return tuple(map(PartName.parse, names))


def committing_blocks(
    keeper: Keeper, table: TablePaths, partitions: list[str]
) -> dict[str, frozenset[int]]:
    """The block numbers of these partitions that are allocated and not yet in the log."""
    listed = keeper.children_many([table.partition(partition) for partition in partitions])
    return {
        partition: frozenset(sequence_number(name) for name in names or [])
        for partition, names in zip(partitions, listed, strict=True)
    }


@dataclass(frozen=True, slots=True)
class NotedMutations:
    """The mutations that a replica has noted as finished, with the versions that guard
    noting more.
    """

    finished: FinishedMutations
    pointer_version: int
    is_lost_version: int


def noted_mutations(keeper: Keeper, replica: ReplicaPaths) -> NotedMutations:
    """Read which mutations the replica has noted as finished. Raises ReplicaDropped.

    `is_lost` is read first: a replica that becomes a clone forgets which mutations it had finished,
    and by then `is_lost` has another version. The pointer is read before the mutations that are
    finished beyond it: when the pointer moves in between, a finished mutation may look unfinished,
    but never the other way round.
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
    """The state of every replica of the table, by name.

    `active`; `inactive`: its server does not run, or can't; or why the replica will not become
    active by itself: the text of its node `detached` (`detached`, or `dropped` until it is
    removed), `lost` (too far behind, to be cloned), or both.
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
    """The parts that wait for their quorum, and those whose quorum failed.

    The failed ones are read last: a part goes from the waiting to the failed ones in one multi. A
    part in neither has reached its quorum, and keeps it, or never asked for one.
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


def staying_replicas(keeper: Keeper, table: TablePaths) -> dict[str, bool]:
    """As `living_replicas`, without those whose drop has begun. Such a replica has no `host`, and
    never gets one again, even if the process that dropped it died and left its other nodes.
    """
    names = keeper.children(table.replicas)
    replicas = [table.replica(name) for name in names]
    stats = keeper.exists_many([path for one in replicas for path in (one.is_active, one.host)])
    return {
        name: active is not None
        for name, active, host in zip(names, stats[::2], stats[1::2], strict=True)
        if host is not None
    }


def promised_elsewhere(
    keeper: Keeper, table: TablePaths, but: str, parts: Sequence[PartName]
) -> tuple[int, dict[PartName, dict[str, bytes | None]]]:
    """For each of the parts the header with which each replica except `but` promises it, by name;
    None for one that does not promise it. What is left of a replica whose drop has begun
    (`staying_replicas`) promises nothing: nobody can fetch its bytes. And the version of
    `replicas`, which changes when another replica joins.
    """
    listed, stat = keeper.children_stat(table.replicas)
    names = [name for name in listed if name != but]
    others = [table.replica(name) for name in names]
    reads = keeper.get_many(
        [path for one in others for path in (*map(one.part, parts), one.host)]
    )
    found: dict[PartName, dict[str, bytes | None]] = {part: {} for part in parts}
    for name, start in zip(names, range(0, len(reads), len(parts) + 1), strict=True):
        *promises, host = reads[start : start + len(parts) + 1]
        if host is not None:
            for part, read in zip(parts, promises, strict=True):
                found[part][name] = None if read is None else read[0]
    return stat.version, found


def batches_of(
    keeper: Keeper, table: TablePaths, insert_id: str, record: InsertRecord
) -> dict[int, InsertBatch]:
    """Those batches of an insert's record that are there, by their numbers. They are read after the
    record: one that is missing was removed together with it. Raises Corruption as `decoded_batch`.
    """
    numbers = range(record.batches)
    paths = [table.insert_batch(insert_id, number) for number in numbers]
    reads = keeper.get_many(paths) if paths else []
    return {
        number: decoded_batch(path, read[0])
        for number, path, read in zip(numbers, paths, reads, strict=True)
        if read is not None
    }
