"""What is known of one logical insert: its record, and which of its partitions are in the table.

An insert that fits into one commit has a record as soon as that lands. A larger one is committed
some partitions at a time, and each commit also writes, in the same multi, what is in by then:

    no record ──first commit──► in part ──…──► whole ──window of ids──► forgotten
                                 │    ▲
                                 └────┘ each further commit, by any client

1. Client A commits partitions p and q of {p, q, s}, and dies.
2. Client B inserts the same rows, on another replica, cut into other blocks. B reads the record.
   What p and q hold is the same however it is cut, so B leaves out all their blocks, and inserts s.
3. A was only slow: its commit of s arrives now. It checks the version of the record that A had
   seen, which B has changed since, and is refused. Of two clients that go on from one version of
   the record, one succeeds.

While an insert is in part its record is not forgotten, however old it grows.

Each commit of a large insert is also noted on the disk that has its parts, before it is sent
(`commit_note`). When ZooKeeper loses the table, the parts do not say how many rows the insert had
in all, and a merged part does not say which inserts its rows came from: the notes do. They are
removed when the insert is whole. Notes whose process died are checked against ZooKeeper before a
merged part of the same partition gets its name on this disk, and by the clean-up
(`replica.upkeep.commit_notes`).

An insert is also in part when some of it was lost (`protocol.inserts.rows`): the quorum of one of
several blocks failed, or no replica has one of them any more.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.protocol.inserts.ids import HASH_MAX
from rmt_pipeline.protocol.nodes.records import (
    InsertBatch,
    InsertRecord,
    PartitionRows,
    decoded,
)
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.marks import CommitNote
from rmt_pipeline.zookeeper.snapshot import batches_of
from rmt_pipeline.zookeeper.transactions import RecordChange


@dataclass(frozen=True, slots=True)
class Known:
    """A record as it was read or written, with its version. `lines` are what the insert has in the
    table.
    """

    record: InsertRecord
    version: int
    lines: tuple[PartitionRows, ...]

    @property
    def partitions(self) -> frozenset[str]:
        return frozenset(line.partition for line in self.lines)

    def said_again(self, again: InsertRecord, given: Iterable[PartitionRows]) -> Self:
        """Return what is known after the same insert was sent again: `again` is the record that it
        would write, `given` are the lines of its blocks.

        A record that was put together from parts, after ZooKeeper was lost, does not say how many
        rows the insert had in all, or whether a partition has all of its rows; the repeated insert
        does. A partition in which the given rows are those that are in, however they are cut,
        misses none. But in a record that was not put together from parts, a line that spans several
        blocks proves nothing: some of those blocks may be lost.
        """
        record = self.record
        if record.is_whole or record.row_hash not in ("", again.row_hash):
            return self
        wanted, there = _sums(given), _sums(self.lines)
        untold = {line.partition for line in self.lines if line.first != line.last}
        missing = [
            one
            for one in record.missing
            if (record.row_hash and (one.rows or one.partition in untold))
            or wanted[one.partition] != there[one.partition]
        ]
        whole = replace(
            record,
            rows=record.rows if record.row_hash else max(again.rows, record.rows_in),
            row_hash=again.row_hash,
            missing=tuple(missing),
        )
        return replace(self, record=whole)


def _sums(lines: Iterable[PartitionRows]) -> Mapping[str, tuple[int, int]]:
    """Return by partition how many rows the lines have, and the sum of their hashes."""
    sums = defaultdict[str, tuple[int, int]](lambda: (0, 0))
    for line in lines:
        rows, row_hash = sums[line.partition]
        row_hash = (row_hash + int(line.row_hash, 16)) & HASH_MAX
        sums[line.partition] = rows + line.rows, row_hash
    return sums


def read_record(replica: Replica, insert_id: str) -> Known | None:
    """Return what is known of an insert; None if it has no record, or not any more. Raises Conflict
    if the record keeps changing.

    Its batches are read after it: a batch that is missing then was removed together with the
    record. Raises Corruption as `decoded`.
    """
    keeper, table = replica.keeper, replica.table
    for _ in range(limits.INSERT_READ_ROUNDS_MAX):
        path = table.insert(insert_id)
        [read] = keeper.get_many([path])
        if read is None:
            return None
        record = decoded(path, read[0])
        found = batches_of(keeper, table, insert_id, record)
        if len(found) == record.batches:
            of_batches = [line for one in found.values() for line in one.partitions]
            return Known(record, read[1].version, (*record.partitions, *of_batches))
    raise Conflict(f"{replica}: the record of insert {insert_id} keeps changing; try again")


@dataclass(frozen=True, slots=True)
class InsertProgress:
    """What one commit does to what is known: the change that it writes, and what is known
    afterwards.
    """

    change: RecordChange
    known: Known


def progress(
    first: InsertRecord,
    known: Known | None,
    insert_id: str,
    partitions: Sequence[PartitionRows],
    *,
    blocks: int,
    rows: int,
    is_last: bool,
) -> InsertProgress:
    """Return the change to the insert's record when what these partitions lacked is committed.

    `first` is the record of an insert of which nothing is in: it has no partitions yet. `rows` is
    how many of the given rows are in the commit; partitions of which some rows were in before do
    not count. With the last partitions (`is_last`) the insert is whole, whatever was dropped since
    its first commit. When the whole insert is one commit, its lines are in the record itself,
    otherwise each commit's lines are in a node of their own.
    """
    before = first if known is None else known.record
    completed = {line.partition for line in partitions}
    record = replace(
        before,
        missing=tuple(one for one in before.missing if one.partition not in completed),
        blocks=before.blocks + blocks,
        rows_in=before.rows if is_last else min(before.rows_in + rows, before.rows),
    )
    lines = tuple(sorted(partitions))
    batch = None
    if known is None and record.is_whole:
        record = replace(record, partitions=lines)
    else:
        batch = (record.batches, InsertBatch(lines).encode())
        record = replace(record, batches=record.batches + 1)
    version = None if known is None else known.version
    there = () if known is None else known.lines
    return InsertProgress(
        RecordChange(insert_id, record.encode(), version, batch),
        Known(record, 0 if version is None else version + 1, (*there, *lines)),
    )


def commit_note(
    replica: Replica, insert_id: str, step: InsertProgress, known: Known | None
) -> CommitNote | None:
    """Return the note of a commit (see the module): what will be in the table after it. `known` is
    what was committed of the insert before, perhaps by other processes. None for an insert of one
    commit.
    """
    if step.change.batch is None:
        return None
    commit, batch = step.change.batch
    lines = InsertBatch.decode(batch).partitions
    is_first = not replica.store.marks.is_in_part(insert_id)
    there = known.lines if is_first and known is not None else ()
    record = replace(step.known.record, partitions=tuple(sorted({*lines, *there})), batches=0)
    return CommitNote(commit, record.encode())


def noted_records(replica: Replica) -> dict[str, list[InsertRecord]]:
    """Return the records that this disk has noted, by insert id, in the order of the commits."""
    return {
        insert_id: [InsertRecord.decode(note.record) for note in notes]
        for insert_id, notes in replica.store.marks.commit_notes().items()
    }


def forget_whole(replica: Replica, insert_id: str, record: InsertRecord) -> None:
    """Forget the notes of an insert that is whole according to this record, but not those of later
    commits: some of it may have been dropped since, and another process may be about to bring that
    back. What the disk refuses is left to the clean-up.
    """
    notes = replica.store.marks.commit_notes().get(insert_id, [])
    old = [note for note in notes if note.commit < record.batches]
    with suppress(OSError):
        replica.store.marks.forget_commits(insert_id, old)
