"""Replace the rows of whole partitions at one moment: staged parts come and the parts that were
there go, in the log and on the replica that writes it (spec §9.6, §9.7).

    numbers ──► parts get their names on the disk ──► inserts below cancelled, the log pulled, the
    queue and the parts looked at ──► one multi ──► the replaced parts leave the disk

The multi has the log entries; and, of this replica, the parts that come, and the parts and queue
entries that go. So a reader here sees the old rows or the new ones. How other replicas carry it out
is in `work.replace`. What the multi asserts, and why nothing is lost, doubled or brought back:

1. The numbers are held by this command, not by an insert, and `alter_partition_version` still has
   the version from before they were taken. So of two commands on partitions whose numbers are in
   flight at once, one is refused and begins again with new numbers. Hence whatever a drop or
   replacement takes was in the log before it, on every replica: no part with numbers below its
   range's end comes later.
2. What goes was looked at after the last insert below the range's end was cancelled and the log was
   pulled. Whatever could have come since makes the multi fail: a merge or mutation changes the
   version of the log; giving up a part changes `is_lost`; carrying out an entry removes its queue
   node. So nothing that belongs to the range stays.
3. The new parts are promised, and whole on this disk, at the moment when the log tells other
   replicas of them. A process that dies before it leaves directories that nothing refers to. One
   that dies after it leaves old directories; the entry, in the log or in the queue, says that they
   may go.
4. If the partition moves out of a second table, that table's half is in the same multi.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import starmap

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    ReplicaRetired,
    RmtError,
    TableIsReadOnly,
    Unavailable,
    UserError,
)
from rmt_pipeline.protocol.inserts.rows import Moved
from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.protocol.log.entry import (
    DropRange,
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
    drop_range_of,
    parts_brought,
)
from rmt_pipeline.protocol.parts.name import LEVEL_MAX, MUTATION_MAX, PartName, drop_range
from rmt_pipeline.protocol.parts.set import PartSet, contained_in
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.caught_up import caught_up
from rmt_pipeline.replica.forget import forget, renumber
from rmt_pipeline.replica.insert.insert import ensure_partitions
from rmt_pipeline.replica.mutations.mutations import load_mutations, release_numbers, take_locks
from rmt_pipeline.replica.partitions.drop import (
    Living,
    cancel_inserts,
    others_first,
    partition_version,
    perhaps_another,
    submit,
)
from rmt_pipeline.replica.partitions.ids_left import (
    before_it_is_answered,
    with_forgetting,
    with_renumbering,
)
from rmt_pipeline.replica.partitions.inside import (
    parts_inside,
    remove_unpromised,
    stop_making,
)
from rmt_pipeline.replica.pull_log import PutOff
from rmt_pipeline.replica.replica import Replica, lost_error, take_back_own
from rmt_pipeline.replica.settled import are_on_disk
from rmt_pipeline.store.part_log import PartEvent, PartEventType
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import fit_together, refusals
from rmt_pipeline.zookeeper.keeper import Check, Op, RefusalKind, Refused
from rmt_pipeline.zookeeper.partition_transactions import (
    Arrival,
    Swap,
    submit_swaps,
)
from rmt_pipeline.zookeeper.paths import sequence_number
from rmt_pipeline.zookeeper.snapshot import committing_blocks

KEPT = "rows that stay"  # stands in place of a block id, see `ReplaceRange.keeps_ids`


class PartitionChanged(Conflict):
    """The partition is not any more what the decision was based on. Nothing was changed: look
    again.
    """

    code = "PART_IS_TEMPORARILY_LOCKED"


class IdIsTaken(Conflict):
    """A node that the commit was to create exists by now. Nothing was changed."""

    code = "INSERT_WAS_DEDUPLICATED"


class PartsDoNotFit(UserError):
    """So many parts would come and go at once that their multi is larger than ZooKeeper takes.
    Nothing was changed: OPTIMIZE the partition first, or do less at once.
    """

    code = "TOO_MANY_PARTS"


@dataclass(frozen=True, slots=True)
class Incoming:
    """A staged part that comes. `source` is the name, in the table that it is from, of the part of
    which it is a copy or has rows. `block_id` must not exist yet; it is not written if the part
    replaces others. `level` is that of the part of which it is a whole copy (spec §9.6).
    """

    staged: StagedPart
    source: str = ""
    block_id: str = ""
    level: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of one partition. With `replaces` everything that is there goes. `expected`
    are the active parts on which the decision was based; None: whatever is there. With `rewrites`
    some of the rows there are among those that come, so that no mutation may be on its way to them.
    With `is_apart` one number is left out before the new parts, as the original does for ATTACH
    PARTITION FROM.
    """

    partition: str
    incoming: tuple[Incoming, ...] = ()
    replaces: bool = True
    expected: frozenset[PartName] | None = None
    rewrites: bool = False
    is_apart: bool = False

    @property
    def has_delimiter(self) -> bool:
        return self.replaces or self.is_apart


