"""What became of inserts, by their records: for clients that got no answer, and for people."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import parts_left
from rmt_pipeline.protocol.nodes.records import InsertRecord, PartitionRows, decoded
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.insert.quorum import Span
from rmt_pipeline.replica.quorum import read_quorums
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Stat
from rmt_pipeline.zookeeper.snapshot import batches_of, children_of, entries_to_come, parts_now


class InsertState(StrEnum):
    """How far an insert is, according to its record and the table's parts."""

    DONE = "done"
    """All of its rows are in the table, or were dropped since."""
    IN_PART = "in part"
    """Some commits of an insert that takes several are in, or some of its blocks are lost; the same
    insert, sent again, goes on.
    """
    AWAITS_QUORUM = "awaits quorum"
    """Its rows are in, but fewer replicas have them than it asked for."""
    UNREADABLE = "unreadable"
    """Its record is damaged, or a newer version of this product wrote it."""


@dataclass(frozen=True, slots=True)
class InsertReport:
    """What became of one insert. `parts` are the active parts of this replica that have its rows
    now, perhaps among others; `coming` are those that the replica has yet to fetch or make, which
    will have them; `awaiting` are those of its parts that wait for their quorum. `problem`: why the
    record can't be read; then the report says no more than that there is one.
    """

    insert_id: str
    record: InsertRecord
    lines: tuple[PartitionRows, ...]
    parts: tuple[PartName, ...]
    coming: tuple[PartName, ...]
    awaiting: tuple[PartName, ...]
    problem: str = ""
    is_lost: bool = False
    """Whether this replica is lost, or became so just now: until it has cloned another one it is
    not known which parts are to come.
    """

    @property
    def state(self) -> InsertState:
        if self.problem:
            return InsertState.UNREADABLE
        if not self.record.is_whole:
            return InsertState.IN_PART
        return InsertState.AWAITS_QUORUM if self.awaiting else InsertState.DONE


def again_words(record: InsertRecord) -> str:
    """Return what to do about an insert that is in part."""
    return f"insert the same rows again{', cut into the same blocks' * bool(record.missing)}"


def insert_reports(replica: Replica, wanted: Sequence[str] | None = None) -> list[InsertReport]:
    """Return a report on each insert of these ids, or on all that have a record, the latest first.

    An insert without a record was never in the table, or its quorum failed, or all of it was
    dropped, or it is older than the table's deduplication window.

    Records are read first, then the log entries and queue that are still to come, then the parts.
    So rows of a record are seen as coming or in a part, unless they were dropped since.

    A record that can't be read does not hide the others: it has a report that says so. Raises
    Corruption if it is one of those that are `wanted`; ReplicaDropped.
    """
    keeper, table = replica.keeper, replica.table
    ids = children_of(keeper, replica.paths, table.inserts) if wanted is None else list(wanted)
    paths = [table.insert(one) for one in ids]
    reads = zip(ids, paths, keeper.get_many(paths), strict=True)
    there = [(insert_id, path, read) for insert_id, path, read in reads if read is not None]
    waiting = sorted(read_quorums(replica).parts())
    lost = keeper.get_many([replica.paths.is_lost])
    entries = entries_to_come(keeper, table, replica.paths, replica.memory.queue)
    active = parts_now(keeper, replica.paths, replica.memory.queue).current
    lost += keeper.get_many([replica.paths.is_lost])
    is_lost = any(one is None or one[0] == b"1" for one in lost)
    coming = PartSet(part for part in parts_left(entries) if active.containing(part) is None)
    found: list[InsertReport] = []
    for insert_id, path, (text, stat) in there:
        try:
            record = decoded(path, text)
            more = batches_of(keeper, table, insert_id, record).values()
        except Corruption as error:
            if wanted is not None:
                raise
            found.append(_unreadable(insert_id, stat, error))
            continue
        lines = (*record.partitions, *(line for one in more for line in one.partitions))
        found.append(
            replace(
                _report(
                    insert_id, record, lines, active=active, coming=coming, waiting=waiting
                ),
                is_lost=is_lost,
            )
        )
    return sorted(found, key=lambda one: (-one.record.created_s, one.insert_id))


