"""SYSTEM RESTORE REPLICA: ZooKeeper lost the table, and its replicas make it again from the parts
on their disks (spec §11.6).

    ZooKeeper has     ──begin──► T/restoring ──each replica──► every node below ──open──► the table
    no such table                                announces     T/restoring is full

1. **Begin.** SYSTEM RESTORE REPLICA is given on the server of r1. One multi makes the table's
   nodes, the node `T/restoring`, and below it an empty node for each replica that r1's disk has
   known of: these are waited for. As long as `T/restoring` is there no replica becomes active. So
   no block number is given out, and nothing is inserted, merged or cleaned up: a number or a merge
   could be one that a disk knows already. (`_begin`)
2. **Announce.** r1 makes its own nodes what its disk says: its parts, the numbers that they have,
   the inserts that they tell of. The last request writes into `T/restoring/r1` what the others have
   to know: which ranges r1 has dropped, and which parts it never saw promised. Until then the node
   is empty, and the command, repeated, begins this step anew. (`announce`)
3. **Wait.** r2 and r3 do the same, in any order or at once. A replica that will never come is
   removed with SYSTEM DROP REPLICA: that deletes its node below `T/restoring`.
4. **Open.** A process that finds that no node below `T/restoring` is empty takes the lock
   `T/restoring_lock`, which goes with its session, and decides which parts are the table
   (`protocol.restoring`). Parts keep their names, for these say which rows are in two parts of two
   disks: nothing is renamed, copied or attached. A copy that is not in the table is given up: its
   promise is deleted, and its bytes go to `detached/` when its server starts. All parts go into the
   log, so that the others fetch them. The last multi asserts that no replica has come or gone, and
   deletes `T/restoring` and the lock. (`_open`)
5. **Start.** Each server starts its replica as after any other crash.

What may come in between:

* A process dies at any step: the command, repeated, or a server that starts, goes on. Each request
  of step 2 asserts the version of the node below `T/restoring`, and each one of step 4 belongs to
  the session of the lock: no late request of a dead process lands.
* A replica is dropped after another one has given up a copy for it, and before the table is open:
  the other one announces its parts again (`_open_locked`).
* ZooKeeper was not lost, but restored from an older copy: then step 1 makes `T/restoring` in the
  table that is there, if no replica is active, and step 2 corrects what the copy says.
* The table was opened without a replica, and works: that replica joins it as a new one does, and
  clones. Of its parts those stay that others have, too; the rest goes to `detached/`. (`_join`)

All requests go through the session itself: what `BoundKeeper` asserts of a replica is made here.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, MissingPart, UserError
from rmt_pipeline.protocol.inserts.ids import block_id
from rmt_pipeline.protocol.inserts.rows import Moved
from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.protocol.log.entry import AlterMetadata, GetPart
from rmt_pipeline.protocol.nodes.formats import PartHeader, number_of
from rmt_pipeline.protocol.nodes.records import UNKNOWN_BLOCK, Announced, Restoring
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.restoring import Promised, United, unite
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.forget import forget, forget_copy, forget_lost, renumber
from rmt_pipeline.replica.insert.record import read_record
from rmt_pipeline.replica.life.announce import announce, become_another, texts_of
from rmt_pipeline.replica.life.create import at_version, check_structure, still_this_table
from rmt_pipeline.replica.life.disk_parts import DiskParts, parts_of_disk
from rmt_pipeline.replica.life.drop import remove_leftovers
from rmt_pipeline.replica.life.known_inserts import forget_tries, tries_of, unbound
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.rewound import (
    BeingRestored,
    ZooKeeperIsOlder,
    require_as_seen,
    require_log_as_seen,
    require_no_namesake,
)
from rmt_pipeline.zookeeper import restore_transactions, transactions
from rmt_pipeline.zookeeper.alter_transactions import read_at_once
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
    absent,
)
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths, ancestors, log_entry_name
from rmt_pipeline.zookeeper.snapshot import living_replicas
from rmt_pipeline.zookeeper.strays import seen_to

_OPS_TOGETHER = 1000
_OPENINGS_MAX = 3  # tries of one call, if replicas are dropped meanwhile
_CHANGED = "{}: a replica came, or was dropped, while it was opened; try again"


class NothingToRestore(UserError):
    """ZooKeeper has the replica, and all that its disk has seen of it."""

    code = "REPLICA_STATUS_CHANGED"


@dataclass(frozen=True, slots=True)
class Restored:
    """What one call did. `waits_for`: replicas that have yet to announce their parts; empty when
    the table is whole. `left_out`: parts of this disk that are not in the table, with the reason;
    `given_up`: of all replicas, when this call `opened` the table. `joined`: the table was there
    already, and this replica clones another one.
    """

    parts: int
    rows: int
    inserts: int
    left_out: tuple[tuple[str, str], ...] = ()
    given_up: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    joined: bool = False
    opened: bool = False

    def words(self) -> str:
        told = [f"{self.rows} rows in {self.parts} parts of this disk are in ZooKeeper"]
        if self.joined:
            told[0] += ", which other replicas have, too; the rest is cloned from them"
        if self.inserts:
            told.append(f"{self.inserts} inserts are known again")
        told += [f"{part} was left out: {reason}" for part, reason in self.left_out]
        told += list(self.given_up)
        if self.waits_for:
            told.append(
                f"read-only until it is restored on {', '.join(self.waits_for)}, too; a replica "
                "that is gone for good: SYSTEM DROP REPLICA"
            )
        if self.opened:
            told.append(
                "the table is open: a DROP or DETACH, a mutation or an ALTER that no replica had "
                "carried out is not known any more, and a mutation may be in some parts only: look "
                "at the rows, and say it again"
            )
        return "; ".join(told)


def restore(replica: Replica, creator: bytes) -> Restored:
    """Announce this disk's parts, and open the table if no other replica is waited for.

    Raises NothingToRestore; UserError if the table is active, or other replicas have to be restored
    first; Conflict if another process restores or removes the table: repeat it.
    """
    replica = replace(replica)  # it becomes another one: not the one that other threads mean
    keeper, table = replica.session, replica.table
    keeper.sync("/")  # else a ZooKeeper server that is behind may answer with an older table
    disk = parts_of_disk(replica)
    for part in replica.store.marks.given_up():  # from now on another part may have its name
        replica.store.marks.looked_again(part)
    if not _begin(replica):
        return _join(replica, creator, disk)
    for _ in range(_OPENINGS_MAX):
        inserts = announce(replica, creator, disk)
        waits_for = _awaited(keeper, table)
        united = None if waits_for else _open(replica)
        if not waits_for and united is None:
            waits_for = _awaited(keeper, table)
        if replica.name not in waits_for:
            break
    return Restored(
        parts=len(disk.parts),
        rows=sum(manifest.rows for manifest in disk.parts.values()),
        inserts=inserts,
        left_out=tuple((str(part), reason) for part, reason in disk.left_out),
        given_up=() if united is None else tuple(_words(united)),
        waits_for=waits_for,
        opened=united is not None,
    )


def require_not_restoring(replica: Replica) -> None:
    """Raise BeingRestored, which says what to do, if the table is being restored. If all replicas
    have announced their parts, and the process of the last one died before it opened the table, the
    table is opened here.
    """
    keeper, table = replica.session, replica.table
    [names] = keeper.children_many([table.restoring])
    if names is None:
        return
    waits_for = _awaited(keeper, table)
    if replica.name in names and not waits_for:
        _open(replica)
        waits_for = _awaited(keeper, table)
        if not waits_for:
            return
    todo = []
    if replica.name not in names or replica.name in waits_for:
        todo.append(f"say SYSTEM RESTORE REPLICA {replica.definition.full_name} on this server")
    others = ", ".join(name for name in waits_for if name != replica.name)
    if others:
        todo.append(
            f"say it on {others}, or, of one that is gone for good, SYSTEM DROP REPLICA"
        )
    raise BeingRestored(
        f"{replica} is being restored from the disks of its replicas, and read-only until all are "
        f"there: {'; '.join(todo) or 'somebody is opening it'}"
    )


# --- beginning


def _begin(replica: Replica) -> bool:
    """Begin to restore the table. True: it is being restored now, and this replica is waited for.
    False: the table is there and not being restored, so this replica has to join it.

    Raises NothingToRestore, ReplicaDropped (another one was created in its place), UserError,
    Conflict.
    """
    for _ in range(limits.CREATE_TABLE_ROUNDS_MAX):
        require_no_namesake(replica)
        begun = _begun(replica)
        if begun is not None:
            return begun
    raise Conflict(
        f"{replica.table.root}: others created and dropped the table "
        f"{limits.CREATE_TABLE_ROUNDS_MAX} times while we tried; try again"
    )


def _begun(replica: Replica) -> bool | None:
    """Try once what `_begin` does; None if the table changed meanwhile: look again."""
    keeper, table, paths = replica.session, replica.table, replica.paths
    restoring, replicas, dropped, host, active = keeper.exists_many(
        [table.restoring, table.replicas, table.dropped, paths.host, paths.is_active]
    )
    if restoring is not None:
        return _is_awaited(replica)
    if dropped is not None:
        remove_leftovers(keeper, table)
        return None
    if replicas is None:
        return _sent(keeper, _ops_anew(replica))
    if active is not None:
        raise NothingToRestore(f"{replica} is active: there is nothing to restore")
    if host is None:
        _require_known_ones_first(replica)
        return False
    try:
        require_as_seen(replica)  # also if ZooKeeper is as before the first start
    except ZooKeeperIsOlder:
        return _sent(keeper, _ops_again(replica))
    if not host.data_length:
        return False
    raise NothingToRestore(
        f"{replica} is in ZooKeeper, which knows all that this disk has seen of it: there is "
        "nothing to restore; rmt status says why it is not active"
    )


def _require_known_ones_first(replica: Replica) -> None:
    """Raise ZooKeeperIsOlder if this replica, which an older copy of ZooKeeper does not know, would
    be restored before those that the copy knows:

    1. ZooKeeper goes back to before r2 was created. r2 has rows that r1 had yet to fetch.
    2. r2 is restored first. To the copy it is a replica that joins, and what no other one has is
       set aside: those rows leave the table. If r1 had been first, it would have waited for r2, and
       r2 would have announced them.

    If a replica is active and works with what the copy says, it is too late: then this one joins.
    """
    living = living_replicas(replica.session, replica.table)
    if not living or any(living.values()):
        return
    name = replica.definition.full_name
    require_log_as_seen(
        unbound(replica),
        f"It does not know this replica: say SYSTEM RESTORE REPLICA {name} (or rmt restore) on the "
        f"servers of {', '.join(living)} first, and then here; or, of one that is gone for good, "
        "SYSTEM DROP REPLICA. If the table is what they know, start one of them: then this replica "
        "joins it, and what nobody else has is set aside in detached/",
    )


def _is_awaited(replica: Replica) -> bool | None:
    """Make this replica one of those that are waited for, even if the one that began the restore
    does not know of it, and return True. None if the restore has ended meanwhile.
    """
    table = replica.table
    node = Create(table.restoring_replica(replica.name))
    with suppress(Refused):
        replica.session.multi([Check(table.restoring), node])
    there = replica.session.exists(table.restoring_replica(replica.name))
    return True if there is not None else None


def _sent(keeper: Keeper, ops: Sequence[Op]) -> bool | None:
    try:
        keeper.multi(ops)
    except Refused as refused:
        if refused.path.endswith("/is_active") and refused.kind is RefusalKind.NODE_EXISTS:
            raise UserError(
                f"{refused.path} is there: that replica works with what ZooKeeper knows. Stop its "
                "server, and then restore the table on all of them"
            ) from refused
        if refused.path.endswith("/restoring_lock"):
            raise _at_work(refused) from refused
        return None
    return True


def _at_work(refused: Refused) -> Conflict:
    return Conflict(
        f"{refused.path} is there: another process opens or joins the table, or one that died: "
        "then its ZooKeeper session ends soon. Try again in a moment"
    )


@contextmanager
def _alone(keeper: Keeper, table: TablePaths, asserted: Sequence[Op]) -> Iterator[None]:
    """Hold `T/restoring_lock`, so that no other process opens the table, joins it, or begins to
    restore it. The last multi inside deletes the lock. Raises Conflict while another process has
    it, and Refused if what is `asserted` does not hold.
    """
    lock = keeper.strays.marked(table.restoring_lock, keeper.session_id)
    try:
        with seen_to(keeper, [lock]):
            keeper.multi([*asserted, Create(lock.path, lock.mark.encode(), ephemeral=True)])
    except Refused as refused:
        if refused.path == lock.path:
            raise _at_work(refused) from refused
        raise
    try:
        yield
    except BaseException:
        keeper.strays.leave([lock])
        raise


def _known_replicas(replica: Replica) -> set[str]:
    return {replica.name, *replica.store.marks.replicas_seen()}


def _ops_anew(replica: Replica) -> list[Op]:
    missing = ancestors(replica.table.root)
    for path, stat in zip(missing, replica.session.exists_many(missing), strict=True):
        if stat is None:
            with suppress(Refused):
                replica.session.multi([Create(path)])
    metadata, columns = texts_of(replica)
    return restore_transactions.begin_anew(
        replica.table,
        replica.name,
        _known_replicas(replica),
        metadata=metadata,
        columns=columns,
    )


def _ops_again(replica: Replica) -> list[Op]:
    names, stat = replica.session.children_stat(replica.table.replicas)
    log = replica.session.exists(replica.table.log)
    return restore_transactions.begin_again(
        replica.table,
        names,
        _known_replicas(replica) | set(names),
        log=0 if log is None else log.next_sequence,
        replicas_version=stat.version,
    )


def _awaited(keeper: Keeper, table: TablePaths) -> tuple[str, ...]:
    """Return the replicas that have yet to announce their parts; none if the table is open."""
    [names] = keeper.children_many([table.restoring])
    if names is None:
        return ()
    reads = keeper.get_many([table.restoring_replica(name) for name in names])
    return tuple(
        name
        for name, read in zip(names, reads, strict=True)
        if read is not None and not read[0]
    )


# --- opening


def _open(replica: Replica) -> United | None:
    """Make what all replicas have announced the table, and let them become active. None if another
    process was faster, or if some replicas have to announce their parts again. Raises Conflict
    while another process opens it, or if a replica came or was dropped meanwhile.
    """
    table = replica.table
    try:
        with _alone(replica.session, table, [Check(table.restoring)]):
            return _open_locked(replica)
    except Refused as refused:
        if refused.path == table.restoring and refused.kind is RefusalKind.NO_NODE:
            return None
        raise Conflict(_CHANGED.format(table.root)) from refused


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
        raise Conflict(_CHANGED.format(table.root))
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


def _kept(united: United, held: Promised) -> dict[_Content, PartName]:
    """Return the contents of all parts that any replica promises from now on, each with one."""
    given_up = {(one.replica, one.part) for one in united.given_up}
    kept = {
        part: _Content.of(part, header)
        for name, promised in held.items()
        for part, header in promised.items()
        if (name, part) not in given_up
    }
    return {kept[part]: part for part in sorted(kept, key=lambda one: one in united.parts)}


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
    lost = {gone for one, now in unheld if now is None for gone in _not_in(united.parts, one)}
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


def _not_in(parts: Iterable[PartName], part: PartName) -> Iterator[PartName]:
    """Yield the ranges of the part's blocks that none of `parts` has."""
    first = part.block_min
    for other in sorted(parts, key=lambda one: one.block_min):
        if other.partition != part.partition or other.block_max < first:
            continue
        if other.block_min > part.block_max:
            break
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
    first = log_entry_name(log)
    written = [name for name in keeper.children(table.log) if name >= first]
    reads = keeper.get_many([table.log_entry(name) for name in written])
    entries = [decode(read[0]) for read in reads if read is not None]
    there = {entry.part: entry for entry in entries if isinstance(entry, GetPart)}
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


