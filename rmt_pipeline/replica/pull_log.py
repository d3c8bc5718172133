"""Copying the shared log to this replica's queue (spec §3).

Most entries that the replica of a writer reads in the log are its own inserts, whose parts it has
since the multi that wrote the entry. Such an entry is not queued only to be found done: the multi
that moves the pointer asserts that the part exists, and the queue stays as it is. If the part is
gone again (merged and removed, or to be fetched again), all entries are queued like any others.

The same holds for a replacement that was requested here and therefore has happened here, once
nothing is left to do for it: no directory, id, record or quorum of what it replaced. A loop that
never ends skips such entries; a Dagster run queues and carries them out, since it reports them to
people.

A loop that never ends even puts off moving the pointer as long as it reads only such entries: on a
replica that takes all inserts the pointer moves once for many of them, as if the replica had looked
a moment later. The parts that they brought are asserted when the pointer moves, and any other entry
is copied at once, with them.

Entries are numbered without gaps. So a replica that knows its position asks for the entries that
come next, and first for the stat of the log, which tells how many entries there ever were.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.background import Background, stopped_words
from rmt_pipeline.protocol.errors import Corruption, Unavailable
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import (
    GetPart,
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
    drop_range_of,
    partitions_about,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Pointer, Replica, asserting_active, lost_error
from rmt_pipeline.replica.settled import settled_ones
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Op, RefusalKind, Refused, Stat, Watch
from rmt_pipeline.zookeeper.paths import last_name, log_entry_name, sequence_number
from rmt_pipeline.zookeeper.snapshot import gone

PUT_OFF_MAX = 64  # entries, then the pointer is moved past them
DECODED_MAX = 8 * PUT_OFF_MAX  # entries, of all tables of this process
PUT_OFF_BYTES_MAX = limits.MULTI_BYTES_MAX // 4  # the next entries still fit with them
PUT_OFF_S = 0.5  # after the first of them
AHEAD = 4  # entries that are asked for before it is known whether they exist
BROUGHT_MAX = 16  # a replacement that brought more parts is queued

_Read = tuple[bytes, Stat] | None


class LogTrimmed(Corruption):
    """Entries that this replica has not copied are gone from the log: it can't follow."""

    code = "REPLICA_IS_LOST"


class PullingIsStopped(Unavailable):
    """Nothing is copied from the log, so no process may conclude that nothing is left to copy."""

    code = "ABORTED"


@dataclass(frozen=True, slots=True)
class Pulled:
    """How far the queue is: `log_version` was read with the listing of the log, and every entry of
    that listing has been copied. Processes that assign merges assert this version (spec §6.3).

    This call has moved the pointer past `entries` entries, of which `queued` were queued; the
    others were done. Entries that were put off are not counted.
    """

    entries: int
    queued: int
    pointer: int
    log_version: int
    is_lost_version: int


@dataclass(slots=True)
class PutOff:
    """Log entries that one loop has read and that require nothing of its replica. To spare
    requests, the log pointer is moved past them a little later, all together. They begin at
    `pointer`. Entries of the partitions `apart` are not put off.
    """

    apart: frozenset[str] = frozenset()
    pointer: Pointer | None = None
    entries: "tuple[_Logged, ...]" = ()
    due_s: float = math.inf
    """When the pointer is to be moved, on the monotonic clock."""

    def known(self, pointer: Pointer) -> "tuple[_Logged, ...]":
        """The entries that were put off at this pointer. If another process has moved the pointer,
        there are none, and nothing is due any more.
        """
        if self.pointer != pointer:
            self._forget()
        return self.entries

    def _forget(self) -> None:
        self.pointer, self.entries, self.due_s = None, (), math.inf

    def take(self, replica: Replica, pointer: Pointer, entries: Sequence["_Logged"]) -> bool:
        """Put off all these entries, which come after the pointer, if that is allowed; else none of
        them. Returns whether they were put off.
        """
        now_s = replica.clock.monotonic_s()
        self.known(pointer)
        due_s = min(self.due_s, now_s + PUT_OFF_S)
        self._forget()
        wants_nothing = all(
            one.brought is not None and self.apart.isdisjoint(one.partitions) for one in entries
        )
        size = sum(len(one.text) + limits.OP_BYTES_OVERHEAD for one in entries)
        is_full = len(entries) > PUT_OFF_MAX or size > PUT_OFF_BYTES_MAX
        if not wants_nothing or is_full or now_s >= due_s:
            return False
        self.pointer, self.entries, self.due_s = pointer, tuple(entries), due_s
        return True