def _unreadable(insert_id: str, stat: Stat, error: Corruption) -> InsertReport:
    nothing = InsertRecord(stat.created_ms // 1000, "", "", (), 0, 0, "", 0)
    return InsertReport(insert_id, nothing, (), (), (), (), str(error))


def _report(
    insert_id: str,
    record: InsertRecord,
    lines: tuple[PartitionRows, ...],
    *,
    active: PartSet,
    coming: PartSet,
    waiting: Sequence[PartName],
) -> InsertReport:
    """Return the report on one insert. Records of old formats do not say in which blocks the rows
    are (`UNKNOWN_BLOCK`, which no part has): then the report names no part.
    """
    spans = list(map(Span.of_rows, lines))

    def touched(parts: PartSet) -> tuple[PartName, ...]:
        found = {
            part
            for span in spans
            for part in parts.in_partition(span.partition)
            if span.touches(part)
        }
        return tuple(sorted(found))

    awaiting = (part for part in waiting if any(span.touches(part) for span in spans))
    return InsertReport(
        insert_id, record, lines, touched(active), touched(coming), tuple(awaiting)
    )


class Origin(NamedTuple):
    """An insert from which a part has rows, and the Dagster run that made it, "" outside of
    Dagster.
    """

    insert_id: str
    run_id: str


class _OwnBlocks(NamedTuple):
    first: int
    last: int
    origin: Origin


class Origins:
    """Finds from which inserts parts have rows, however often the parts were merged: as far back as
    inserts have records, and as far as the records say which blocks are theirs alone. Each record
    of a whole insert is read once.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[str, _OwnBlocks]]] = {}

    def of(self, replica: Replica, parts: Iterable[PartName]) -> dict[PartName, list[Origin]]:
        """Return for each part the inserts it has rows of, in the order of their blocks. Raises
        Unavailable.
        """
        by_partition = self._by_partition(replica)
        return {part: _within(by_partition.get(part.partition, []), part) for part in parts}

    def _by_partition(self, replica: Replica) -> dict[str, list[_OwnBlocks]]:
        """Return the block ranges of all inserts that have a record, by partition, sorted. No two
        ranges of one partition have a block in common, so sorting by the first block also sorts by
        the last.
        """
        keeper, table = replica.keeper, replica.table
        ids = keeper.children(table.inserts)
        self._known = {one: self._known[one] for one in ids if one in self._known}
        by_partition: dict[str, list[_OwnBlocks]] = defaultdict(list)
        for lines in [*self._known.values(), *self._read(replica, ids)]:
            for partition, blocks in lines:
                by_partition[partition].append(blocks)
        for found in by_partition.values():
            found.sort()
        return by_partition

    def _read(self, replica: Replica, ids: Sequence[str]) -> list[list[tuple[str, _OwnBlocks]]]:
        """Read the records that are not known yet. The record of an insert that is in part may
        still change, so it is read again the next time.
        """
        new = [one for one in ids if one not in self._known]
        keeper, table = replica.keeper, replica.table
        found = []
        for insert_id, read in zip(
            new, keeper.get_many([table.insert(one) for one in new]), strict=True
        ):
            if read is None:
                continue  # forgotten meanwhile
            try:
                record = InsertRecord.decode(read[0])
                more = batches_of(keeper, table, insert_id, record).values()
            except Corruption:
                continue  # of that insert nothing can be told; `insert_reports` says so
            origin = Origin(insert_id, record.run_id)
            lines = [
                (line.partition, _OwnBlocks(line.own_first, line.own_last, origin))
                for line in (
                    *record.partitions,
                    *(line for one in more for line in one.partitions),
                )
                if line.own_first >= 0
            ]
            found.append(lines)
            if record.is_whole and len(more) == record.batches:
                self._known[insert_id] = lines
        return found


def _within(blocks: Sequence[_OwnBlocks], part: PartName) -> list[Origin]:
    low = bisect_left(blocks, part.block_min, key=lambda one: one.last)
    high = bisect_right(blocks, part.block_max, key=lambda one: one.first)
    return list(dict.fromkeys(one.origin for one in blocks[low:high]))
