"""The fourth step of a restore (`restore`): what all replicas have announced becomes the table."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.protocol.inserts.ids import block_id
from rmt_pipeline.protocol.inserts.rows import Moved
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import AlterMetadata, GetPart
from rmt_pipeline.protocol.nodes.formats import PartHeader, number_of
from rmt_pipeline.protocol.nodes.records import UNKNOWN_BLOCK, Announced, Restoring
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.restoring import Promised, United, unite
from rmt_pipeline.replica.forget import forget, forget_copy, forget_lost, renumber
from rmt_pipeline.replica.insert.record import read_record
from rmt_pipeline.replica.life.known_inserts import (
    forget_tries,
    name_what_came_again,
    tries_of,
    unbound,
)
from rmt_pipeline.replica.life.restoring import CHANGED, alone
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper import restore_transactions
from rmt_pipeline.zookeeper.batches import batches
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Keeper,
    Op,
    RefusalKind,
    Refused,
    SetData,
    Stat,
)
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from rmt_pipeline.zookeeper.snapshot import entries_from

_OPS_TOGETHER = 1000


def open_restored(replica: Replica) -> United | None:
    """Make what all replicas have announced the table, and let them become active. None if another
    process was faster, or if some replicas have to announce their parts again. Raises Conflict
    while another process opens it, or if a replica came or was dropped meanwhile.
    """
    table = replica.table
    try:
        with alone(replica.session, table, [Check(table.restoring)]):
            return _open_locked(replica)
    except Refused as refused:
        if refused.path == table.restoring and refused.kind is RefusalKind.NO_NODE:
            return None
        raise Conflict(CHANGED.format(table.root)) from refused


def _open_locked(replica: Replica) -> United | None:
    """Open the table. A copy that was given up for another replica's must not be lost when that
    replica is dropped:

    1. r2 was waited for last. It has other rows than r1 under one name, gives its copy up for that
    of r1, and dies before the table is open. 2. r1 is gone for good, and dropped. 3. The process
    that opens the table now finds no promise of r2's copy, which is the last one.

    So it is noted with a replica that gives something up among which replicas that was decided. If
    these are not the same any more, it announces all its parts again.
    """
    keeper, table = replica.session, replica.table
    names = keeper.children(table.restoring)
    reads = keeper.get_many([table.restoring, *map(table.restoring_replica, names)])
    if any(read is None or not read[0] for read in reads):
        raise Conflict(CHANGED.format(table.root))
    [restoring, *announcements] = [read for read in reads if read is not None]
    said = {
        name: Announced.decode(data)
        for name, (data, _) in zip(names, announcements, strict=True)
    }
    versions = {
        name: stat.version for name, (_, stat) in zip(names, announcements, strict=True)
    }
    among = tuple(
        f"{name} {stat.created_zxid}"
        for name, (_, stat) in zip(names, announcements, strict=True)
    )
    outdated = [name for name in names if said[name].given_up_among not in ((), among)]
    if outdated:
        again = [
            SetData(table.restoring_replica(name), b"", versions[name]) for name in outdated
        ]
        keeper.multi([*again, Delete(table.restoring_lock)])
        return None
    held = {name: _held(keeper, table, name) for name in names}
    dropped = {name: one.dropped for name, one in said.items()}
    unseen = [part for one in said.values() for part in one.unseen]
    inserts = tries_of(replica, said)
    united = unite(held, dropped, unseen, inserts.values())
    ranges = [one for some in dropped.values() for one in some]
    for name in {one.replica for one in united.given_up}:
        if said[name].given_up_among != among:
            noted = replace(said[name], given_up_among=among).encode()
            keeper.multi([SetData(table.restoring_replica(name), noted, versions[name])])
            versions[name] += 1
    _forget_given_up(replica, united, held, ranges)  # while the copies are still promised
    forget_tries(replica, united, inserts)  # after a crash the same is decided again
    _give_up(keeper, table, united)
    _name_what_came_again(replica, said, united, held, ranges)
    _forget_dropped(replica, ranges)
    _forget_unheld(replica, united, held)
    queued = _bring_metadata(replica, names)
    log = _log_parts(replica, united, restoring, names)
    quorums = _quorums_of_before(keeper, table)
    replicas = [table.replica(name) for name in names]
    marks = keeper.get_many([one.is_lost for one in replicas])
    not_lost = {
        one.is_lost: read[1].version
        for one, read in zip(replicas, marks, strict=True)
        if read is not None and read[0] == b"0"
    }
    opened = restore_transactions.open_table(
        table, versions, replicas, queued, log=log, not_lost=not_lost, gone=quorums
    )
    keeper.multi(opened)
    return united


def _quorums_of_before(keeper: Keeper, table: TablePaths) -> list[str]:
    """Return nodes of inserts that waited for a quorum before: their parts are in the table now."""
    [beside] = keeper.children_many([table.quorum_parallel])
    paths = [table.quorum_status, *map(table.quorum_of, beside or ())]
    stats = keeper.exists_many(paths)
    return [path for path, stat in zip(paths, stats, strict=True) if stat is not None]


def _held(keeper: Keeper, table: TablePaths, name: str) -> dict[PartName, PartHeader]:
    paths = table.replica(name)
    parts = keeper.children(paths.parts)
    reads = keeper.get_many([paths.part(part) for part in parts])
    return {
        PartName.parse(part): PartHeader.decode(read[0])
        for part, read in zip(parts, reads, strict=True)
        if read is not None
    }


def _give_up(keeper: Keeper, table: TablePaths, united: United) -> None:
    """Delete the promises of what is given up. The bytes are set aside when the replica starts: the
    flag `force_restore_data` tells it that this was decided.
    """
    for name in sorted({one.replica for one in united.given_up}):
        paths = table.replica(name)
        if keeper.exists(paths.force_restore_data) is None:
            keeper.multi([Create(paths.force_restore_data)])
        gone = [Delete(paths.part(one.part)) for one in united.given_up if one.replica == name]
        for batch in batches(gone, bytes_max=limits.MULTI_BYTES_MAX):
            keeper.multi(batch)


class _Content(NamedTuple):
    """What a part's header says of its rows: equal for two parts with equal rows."""

    partition: str
    in_order: int
    row_hash: int

    @classmethod
    def of(cls, part: PartName, header: PartHeader) -> "_Content":
        texts = header.hash_of_uncompressed_files, header.uncompressed_hash_of_compressed_files
        return cls(part.partition, *(int.from_bytes(text, "little") for text in texts))


