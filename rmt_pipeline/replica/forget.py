"""Forgetting the block ids and insert records of rows that were dropped or lost, so that the same
rows can be inserted again (spec §9.2).

A block's id names the part that the block became; an insert's record lists the block numbers of its
rows in each partition. So it can be worked out at any time, and repeatedly, which of them belong to
a dropped range and which belong to rows inserted before, beside or again after it. Exactly the
former are forgotten.

That a node has the version in which it was read does not prove that it is the node that was read:

1. A process reads an id, of rows that are about to be dropped.
2. The rows are dropped, and the id is forgotten.
3. The rows are inserted once more: the id exists again, names another part, and has the version
   that it had at first.

So a process that forgets ids also changes the version of the node above them, and asserts that it
is still the one that it read before it read the ids. A clean-up does the same; and an insert that
relies on an id asserts that version.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.protocol.inserts.ids import REPLACEMENT, block_id
from rmt_pipeline.protocol.inserts.rows import InsertRows, Moved
from rmt_pipeline.protocol.nodes.records import (
    UNKNOWN_BLOCK,
    InsertBatch,
    InsertRecord,
    PartitionRows,
    decoded,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import KnownNames, Replica
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import cut, op_bytes
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Refused, SetData, Stat
from rmt_pipeline.zookeeper.paths import TablePaths
from rmt_pipeline.zookeeper.snapshot import batches_of


def what_to_forget(
    replica: Replica,
    dropped: Collection[PartName],
    *,
    are_lost: bool = False,
    but: str = "",
) -> list[list[Op]]:
    """The operations that forget the ids and records of dropped rows, grouped in lists that belong
    together; empty if everything is forgotten.

    The first list goes into each multi: it asserts that what was read still holds. The record of
    the insert `but` is left alone. With `are_lost`, the rows were not dropped but lost: their
    blocks are noted as missing in what is left of their inserts.

    The caller has made sure that no block number inside the ranges is still in flight. If an insert
    has relied on an id since it was read, the multi that would forget the id is refused.
    """
    there = _ids_there(replica, _partitions(dropped))
    return _to_forget(replica, there, dropped, are_lost=are_lost, but=but)


def what_to_forget_at_once(
    replica: Replica, dropped: Collection[PartName], bytes_max: int
) -> list[Op] | None:
    """All operations of `what_to_forget` in one list, or None if they have more than `bytes_max`
    bytes. When whole partitions are dropped, nearly all their ids are to be forgotten;
    so whether thousands of them fit is known before they are read.
    """
    there = _ids_there(replica, _partitions(dropped))
    are_whole = all(one.is_drop_range for one in dropped)
    if are_whole and _size(map(Delete, there.ids)) > bytes_max:
        return None
    found = list(chain.from_iterable(_to_forget(replica, there, dropped)))
    return found if _size(found) <= bytes_max else None


def blocks_beside(replica: Replica, part: PartName) -> list[PartName]:
    """The blocks that inserts which have blocks in this part have beside it in its partition, as
    their records say.
    """
    _, records = _read(replica, [], {part.partition})
    found: set[PartName] = set()
    for rows, _ in records.values():
        lines = [line for line in rows.lines if line.partition == part.partition]
        if any(line.is_in(part) for line in lines):
            found |= {
                PartName(line.partition, line.first, line.last, 0)
                for line in lines
                if line.first != UNKNOWN_BLOCK and not line.is_in(part)
            }
    return sorted(found)


def take_out(
    replica: Replica,
    insert_id: str,
    record: InsertRecord,
    version: int,
    lines: Collection[PartitionRows],
    *,
    rows_left: tuple[int, int] | None = None,
) -> list[Op]:
    """The operations that remove these lines from an insert's record, which was read in this
    `version`; or the whole record if no line is left, also that of an insert that is only partly
    done: a process that goes on with it is refused then. `rows_left`: how many rows the insert has
    then, and how many are in, if the record does not tell because it has some of them twice.
    """
    rows = InsertRows(record, _batches(replica, insert_id, record))
    left = rows.without_lines(lines)
    if rows_left is not None:
        in_all, there = rows_left
        left = replace(left, record=replace(left.record, rows=in_all, rows_in=there))
    if left.lines:
        return _change(replica.table, insert_id, rows, left, version)
    return transactions.remove_insert(replica.table, insert_id, record.batches, version)


def forget(replica: Replica, dropped: Collection[PartName]) -> None:
    """Remove the ids and records of rows that were dropped, in as many multis as it takes. May be
    repeated. Raises an error that leaves the outcome unknown: then call it again.
    """
    _all_of_it(replica, lambda: what_to_forget(replica, dropped))


def what_to_renumber(replica: Replica, moved: Moved) -> list[list[Op]]:
    """The operations that give ids and records the new names of parts that were moved, so that it
    is known later which of their rows are dropped or lost. Grouped as by `what_to_forget`.
    """
    found: list[list[Op]] = []
    partitions = frozenset(part.partition for part in moved.to)
    there = _ids_there(replica, partitions)
    ids, records = _read(replica, there.ids, partitions)
    for path, read in ids:
        part = PartName.try_parse(read[0].decode(errors="replace"))
        if part is not None and (now := moved.part(part)) != part:
            found.append([SetData(path, str(now).encode(), read[1].version)])
    for insert_id, (rows, version) in records.items():
        if not insert_id.startswith(REPLACEMENT):  # removed when its partitions change
            ops = _change(replica.table, insert_id, rows, rows.renumbered(moved), version)
            found += [ops] * bool(ops)
    return [there.as_read, *found] if found else []


def what_to_move(
    replica: Replica, moves: Mapping[str, Callable[[Iterable[PartitionRows]], Moved]]
) -> list[Op]:
    """The operations that give the records of these inserts, by their ids, the names of the parts
    to which their rows have moved, by what their lines say.
    """
    table = replica.table
    ops: list[Op] = []
    paths = [table.insert(insert_id) for insert_id in moves]
    reads = replica.keeper.get_many(paths)
    for (insert_id, moved), path, read in zip(moves.items(), paths, reads, strict=True):
        if read is not None:
            record = decoded(path, read[0])
            rows = InsertRows(record, _batches(replica, insert_id, record))
            to = moved(rows.lines)
            left = rows.renumbered(to) if to.to else rows
            ops += _change(table, insert_id, rows, left, read[1].version)
    return ops


def forget_lost(
    replica: Replica, lost: Collection[PartName], guards: Sequence[Op] = ()
) -> None:
    """Remove the ids, and note in the records what is missing, of rows that were lost without being
    dropped: a client that sends them again must not be told that they exist. May be repeated, like
    `forget`. Each multi asserts the `guards`; Refused is raised if they do not hold any more.
    """
    _all_of_it(replica, lambda: what_to_forget(replica, lost, are_lost=True), guards)


def forget_copy(replica: Replica, part: PartName, content: int, rows: int) -> None:
    """`forget_lost` for one copy of a part: the one whose content and rows had these hashes.
    Another part of the same name has other rows, whose ids and records stay.
    """
    path = replica.table.block(block_id(part.partition, content))
    row_hash = f"{rows:032x}"

    def look() -> list[list[Op]]:
        as_read, _ = _as_read(replica)
        ids, records = _read(replica, [path], {part.partition})
        of_it = {
            insert_id: found
            for insert_id, found in records.items()
            if any(line.is_in(part) and line.row_hash == row_hash for line in found[0].lines)
        }
        found = [*_ids(ids, [part]), *_records(replica.table, of_it, [part], are_lost=True)]
        return [as_read, *found] if found else []

    _all_of_it(replica, look)


def renumber(replica: Replica, moved: Moved) -> None:
    """Carry out `what_to_renumber`: give ids and records the new numbers of blocks that were moved.
    May be repeated, like `forget`.
    """
    _all_of_it(replica, lambda: what_to_renumber(replica, moved))


def _all_of_it(
    replica: Replica, look: Callable[[], list[list[Op]]], guards: Sequence[Op] = ()
) -> None:
    """Carry out what `look` returns; while something of it is refused, look again. Raises Conflict
    if that has happened FORGET_ROUNDS_MAX times, and Refused if one of the `guards` is.

    Many operations go together: thousands of ids in as few multis as upkeep may write. If an insert
    relied on one of the ids meanwhile, the whole multi is refused; so after a refusal each list
    goes alone.
    """
    refused = False
    for _ in range(limits.FORGET_ROUNDS_MAX):
        found = look()
        if not found:
            return
        as_read, *todo = found
        todo = todo if refused else _together(todo)
        todo = [[*guards, *_after(as_read, number), *ops] for number, ops in enumerate(todo)]
        refused = False
        for start in range(0, len(todo), limits.MULTI_OPS_MAX):
            for result in replica.keeper.multi_many(todo[start : start + limits.MULTI_OPS_MAX]):
                if isinstance(result, Refused) and result.index >= len(guards):
                    refused = True  # something changed meanwhile: look again
                elif isinstance(result, Exception):
                    raise result
        if not refused:
            return
    raise Conflict(
        f"{replica}: ids of removed rows could not be forgotten, because inserts relied on them "
        f"each of {limits.FORGET_ROUNDS_MAX} times; this is tried again"
    )


def _as_read(replica: Replica) -> tuple[list[Op], Stat | None]:
    """The operations that assert that no id or record has been forgotten between now and the multi
    that they are in; and the stat of the node that has the ids. Call this before the ids are read.
    """
    parents = (replica.table.blocks, replica.table.inserts)
    reads = replica.keeper.get_many(parents)
    ops = [
        op
        for parent, read in zip(parents, reads, strict=True)
        if read is not None
        for op in transactions.remove_ids(parent, read[1].version, [])
    ]
    return ops, None if reads[0] is None else reads[0][1]


def _after(as_read: Sequence[Op], multis: int) -> list[Op]:
    """The same assertions for a multi that comes after so many of our own `multis` with them, each
    of which has raised the versions by one.
    """
    return [
        replace(op, version=op.version + multis) for op in as_read if isinstance(op, SetData)
    ]


def _size(ops: Iterable[Op]) -> int:
    return sum(map(op_bytes, ops))


def _together(todo: Sequence[Sequence[Op]]) -> list[list[Op]]:
    pieces = cut(todo, _size, limits.MULTI_BYTES_MAX, count_max=limits.MULTI_OPS_MAX)
    return [list(chain.from_iterable(piece)) for piece in pieces]


_Id = tuple[str, tuple[bytes, Stat]]
"""The path of a block id's node, and the node as it was read."""

