"""The shared log → this replica's queue (spec §3).

What was inserted here is the larger part of what a writer's own replica reads in the log, and its
part is among this replica's since the multi that wrote the entry. Such an entry is not queued to be
found done: the multi that moves the pointer asserts the part, and the queue stays as it is. When
the part is gone again (merged and removed, or refetched), all entries are queued, as any other's.

So it is with a replacement that was asked for here, which has happened here by then, once nothing
is left to do for it: no directory, id, record or quorum of what it replaced. A loop that never ends
passes it by; one of Dagster's tells people of it, and so carries it out.

A loop that never ends puts even that off, as long as it reads nothing else: the pointer of a
replica that takes all the inserts moves once for many of them, as if it had looked a moment later.
What they brought is asserted when it moves, and whatever else comes is copied at once, behind it.

Entries are numbered without gaps. So who knows how far he is asks for those that come next, and for
the stat of the log before them, which says how many there ever were.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.background import Background, stopped_words
from rmt_pipeline.protocol.errors import Corruption, TableIsReadOnly, Unavailable
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import (
    GetPart,
    LogEntry,
    ReplaceRange,
    drop_range_of,
    partitions_about,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Pointer, Replica, lost_error
from rmt_pipeline.replica.settled import settled_ones
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import RefusalKind, Refused, Stat, Watch
from rmt_pipeline.zookeeper.paths import last_name, log_entry_name, sequence_number
from rmt_pipeline.zookeeper.snapshot import gone

PUT_OFF_MAX = 64  # entries, until the pointer is moved behind them
DECODED_MAX = 8 * PUT_OFF_MAX  # entries, of all tables of this process
PUT_OFF_BYTES_MAX = limits.MULTI_BYTES_MAX // 4  # what comes then still fits with them
PUT_OFF_S = 0.5  # since the first of them
AHEAD = 4  # entries that are asked for before it is known whether they are there
BROUGHT_MAX = 16  # parts of one entry that are asserted, and not queued


class LogTrimmed(Corruption):
    """Entries that this replica has not copied are gone from the log: it can't follow."""

    code = "REPLICA_IS_LOST"


class PullingIsStopped(Unavailable):
    """Nothing is copied from the log, so nobody may act on there being nothing left to copy."""

    code = "ABORTED"


@dataclass(frozen=True, slots=True)
class Pulled:
    """How far the queue is: `log_version` was read with the listing of the log, and every entry
    of that listing has been copied. It is the lock of whoever assigns merges (spec §6.3).

    Of the `entries` behind which this call has moved the pointer so many were `queued`; the others
    were done. What was put off is not among them.
    """

    entries: int
    queued: int
    pointer: int
    log_version: int
    is_lost_version: int


@dataclass(slots=True)
class PutOff:
    """Log entries that one loop has read and that ask nothing of its replica; to spare requests,
    the log pointer is moved behind them a little later, together. They begin at `pointer`. Of
    partitions that are `apart` nothing is put off.
    """

    apart: frozenset[str] = frozenset()
    pointer: Pointer | None = None
    entries: "tuple[_Logged, ...]" = ()
    due_s: float = math.inf
    """Monotonic: when the pointer is to be moved."""

    def known(self, pointer: Pointer) -> "tuple[_Logged, ...]":
        """Nothing if somebody else has moved the pointer: then nothing is due any more either."""
        if self.pointer != pointer:
            self._forget()
        return self.entries

    def _forget(self) -> None:
        self.pointer, self.entries, self.due_s = None, (), math.inf

    def take(self, replica: Replica, pointer: Pointer, entries: Sequence["_Logged"]) -> bool:
        """Put all of these off, which come behind the pointer, if they may be; else none."""
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
) -> Pulled:
    """Copy every log entry that is new to this replica into its queue.

    `afresh`: for whoever acts on there being nothing left to copy. The pointer is read: one that
    this process remembers may be ahead of it since a clone moved it back, and would say so of a
    queue that lacks entries.

    `put_off`: for whoever comes again when it is due, and acts on nothing but what is queued; or
    who acts on some partitions alone, which are `apart`.

    The watch fires at the next change of the log. Several processes may pull for one replica:
    the pointer's version lets one of them win each batch. Raises TableIsReadOnly when the replica
    is not active or being cloned, PullingIsStopped, ReplicaDropped, LogTrimmed when entries are
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
            found = found or _found(replica, pointer, watch, len(known))
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
        copied = _copy(replica, pointer, entries, end)
        if copied is None:
            continue  # another process of this replica pulled first
        taken, queued = taken + len(entries), queued + copied
        if found.is_all:
            return Pulled(taken, queued, end, found.version, pointer.is_lost_version)


@dataclass(frozen=True, slots=True)
class _Found:
    """What comes next in the log, from the pointer's `index` on: first what is known, then these
    `entries`. `version` is the log's from before they were read, when it had no others if these
    are all.
    """

    index: int
    entries: Sequence["_Logged"]
    is_all: bool
    version: int


def _found(replica: Replica, pointer: Pointer, watch: Watch | None, known: int) -> _Found:
    """Raises LogTrimmed."""
    if pointer.index is not None and (
        watch is None or replica.keeper.await_children(replica.table.log, watch)
    ):
        return _next(replica, pointer.index, known)
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


def _next(replica: Replica, index: int, known: int) -> _Found:
    """The stat of the log before its entries, so there may be more of them than it says, and never
    less.
    """
    first = index + known
    return _behind(replica, index, first, replica.keeper.get_many(_ahead(replica, first)))


def _begin(
    replica: Replica, *, afresh: bool, may_remember: bool
) -> tuple[Pointer, _Found | None]:
    """The pointer, which is read unless whoever asks may remember it; and, read `afresh` and still
    where it was left here, what comes behind it.
    """
    remembered = replica.memory.pointer
    found = _together(replica, remembered) if afresh and remembered is not None else None
    if remembered is not None and (found is not None or may_remember):
        return remembered, found
    return _read_pointer(replica), None


def _together(replica: Replica, remembered: Pointer) -> _Found | None:
    """What comes behind the pointer as it was left here, which is read before, in one request. None
    when it was moved since, or entries are gone.
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
        return None  # whoever reads the pointer once more finds out