def _promised(united: United, held: Promised) -> dict[PartName, _Content]:
    """Return all parts that any replica promises from now on, with their contents."""
    given_up = {(one.replica, one.part) for one in united.given_up}
    return {
        part: _Content.of(part, header)
        for name, promised in held.items()
        for part, header in promised.items()
        if (name, part) not in given_up
    }


def _kept(united: United, held: Promised) -> dict[_Content, PartName]:
    """Return the contents of these parts, each with one of them."""
    kept = _promised(united, held)
    return {kept[part]: part for part in sorted(kept, key=lambda one: one in united.parts)}


def _name_what_came_again(
    replica: Replica,
    said: Mapping[str, Announced],
    united: United,
    held: Promised,
    dropped: Collection[PartName],
) -> None:
    if dropped:
        stay = {
            part: (content.in_order, content.row_hash)
            for part, content in _promised(united, held).items()
            if part not in united.repeats
        }
        name_what_came_again(replica, said, stay, dropped)


def _forget_given_up(
    replica: Replica, united: United, held: Promised, dropped: Collection[PartName]
) -> None:
    """Forget the ids of given-up copies of parts that stay, if their rows differ and are in no
    other part: these rows may be inserted again, and must not be answered as duplicates. If a
    larger part covers the copies, nothing tells which of them is in it.
    """
    plain, kept = unbound(replica), _kept(united, held)
    for one in united.given_up:
        content = _Content.of(one.part, held[one.replica][one.part])
        if any(by.contains(one.part) for by in dropped) or content in kept:
            continue
        if one.part in united.parts:
            forget_copy(plain, one.part, content.in_order, content.row_hash)


def _forget_unheld(replica: Replica, united: United, held: Promised) -> None:
    """Forget blocks that no part of the table has, so that they may be inserted again: of parts
    that were given up, of a replica that was dropped after it had announced them, and what an older
    copy of ZooKeeper knows and no disk has any more. But what names a block whose rows a part has
    under another name, names that from now on: so a drop of it forgets them.
    """
    plain, maximal = unbound(replica), PartSet(united.parts)
    named = _named(plain, _kept(united, held))
    unheld = [one for one in named if maximal.containing(one[0]) is None]
    lost = {gone for one, now in unheld if now is None for gone in _not_in(maximal, one)}
    moved = {str(one): now for one, now in unheld if now is not None}
    if lost:
        forget_lost(plain, sorted(lost))
    if moved:
        renumber(plain, Moved.of(moved.items()))