def pull_log(
    replica: Replica,
    watch: Watch | None = None,
    *,
    afresh: bool = False,
    put_off: PutOff | None = None,
    claimer: "Claimer | None" = None,
) -> Pulled:
    """Copy every log entry that is new to this replica into its queue.

    `afresh` is for callers that conclude something from nothing being left to copy. It reads the
    pointer from ZooKeeper: a remembered pointer may be ahead of it, because a clone has moved it
    back, and would hide that the queue lacks entries.

    `put_off` is for callers that come again when it is due and act only on what is queued; or that
    act only on some partitions, which they have put into its `apart`. `claimer` may claim entries
    that are copied here, in the same multi.

    The watch fires at the next change of the log. Several processes may pull for one replica: the
    pointer's version lets one of them win each batch. Raises TableIsReadOnly when the replica is
    not active or is being cloned, PullingIsStopped, ReplicaDropped, and LogTrimmed when entries are
    missing.
    """
    if Background.PULLING_REPLICATION_LOG in replica.store.marks.stopped():
        raise PullingIsStopped(
            f"{replica}: {stopped_words(Background.PULLING_REPLICATION_LOG)}"
        )
    taken = queued = 0
    while True:
        pointer, found = _begin(
            replica, afresh=afresh and watch is None, may_remember=not afresh
        )
        try:
            known = put_off.known(pointer) if put_off is not None else ()
            beside = claimer.beside() if claimer is not None and not known else ()
            found = found or _found(replica, pointer, watch, len(known), beside)
        except LogTrimmed:
            if _pointer_moved(replica, pointer):
                continue
            raise
        entries = [*known, *found.entries]
        nothing_new = not entries and pointer.index is not None
        if not nothing_new and put_off is not None:
            nothing_new = found.is_all and put_off.take(replica, pointer, entries)
        if nothing_new:
            replica.memory.pointer = pointer
            return Pulled(taken, queued, found.index, found.version, pointer.is_lost_version)
        end = found.index + len(entries)
        copied = _copy(replica, pointer, entries, end, claimer=claimer, beside=found.beside)
        if copied is None:
            continue  # another process of this replica pulled first
        taken, queued = taken + len(entries), queued + copied
        if found.is_all:
            return Pulled(taken, queued, end, found.version, pointer.is_lost_version)


@dataclass(frozen=True, slots=True)
class _Found:
    """What comes next in the log: from the pointer's `index` on, first the entries that are known
    already, then these `entries`. `version` is that of the log before they were read. `is_all` says
    that the log had no further entries then.
    """

    index: int
    entries: Sequence["_Logged"]
    is_all: bool
    version: int
    beside: Sequence[_Read] = ()


class Claimer(Protocol):
    """Claims entries in the multi that copies them to the queue."""

    def beside(self) -> Sequence[str]:
        """The paths to read together with the next entries, after them."""
        ...

    def choose(
        self, came: Mapping[str, LogEntry], beside: Sequence[_Read], is_lost_version: int
    ) -> "Claiming | None":
        """How to claim all these entries, given the queue nodes that they will get and what was
        read; None to leave them to a look at the queue.
        """
        ...


class Claiming(Protocol):
    """What a `Claimer` has chosen."""

    def take(self, pull: Sequence[Op]) -> list[str] | None:
        """Carry out the pull with the claims; see `Holder.take_pulled`."""
        ...

    def end(self, *, is_right: bool) -> None:
        """The multi was carried out. `is_right`: the entries have got the expected nodes; else the
        claims are given back.
        """
        ...