@dataclass(frozen=True, slots=True)
class Leaving:
    """A table out of which everything in a partition goes, in the same multi: exactly `parts`."""

    living: Living
    partition: str
    parts: frozenset[PartName]


Numbers = Mapping[str, tuple[int, int]]
"""By partition, the first and the last of the numbers that its new rows have; for a partition
without new rows, the number that ends what was there, twice.
"""
Also = Callable[[Replica, Numbers], Sequence[Op]]
"""Returns more operations for the multi. One that creates an existing node is an IdIsTaken."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Changes that are committed all at once. `origin` is the database and name, as this replica
    knows them, of the table that the parts are from; other replicas may have copies of them under
    the same names. `keeps_ids`: rows that go come again, so their inserts stay known. `command` and
    `run_id` are noted in the part log: which command it was, and by which Dagster run.
    """

    changes: tuple[Change, ...]
    origin: tuple[str, str] = ("", "")
    leaving: Leaving | None = None
    also: Also = lambda *_: ()
    keeps_ids: bool = False
    command: str = "REPLACE PARTITION"
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Swapped:
    """What was done: `parts` came; `gone`, active parts with `rows_gone` rows, went. `logged` are
    the texts of the entries in the log, by table.
    """

    parts: tuple[PartName, ...]
    gone: tuple[PartName, ...]
    rows_gone: int
    logged: tuple[tuple[Living, frozenset[bytes]], ...]


def swap(living: Living, wanted: Wanted) -> Swapped:
    """Carry the changes out, until they are in the log. If this raises OutcomeUnknown, the parts
    may be in the table, under their own names; what has its staged name is the caller's.

    Raises PartitionChanged, IdIsTaken, PartsDoNotFit, TableIsReadOnly, CannotAssignDrop;
    Unavailable and ReplicaRetired, which say nothing of the data, before anything was changed.
    """
    for _ in range(limits.DROP_ROUNDS_MAX):
        sides = _sides(living, wanted)
        done = None if sides is None else _try(sides, wanted)
        if sides is not None and done is not None:
            return _finished(sides, done, wanted)
    raise others_first(living())


# --- one try ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A change with its numbers. `range` is what goes; None: nothing was ever there."""

    change: Change
    delimiter: str
    range: PartName | None
    parts: tuple[tuple[Incoming, PartName, str], ...]

    @property
    def is_something(self) -> bool:
        """False if nothing comes where nothing ever was."""
        return self.range is not None or bool(self.parts)


@dataclass(slots=True)
class _Side:
    """One table's half of the swap."""

    living: Living
    replica: Replica
    changes: tuple[Change, ...]
    is_left: bool
    """Whether a partition moves out of this table: then its entry is a DROP_RANGE."""
    version: int = 0
    locks: tuple[str, ...] = ()
    numbered: tuple[_Numbered, ...] = ()
    is_sent: bool = False
    """Of the first side: whether the multi of both may be in the log."""

    @property
    def ranges(self) -> list[PartName]:
        return [one.range for one in self.numbered if one.range is not None]

    @property
    def pairs(self) -> list[tuple[StagedPart, PartName]]:
        return [(one.staged, part) for each in self.numbered for one, part, _ in each.parts]

    @property
    def moved(self) -> Moved:
        """To where the rows of parts move that stay."""
        return Moved.of((new.source, to) for one in self.numbered for new, to, _ in one.parts)


