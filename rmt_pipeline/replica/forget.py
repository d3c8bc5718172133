"""Ids of blocks and records of inserts, forgotten with the rows that they stand for, so that these
can be inserted again (spec §9.2).

An id says which part its block became, and a record which block numbers its rows of a partition
have. So it can be told at any time, and as often as one likes, what belongs to a dropped range and
what was inserted before, beside, or again after it: exactly the former is forgotten.

That a node has the version in which it was read does not say that it is the one that was read:

1. An id is read, of rows that are going to be dropped. 2. They are dropped, and it is forgotten.
3. They are inserted once more: the id is there again, of another part, as young as it was.

So whoever forgets ids gives the node above them another version, and asserts that nobody else has
since he read them. So does a clean-up; and an insert that relies on an id asserts it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.inserts.ids import REPLACEMENT, block_id
from rmt_pipeline.protocol.inserts.rows import InsertRows, Moved
from rmt_pipeline.protocol.nodes.records import InsertBatch, InsertRecord, PartitionRows
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import cut, op_bytes
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Refused, SetData, Stat
from rmt_pipeline.zookeeper.paths import TablePaths


def what_to_forget(
    replica: Replica,
    dropped: Collection[PartName],
    *,
    are_lost: bool = False,
    but: str = "",
) -> list[list[Op]]:
    """The operations, those that belong together in one list; nothing when all is forgotten. The
    first list is for each multi: what has been read is so still. Of the record of the insert `but`
    none.

    Whoever asks has seen to it that no number inside of the ranges is in flight any more. Blocks
    that `are_lost` to their inserts are missing from then on in what is left of these. An id that
    somebody has relied on since it was read is not forgotten: the multi is refused.
    """
    paths = _id_paths(replica, _partitions(dropped))
    return _to_forget(replica, paths, dropped, are_lost=are_lost, but=but)


def what_to_forget_at_once(
    replica: Replica, dropped: Collection[PartName], bytes_max: int
) -> list[Op]:
    """All of `what_to_forget`, or nothing when it has more bytes. Of whole partitions nearly all
    ids are of what is dropped: that thousands of them do not fit is known before they are read.
    """
    paths = _id_paths(replica, _partitions(dropped))
    are_whole = all(one.is_drop_range for one in dropped)
    if are_whole and _size(map(Delete, paths)) > bytes_max:
        return []
    found = list(chain.from_iterable(_to_forget(replica, paths, dropped)))
    return found if _size(found) <= bytes_max else []


def take_out(
    replica: Replica,
    insert_id: str,
    record: InsertRecord,
    version: int,
    lines: Collection[PartitionRows],
) -> list[Op]:
    """These lines of the record, which was read in this version, are forgotten; the whole record
    when none is left, also of an insert that is in part: who goes on with it is refused.
    """
    rows = InsertRows(record, _batches(replica, insert_id, record))
    left = rows.without_lines(lines)
    if left.lines:
        return _change(replica.table, insert_id, rows, left, version)
    return transactions.remove_insert(replica.table, insert_id, record.batches, version)


def forget(replica: Replica, dropped: Collection[PartName]) -> None:
    """Remove the ids and the records of rows that were dropped, in as many multis as it takes.
    Idempotent. Raises what leaves the outcome open: then call it again.
    """
    _all_of_it(replica, lambda: what_to_forget(replica, dropped))


def what_to_renumber(replica: Replica, moved: Moved) -> list[list[Op]]:
    """Ids and records of rows that are in parts of other names from now on: what is dropped or lost
    of these is known then. As `what_to_forget`.
    """
    found: list[list[Op]] = []
    partitions = frozenset(part.partition for part in moved.to)
    as_read = _as_read(replica)
    ids, records = _read(replica, _id_paths(replica, partitions), partitions)
    for path, read in ids:
        part = PartName.try_parse(read[0].decode(errors="replace"))
        if part is not None and (now := moved.part(part)) != part:
            found.append([SetData(path, str(now).encode(), read[1].version)])
    for insert_id, (rows, version) in records.items():
        if not insert_id.startswith(REPLACEMENT):  # it goes when its partitions change
            ops = _change(replica.table, insert_id, rows, rows.renumbered(moved), version)
            found += [ops] * bool(ops)
    return [as_read, *found] if found else []


def forget_lost(replica: Replica, lost: Collection[PartName]) -> None:
    """Remove the ids and note in the records what was lost, of rows that nobody has dropped: a
    client that sends them again is not told that they are there. Idempotent, as `forget`.
    """
    _all_of_it(replica, lambda: what_to_forget(replica, lost, are_lost=True))


def forget_copy(replica: Replica, part: PartName, content: int, rows: int) -> None:
    """`forget_lost` for one copy of a part: the one whose content and rows had these hashes.
    Another part of the same name has other rows, and what is known of those stays.
    """
    path = replica.table.block(block_id(part.partition, content))
    row_hash = f"{rows:032x}"

    def look() -> list[list[Op]]:
        as_read = _as_read(replica)
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
    """Give ids and records the new numbers of blocks that have moved to others. Idempotent, as
    `forget`.
    """
    _all_of_it(replica, lambda: what_to_renumber(replica, moved))


def _all_of_it(replica: Replica, look: Callable[[], list[list[Op]]]) -> None:
    """Many together: thousands of ids in as few multis as upkeep may write. When one of them was
    relied on meanwhile those beside it are refused with it: from then on each goes alone.
    """
    refused = False
    for _ in range(limits.FORGET_ROUNDS_MAX):
        found = look()
        if not found:
            return
        as_read, *todo = found
        todo = todo if refused else _together(todo)
        todo = [[*_after(as_read, number), *ops] for number, ops in enumerate(todo)]
        refused = False
        for start in range(0, len(todo), limits.MULTI_OPS_MAX):
            for result in replica.keeper.multi_many(todo[start : start + limits.MULTI_OPS_MAX]):
                if isinstance(result, Refused):
                    refused = True  # it was changed meanwhile: look again
                elif isinstance(result, Exception):
                    raise result
        if not refused:
            return


def _as_read(replica: Replica) -> list[Op]:
    """What asserts that no id or record that is read from now on was forgotten since."""
    parents = (replica.table.blocks, replica.table.inserts)
    reads = replica.keeper.get_many(parents)
    return [
        op
        for parent, read in zip(parents, reads, strict=True)
        if read is not None
        for op in transactions.remove_ids(parent, read[1].version, [])
    ]


def _after(as_read: Sequence[Op], multis: int) -> list[Op]:
    """What asserts it when we have sent so many multis that do."""
    return [
        replace(op, version=op.version + multis) for op in as_read if isinstance(op, SetData)
    ]


def _size(ops: Iterable[Op]) -> int:
    return sum(map(op_bytes, ops))


def _together(todo: Sequence[Sequence[Op]]) -> list[list[Op]]:
    pieces = cut(todo, _size, limits.MULTI_BYTES_MAX, count_max=limits.MULTI_OPS_MAX)
    return [list(chain.from_iterable(piece)) for piece in pieces]


_Id = tuple[str, tuple[bytes, Stat]]
"""The node of a block's id, as it was read."""