_Records = Mapping[str, tuple[InsertRows, int]]
"""Rows of insert records, with the versions of their nodes, by the ids of the inserts."""


@dataclass(frozen=True, slots=True)
class _There:
    """The operations of `_as_read`, and the paths of the ids of some partitions, found after it."""

    as_read: list[Op]
    ids: list[str]


def _ids_there(replica: Replica, partitions: Collection[str]) -> _There:
    """The ids of these partitions. They are listed only if the stat of their parent shows that some
    came or went since they were.
    """
    keeper, table, known = replica.keeper, replica.table, replica.memory.block_ids
    as_read, stat = _as_read(replica)
    if stat is None or not known.is_still(stat, keeper.session_id):
        names, stat = keeper.children_stat(table.blocks)
        known = KnownNames(stat.created_zxid, stat.children_version, tuple(names))
        replica.memory.block_ids = known
    prefixes = tuple(f"{one}_" for one in partitions)
    ids = [table.block(name) for name in known.names if name.startswith(prefixes)]
    return _There(as_read, ids)


def _read(
    replica: Replica, paths: Sequence[str], partitions: Collection[str], but: str = ""
) -> tuple[list[_Id], _Records]:
    """The ids at these paths, and the records that may have rows of the partitions, except that of
    the insert `but`.

    The ids are read first, and only then is it found out which records exist. An insert that relies
    on an id changes the id and writes its record in one multi. So either we read its record, or the
    id is no longer the one that we read and the multi that forgets it is refused.

    Records that are known to have rows only of other partitions are not read again. What is known
    holds for the nodes of these names as long as the stat of their parent, which is read after the
    ids, shows that none was added or removed.
    """
    keeper, table, seen = replica.keeper, replica.table, replica.memory.records
    wanted = seen.wanted(partitions, but)
    found = keeper.get_many([*paths, table.inserts, *map(table.insert, wanted)])
    of_ids, [parent, *reads] = found[: len(paths)], found[len(paths) :]
    if parent is None or not seen.is_still(parent[1], keeper.session_id):
        names, stat = keeper.children_stat(table.inserts)
        seen = seen.now(stat, names)
        wanted = seen.wanted(partitions, but)
        reads = keeper.get_many([table.insert(name) for name in wanted])
    replica.memory.records = seen.learnt(
        {
            name: InsertRecord.all_partitions(read[0])
            for name, read in zip(wanted, reads, strict=True)
            if read is not None
        }
    )
    ids = [(path, read) for path, read in zip(paths, of_ids, strict=True) if read is not None]
    return ids, _decoded(replica, dict(zip(wanted, reads, strict=True)), partitions)


