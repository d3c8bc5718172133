"""Undo an insert: exactly its rows are dropped, on every replica, and it can be inserted again.

    its record read ──► the log pulled, parts and promises looked at ──► one multi: a DROP_PART for
    each of its parts, its ids and its record forgotten ──► waited

Rows do not say which insert they came from; the numbers of their blocks do, as long as a part has
blocks of this insert alone. An insert whose rows were merged with those of others, or are going to
be, can't be undone any more: then nothing is changed, and the error says so. Why exactly these rows
go, once:

1. The record has the numbers that were taken for this insert's blocks. No other insert has them,
   nor is anything between those that follow each other. Rows that it shares with an earlier insert
   belong to that one, and stay.
2. The record is read first, then the log is pulled: so all its blocks are among what the replica
   has and will have. The multi asserts the version of the log, as a merge does: so nothing was made
   of these parts, or is going to be, that was not looked at.
3. The multi takes these rows out of the record, in the version that was read. If two clients
   undo the same insert, one of them finds no record; a commit of an insert that is in part, and
   goes on meanwhile, changes the record first, or is refused.
4. An insert of more parts than a multi takes is undone some partitions at a time, and its record
   says which are left: repeated, the undo goes on. All partitions are looked at before the first
   are undone. What the insert has in one partition goes at once, because a retry of the insert
   takes a partition of which some is in for whole.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Corruption, RmtError, UserError
from rmt_pipeline.protocol.inserts.ids import REPLACEMENT
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import DropPart
from rmt_pipeline.protocol.nodes.records import (
    NO_BLOCK,
    UNKNOWN_BLOCK,
    InsertRecord,
    PartitionRows,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import MergeView, merge_view
from rmt_pipeline.replica.forget import forget_lost, take_out, what_to_forget
from rmt_pipeline.replica.insert.record import Known, read_record
from rmt_pipeline.replica.partitions.drop import Living, PartIsLocked, others_first, submit
from rmt_pipeline.replica.partitions.ids_left import WRITTEN, before_it_is_answered
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.wait import wait_as_asked_for
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import op_bytes
from rmt_pipeline.zookeeper.keeper import Op, SetData

SHOWN_MAX = 5
_OTHER_WAYS = (
    "ALTER TABLE … DELETE WHERE … removes rows by what is in them, INSERT OVERWRITE "
    "(Table.replace) puts a whole partition right"
)
_NOTHING_OF_ITS_OWN = (
    "it has no rows of its own: the same rows were in the table before it, as those of other "
    "inserts"
)


class UnknownInsert(UserError):
    """There is no record of an insert of this id: it was never in, or was undone, or all its rows
    were dropped, or it is older than the deduplication window.
    """

    code = "BAD_ARGUMENTS"


class CannotUndo(UserError):
    """The insert's rows were merged with those of others, so that nothing tells them apart any
    more. Nothing was changed, and no later try can succeed.
    """

    code = "BAD_ARGUMENTS"


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What undoing an insert would drop: these parts, which have so many rows now. `refusal` is the
    reason if it can't be undone; `is_for_now`: only until something that is under way has ended.
    """

    insert_id: str
    record: InsertRecord
    parts: tuple[PartName, ...] = ()
    rows: int = 0
    size_bytes: int = 0
    refusal: str = ""
    is_for_now: bool = False

    def words(self) -> str:
        """Describe the insert, and what of it would be dropped."""
        record = self.record
        at = datetime.fromtimestamp(record.created_s, UTC).isoformat(timespec="seconds")
        run = f" by run {record.run_id}" if record.run_id else ""
        what = (
            f"insert {self.insert_id}, {record.rows_in} rows on {record.replica}{run} at {at}"
        )
        if self.refusal:
            return f"{what}: {self.refusal}"
        return (
            f"{what}: its {self.rows} rows now are in {few(self.parts)}, "
            f"{self.size_bytes} bytes, with no other insert's rows"
        )


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo has removed: the insert, its parts, and how many rows and bytes they had."""

    insert_id: str
    record: InsertRecord
    parts: tuple[PartName, ...]
    rows: int
    size_bytes: int

    def words(self) -> str:
        return (
            f"insert {self.insert_id} is undone: {self.rows} rows in {few(self.parts)} are dropped "
            "on every replica, and it can be inserted again"
        )


def few(parts: Sequence[PartName]) -> str:
    """Return how many parts there are, and the names of the first."""
    named = ", ".join(map(str, parts[:SHOWN_MAX]))
    more = f" and {len(parts) - SHOWN_MAX} more" if len(parts) > SHOWN_MAX else ""
    return f"{len(parts)} part{'s' * (len(parts) != 1)} ({named}{more})"


def plan_undo(replica: Replica, insert_id: str) -> UndoPlan:
    """Return what `undo_insert` would do, without doing it. Raises UnknownInsert; PullingIsStopped,
    Unavailable.
    """
    return _look(replica, insert_id).plan


def undo_insert(
    living: Living, insert_id: str, query: QuerySettings, new_waker: Callable[[], Waker]
) -> Undone:
    """Undo the insert, until the drops are in the log; then wait as `alter_sync` says.

    Raises, with nothing changed: UnknownInsert; CannotUndo, PartIsLocked (try again), both with the
    reason; TableIsReadOnly, CannotAssignDrop. When an insert is undone some partitions at a time,
    they may also come after the first of these, and the reason says what was dropped. Unfinished:
    it is in the log, and not all of it is done, or other replicas are late. OutcomeUnknown: repeat
    it to find out.
    """
    undone: list[_Some] = []
    logged: list[tuple[str, bytes]] = []
    try:
        for some, paths in _rounds(living, insert_id, undone):
            undone.append(some)
            logged += zip(paths, some.entries, strict=True)
    except RmtError as error:
        if _parts_of(undone):
            words = _in_part(insert_id, undone, error)
            _forget_what_is_left(living, undone, words)
            error.args = (words,)
        raise
    _forget_what_is_left(living, undone, WRITTEN)
    wait_as_asked_for(living, logged, query, new_waker())
    return _sum([some.looked for some in undone])


def _rounds(
    living: Living, insert_id: str, undone: Sequence["_Some"]
) -> Iterator[tuple["_Some", list[str]]]:
    """Undo some partitions at a time, and yield them with the paths of their entries in the log,
    until none is left. `undone` are those that were yielded.
    """
    for _ in range(limits.DROP_ROUNDS_MAX):
        replica = living()
        found = _look(replica, insert_id)
        _require(replica, found.plan, _parts_of(undone))
        some = _fitting(replica, found)
        paths = submit(living, replica, some.ops, some.entries, "")
        if paths is not None:
            yield some, paths
            if len(some.looked.lines) == len(found.lines):
                return
    raise others_first(living())


def _forget_what_is_left(living: Living, undone: Iterable["_Some"], written: str) -> None:
    left = _parts_of(some for some in undone if some.leaves_ids)
    if left:
        with before_it_is_answered(written):
            forget_lost(living(), left)


def _in_part(insert_id: str, undone: Iterable["_Some"], error: RmtError) -> str:
    """The words of an error that came when some of the insert was undone. Those of `_require` say
    so already.
    """
    if isinstance(error, PartIsLocked | CannotUndo):
        return str(error)
    return (
        f"{few(_parts_of(undone))} of insert {insert_id} are dropped, and their rows can be "
        f"inserted again. To the rest of it this happened: {error}. Undo it once more: that goes "
        "on with the rest"
    )


def _parts_of(undone: Iterable["_Some"]) -> list[PartName]:
    return [part for some in undone for part in some.looked.plan.parts]


# --- looked at --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    """What the insert has in one run of its blocks in a partition, and the parts that have only its
    rows. `refusal` and `is_for_now` are as those of the plan.
    """

    rows: tuple[PartitionRows, ...]
    parts: tuple[PartName, ...] = ()
    refusal: str = ""
    is_for_now: bool = False

    @property
    def partition(self) -> str:
        return self.rows[0].partition


@dataclass(frozen=True, slots=True)
class _Looked:
    insert_id: str
    known: Known
    view: MergeView
    lines: tuple[_Line, ...]
    plan: UndoPlan


def _look(replica: Replica, insert_id: str) -> _Looked:
    known = read_record(replica, insert_id)
    if known is None:
        raise UnknownInsert(
            f"{replica} knows no insert {insert_id!r}: it was never in, or it was undone, or all "
            "its rows were dropped, or it is older than replicated_deduplication_window. "
            "`rmt inserts` and system.inserts show those that are known; system.parts shows what "
            "a part is of, and DROP PART drops one"
        )
    view = merge_view(replica, sorted(known.partitions))
    runs = [_line(view, run) for run in _runs(known.lines)]
    with_parts = {run.partition for run in runs if run.parts}
    lines = sorted(runs, key=lambda one: one.partition in with_parts)
    return _looked(replica, insert_id, known, view, tuple(lines))


def _looked(
    replica: Replica, insert_id: str, known: Known, view: MergeView, lines: tuple[_Line, ...]
) -> _Looked:
    parts = tuple(part for line in lines for part in line.parts)
    rows = size_bytes = 0
    for part in parts:
        with suppress(Corruption):  # what can't be read is dropped all the same
            manifest = replica.store.manifest(part)
            rows, size_bytes = rows + manifest.rows, size_bytes + manifest.bytes_on_disk
    refusal, is_for_now = _refusal(insert_id, lines, parts)
    plan = UndoPlan(insert_id, known.record, parts, rows, size_bytes, refusal, is_for_now)
    return _Looked(insert_id, known, view, lines, plan)


def _refusal(
    insert_id: str, lines: Sequence[_Line], parts: Sequence[PartName]
) -> tuple[str, bool]:
    """Return why the insert can't be undone, and whether only for now; a lasting reason comes
    first. "" if it can.
    """
    if insert_id.startswith(REPLACEMENT):
        return "it replaced rows, which are gone: replace them once more", False
    refused = sorted((line for line in lines if line.refusal), key=lambda line: line.is_for_now)
    if refused:
        return refused[0].refusal, refused[0].is_for_now
    if not parts:
        return _NOTHING_OF_ITS_OWN, False
    return "", False


def _runs(lines: Iterable[PartitionRows]) -> list[tuple[PartitionRows, ...]]:
    """Group the lines whose own blocks follow each other without a gap: nothing of other inserts is
    in between.
    """
    found: list[list[PartitionRows]] = []
    for line in sorted(lines, key=lambda one: (one.partition, one.own_first)):
        before = found[-1][-1] if found else None
        follows = (
            before is not None
            and before.partition == line.partition
            and before.own_first >= 0
            and before.own_last + 1 == line.own_first
        )
        if follows:
            found[-1].append(line)
        else:
            found.append([line])
    return [tuple(run) for run in found]


def _line(view: MergeView, run: tuple[PartitionRows, ...]) -> _Line:
    own_last = run[-1].own_last
    line = run[0]._replace(last=max(one.last for one in run), own_last=own_last)
    if line.own_first == NO_BLOCK or not line.rows:
        return _Line(run)
    where = f"in partition {line.partition}"
    if line.own_first == UNKNOWN_BLOCK:
        return _Line(
            run,
            refusal=f"its record does not say which blocks {where} are its own alone: it is of an "
            "older version, or was made again from the disks, or other rows of the parts that had "
            f"them were replaced. {_OTHER_WAYS}",
        )
    blocks = f"{line.own_first} to {line.own_last}"
    span = PartName(line.partition, line.own_first, line.own_last, 0)
    active = view.active.intersecting(span)
    will_be = view.predicate.virtual.intersecting(span)
    if not active and not will_be:
        return _Line(
            run,
            refusal=f"its blocks {blocks} {where} are in no part any more: its rows were written "
            f"anew by a replacement, or removed. {_OTHER_WAYS}",
        )
    for part in (*active, *will_be):
        if not part.is_drop_range and not _is_inside(part, line):
            now = "were merged" if part in view.active else "are going to be merged"
            return _Line(
                run,
                refusal=f"its rows {where} {now} with those of other inserts into {part}, where "
                f"nothing tells them apart. {_OTHER_WAYS}",
            )
    for part in (*active, *will_be):
        held = view.predicate.may_merge_one(part)
        reason = "" if held is None else held.reason
        if not reason and part not in view.active:
            reason = f"{part} is not here yet"
        if reason:
            return _Line(run, refusal=f"{reason}. Try again", is_for_now=True)
    return _Line(run, tuple(active))


def _is_inside(part: PartName, line: PartitionRows) -> bool:
    return line.own_first <= part.block_min and part.block_max <= line.own_last


def _require(replica: Replica, plan: UndoPlan, gone: Sequence[PartName]) -> None:
    """Raise the plan's refusal, if there is one. `gone` are parts of the insert that were dropped
    before.
    """
    if plan.refusal:
        error = PartIsLocked if plan.is_for_now else CannotUndo
        what = (
            f"{few(gone)} of it were dropped before that was so, and nothing else was changed"
            if gone
            else "Nothing was changed"
        )
        raise error(
            f"{replica}: insert {plan.insert_id} can't be undone: {plan.refusal}. {what}"
        )


# --- into the log -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Some:
    """As many of the insert's partitions as fit into a multi. Those without parts go first, so that
    the last multi has an entry, by which it can be found out whether it landed. `leaves_ids`: those
    of the rows do not fit, and are forgotten before the undo is answered, or when its entries are
    carried out (`work.drop`).
    """

    looked: _Looked
    entries: list[bytes]
    ops: list[Op]
    leaves_ids: bool


def _fitting(replica: Replica, found: _Looked) -> _Some:
    lines = found.lines
    while True:
        some = _of_lines(replica, found, lines, with_ids=True)
        if sum(map(op_bytes, some.ops)) <= limits.MULTI_BYTES_MAX:
            return some
        partitions = list(dict.fromkeys(line.partition for line in lines))
        if len(partitions) == 1:
            return _of_lines(replica, found, lines, with_ids=False)
        first = frozenset(partitions[: len(partitions) // 2])
        lines = tuple(line for line in lines if line.partition in first)


def _of_lines(
    replica: Replica, found: _Looked, lines: tuple[_Line, ...], *, with_ids: bool
) -> _Some:
    insert_id, known = found.insert_id, found.known
    some = _looked(replica, insert_id, known, found.view, lines)
    entries = [
        encode(
            DropPart(
                create_time=int(replica.clock.now_s()),
                source_replica=replica.name,
                entry_id=replica.new_entry_id(),
                part=part,
            )
        )
        for part in some.plan.parts
    ]
    ops = transactions.assign(
        replica.table,
        replica.paths,
        entries,
        log_version=found.view.predicate.log_version,
        is_lost_version=found.view.is_lost_version,
    )
    rows = frozenset(row for line in lines for row in line.rows)
    ops.append(SetData(replica.table.alter_partition_version))  # see `nothing_to_drop`
    ops += take_out(replica, insert_id, known.record, known.version, rows)
    forgotten = (
        what_to_forget(replica, some.plan.parts, are_lost=True, but=insert_id)
        if with_ids
        else []
    )
    # Bump the version of `inserts` in any case, so that a process which has read this record in
    # order to forget it (`replica.forget`) is refused.
    ops += [*chain.from_iterable(forgotten)] or [SetData(replica.table.inserts)]
    return _Some(some, entries, ops, leaves_ids=not with_ids)


def _sum(undone: Sequence[_Looked]) -> Undone:
    plans = [one.plan for one in undone]
    return Undone(
        plans[0].insert_id,
        plans[0].record,
        tuple(part for plan in plans for part in plan.parts),
        sum(plan.rows for plan in plans),
        sum(plan.size_bytes for plan in plans),
    )