@dataclass(frozen=True, slots=True)
class _Looked:
    """What goes, by range: queue nodes and parts; and the versions that the multi asserts."""

    nodes: Mapping[PartName, tuple[str, ...]]
    parts: Mapping[PartName, tuple[PartName, ...]]
    log_version: int
    is_lost_version: int
    log_end: int | None = None
    """The number of the log's next entry at that version; None if the log was not read."""


_Gone = Mapping[PartName, tuple[int, int]]
"""The active parts that go, with their rows and bytes."""


@dataclass(frozen=True, slots=True)
class _Done:
    """A swap that is in the log, by side; `left`: whose ids were left."""

    looked: Sequence[_Looked]
    swaps: Sequence[Sequence[Swap]]
    gone: Sequence[_Gone]
    left: Sequence[_Side] = ()


def _sides(living: Living, wanted: Wanted) -> list[_Side] | None:
    """Return both tables' halves; None if a session ended in between: they must share one."""
    sides = [_Side(living, living(), wanted.changes, is_left=False)]
    if wanted.leaving is not None:
        out = wanted.leaving
        leaves = Change(out.partition, expected=out.parts)
        sides.append(_Side(out.living, out.living(), (leaves,), is_left=True))
    return sides if len({id(side.replica.session) for side in sides}) == 1 else None


def _try(sides: Sequence[_Side], wanted: Wanted) -> _Done | None:
    """Try once; None if another command came first."""
    try:
        for side in sides:
            _take_numbers(side)
        for side in sides:
            side.replica.store.publish_all(side.pairs)
            cancel_inserts(side.replica, side.ranges, side.locks)
        done = _commit(sides, wanted)
    except BaseException as error:
        if sides[0].is_sent:  # the parts may be in the table
            _release(sides)
        elif not _take_back(sides) and isinstance(error, Conflict):
            raise perhaps_another(sides[0].replica) from error
        raise
    if done is None and not _take_back(sides):
        raise perhaps_another(sides[0].replica)
    return done


def _finished(sides: Sequence[_Side], done: _Done, wanted: Wanted) -> Swapped:
    """Do what is left after the commit. What fails is left to the worker and the clean-up."""
    for side, found, some, gone in zip(sides, done.looked, done.swaps, done.gone, strict=True):
        written = {lock for one in some for lock in one.locks}
        release_numbers(side.replica, [lock for lock in side.locks if lock not in written])
        _note(side, gone, some, wanted)
        with suppress(RmtError, OSError):
            _leave_disk(side, found)
    with before_it_is_answered():
        for side in done.left:
            if wanted.keeps_ids:
                renumber(side.living(), side.moved)
            else:  # but for the numbers that end them: there a replacement by no row has its record
                ends = [(one.partition, one.block_max + side.is_left) for one in side.ranges]
                forget(side.living(), list(starmap(drop_range, ends)))
    parts = tuple(part for _, part in sides[0].pairs)
    went = done.gone[0]
    logged = tuple(
        (side.living, frozenset(one.entry for one in some))
        for side, some in zip(sides, done.swaps, strict=True)
        if some
    )
    return Swapped(parts, tuple(went), sum(rows for rows, _ in went.values()), logged)


def _take_back(sides: Sequence[_Side]) -> bool:
    """Undo a try of which nothing is in the log. False: parts may have kept their names."""
    taken = [take_back_own(side.replica, side.living, side.pairs) for side in sides]
    _release(sides)
    return all(taken)


def _release(sides: Sequence[_Side]) -> None:
    for side in sides:
        release_numbers(side.replica, side.locks)