def _to_forget(
    replica: Replica,
    there: _There,
    dropped: Collection[PartName],
    *,
    are_lost: bool = False,
    but: str = "",
) -> list[list[Op]]:
    ids, records = _read(replica, there.ids, _partitions(dropped), but)
    found = [*_ids(ids, dropped), *_records(replica.table, records, dropped, are_lost=are_lost)]
    return [there.as_read, *found] if found else []


def _partitions(dropped: Collection[PartName]) -> frozenset[str]:
    return frozenset(one.partition for one in dropped)


def _ids(ids: Sequence[_Id], dropped: Collection[PartName]) -> list[list[Op]]:
    return [
        [Delete(path, read[1].version)]
        for path, read in ids
        if _is_of(read[0].decode(errors="replace"), dropped)
    ]


def _is_of(text: str, dropped: Collection[PartName]) -> bool:
    """Whether the block of this part was dropped. An id whose text is no part name counts as
    dropped: it must not keep rows out (§9.2).
    """
    part = PartName.try_parse(text)
    return part is None or any(
        part.partition == one.partition
        and one.block_min <= part.block_min
        and part.block_max <= one.block_max
        for one in dropped
    )


def _records(
    table: TablePaths, records: _Records, dropped: Collection[PartName], *, are_lost: bool
) -> list[list[Op]]:
    found: list[list[Op]] = []
    for insert_id, (rows, version) in records.items():
        left = rows
        if are_lost:
            for part in dropped:
                left = left.after_loss(part, insert_id)
        else:
            left = rows.after_drop(dropped, insert_id)
        ops = _change(table, insert_id, rows, left, version)
        found += [ops] * bool(ops)
    return found


