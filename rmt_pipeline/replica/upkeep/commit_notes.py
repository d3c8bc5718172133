"""Notes of commits of large inserts (`replica.insert.record`) whose process died: what never landed
is forgotten.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.protocol.nodes.records import InsertRecord, PartitionRows
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.insert.record import forget_whole, read_record
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.rewound import ZooKeeperIsOlder, require_log_as_seen
from rmt_pipeline.store.marks import CommitNote

NOTE_IS_YOUNG_S = 600.0  # longer than a commit that was sent may be under way


def settle_notes(replica: Replica, part: PartName) -> None:
    """Tidy the notes, if any is about the partition of this part, which is about to get its name on
    this disk. Afterwards a restore can trust the notes:

    1. A commit is noted, and its process dies before it is sent.
    2. A merge goes across the numbers of the commit's blocks.
    3. ZooKeeper loses the table. The merged part contains these numbers: its rows would be taken
       for those of the insert, and who says the insert again would be told that they are there.
    """
    if part.blocks_count < 2:
        return
    notes = replica.store.marks.commit_notes()
    noted = (line.partition for some in notes.values() for line in _noted_lines(some))
    if part.partition in noted:
        tidy_notes(replica)


def _noted_lines(notes: Iterable[CommitNote]) -> Iterator[PartitionRows]:
    for note in notes:
        yield from InsertRecord.decode(note.record).partitions


def tidy_notes(replica: Replica) -> None:
    """Forget the notes of inserts that are whole, and whatever notes say of commits that never
    landed.

    Nothing is done while ZooKeeper is older than the disk, or restored from the disks: then it does
    not know how far an insert has come.
    """
    marks, table = replica.store.marks, replica.table
    notes = marks.commit_notes()
    if not notes or replica.keeper.exists(table.restoring) is not None:
        return
    try:
        require_log_as_seen(replica)
    except ZooKeeperIsOlder:
        return
    replica.keeper.sync(table.root)  # else a lock may be missing that is there
    for insert_id, some in notes.items():
        in_flight = _in_flight(replica, insert_id, some)
        known = read_record(replica, insert_id)
        is_whole = known is not None and known.record.is_whole
        if known is not None and is_whole:
            forget_whole(replica, insert_id, known.record)
        there = frozenset(() if known is None or is_whole else map(_blocks_of, known.lines))
        for note in some:
            if note in in_flight:
                continue
            record = InsertRecord.decode(note.record)
            left = tuple(line for line in record.partitions if _blocks_of(line) in there)
            if left and left == record.partitions:
                continue
            if left:
                rest = replace(record, partitions=left).encode()
                try:
                    marks.note_commit(insert_id, CommitNote(note.commit, rest))
                except DiskFull:  # the old one says too much only of rows that were dropped
                    continue
            marks.forget_commits(insert_id, [note])


def _in_flight(
    replica: Replica, insert_id: str, notes: Sequence[CommitNote]
) -> list[CommitNote]:
    """Return the notes of commits that may still land. The record must be read after this.

    As long as a commit can land, its blocks have locks: it deletes them itself, and they go with
    their session. Without a block there is no lock, and only the age of the note tells.
    """
    marks, table = replica.store.marks, replica.table
    found: list[CommitNote] = []
    for note in notes:
        own = [line for line in _noted_lines([note]) if line.own_first >= 0]
        locks = [table.lock(line.partition, line.own_first) for line in own]
        noted_s = None if locks else marks.commit_noted_s(insert_id, note)
        is_young = noted_s is not None and replica.clock.now_s() - noted_s < NOTE_IS_YOUNG_S
        if is_young or any(replica.keeper.exists_many(locks)):
            found.append(note)
    return found


def _blocks_of(line: PartitionRows) -> tuple[str, int, int]:
    return line.partition, line.first, line.last