def _found(
    replica: Replica,
    pointer: Pointer,
    watch: Watch | None,
    known: int,
    beside: Sequence[str] = (),
) -> _Found:
    """Read what comes after the `known` entries. Sets the watch if one is given. Raises
    LogTrimmed.
    """
    if pointer.index is not None and (
        watch is None or replica.keeper.await_children(replica.table.log, watch)
    ):
        return _next(replica, pointer.index, known, beside)
    names, log = _listed(replica, watch)
    start = sequence_number(names[0]) if names else 0
    index = start if pointer.index is None else pointer.index
    new = names[_position(names, index + known) :]
    if not new and pointer.index is not None:
        _require_no_more(replica, index + known, log)
    batch = new[: replica.memory.pull_batch]
    reads = replica.keeper.get_many([replica.table.log_entry(name) for name in batch])
    entries = _logged(replica, list(zip(batch, reads, strict=True)), index + known)
    return _Found(index, entries, len(entries) == len(new), log.version)


def _next(replica: Replica, index: int, known: int, beside: Sequence[str]) -> _Found:
    """Read the next entries by their numbers. The stat of the log is read before them, so there may
    be more entries than it says, but not fewer.
    """
    first = index + known
    ahead = _ahead(replica, first)
    reads = replica.keeper.get_many([*ahead, *beside])
    found = _behind(replica, index, first, reads[: len(ahead)])
    return replace(found, beside=reads[len(ahead) :])


def _begin(
    replica: Replica, *, afresh: bool, may_remember: bool
) -> tuple[Pointer, _Found | None]:
    """The pointer to begin with, and what comes after it if that was read in the same request.

    The remembered pointer is used if the caller allows it, or if `afresh` shows that it still is
    where this process left it. Otherwise it is read.
    """
    remembered = replica.memory.pointer
    found = _together(replica, remembered) if afresh and remembered is not None else None
    if remembered is not None and (found is not None or may_remember):
        return remembered, found
    return _read_pointer(replica), None


def _together(replica: Replica, remembered: Pointer) -> _Found | None:
    """What comes after the remembered pointer, read in one request with the pointer itself, which
    is read before it. None if the pointer was moved since, or entries are gone.
    """
    if remembered.index is None:
        return None
    paths = replica.paths
    ahead = _ahead(replica, remembered.index)
    reads = replica.keeper.get_many([paths.is_lost, paths.log_pointer, *ahead])
    if _pointer_of(replica, reads[0], reads[1]) != remembered:
        return None
    try:
        return _behind(replica, remembered.index, remembered.index, reads[2:])
    except LogTrimmed:
        return None  # the caller reads the pointer again, and finds out


def _ahead(replica: Replica, first: int) -> list[str]:
    """The paths of the log and of the next few entries from number `first` on, existing or not."""
    names = [log_entry_name(first + number) for number in range(AHEAD)]
    return [replica.table.log, *map(replica.table.log_entry, names)]


def _behind(
    replica: Replica, index: int, first: int, reads: Sequence[tuple[bytes, Stat] | None]
) -> _Found:
    """What comes next, given the `reads` of the paths of `_ahead`. Further entries are read
    here.
    """
    log, *found = reads
    if log is None:
        raise gone(replica.paths)
    there = log[1].next_sequence - first
    count = max(0, min(there, replica.memory.pull_batch))
    names = [log_entry_name(first + number) for number in range(count)]
    if count > AHEAD:
        found += replica.keeper.get_many([*map(replica.table.log_entry, names[AHEAD:])])
    entries = _logged(replica, [*zip(names, found[:count], strict=True)], first)
    return _Found(index, entries, len(entries) >= there, log[1].version)


def _listed(replica: Replica, watch: Watch | None) -> tuple[list[str], Stat]:
    try:
        return replica.keeper.children_stat(replica.table.log, watch)
    except Refused as refused:
        raise gone(replica.paths) from refused  # and the whole table with it


def _read_pointer(replica: Replica) -> Pointer:
    """Read the pointer. `is_lost` is read first, so a pointer from before a clone never goes with a
    version of `is_lost` from after it.
    """
    paths = replica.paths
    is_lost, pointer = replica.keeper.get_many([paths.is_lost, paths.log_pointer])
    return _pointer_of(replica, is_lost, pointer)