def _decoded(
    replica: Replica,
    reads: Mapping[str, tuple[bytes, Stat] | None],
    partitions: Collection[str],
) -> _Records:
    """The records that were found, with their batches. A batch that is missing was removed together
    with its record meanwhile: then a change of that record is refused.
    """
    found: dict[str, tuple[InsertRows, int]] = {}
    for insert_id, read in reads.items():
        if read is not None and InsertRecord.may_be_of(read[0], partitions):
            record = decoded(replica.table.insert(insert_id), read[0])
            batches = _batches(replica, insert_id, record) if record.batches else ()
            found[insert_id] = InsertRows(record, batches), read[1].version
    return found


def _batches(replica: Replica, insert_id: str, record: InsertRecord) -> tuple[InsertBatch, ...]:
    there = batches_of(replica.keeper, replica.table, insert_id, record)
    return tuple(there.get(number, InsertBatch(())) for number in range(record.batches))


def _change(
    table: TablePaths, insert_id: str, before: InsertRows, left: InsertRows, version: int
) -> list[Op]:
    """The operations that change an insert's record from `before` to `left`.

    A record with missing rows keeps its lines in batches: by these, clean-up recognizes partly lost
    inserts without reading all records.
    """
    if left == before:
        return []
    if left.is_nothing:
        return transactions.remove_insert(table, insert_id, before.record.batches, version)
    created: list[Op] = []
    if left.record.missing and not left.batches and not insert_id.startswith(REPLACEMENT):
        batch = InsertBatch(left.record.partitions)
        left = InsertRows(replace(left.record, partitions=(), batches=1))
        created = [Create(table.insert_batch(insert_id, 0), batch.encode())]
    return [
        SetData(table.insert(insert_id), left.record.encode(), version),
        *created,
        *(
            SetData(table.insert_batch(insert_id, number), now.encode())
            for number, (batch, now) in enumerate(
                zip(before.batches, left.batches, strict=True)
            )
            if batch != now
        ),
    ]