def _take_numbers(side: _Side) -> None:
    """Take the numbers, ascending: one that ends what is there, then one for each new part."""
    replica = side.replica
    partitions = [
        change.partition
        for change in side.changes
        for _ in range(change.has_delimiter + len(change.incoming))
    ]
    if not fit_together(transactions.lock_partitions(replica.table, partitions, "")):
        come = sum(len(change.incoming) for change in side.changes)
        raise _too_many(replica, f"{come} parts that come in {len(side.changes)} partitions")
    if not side.is_left:
        ensure_partitions(replica, set(partitions))
    created = _take_locks(side, partitions)
    side.locks = tuple(created)
    numbered: list[_Numbered] = []
    rest = iter(created)
    for change in side.changes:
        delimiter = next(rest) if change.has_delimiter else ""
        parts = []
        for one in change.incoming:
            lock = next(rest)
            number = sequence_number(lock)
            parts.append((one, PartName(change.partition, number, number, one.level), lock))
        ends = _range(change, delimiter, is_left=side.is_left)
        numbered.append(_Numbered(change, delimiter, ends, tuple(parts)))
    side.numbered = tuple(numbered)


def _take_locks(side: _Side, partitions: Sequence[str]) -> list[str]:
    """Take numbers and set the version of the commands that came before. If the version that is
    known is old, no number is taken with it: as in the original, none is skipped.
    """
    replica = side.replica
    known = replica.memory.partition_version
    if known is not None:
        side.version = known
        try:
            return take_locks(replica, partitions, replica.new_holder(), commands=known)
        except Refused as refused:
            if refused.kind is not RefusalKind.BAD_VERSION:
                raise
    side.version = replica.memory.partition_version = partition_version(replica)
    return take_locks(replica, partitions, replica.new_holder())


def _range(change: Change, delimiter: str, *, is_left: bool) -> PartName | None:
    """Return the range that goes: for a DROP_RANGE up to the number before the delimiter, for a
    REPLACE_RANGE including the delimiter, because it must have two blocks at least (spec §1.6).
    None if nothing goes.
    """
    number = sequence_number(delimiter) if change.replaces else 0
    if number == 0:
        return None
    if is_left:
        return drop_range(change.partition, number)
    return PartName(change.partition, 0, number, LEVEL_MAX, MUTATION_MAX)


def _commit(sides: Sequence[_Side], wanted: Wanted) -> _Done | None:
    """Commit; None if the numbers can't be used any more. Raises CannotAssignDrop if the log moves
    each time; Conflict if merges add parts that cover others as fast as those are forgotten.
    """
    forgotten = 0
    for _ in range(limits.DROP_ROUNDS_MAX):
        looked = [_look(side) for side in sides]
        swaps = [_swaps(side, found, wanted) for side, found in zip(sides, looked, strict=True)]
        gone = [
            _rows_of(side.replica, found) for side, found in zip(sides, looked, strict=True)
        ]
        if not swaps[0]:
            return _Done(looked, swaps, gone)
        ops = _ops(sides, looked, swaps)
        ops += wanted.also(sides[0].replica, _numbers(sides[0]))
        if not fit_together(ops):
            forgotten += 1
            _make_smaller(sides, looked, forgotten)
            continue
        left: list[_Side] = []
        for side in (one for one in sides if one.ranges):
            if wanted.keeps_ids:
                ops, fit = with_renumbering(side.replica, ops, side.moved)
            else:
                ops, fit = with_forgetting(side.replica, ops, side.ranges)
            left += [] if fit else [side]
        if _submit(sides[0], swaps[0], ops, looked[0].log_end):
            return _Done(looked, swaps, gone, left)
        if not _are_good(sides):
            return None
    raise others_first(sides[0].replica)


def _ops(
    sides: Sequence[_Side],
    looked: Sequence[_Looked],
    swaps: Sequence[Sequence[Swap]],
) -> list[Op]:
    ops = [
        op
        for side, found, some in zip(sides, looked, swaps, strict=True)
        for op in submit_swaps(
            side.replica.table,
            side.replica.paths,
            some,
            version=side.version,
            log_version=found.log_version,
            is_lost_version=found.is_lost_version,
        )
    ]
    others = [side.replica for side in sides[1:]]  # the sending keeper does not check these
    return [*ops, *(Check(one.creation) for one in others if one.creation)]