def _named(
    plain: Replica, kept: Mapping[_Content, PartName]
) -> Iterator[tuple[PartName, PartName | None]]:
    """Yield all blocks that ids and records name, each with the part that has the same rows."""
    keeper, table = plain.keeper, plain.table
    by_id, by_rows = dict[str, PartName](), dict[tuple[str, str], PartName]()
    for content, part in kept.items():
        by_id[block_id(part.partition, content.in_order)] = part
        by_rows[part.partition, f"{content.row_hash:032x}"] = part
    names = keeper.children(table.blocks)
    for name, read in zip(names, keeper.get_many(list(map(table.block, names))), strict=True):
        block = PartName.try_parse("" if read is None else read[0].decode(errors="replace"))
        if block is not None:
            yield (
                PartName(block.partition, block.block_min, block.block_max, 0),
                by_id.get(name),
            )
    for insert_id in keeper.children(table.inserts):
        known = read_record(plain, insert_id)
        for line in () if known is None else known.lines:
            if line.first != UNKNOWN_BLOCK:
                now = by_rows.get((line.partition, line.row_hash))
                yield PartName(line.partition, line.first, line.last, 0), now


def _not_in(parts: PartSet, part: PartName) -> Iterator[PartName]:
    """Yield the ranges of the part's blocks that none of `parts` has."""
    first = part.block_min
    for other in parts.intersecting(part):
        if first < other.block_min:
            yield PartName(part.partition, first, other.block_min - 1, 0)
        first = other.block_max + 1
    if first <= part.block_max:
        yield PartName(part.partition, first, part.block_max, 0)


def _forget_dropped(replica: Replica, dropped: Collection[PartName]) -> None:
    """Forget what one disk knows to be dropped, so that it may be inserted again: the disk of a
    replica that had yet to carry out the drop, or an older copy of ZooKeeper, still has its ids.
    """
    if dropped:
        forget(unbound(replica), dropped)


def _bring_metadata(replica: Replica, names: Sequence[str]) -> list[tuple[ReplicaPaths, bytes]]:
    """Give the table the newest structure that a disk knows, under the version that it has there:
    each part says with which version it was written. Return queue entries for the replicas that
    have yet to apply it.
    """
    keeper, table = replica.session, replica.table
    (metadata, stat), (columns, _) = keeper.get(table.metadata), keeper.get(table.columns)
    applied = {name: _applied(keeper, table.replica(name)) for name in names}
    version = stat.version
    newest = max(applied.values(), default=_Structure(0, b"", b""))
    if newest.version > version:
        raised: list[Op] = [
            SetData(table.metadata, newest.metadata, number)
            for number in range(version, newest.version)
        ]
        for batch in batches(raised, bytes_max=limits.MULTI_BYTES_MAX):
            keeper.multi([*batch, SetData(table.columns, newest.columns)])
        version, metadata, columns = newest
    entry = AlterMetadata(
        create_time=int(replica.clock.now_s()),
        source_replica="",
        alter_version=version,
        have_mutation=False,
        columns_text=columns.decode(),
        metadata_text=metadata.decode(),
    )
    return [
        (table.replica(name), encode(entry))
        for name, one in applied.items()
        if one.version < version
    ]


class _Structure(NamedTuple):
    version: int
    metadata: bytes
    columns: bytes


def _applied(keeper: Keeper, paths: ReplicaPaths) -> _Structure:
    reads = keeper.get_many([paths.metadata_version, paths.metadata, paths.columns])
    version, metadata, columns = [b"" if read is None else read[0] for read in reads]
    return _Structure(number_of(version), metadata, columns)


def _log_parts(
    replica: Replica, united: United, restoring: tuple[bytes, Stat], names: Collection[str]
) -> int:
    """Write each part into the log, as if the replica that has it had just inserted it. Return
    where in the log they begin: every replica copies the log from there on.

    What a process that died has written is not written again. But if some of that is of a replica
    that was dropped since, the others would look for a part that no replica has: then all of it is
    left behind, and written once more after it.
    """
    keeper, table = replica.session, replica.table
    log = Restoring.decode(restoring[0]).log
    written = entries_from(keeper, table, log)
    there = {entry.part: entry for entry in written if isinstance(entry, GetPart)}
    if any(
        part not in united.parts or entry.source_replica not in names
        for part, entry in there.items()
    ):
        _, stat = keeper.children_stat(table.log)
        log, there = stat.next_sequence, {}
        keeper.multi([SetData(table.restoring, Restoring(log).encode(), restoring[1].version)])
    now_s = int(replica.clock.now_s())
    ops = [
        Create(
            table.log_prefix,
            encode(GetPart(create_time=now_s, source_replica=source, part=part)),
            sequence=True,
        )
        for part, source in united.parts.items()
        if part not in there
    ]
    for batch in batches(ops, bytes_max=limits.MULTI_BYTES_MAX, ops_max=_OPS_TOGETHER):
        keeper.multi(batch)
    return log


def given_up_words(united: United) -> Iterator[str]:
    """Yield what became of each copy that was given up."""
    for one in united.given_up:
        yield f"{one.part} of replica {one.replica} is set aside in detached/: {one.reason}"