def _words(united: United) -> Iterator[str]:
    for one in united.given_up:
        yield f"{one.part} of replica {one.replica} is set aside in detached/: {one.reason}"


# --- coming late


def _join(replica: Replica, creator: bytes, disk: DiskParts) -> Restored:
    """Join a table that is there without this replica, as a new replica does: it clones. Its parts
    that are equal to another replica's stay. Its other parts are set aside: the numbers in
    their names may belong to other parts by now.

    It holds the lock, and asserts that nothing is being restored:

    1. This process finds ZooKeeper empty, and nothing being restored. 2. Another process of the
    same replica begins to restore it: now the table has replicas, and this one is waited for.
    3. This process takes that for a table to join, and sets aside what the other one announces.
    """
    keeper, table = replica.session, replica.table
    names, stat = keeper.children_stat(table.replicas)
    same_table = still_this_table(keeper, table, names)
    read = read_at_once(keeper, [table.metadata, table.columns])
    if read is None:
        raise Conflict(f"{table.root} is being dropped; try again")
    (metadata, metadata_stat), (columns, _) = read
    if replica.name in names:
        raise NothingToRestore(
            f"{replica} is in ZooKeeper already, and clones another replica when its server runs"
        )
    there = at_version(keeper, table, replica.definition, metadata_stat.version)

    def joined(now: TableDefinition) -> TableDefinition:
        check_structure(now, metadata, columns, table.root)
        return replace(now, metadata_version=there.metadata_version, history=there.history)

    equal = _equal_elsewhere(replica, names, disk)
    unchanged = [*same_table, Check(table.replicas, stat.version), *absent(table.restoring)]
    try:
        with _alone(keeper, table, unchanged):
            creation = become_another(replica, joined)
            ops: list[Op] = [
                *same_table,
                *transactions.create_replica(
                    replica.paths,
                    is_lost=True,
                    metadata=metadata,
                    columns=columns,
                    metadata_version=metadata_stat.version,
                    creator=creator,
                    creation=creation,
                ),
                transactions.announce_replica(table, replica.name, stat.version),
            ]
            promises = [
                Create(replica.paths.part(part), disk.parts[part].header().encode())
                for part in sorted(equal)
            ]
            together = next(batches([*ops, *promises], bytes_max=limits.MULTI_BYTES_MAX))
            left_out = [*disk.left_out, *_set_aside(replica, equal, disk)]
            replica.store.marks.forget_log_seen()
            keeper.multi([*together, Delete(table.restoring_lock)])
    except Refused as refused:
        raise Conflict(
            f"{replica}: the table's replicas changed while it joined; say it again"
        ) from refused
    stay = sorted(equal)[: len(together) - len(ops)]
    return Restored(
        parts=len(stay),
        rows=sum(disk.parts[part].rows for part in stay),
        inserts=0,
        left_out=tuple((str(part), reason) for part, reason in left_out),
        joined=True,
    )