def _submit(
    side: _Side,
    swaps: Sequence[Swap],
    ops: Sequence[Op],
    begin: int | None,
) -> bool:
    side.is_sent = True
    memory = side.replica.memory
    known, records, ids = memory.queue, memory.records, memory.block_ids
    parts, queued = known.listed(side.replica.paths), known.queued(side.replica.paths)
    lock = next(lock for one in swaps for lock in one.locks)
    entries = [one.entry for one in swaps]
    try:
        found = submit(side.living, side.replica, ops, entries, lock, begin=begin)
    except Refused as refused:
        side.is_sent = False
        if refused.kind is RefusalKind.NODE_EXISTS:
            raise IdIsTaken(
                f"{side.replica}: {refused.path} was written by somebody else meanwhile"
            ) from refused
        raise
    except (TableIsReadOnly, ReplicaRetired, Unavailable):  # raised before it was sent
        side.is_sent = False
        raise
    side.is_sent = found is not None
    if found is not None:
        # Noted under the session that sent the multi. If a later session has found it in the log,
        # that one lists everything once more.
        session = side.replica.keeper.session_id
        came = [arrival.part for one in swaps for arrival in one.arrivals]
        went = {part for one in swaps for part in one.parts}
        nodes = {node for one in swaps for node in one.nodes}
        known.published(side.replica.paths, parts, came, session, went=went)
        known.changed(side.replica.paths, queued, session, went=nodes)
        memory.partition_version = side.version + 1
        memory.records = records.after(ops, side.replica.table.inserts, session)
        memory.block_ids = ids.after(ops, side.replica.table.blocks, session)
    return found is not None


def _are_good(sides: Sequence[_Side]) -> bool:
    """Whether another look is enough: no other command came first, all numbers are ours."""
    return all(
        partition_version(side.replica) == side.version
        and None not in side.replica.keeper.exists_many(side.locks)
        for side in sides
    )


# --- what goes --------------------------------------------------------------------------------


def _look(side: _Side) -> _Looked:
    """Look at what goes. Raises PartitionChanged, TableIsReadOnly; Conflict if the replica keeps
    changing; Unavailable while a DETACH has yet to set aside what would go.
    """
    replica = side.replica
    if not side.ranges:
        _require(side, {})
        return _Looked({}, {}, -1, _not_lost(replica))
    # Entries of other partitions may stay put off. Those of these must all be in the queue:
    # otherwise an insert whose part is replaced before its entry was copied would be fetched again.
    apart = frozenset(one.partition for one in side.ranges)
    pulled, snapshot = caught_up(replica, PutOff(apart))
    view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts)
    entries = {part: view.entries_removed_by(part, by="") for part in side.ranges}
    parts = {
        part: parts_inside(replica, snapshot.parts, part, f"the replacement of {part}")
        for part in side.ranges
    }
    for part in side.ranges:
        if node := view.detaches(parts[part]):
            raise Unavailable(
                f"{replica} has yet to carry out {node}, which detaches what is replaced; nothing "
                "was changed. Try again when it has: SYSTEM SYNC REPLICA waits for it"
            )
    coming = {
        part: [
            new
            for _, entry in entries[part]
            if not isinstance(entry, MergeParts | MutatePart)
            for new in parts_brought(entry)
            if view.current.containing(new) is None
        ]
        for part in side.ranges
    }
    # A part that a queued drop takes does not count as read: 1. A command reads parts, to move them
    # or to write their rows anew. 2. They are dropped: the DROP is in the log. 3. It is in our
    # queue, and until it is carried out the parts are promised. If they counted, the dropped rows
    # would come back.
    is_dropped = contained_in(filter(None, map(drop_range_of, view.entries.values())))
    left = {
        part: PartSet(one for one in parts[part] if not is_dropped(one)) for part in side.ranges
    }
    _require(side, {part: (left[part], coming[part]) for part in side.ranges})
    _require_no_mutation(side)
    nodes = {part: tuple(node for node, _ in entries[part]) for part in side.ranges}
    return _Looked(nodes, parts, pulled.log_version, snapshot.is_lost_version, pulled.pointer)