def _pointer_of(
    replica: Replica,
    is_lost: tuple[bytes, Stat] | None,
    pointer: tuple[bytes, Stat] | None,
) -> Pointer:
    if pointer is None or is_lost is None:
        raise gone(replica.paths)
    if is_lost[0] == b"1":
        raise lost_error(replica)
    index = int(pointer[0]) if pointer[0] else None
    return Pointer(index, pointer[1].version, is_lost[1].version)


def _pointer_moved(replica: Replica, pointer: Pointer) -> bool:
    """Whether we looked for entries with an old pointer: another process of this replica has copied
    them since we read it, and then they were removed from the log.
    """
    replica.memory.pointer = None
    replica.keeper.sync(replica.paths.root)
    return _read_pointer(replica).version != pointer.version


@dataclass(frozen=True, slots=True)
class _Logged:
    """One entry of the log. `entry` is None if it can't be decoded; that is reported when it is
    read from the queue.

    `brought`: the parts that this replica got in the multi that wrote the entry, if the entry
    requires nothing more of it; else None.
    """

    text: bytes
    entry: LogEntry | None
    brought: tuple[PartName, ...] | None

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions in which the entry brings or removes parts."""
        return frozenset() if self.entry is None else partitions_about(self.entry)

    @classmethod
    def of(cls, replica: Replica, text: bytes) -> "_Logged":
        try:
            entry = _decoded(text)
        except Corruption:
            return cls(text, None, None)
        return cls(text, entry, _brought(entry, replica.name))


@lru_cache(DECODED_MAX)
def _decoded(text: bytes) -> LogEntry:
    """Decode an entry. Cached, since each caller that acts only on some partitions reads entries
    that were put off again. Raises Corruption.
    """
    return decode(text)


def _brought(entry: LogEntry, author: str) -> tuple[PartName, ...] | None:
    """The parts that came with the entry, if it requires nothing more of its author, except perhaps
    what `settled_ones` checks; else None. An entry with a quorum is not among them: replicas are
    counted when they carry it out.
    """
    match entry:
        case GetPart() if entry.source_replica == author and not entry.quorum:
            return (entry.part,)
        case ReplaceRange() if entry.source_replica == author and not entry.keeps_ids:
            return entry.new_parts if len(entry.new_parts) <= BROUGHT_MAX else None
        case _:
            return None


def _passed_by(replica: Replica, entries: Sequence[_Logged]) -> frozenset[bytes]:
    """The texts of the entries that need not be queued as long as the parts that they brought
    exist.

    A replica that replaced a partition had read the log up to that entry. So if another entry about
    the partition comes before the replacement, a clone has moved the pointer back since, and the
    replacement is queued.
    """
    replacements = [
        one.entry
        for one in entries
        if isinstance(one.entry, ReplaceRange) and one.brought is not None
    ]
    settled = frozenset[PartName]()
    if replacements and replica.memory.passes_by:
        with suppress(Corruption):  # reported when the entry is carried out
            settled = settled_ones(replica, [one.range for one in replacements])
    passed: set[bytes] = set()
    before: set[str] = set()
    for one in entries:
        is_passed = one.brought is not None
        if isinstance(one.entry, ReplaceRange):
            is_first = before.isdisjoint(one.partitions) or drop_range_of(one.entry) is None
            is_passed = is_passed and is_first and one.entry.range in settled
        passed |= {one.text} if is_passed else set()
        before |= one.partitions
    return frozenset(passed)


def _copy(
    replica: Replica,
    pointer: Pointer,
    entries: Sequence[_Logged],
    end: int,
    *,
    all_of_them: bool = False,
    claimer: Claimer | None = None,
    beside: Sequence[_Read] = (),
) -> int | None:
    """Copy one batch of entries, except those that are done (with `all_of_them`: those, too), and
    move the pointer past it. Returns how many were queued; None if what we knew of the pointer is
    outdated.
    """
    passed = frozenset[bytes]() if all_of_them else _passed_by(replica, entries)
    queued = [one for one in entries if one.text not in passed]
    here = [part for one in entries if one.text in passed for part in one.brought or ()]
    paths = replica.paths
    known = replica.memory.queue
    before, listed = known.queued(paths), known.listed(paths)
    expected = _expected(replica, pointer, queued)
    claiming = None
    if claimer is not None and beside and expected:
        claiming = claimer.choose(expected, beside, pointer.is_lost_version)
    replica.memory.pointer = None  # unknown, should the multi be refused or get no answer
    ops = transactions.pull(
        paths,
        [one.text for one in queued],
        here=here,
        pointer=end,
        pointer_version=pointer.version,
        is_lost_version=pointer.is_lost_version,
    )
    try:
        with asserting_active(replica, "it follows no other replica"):
            created = claiming.take(ops) if claiming is not None else replica.keeper.multi(ops)
    except Refused as refused:
        if refused.kind is RefusalKind.BAD_VERSION:
            return None
        if refused.path in map(paths.part, here):
            return _copy(replica, pointer, entries, end, all_of_them=True)
        raise
    if created is None:  # another worker claimed meanwhile
        return _copy(replica, pointer, entries, end, all_of_them=all_of_them)
    nodes = [last_name(path) for path in created if path]
    if claiming is not None:
        claiming.end(is_right=nodes == [*expected])
    following = sequence_number(nodes[-1]) + 1 if nodes else pointer.next_queued
    replica.memory.pointer = Pointer(
        end, pointer.version + 1, pointer.is_lost_version, following
    )
    grown = replica.memory.pull_batch * 2
    replica.memory.pull_batch = min(grown, limits.LOG_ENTRIES_PER_PULL_MAX)
    known.entries.learn(
        {
            node: one.entry
            for node, one in zip(nodes, queued, strict=True)
            if one.entry is not None
        }
    )
    known.changed(paths, before, replica.keeper.session_id, came=nodes)
    known.published(paths, listed, here, replica.keeper.session_id)
    if any(isinstance(one.entry, MergeParts | MutatePart) for one in queued):
        for wake in replica.memory.wakers.of(["merge"]).values():
            wake()
    return len(nodes)


def _expected(
    replica: Replica, pointer: Pointer, queued: Sequence[_Logged]
) -> dict[str, LogEntry]:
    """The entries by the queue nodes that they will get; empty if that is not known."""
    if pointer.next_queued is None:
        return {}
    prefix = last_name(replica.paths.queue_prefix)
    found = {
        f"{prefix}{number:010d}": one.entry
        for number, one in enumerate(queued, pointer.next_queued)
        if one.entry is not None
    }
    return found if len(found) == len(queued) else {}


def _position(names: list[str], pointer: int) -> int:
    """The index in `names` where the entries from number `pointer` on begin. The numbers are sorted
    and without gaps but may start late.
    """
    from_pointer = log_entry_name(pointer)
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        if names[middle] < from_pointer:
            low = middle + 1
        else:
            high = middle
    return low


def _logged(
    replica: Replica,
    batch: Sequence[tuple[str, tuple[bytes, Stat] | None]],
    pointer: int,
) -> list[_Logged]:
    """The entries of the batch, as many as fit into one multi. Raises LogTrimmed for a gap, which
    is never skipped (§16.3 Q3).
    """
    entries: list[_Logged] = []
    size = 0
    for position, (name, read) in enumerate(batch):
        if read is None or sequence_number(name) != pointer + position:
            raise _trimmed(replica, log_entry_name(pointer + position))
        size += len(read[0]) + limits.OP_BYTES_OVERHEAD
        if entries and size > limits.MULTI_BYTES_MAX:
            break
        entries.append(_Logged.of(replica, read[0]))
    return entries


def _require_no_more(replica: Replica, index: int, log: Stat) -> None:
    """Raises LogTrimmed if the log had entries from `index` on and they are gone."""
    if index < log.next_sequence:
        raise _trimmed(replica, log_entry_name(index))


def _trimmed(replica: Replica, name: str) -> LogTrimmed:
    return LogTrimmed(
        f"{replica}: log entry {name} is missing from {replica.table.log} and was not copied "
        "before. Restart the replica's server: it clones a replica that has copied the entry. If "
        f"there is none, what the entry said is lost; to go on without it, set "
        f"{replica.paths.log_pointer} to the number of the next entry that is there"
    )
