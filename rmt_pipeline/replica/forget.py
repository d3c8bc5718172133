"""Ids of blocks and records of inserts, forgotten with the rows that they stand for, so that these
can be inserted again (spec §9.2).

An id says which part its block became, and a record which block numbers its rows of a partition
have. So it can be told at any time, and as often as one likes, what belongs to a dropped range and
what was inserted before, beside, or again after it: exactly the former is forgotten.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.nodes.records import InsertBatch, InsertRecord, PartitionRows
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Delete, Op, Refused, SetData
from rmt_pipeline.zookeeper.paths import TablePaths


def what_to_forget(
    replica: Replica,
    dropped: Collection[PartName],
    *,
    overlapping: bool = False,
    but: str = "",
) -> list[list[Op]]:
    """The operations, those that belong together in one list; nothing when all is forgotten. Of the
    record of the insert `but` none.

    Whoever asks has seen to it that no number inside of the ranges is in flight any more. With
    `overlapping`, an insert has lost what it has in a partition also when only some of it was in
    these blocks: the ids of its other blocks keep those from coming twice.
    """
    return [*_ids(replica, dropped), *_records(replica, dropped, overlapping, but)]


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
    batches = _batches(replica, insert_id, record)
    left = replace(record, partitions=_but(record.partitions, lines))
    less = [InsertBatch(_but(batch.partitions, lines)) for batch in batches]
    if left.partitions or any(one.partitions for one in less):
        change = _Change(record, batches, left, less)
        return change.ops(replica.table, insert_id, version)
    return transactions.remove_insert(replica.table, insert_id, record.batches, version)


def _but(
    partitions: Collection[PartitionRows], lines: Collection[PartitionRows]
) -> tuple[PartitionRows, ...]:
    return tuple(one for one in partitions if one not in lines)


def forget(replica: Replica, dropped: Collection[PartName]) -> None:
    """All of it, however much it is; it may be repeated. Raises what is no answer."""
    for _ in range(limits.FORGET_ROUNDS_MAX):
        todo = what_to_forget(replica, dropped)
        if not todo:
            return
        refused = False
        for start in range(0, len(todo), limits.MULTI_OPS_MAX):
            for result in replica.keeper.multi_many(todo[start : start + limits.MULTI_OPS_MAX]):
                if isinstance(result, Refused):
                    refused = True  # it was changed meanwhile: look again
                elif isinstance(result, Exception):
                    raise result
        if not refused:
            return


def _ids(replica: Replica, dropped: Collection[PartName]) -> list[list[Op]]:
    prefixes = tuple(f"{one.partition}_" for one in dropped)
    table = replica.table
    paths = [
        table.block(name)
        for name in replica.keeper.children(table.blocks)
        if name.startswith(prefixes)
    ]
    return [
        [Delete(path)]
        for path, read in zip(paths, replica.keeper.get_many(paths), strict=True)
        if read is not None and _is_of(read[0].decode(errors="replace"), dropped)
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
    replica: Replica, dropped: Collection[PartName], overlapping: bool, but: str
) -> list[list[Op]]:
    keeper, table = replica.keeper, replica.table
    ids = [one for one in keeper.children(table.inserts) if one != but]
    found: list[list[Op]] = []
    for insert_id, read in zip(
        ids, keeper.get_many([table.insert(one) for one in ids]), strict=True
    ):
        if read is not None:
            record = InsertRecord.decode(read[0])
            batches = _batches(replica, insert_id, record) if record.batches else []
            left = record.without(dropped, overlapping=overlapping)
            less = [batch.without(dropped, overlapping=overlapping) for batch in batches]
            if (left, less) != (record, batches):
                change = _Change(record, batches, left, less)
                found.append(change.ops(table, insert_id, read[1].version))
    return found


def _batches(replica: Replica, insert_id: str, record: InsertRecord) -> list[InsertBatch]:
    """One that is missing was removed with its record meanwhile: then this change is refused."""
    numbers = range(record.batches)
    paths = [replica.table.insert_batch(insert_id, number) for number in numbers]
    reads = replica.keeper.get_many(paths)
    return [InsertBatch(()) if read is None else InsertBatch.decode(read[0]) for read in reads]


@dataclass(frozen=True, slots=True)
class _Change:
    """A record and its batches, and what is left of them after a drop."""

    record: InsertRecord
    batches: list[InsertBatch]
    left: InsertRecord
    less: list[InsertBatch]

    def ops(self, table: TablePaths, insert_id: str, version: int) -> list[Op]:
        """Nothing of a whole insert is left: no record of it either. One that is in part stays, for
        whoever is at it goes on from there.
        """
        record, left, less = self.record, self.left, self.less
        if record.is_whole and not left.partitions and not any(one.partitions for one in less):
            return transactions.remove_insert(table, insert_id, record.batches, version)
        if not record.is_whole:
            gone = _rows(record, *self.batches) - _rows(left, *less)
            left = replace(left, rows_in=max(0, record.rows_in - gone))
        return [
            SetData(table.insert(insert_id), left.encode(), version),
            *(
                SetData(table.insert_batch(insert_id, number), now.encode())
                for number, (batch, now) in enumerate(zip(self.batches, less, strict=True))
                if batch != now
            ),
        ]


def _rows(*records: InsertRecord | InsertBatch) -> int:
    return sum(row.rows for one in records for row in one.partitions)