def _require(side: _Side, found: Mapping[PartName, tuple[PartSet, Sequence[PartName]]]) -> None:
    for one in side.numbered:
        expected = one.change.expected
        if expected is None:
            continue
        active, coming = found[one.range] if one.range is not None else (PartSet(), ())
        if coming:
            raise PartitionChanged(
                f"{side.replica} has yet to get {coming[0]} of partition {one.change.partition}; "
                "nothing was changed"
            )
        if frozenset(active) != expected:
            raise PartitionChanged(
                f"the parts of partition {one.change.partition} of {side.replica} changed while "
                "they were read; nothing was changed"
            )


def _require_no_mutation(side: _Side) -> None:
    """Raise PartitionChanged if a mutation has yet to be applied to rows that are written anew:
    they get numbers greater than that of the mutation, which would then pass them by. Numbers in
    flight are read first, because a mutation holds its own until it is written.
    """
    rewritten = [one for one in side.numbered if one.change.rewrites and one.delimiter]
    if not rewritten:
        return
    replica = side.replica
    partitions = [one.change.partition for one in rewritten]
    in_flight = committing_blocks(replica.keeper, replica.table, partitions)
    versions = load_mutations(replica).versions()
    for one in rewritten:
        partition, end = one.change.partition, sequence_number(one.delimiter)
        if before := [number for number in in_flight[partition] if number < end]:
            raise PartitionChanged(
                f"{replica}: number {min(before)} of partition {partition} is in flight; nothing "
                "was changed"
            )
        for part in one.change.expected or ():
            if any(
                part.data_version < version < end for version in versions.get(partition, ())
            ):
                raise PartitionChanged(
                    f"{replica}: {part} has mutations before it that are not finished "
                    "(system.mutations); nothing was changed"
                )


def _not_lost(replica: Replica) -> int:
    data, stat = replica.keeper.get(replica.paths.is_lost)
    if data == b"1":
        raise lost_error(replica)
    return stat.version


def _rows_of(replica: Replica, looked: _Looked) -> _Gone:
    gone = {part: (0, 0) for parts in looked.parts.values() for part in PartSet(parts)}
    for part in gone:
        with suppress(Corruption):  # what can't be read is replaced all the same
            gone[part] = replica.store.counts(part)
    return gone


def _note(side: _Side, gone: _Gone, swaps: Sequence[Swap], wanted: Wanted) -> None:
    """Note in the part log what came and went; carrying the entry out here notes nothing more."""
    now_s = side.replica.clock.now_s()
    brought = {part: staged.manifest for staged, part in side.pairs}
    came = {part: (one.rows, one.bytes_on_disk) for part, one in brought.items()}
    events: list[PartEvent] = []
    for one in swaps:
        entry = decode(one.entry)
        inside = drop_range_of(entry)
        went = [part for part in gone if inside is not None and inside.contains(part)]
        noted: list[tuple[PartEventType, PartName, tuple[int, int]]] = [
            *(("RemovePart", part, gone[part]) for part in went),
            *(("NewPart", arrival.part, came[arrival.part]) for arrival in one.arrivals),
        ]
        events += (
            PartEvent(
                kind,
                str(part),
                now_s,
                rows=rows,
                size_bytes=size_bytes,
                run_id=wanted.run_id,
                command=wanted.command,
                entry_id=entry.entry_id,
            )
            for kind, part, (rows, size_bytes) in noted
        )
    side.replica.store.part_log.note(events)


def _leave_disk(side: _Side, looked: _Looked) -> None:
    """Remove the replaced parts from the disk. The drop is noted on the disk first, for the parts
    that readers hold, or that a slow process still publishes, which go later. If the process dies
    before that, the entry in the log says the same (`upkeep.check`).
    """
    for part_range in side.ranges:
        stop_making(side.replica, part_range)
        if looked.parts[part_range] or are_on_disk(side.replica, [part_range]):
            side.replica.store.drops.note(part_range)
    remove_unpromised(side.replica, [part for parts in looked.parts.values() for part in parts])