_Records = Mapping[str, tuple[InsertRows, int]]
"""By the ids of inserts, with the versions of their nodes."""


def _id_paths(replica: Replica, partitions: Collection[str]) -> list[str]:
    table, prefixes = replica.table, tuple(f"{one}_" for one in partitions)
    names = replica.keeper.children(table.blocks)
    return [table.block(name) for name in names if name.startswith(prefixes)]


def _read(
    replica: Replica, paths: Sequence[str], partitions: Collection[str], but: str = ""
) -> tuple[list[_Id], _Records]:
    """The ids at these paths, and the records that may have rows of the partitions, but one.

    The ids first, and only then which records there are: whoever relies on an id changes it, and
    writes his record, in one multi. So either we read his record, or the id is not any more what
    we have read, and the multi that forgets it is refused.

    Records that are known to have rows of other partitions alone are not read again. What is known
    is of the nodes that have these names while the stat of their parent, which is read behind the
    ids, says that none came or went.
    """
    keeper, table, seen = replica.keeper, replica.table, replica.memory.records
    wanted = seen.wanted(partitions, but)
    *of_ids, parent = keeper.get_many([*paths, table.inserts])
    reads: list[tuple[bytes, Stat] | None] = []
    if parent is not None and seen.is_still(parent[1], keeper.session_id):
        reads = keeper.get_many([table.insert(name) for name in wanted])
    else:
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
    paths: Sequence[str],
    dropped: Collection[PartName],
    *,
    are_lost: bool = False,
    but: str = "",
) -> list[list[Op]]:
    as_read = _as_read(replica)
    ids, records = _read(replica, paths, _partitions(dropped), but)
    found = [*_ids(ids, dropped), *_records(replica.table, records, dropped, are_lost=are_lost)]
    return [as_read, *found] if found else []


def _partitions(dropped: Collection[PartName]) -> frozenset[str]:
    return frozenset(one.partition for one in dropped)


def _ids(ids: Sequence[_Id], dropped: Collection[PartName]) -> list[list[Op]]:
    return [
        [Delete(path, read[1].version)]
        for path, read in ids
        if _is_of(read[0].decode(errors="replace"), dropped)
    ]


def _is_of(text: str, dropped: Collection[PartName]) -> bool:
    """Whether the block of this part was dropped. What can't be read keeps nothing out (§9.2)."""
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
    """A batch that is missing was removed with its record meanwhile: then a change of it is
    refused.
    """
    found: dict[str, tuple[InsertRows, int]] = {}
    for insert_id, read in reads.items():
        if read is not None and InsertRecord.may_be_of(read[0], partitions):
            record = InsertRecord.decode(read[0])
            batches = _batches(replica, insert_id, record) if record.batches else ()
            found[insert_id] = InsertRows(record, batches), read[1].version
    return found


def _batches(replica: Replica, insert_id: str, record: InsertRecord) -> tuple[InsertBatch, ...]:
    numbers = range(record.batches)
    paths = [replica.table.insert_batch(insert_id, number) for number in numbers]
    reads = replica.keeper.get_many(paths)
    return tuple(
        InsertBatch(()) if read is None else InsertBatch.decode(read[0]) for read in reads
    )


def _change(
    table: TablePaths, insert_id: str, before: InsertRows, left: InsertRows, version: int
) -> list[Op]:
    """One that has rows missing has its lines in batches: by these clean-up finds what is in part
    without reading all records.
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