def _equal_elsewhere(
    replica: Replica, names: Iterable[str], disk: DiskParts
) -> frozenset[PartName]:
    """Return the parts of this disk of which another replica promises an equal one."""
    others = [replica.table.replica(name) for name in names if name != replica.name]
    asked = [(part, other.part(part)) for part in disk.parts for other in others]
    reads = replica.session.get_many([path for _, path in asked])
    return frozenset(
        part
        for (part, _), read in zip(asked, reads, strict=True)
        if read is not None
        and PartHeader.decode(read[0]).difference(disk.parts[part].header()) is None
    )


def _set_aside(
    replica: Replica, stay: Collection[PartName], disk: DiskParts
) -> Iterator[tuple[PartName, str]]:
    """Remove all parts but those that stay from the table: what a larger one covers is deleted, the
    rest goes to `detached/`. Yields those that had rows of the table, with the reason.
    """
    store, covering = replica.store, PartSet(stay)
    for part in store.parts():
        if part in stay:
            continue
        # raises if the session has ended: then another process joins, and brings parts of its own
        replica.session.exists(replica.table.restoring_lock)
        if covering.containing(part) is not None:
            store.remove(part)
            continue
        with suppress(MissingPart):
            store.detach(part, "ignored")
        if part in disk.parts:
            rows = disk.parts[part].rows
            yield part, f"no other replica has it: its {rows} rows are set aside in detached/"
    for one in disk.dropped:
        store.drops.forget(one)
