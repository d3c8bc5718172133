"""Inserts with a quorum: counting replicas, failing, cleaning up (spec §2.7).

    committed here: a node names the part, and us ──► others publish it, and count themselves in the
    same multi ──► as many as were asked for: the node goes, the insert is answered
                     └──► no active replica has it: the quorum failed, and the part with it

1. A node that is gone means that the quorum was reached, unless `failed_parts` names the part: the
   multi that fails a quorum deletes the node and creates that one.
2. A replica that publishes the part asserts the version of the node that it read. A replica that
   fails the quorum deletes the node in the version that it read before it looked for the part, and
   asserts that no active replica has the part and that none has become active since. So only one of
   the two happens.
3. The replica that inserted the part may come back with it after its quorum failed. It sets the
   part aside before it works, and until then the part is not merged (`awaiting_quorum`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, Corruption, MissingPart, UserError
from rmt_pipeline.protocol.log.entry import AttachPart, GetPart, LogEntry
from rmt_pipeline.protocol.nodes.formats import AddedParts, QuorumEntry, QuorumStatus
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.answered import answered
from rmt_pipeline.replica.forget import what_to_forget
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.batches import batches
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Op,
    Refused,
    SetData,
    Stat,
    absent,
)
from rmt_pipeline.zookeeper.paths import TablePaths
from rmt_pipeline.zookeeper.snapshot import claims_and_parts, gone, staying_replicas

FAILED_KEPT_S = 86_400.0  # by then no insert waits that has not seen the failure


def awaited_parts(entry: LogEntry) -> tuple[PartName, ...]:
    """The part of the entry, if it was inserted with a quorum that may still be waited for."""
    return (entry.part,) if isinstance(entry, GetPart | AttachPart) and entry.quorum else ()


# --- what is under way ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quorums:
    """The nodes of parts that wait for their quorum, as they were read, with their versions.
    `status` is `quorum/status`, `last` is `quorum/last_part`, `beside` are those of parallel
    inserts.

    The status of a later insert has the name of an earlier one's, and versions that start again. So
    each insert that makes one changes the `version` of `quorum`, which was read before the status,
    and is asserted with it:

    1. A replica is about to promise a part that waits, and to count itself in the status.
    2. The quorum of the part fails, or is reached; then the insert is repeated, or another one
       comes, which makes a status.
    3. The replica goes on: the first part would be there although it failed, and nothing would
       wait for the second insert.
    """

    table: TablePaths
    version: int
    status: tuple[QuorumStatus, int] | None
    last: tuple[AddedParts, int] | None
    beside: Mapping[PartName, tuple[QuorumEntry, int]]

    def parts(self) -> frozenset[PartName]:
        return frozenset(self.beside).union(() if self.status is None else self.status[0].parts)

    def entries(self) -> tuple[QuorumEntry, ...]:
        status = () if self.status is None else self.status[0].entries
        return (*status, *(entry for entry, _ in self.beside.values()))

    def changed(
        self, change: Callable[[QuorumEntry], QuorumEntry | None], *, enough: int | None = None
    ) -> list[Op]:
        """The operations that change each entry as `change` does, which returns None to remove it.
        A node whose quorum is reached is deleted. With `enough`, that many replicas suffice,
        whatever was asked for. Those that belong together come first (`_cut`).
        """
        ops = self._changed_status(change, enough)
        for part, (entry, version) in self.beside.items():
            after, path = change(entry), self.table.quorum_of(part)
            if after is None or _is_reached(after, enough):
                ops.append(Delete(path, version))
            elif after != entry:
                ops.append(SetData(path, after.encode(), version))
        return ops

    def without(self, dropped: PartName) -> list[Op]:
        """The operations after which no dropped part waits and no sequential reader wants one. If
        what is left of an insert reaches its quorum by that, sequential readers want it from then
        on.
        """
        kept = self
        if self.last is not None:
            last, version = self.last
            left = tuple(part for part in last.parts if not dropped.contains(part))
            kept = replace(self, last=(AddedParts(left), version))
        ops = kept.changed(lambda entry: None if dropped.contains(entry.part) else entry)
        if kept.last != self.last and not any(
            op.path == self.table.quorum_last_part for op in ops
        ):
            ops += kept.noted(())
        return ops

    def _changed_status(
        self, change: Callable[[QuorumEntry], QuorumEntry | None], enough: int | None
    ) -> list[Op]:
        if self.status is None:
            return []
        status, version = self.status
        path = self.table.quorum_status
        same = Check(self.table.quorum, self.version)
        left = tuple(after for entry in status.entries if (after := change(entry)) is not None)
        if not left:
            return [same, Delete(path, version)]
        if all(_is_reached(entry, enough) for entry in left):
            return [same, Delete(path, version), *self.noted(left)]
        if left == status.entries:
            return []
        return [same, SetData(path, QuorumStatus(left).encode(), version)]

    def noted(self, entries: Iterable[QuorumEntry]) -> list[Op]:
        """The operations that note these parts as having reached their quorum, for sequential
        readers.
        """
        if self.last is None:
            return []
        last, version = self.last
        after = last.with_parts(entry.part for entry in entries)
        return [SetData(self.table.quorum_last_part, after.encode(), version)]


def _is_reached(entry: QuorumEntry, enough: int | None) -> bool:
    required = entry.required if enough is None else min(entry.required, enough)
    return len(entry.replicas) >= required


def read_quorums(replica: Replica, parts: Collection[PartName] | None = None) -> Quorums:
    """Read the quorum nodes of these parts (of all when None), and `quorum/status` whichever parts
    it names, each with its version.
    """
    keeper, table = replica.keeper, replica.table
    alone = [table.quorum, table.quorum_status, table.quorum_last_part]
    beside = [] if parts is None else sorted(parts)
    if parts is None:
        parallel, above, status, last = keeper.get_many([table.quorum_parallel, *alone])
        if parallel is not None and parallel[1].children_count:
            [names] = keeper.children_many([table.quorum_parallel])
            beside = [PartName.parse(name) for name in names or ()]
    reads: list[tuple[bytes, Stat] | None] = []
    if parts is not None or beside:
        above, status, last, *reads = keeper.get_many([*alone, *map(table.quorum_of, beside)])
    return Quorums(
        table,
        0 if above is None else above[1].version,
        None if status is None else (QuorumStatus.decode(status[0]), status[1].version),
        None if last is None else (AddedParts.decode(last[0]), last[1].version),
        {
            part: (QuorumEntry.decode(read[0]), read[1].version)
            for part, read in zip(beside, reads, strict=True)
            if read is not None
        },
    )


# --- counting ourselves -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counted:
    """`ops` belong into the multi by which this replica gets the parts; `failed` are those of the
    parts that it must not have, because their quorum failed.
    """

    ops: tuple[Op, ...] = ()
    failed: frozenset[PartName] = frozenset()

    def is_about(self, path: str) -> bool:
        return any(op.path == path for op in self.ops)


def count_us(replica: Replica, parts: Collection[PartName]) -> Counted:
    """How the quorum nodes change once this replica has these parts, and which of the parts have
    failed already.

    The failed ones are read after the nodes: a part that is in neither has reached its quorum, for
    good. A replica whose drop has begun counts for nothing, as it will not keep the parts: its
    `host` is gone, which the multi asserts.
    """
    if not parts:
        return Counted()
    quorums = read_quorums(replica, parts)
    host = replica.paths.host
    failed, (is_kept,) = _failed_and(replica, parts, host)

    def with_us(entry: QuorumEntry) -> QuorumEntry:
        return entry.with_replica(replica.name) if entry.part in parts else entry

    changed = quorums.changed(with_us)
    if not changed or is_kept is None:
        return Counted((), failed)
    return Counted((Check(host), *changed), failed)


def failed_of(replica: Replica, parts: Collection[PartName]) -> frozenset[PartName]:
    """Those of the parts whose inserts have failed to reach their quorum. Asks ZooKeeper once."""
    failed, _ = _failed_and(replica, parts)
    return failed


def _failed_and(
    replica: Replica, parts: Collection[PartName], *more: str
) -> tuple[frozenset[PartName], list[Stat | None]]:
    """`failed_of`, and whether there are `more` nodes, by the same request."""
    wanted = sorted(parts)
    nodes = [replica.table.quorum_failed(part) for part in wanted]
    stats = replica.keeper.exists_many([*nodes, *more])
    there = zip(wanted, stats[: len(nodes)], strict=True)
    return frozenset(part for part, stat in there if stat is not None), stats[len(nodes) :]


# --- failing ----------------------------------------------------------------------------------


def has_failed(replica: Replica, part: PartName) -> bool:
    """Whether the quorum of a part that we can't fetch has failed: earlier, or just now by this
    call, because no active replica has the part (spec §5.2.3). The insert is told that it failed
    and may be repeated: its ids are forgotten in the same multi.

    Raises what leaves the question open, such as OutcomeUnknown.
    """
    for _ in range(limits.LOOK_ROUNDS_MAX):
        if failed_of(replica, [part]):
            return True
        ops = _fail(replica, part)
        if ops is None:
            return False
        with suppress(Refused):  # something changed: look again
            answered(replica, ops)
    return False


def _fail(replica: Replica, part: PartName) -> list[Op] | None:
    """The operations that fail the quorum of the part. None if no quorum waits for it, or an active
    replica has the part or one that contains it.

    The quorum's node is read first, then which replicas are active and which parts they have. The
    version of `/log` asserts that no drop came since the ids were read; the versions of the ids'
    parents assert that no clean-up has removed any since: an id that was written again after that
    would be of other rows.
    """
    keeper, table = replica.keeper, replica.table
    quorums = read_quorums(replica, [part])
    if part not in quorums.parts():
        return None
    names, replicas = keeper.children_stat(table.replicas)
    peers = [table.replica(name) for name in names]
    hosts = keeper.get_many([peer.host for peer in peers])
    stats = keeper.exists_many([peer.is_active for peer in peers])
    active = [peer for peer, stat in zip(peers, stats, strict=True) if stat is not None]
    for listed in keeper.children_many([peer.parts for peer in active]):
        if any(PartName.parse(name).contains(part) for name in listed or ()):
            return None
    guards = [table.log, table.blocks, table.inserts]
    versions = [stat.version for stat in keeper.exists_many(guards) if stat is not None]
    if len(versions) < len(guards):
        raise gone(replica.paths)
    return [
        Check(table.replicas, replicas.version),
        *(
            Check(peer.host, host[1].version)
            for peer, host in zip(peers, hosts, strict=True)
            if host is not None
        ),
        *(op for peer in active for op in absent(peer.part(part))),
        *quorums.changed(lambda entry: None if entry.part == part else entry),
        Create(table.quorum_failed(part)),
        *(Check(path, version) for path, version in zip(guards, versions, strict=True)),
        *(op for some in what_to_forget(replica, [part], are_lost=True) for op in some),
    ]


def set_aside_failed(replica: Replica) -> tuple[str, ...]:
    """Set aside the parts that this replica has and whose quorum failed without it; their names in
    `detached/`. No active replica has these parts, so reading and merging must not begin here
    before they are gone.

    They are deleted in ZooKeeper first: what is then left of one on the disk, should we die, is set
    aside as unknown.
    """
    keeper, table = replica.keeper, replica.table
    [names] = keeper.children_many([table.quorum_failed_parts])
    failed = [PartName.parse(name) for name in names or ()]
    stats = keeper.exists_many([replica.paths.part(part) for part in failed])
    detached: list[str] = []
    for part, stat in zip(failed, stats, strict=True):
        if stat is None:
            continue
        with suppress(Refused):  # another process of this replica was faster
            keeper.multi([Delete(replica.paths.part(part))])
        with suppress(UserError, MissingPart, Corruption):
            name = replica.store.detach_if(part, "noquorum", partial(_is_free, replica, part))
            detached += [] if name is None else [name]
    return tuple(detached)


def _is_free(replica: Replica, part: PartName) -> bool:
    return claims_and_parts(replica.keeper, replica.paths).is_free(part)


# --- forgetting -------------------------------------------------------------------------------


def forget_dropped_quorums(replica: Replica, dropped: PartName) -> None:
    """Let no quorum wait for dropped parts, and no sequential reader either. The insert was
    complete before the drop, so its client gets its answer. Raises Conflict.
    """
    for _ in range(limits.FORGET_ROUNDS_MAX):
        ops = read_quorums(replica).without(dropped)
        if not ops:
            return
        with suppress(Refused):
            for some in _cut(ops):
                replica.keeper.multi(some)
            return
    raise Conflict(f"{replica}: the parts that wait for a quorum keep changing; trying again")


def _cut(ops: Sequence[Op]) -> Iterator[Sequence[Op]]:
    """Cut what `Quorums.changed` or `without` returned into multis: thousands of parts may wait
    beside each other. The operations on the nodes of an insert that waits alone come first, and
    stay together.
    """
    return batches(ops, bytes_max=limits.MULTI_BYTES_MAX - limits.OP_BYTES_OVERHEAD)


def clean_quorums(replica: Replica) -> int:
    """Remove quorum nodes that have no use any more; how many.

    A quorum of more replicas than there are counts as reached once all existing ones have the part:
    one was dropped, and no client could insert any more while the others waited for it. A replica
    without `host` is being dropped, and does not count, even if the process that drops it died:
    `host` never comes back, and the multi asserts that no replica has joined since. A failed
    part is forgotten when no process can come across it: its entry has left the log and every
    queue, no replica has it, and the inserting client was answered long ago.
    """
    keeper = replica.keeper
    quorums = read_quorums(replica)
    todo: list[list[Op]] = []
    if quorums.entries():
        table = replica.table
        names, stat = keeper.children_stat(table.replicas)
        hosts = keeper.exists_many([table.replica(name).host for name in names])
        there = {name for name, host in zip(names, hosts, strict=True) if host is not None}
        counted = quorums.changed(
            lambda entry: replace(
                entry, replicas=tuple(name for name in entry.replicas if name in there)
            ),
            enough=len(there),
        )
        is_still = Check(table.replicas, stat.version)
        if any(isinstance(op, Delete) for op in counted):
            todo = [[is_still, *some] for some in _cut(counted)]
    removed = 0
    for ops in todo:
        with suppress(Refused):
            keeper.multi(ops)
            removed += sum(isinstance(op, Delete) for op in ops)
    for part in _failed_long_ago(replica):
        with suppress(Refused):
            keeper.multi([Delete(replica.table.quorum_failed(part))])
            removed += 1
    return removed


def _failed_long_ago(replica: Replica) -> list[PartName]:
    keeper, table = replica.keeper, replica.table
    [names] = keeper.children_many([table.quorum_failed_parts])
    if not names:
        return []
    stats = keeper.exists_many([table.quorum_failed(name) for name in names])
    old_ms = _old_ms(replica)
    log = keeper.children(table.log)
    [first] = keeper.get_many([table.log_entry(log[0])]) if log else [None]
    # A failure that is older than the log's oldest entry: the part's own entry, which was written
    # before it failed, is gone. Clocks of ZooKeeper's servers may differ, transactions do not.
    before = inf if first is None else first[1].created_zxid
    old = [
        PartName.parse(name)
        for name, stat in zip(names, stats, strict=True)
        if stat is not None and stat.created_ms < old_ms and stat.created_zxid < before
    ]
    if log and first is None:
        return []  # the log was trimmed at this moment
    return [part for part in old if not _is_known(replica, part)]


def _old_ms(replica: Replica) -> float:
    """Before when, in ZooKeeper's time, a part must have failed so that no insert waits any more.
    Both our clock and that of ZooKeeper have to say so. Either may be ahead by days for a moment:

    1. An insert waits for its quorum, which fails. The log goes on, and is trimmed.
    2. Our clock jumps: the failure seems to be of the day before, and is forgotten.
    3. The insert finds neither a node that it waits for nor a failure: it would be answered as
       done, and its rows are nowhere.
    """
    path = replica.table.quorum_failed_parts
    replica.keeper.multi([SetData(path)])
    [stat] = replica.keeper.exists_many([path])
    now_ms = 0 if stat is None else stat.modified_ms
    return min(replica.clock.now_s() * 1000, now_ms) - FAILED_KEPT_S * 1000


def _is_known(replica: Replica, part: PartName) -> bool:
    """Whether a replica has the part, or an entry that makes it. The queues are read first. What is
    left of a replica whose drop has begun is not asked.
    """
    keeper, table = replica.keeper, replica.table
    peers = [table.replica(name) for name in staying_replicas(keeper, table)]
    queues: Sequence[Sequence[str] | None] = keeper.children_many([p.queue for p in peers])
    texts = keeper.get_many(
        [
            peer.queue_entry(node)
            for peer, nodes in zip(peers, queues, strict=True)
            for node in nodes or ()
        ]
    )
    name = str(part).encode()
    if any(read is not None and name in read[0] for read in texts):
        return True
    return any(s is not None for s in keeper.exists_many([p.part(part) for p in peers]))