# --- what is written --------------------------------------------------------------------------


def _swaps(side: _Side, looked: _Looked, wanted: Wanted) -> list[Swap]:
    return [
        Swap(
            entry=encode(_entry(side, one, wanted)),
            delimiter=one.delimiter,
            arrivals=tuple(
                Arrival(
                    part,
                    coming.staged.manifest.header().encode(),
                    lock,
                    coming.block_id if one.range is None else "",
                )
                for coming, part, lock in one.parts
            ),
            nodes=() if one.range is None else looked.nodes[one.range],
            parts=() if one.range is None else looked.parts[one.range],
        )
        for one in side.numbered
        if one.is_something
    ]


def _entry(side: _Side, one: _Numbered, wanted: Wanted) -> LogEntry:
    replica = side.replica
    create_time, entry_id = int(replica.clock.now_s()), replica.new_entry_id()
    if side.is_left:
        assert one.range is not None
        return DropRange(
            create_time=create_time,
            source_replica=replica.name,
            entry_id=entry_id,
            range=one.range,
        )
    database, name = wanted.origin
    # The version of the parts, whatever ALTER came since: other replicas link theirs by it.
    versions = {coming.staged.manifest.metadata_version for coming, _, _ in one.parts}
    version = min(versions, default=replica.definition.metadata_version)
    return ReplaceRange(
        create_time=create_time,
        source_replica=replica.name,
        block_id=KEPT if wanted.keeps_ids else "",
        entry_id=entry_id,
        range=one.range or PartName(one.change.partition, 0, 0, 0),
        from_database=database,
        from_table=name,
        source_parts=tuple(coming.source or str(part) for coming, part, _ in one.parts),
        new_parts=tuple(part for _, part, _ in one.parts),
        part_checksums=tuple(
            coming.staged.manifest.files_hash.hex().upper() for coming, _, _ in one.parts
        ),
        columns_version=version or -1,
    )


def _numbers(side: _Side) -> Numbers:
    found = {}
    for one in side.numbered:
        numbers = [part.block_min for _, part, _ in one.parts] or [
            sequence_number(one.delimiter)
        ]
        found[one.change.partition] = min(numbers), max(numbers)
    return found


# --- size -------------------------------------------------------------------------------------


def _make_smaller(sides: Sequence[_Side], looked: Sequence[_Looked], times: int) -> None:
    """Make the next multi smaller. Raises PartsDoNotFit; Conflict if `times` is too often."""
    if not _forget_covered(sides, looked):
        come = sum(len(side.pairs) for side in sides)
        go = sum(len(parts) for found in looked for parts in found.parts.values())
        raise _too_many(sides[0].replica, f"{come} parts that come and {go} that go")
    if times >= limits.LOOK_ROUNDS_MAX:
        raise Conflict(
            f"{sides[0].replica}: parts of the partition are merged all the time, and do not fit "
            "into one commit until those that were merged are gone; try again"
        )


def _forget_covered(sides: Sequence[_Side], looked: Sequence[_Looked]) -> bool:
    """Remove the promises of covered parts ahead of the multi; return whether there were any."""
    any_was = False
    for side, found in zip(sides, looked, strict=True):
        replica = side.replica
        for parts in found.parts.values():
            active = PartSet(parts)
            multis = [
                transactions.forget_covered(
                    replica.paths, part, covering, is_lost_version=found.is_lost_version
                )
                for part in parts
                if (covering := active.containing(part)) not in (None, part)
                and covering is not None
            ]
            any_was = any_was or bool(multis)
            refusals(replica.keeper, multis)  # a clean-up may have removed them already
    return any_was


def _too_many(replica: Replica, parts: str) -> PartsDoNotFit:
    return PartsDoNotFit(
        f"{replica}: {parts} do not fit into one commit of ZooKeeper, and it happens at once or "
        "not at all. OPTIMIZE TABLE … PARTITION … FINAL makes fewer of them; or replace fewer "
        "partitions at a time. Nothing was changed"
    )