def _ahead(replica: Replica, first: int) -> list[str]:
    """The log, and some of the entries from this one on, there or not."""
    names = [log_entry_name(first + number) for number in range(AHEAD)]
    return [replica.table.log, *map(replica.table.log_entry, names)]


def _behind(
    replica: Replica, index: int, first: int, reads: Sequence[tuple[bytes, Stat] | None]
) -> _Found:
    """`reads` of what `_ahead` says, and the other entries that there are."""
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
    """`is_lost` first: a pointer of before a clone never goes with a version of after it."""
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
    """One entry of the log. `entry` is None if it can't be read: who reads it in the queue says so.

    `brought`: it wants nothing of us, who inserted the part that came with it.
    """

    text: bytes
    entry: LogEntry | None
    brought: tuple[PartName, ...] | None

    @property
    def partitions(self) -> frozenset[str]:
        """Of what it brought or took."""
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
    """What was put off is read again by each who acts on some partitions alone. Raises
    Corruption.
    """
    return decode(text)


def _brought(entry: LogEntry, author: str) -> tuple[PartName, ...] | None:
    """The parts that came with the entry, which wants nothing of its author any more, but perhaps
    what `settled_ones` says. Not if a quorum waits for it, which counts who has the part as entries
    are carried out.
    """
    match entry:
        case GetPart() if entry.source_replica == author and not entry.quorum:
            return (entry.part,)
        case ReplaceRange() if entry.source_replica == author and not entry.keeps_ids:
            return entry.new_parts if len(entry.new_parts) <= BROUGHT_MAX else None
        case _:
            return None


def _passed_by(replica: Replica, entries: Sequence[_Logged]) -> frozenset[bytes]:
    """The texts of those that need not be queued, if what they brought is there.

    Whoever replaced a partition had read the log up to there. So when something of the partition
    comes before the replacement, the pointer was moved back since, by a clone.
    """
    replacements = [
        one.entry
        for one in entries
        if isinstance(one.entry, ReplaceRange) and one.brought is not None
    ]
    settled = frozenset[PartName]()
    if replacements and replica.memory.passes_by:
        with suppress(Corruption):  # who carries them out says what can't be read
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
) -> int | None:
    """One batch and the pointer behind it, but for what is done (`all_of_them`: that too). How many
    were queued; None when what we knew of the pointer is outdated.
    """
    passed = frozenset[bytes]() if all_of_them else _passed_by(replica, entries)
    queued = [one for one in entries if one.text not in passed]
    here = [part for one in entries if one.text in passed for part in one.brought or ()]
    paths = replica.paths
    known = replica.memory.queue
    before, listed = known.queued(paths), known.listed(paths)
    replica.memory.pointer = None  # of an unknown or refused multi nothing is remembered
    ops = transactions.pull(
        paths,
        [one.text for one in queued],
        here=here,
        pointer=end,
        pointer_version=pointer.version,
        is_lost_version=pointer.is_lost_version,
    )
    try:
        created = replica.keeper.multi(ops)
    except Refused as refused:
        if refused.path == paths.is_active and refused.kind is RefusalKind.NO_NODE:
            raise TableIsReadOnly(
                f"{replica} is not active; start its server with `rmt serve`"
            ) from refused
        if refused.kind is RefusalKind.BAD_VERSION:
            return None
        if refused.path in map(paths.part, here):
            return _copy(replica, pointer, entries, end, all_of_them=True)
        raise
    replica.memory.pointer = Pointer(end, pointer.version + 1, pointer.is_lost_version)
    grown = replica.memory.pull_batch * 2
    replica.memory.pull_batch = min(grown, limits.LOG_ENTRIES_PER_PULL_MAX)
    nodes = [last_name(path) for path in created if path]
    known.entries.learn(
        {
            node: one.entry
            for node, one in zip(nodes, queued, strict=True)
            if one.entry is not None
        }
    )
    known.changed(paths, before, replica.keeper.session_id, came=nodes)
    known.published(paths, listed, here, replica.keeper.session_id)
    return len(nodes)


def _position(names: list[str], pointer: int) -> int:
    """Where the entries from `pointer` on begin. Names are dense and sorted but may start late."""
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
    """The entries, as many as fit one multi. A gap is an error, never skipped (§16.3 Q3)."""
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
    """Raises LogTrimmed when there were more, and they are gone."""
    if index < log.next_sequence:
        raise _trimmed(replica, log_entry_name(index))


def _trimmed(replica: Replica, name: str) -> LogTrimmed:
    return LogTrimmed(
        f"{replica}: log entry {name} is missing from {replica.table.log} and was not copied "
        "before. Restart the replica's server: it clones a replica that has copied the entry. If "
        f"there is none, what the entry said is lost; to go on without it, set "
        f"{replica.paths.log_pointer} to the number of the next entry that is there"
    )
