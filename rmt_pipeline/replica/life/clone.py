"""Clone: a replica that lost its place in the log takes over another replica's state (spec §11.5).

A replica that joins a table with data begins as a lost one too. Every step can be repeated: until
the last one `is_lost` says "1", and the next start begins again.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, UserError
from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.protocol.log.entry import (
    AlterMetadata,
    GetPart,
    LogEntry,
    drop_range_of,
    parts_brought,
)
from rmt_pipeline.protocol.nodes.formats import number_of
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet, contained_in
from rmt_pipeline.replica.quorum import read_quorums
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.alter_transactions import read_at_once
from rmt_pipeline.zookeeper.batches import batches
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Op,
    RefusalKind,
    Refused,
    SetData,
)
from rmt_pipeline.zookeeper.paths import ReplicaPaths, sequence_number
from rmt_pipeline.zookeeper.snapshot import entries_from


class AllReplicasLost(UserError):
    """Every replica of the table is lost: none of them can be cloned."""

    code = "ALL_REPLICAS_LOST"


class ReplicaStatusChanged(Conflict):
    """The source was marked lost, or gave a part up, while it was cloned. Start again."""

    code = "REPLICA_STATUS_CHANGED"


@dataclass(frozen=True, slots=True)
class _Source:
    paths: ReplicaPaths
    is_lost_version: int
    lag: int
    creations: tuple[str, ...] = ()
    """Identify the source, so that a replica made under its name meanwhile is not taken for it.
    Empty if the source's creation was not noted.
    """

    def unchanged(self) -> list[Op]:
        """Return checks that the source is the same replica, is not lost, and has given up no part
        since.
        """
        return [
            *(Check(self.paths.creation(one)) for one in self.creations),
            Check(self.paths.is_lost, self.is_lost_version),
        ]


@dataclass(frozen=True, slots=True)
class Cloned:
    """What was taken over: `fetches` parts to fetch, and `entries` of the source's queue.
    `detached` are the parts that are not promised here any more, because the source does not know
    exactly them; their bytes, if they were here, are set aside or removed.
    """

    source: str
    fetches: int
    entries: int
    detached: tuple[PartName, ...]


def clone_if_lost(replica: Replica) -> Cloned | None:
    """Clone another replica if this one is lost; return None if it is not. Raises AllReplicasLost,
    ReplicaStatusChanged.
    """
    data, stat = replica.keeper.get(replica.paths.is_lost)
    if data != b"1":
        return None
    source = _choose_source(replica)
    _empty_queue(replica)
    cloned = _clone(replica, source)
    _end(replica, source, stat.version)
    return cloned


def mark_lost_if_log_is_gone(replica: Replica) -> int | None:
    """Return the first log entry that this replica has yet to copy and that is not there any more;
    None if all are there. If another replica has copied that entry, so that it can be cloned, this
    one is marked lost.

    The pointer is read first, then the log, so an entry that is copied in between does not look
    missing. The mark asserts that the pointer is where it was read.
    """
    keeper, table, paths = replica.keeper, replica.table, replica.paths
    pointer, is_lost = keeper.get_many([paths.log_pointer, paths.is_lost])
    if pointer is None or is_lost is None or not pointer[0] or is_lost[0] == b"1":
        return None  # it never pulled, or is going to be cloned anyway
    names, log = keeper.children_stat(table.log)
    there = frozenset(map(sequence_number, names))
    new = range(int(pointer[0]), log.next_sequence)
    missing = next((number for number in new if number not in there), None)
    others = [name for name in keeper.children(table.replicas) if name != replica.name]
    if missing is None:
        return None
    for name in others:
        other = table.replica(name)
        theirs = keeper.get_many([other.is_lost, other.log_pointer])
        lost, copied = (None if read is None else read[0] for read in theirs)
        if lost == b"0" and copied and int(copied) > missing:
            with suppress(Refused):  # another process pulls or marks it at this moment
                keeper.multi(
                    [
                        Check(paths.log_pointer, pointer[1].version),
                        SetData(paths.is_lost, b"1", is_lost[1].version),
                    ]
                )
            break
    return missing


def _end(replica: Replica, source: _Source, own_version: int) -> None:
    """Mark this replica as not lost, if the source is still what was taken over, and this one was
    not marked anew.
    """
    try:
        replica.keeper.multi(
            [
                *source.unchanged(),
                SetData(replica.paths.is_lost, b"0", own_version),
            ]
        )
    except Refused as refused:
        raise _changed(source) from refused


def _choose_source(replica: Replica) -> _Source:
    """Choose the replica that is least behind, active or not. It must not be lost itself, nor be
    dropped: a drop begins with `is_lost`.
    """
    keeper, table = replica.keeper, replica.table
    names = [name for name in keeper.children(table.replicas) if name != replica.name]
    _, log = keeper.children_stat(table.log)
    sources = []
    for name in names:
        paths = table.replica(name)
        creations, queue = keeper.children_many([paths.creations, paths.queue])
        lost, pointer = keeper.get_many([paths.is_lost, paths.log_pointer])
        if lost is None or pointer is None or queue is None or lost[0] == b"1":
            continue
        lag = log.next_sequence - number_of(pointer[0]) + len(queue)
        sources.append(_Source(paths, lost[1].version, lag, tuple(creations or ())))
    if not sources:
        raise AllReplicasLost(
            f"{replica} is lost and no other replica of {table.root} can be cloned "
            f"({', '.join(names) or 'there is none'}); decide which replica has the data, set its "
            "is_lost to 0, and restart its server"
        )
    return min(sources, key=lambda source: (source.lag, source.paths.root))


def _empty_queue(replica: Replica) -> None:
    paths = replica.paths
    nodes = replica.keeper.children(paths.queue)
    for start in range(0, len(nodes), limits.MULTI_OPS_MAX):
        batch = nodes[start : start + limits.MULTI_OPS_MAX]
        replica.keeper.multi([Delete(paths.queue_entry(node)) for node in batch])


def _clone(replica: Replica, source: _Source) -> Cloned:
    """Take over the source's state: pointer and queue first, parts second. What the source executes
    in between is then in its parts, and nothing can be missing from both (spec §16.7 C4).

    Only entries that are still in the queue once all were read are taken. They are read one after
    the other, and a drop that the source executes between two answers removes entries that were
    read before it: their parts would be fetched, and not dropped any more.

    What was inserted at the source behind a drop that it has yet to pull is not taken: this replica
    pulls both from the log, in their order.
    """
    keeper = replica.keeper
    nodes, pointer = _copy_pointer(replica, source)
    reads = keeper.get_many([source.paths.queue_entry(node) for node in nodes])
    there = frozenset(keeper.children(source.paths.queue))
    entries = [
        (read[0], decode(read[0], ctime_s=read[1].created_ms // 1000))
        for node, read in zip(nodes, reads, strict=True)
        if node in there and read is not None
    ]
    have, exact, ranges = _expected(entries)
    for name in keeper.children(source.paths.parts):
        have.add(PartName.parse(name))
    stays = [part for part in have if not any(drop.contains(part) for drop in ranges)]
    is_coming = contained_in([*stays, *exact])
    made, dropped = _still_to_pull(replica, pointer)
    wanted = [part for part in stays if part not in made or part.partition not in dropped]
    detached = _leave(replica, exact.union(have, made), is_coming, source)
    created = _created_times(replica, source, wanted)
    awaited = {entry.part: entry.required for entry in read_quorums(replica).entries()}
    fetches = [_get(part, created.get(part, 0), awaited.get(part, 0)) for part in wanted]
    others = [(data, entry) for data, entry in entries if not _is_get_of(entry, have)]
    queue = [*_metadata(replica, source), *_in_order(fetches, others)]
    _fill_queue(replica, source, queue)
    return Cloned(source.paths.name, len(wanted), len(queue) - len(wanted), detached)


def _copy_pointer(replica: Replica, source: _Source) -> tuple[list[str], int]:
    """Make the source's log pointer ours, at a moment for which the names in its queue are right;
    return those names, and the pointer.

    Which mutations this replica had finished is forgotten: the source may have finished fewer, and
    its parts become ours.
    """
    keeper = replica.keeper
    finished = replica.paths.finished_mutations
    forget = [Delete(finished)] if keeper.exists(finished) is not None else []
    for _ in range(limits.CLONE_ROUNDS_MAX):
        pointer, stat = keeper.get(source.paths.log_pointer)
        nodes = keeper.children(source.paths.queue)
        try:
            keeper.multi(
                [
                    SetData(replica.paths.log_pointer, pointer),
                    SetData(replica.paths.mutation_pointer),
                    *forget,
                    *source.unchanged(),
                    Check(source.paths.log_pointer, stat.version),
                ]
            )
        except Refused as refused:
            if (
                refused.path == source.paths.log_pointer
                and refused.kind is RefusalKind.BAD_VERSION
            ):
                continue
            raise _changed(source) from refused
        return nodes, number_of(pointer)
    raise _changed(source)


def _expected(
    entries: Sequence[tuple[bytes, LogEntry]],
) -> tuple[PartSet, set[PartName], list[PartName]]:
    """Return what the source's queue will bring: the parts to get, the names that other entries
    will make, and the ranges that are dropped.
    """
    ranges = [dropped for _, entry in entries if (dropped := drop_range_of(entry)) is not None]
    have = PartSet()
    exact: set[PartName] = set()
    for _, entry in entries:
        if isinstance(entry, GetPart):
            have.add(entry.part)
        else:
            exact.update(parts_brought(entry))
    return have, exact, ranges


def _leave(
    replica: Replica,
    stay: Collection[PartName],
    is_coming: Callable[[PartName], bool],
    source: _Source,
) -> tuple[PartName, ...]:
    """Stop promising all parts but those that `stay`: what the source does not know by exactly its
    name is gone, even if it is covered, since it may hold rows that were dropped through a gap
    (spec §16.7 C5). The bytes go to `detached` before ZooKeeper forgets the parts, so that this can
    be repeated after a crash.

    Parts that log entries behind the source's pointer make stay: the source has yet to carry these
    out, and no other replica may have a copy of what was inserted here, or was merged from it. This
    replica pulls these entries in its turn, and finds their parts made.

    A part that is contained in one still to come is marked first, so that readers wait for that
    one. They need not wait for what was dropped.
    """
    promised = [PartName.parse(name) for name in replica.keeper.children(replica.paths.parts)]
    gone = [part for part in promised if part not in stay]
    lost, stat = replica.keeper.get(source.paths.is_lost)
    if lost == b"1" or stat.version != source.is_lost_version:
        raise _changed(source)
    replica.store.marks.give_up(*filter(is_coming, gone))
    for part in gone:
        if not replica.store.has(part):
            continue
        if replica.settings.detach_old_local_parts_when_cloning_replica:
            replica.store.detach(part, "clone")
        else:
            replica.store.remove(part)  # while a reader holds it, it stays, without a promise
    for start in range(0, len(gone), limits.MULTI_OPS_MAX):
        batch = gone[start : start + limits.MULTI_OPS_MAX]
        replica.keeper.multi([Delete(replica.paths.part(part)) for part in batch])
    return tuple(gone)


def _still_to_pull(
    replica: Replica, pointer: int
) -> tuple[frozenset[PartName], frozenset[str]]:
    """Return the parts that the log entries from `pointer` on make, and the partitions in which
    they drop something.
    """
    entries = entries_from(replica.keeper, replica.table, pointer)
    ranges = filter(None, map(drop_range_of, entries))
    return (
        frozenset(part for entry in entries for part in parts_brought(entry)),
        frozenset(one.partition for one in ranges),
    )


def _created_times(
    replica: Replica, source: _Source, parts: Sequence[PartName]
) -> dict[PartName, int]:
    stats = replica.keeper.exists_many([source.paths.part(part) for part in parts])
    return {
        part: stat.created_ms // 1000
        for part, stat in zip(parts, stats, strict=True)
        if stat is not None
    }


def _get(part: PartName, create_time: int, quorum: int) -> GetPart:
    """Return an entry of our own: it has no source replica, because it never was in the log."""
    return GetPart(create_time=create_time, source_replica="", part=part, quorum=quorum)


def _in_order(
    fetches: Sequence[GetPart], entries: Sequence[tuple[bytes, LogEntry]]
) -> Iterator[bytes]:
    """Of the source's parts first, but behind the last drop in their partition that the source has
    yet to carry out: it may have inserted them after that, and this replica may still have parts
    that are dropped. What is queued before a drop does not wait for it.
    """
    last_drops = {
        dropped.partition: number
        for number, (_, entry) in enumerate(entries)
        if (dropped := drop_range_of(entry)) is not None
    }
    behind: dict[int | None, list[bytes]] = {}
    for fetch in fetches:
        behind.setdefault(last_drops.get(fetch.part.partition), []).append(encode(fetch))
    yield from behind.get(None, ())
    for number, (data, _) in enumerate(entries):
        yield data
        yield from behind.get(number, ())


def _is_get_of(entry: LogEntry, have: PartSet) -> bool:
    return isinstance(entry, GetPart) and have.containing(entry.part) is not None


def _metadata(replica: Replica, source: _Source) -> list[bytes]:
    """Return an entry that brings this replica to the source's version of the table's structure, if
    it has another one; it is carried out first.
    """
    keeper, mine, theirs = replica.keeper, replica.paths, source.paths
    reads = read_at_once(
        keeper,
        [theirs.metadata_version, theirs.metadata, theirs.columns, mine.metadata_version],
    )
    if reads is None:
        raise _changed(source)
    version, metadata, columns, own_version = [data for data, _ in reads]
    if own_version == version:
        return []
    entry = AlterMetadata(
        create_time=int(replica.clock.now_s()),
        source_replica="",
        alter_version=int(version),
        have_mutation=False,
        columns_text=columns.decode(),
        metadata_text=metadata.decode(),
    )
    return [encode(entry)]


def _fill_queue(replica: Replica, source: _Source, queue: Sequence[bytes]) -> None:
    ops = [Create(replica.paths.queue_prefix, data, sequence=True) for data in queue]
    most = limits.LOG_ENTRIES_PER_PULL_MAX
    for batch in batches(ops, bytes_max=limits.MULTI_BYTES_MAX, ops_max=most):
        try:
            replica.keeper.multi([*source.unchanged(), *batch])
        except Refused as refused:
            raise _changed(source) from refused


def _changed(source: _Source) -> ReplicaStatusChanged:
    return ReplicaStatusChanged(
        f"replica {source.paths.name} changed while it was being cloned; trying again"
    )
