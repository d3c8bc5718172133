"""The shared log → this replica's queue (spec §3).

What was inserted here is the larger part of what a writer's own replica reads in the log, and its
part is among this replica's since the multi that wrote the entry. Such an entry is not queued to be
found done: the multi that moves the pointer asserts the part, and the queue stays as it is. When
the part is gone again (merged and removed, or refetched), all entries are queued, as any other's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.background import Background, stopped_words
from rmt_pipeline.protocol.errors import Corruption, TableIsReadOnly, Unavailable
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import GetPart, LogEntry, result_of
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Pointer, Replica, lost_error
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import RefusalKind, Refused, Stat, Watch
from rmt_pipeline.zookeeper.paths import last_name, log_entry_name, sequence_number
from rmt_pipeline.zookeeper.snapshot import gone


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

    Of the `entries` that this call took from the log so many were `queued`; the others were done.
    """

    entries: int
    queued: int
    pointer: int
    log_version: int
    is_lost_version: int


def pull_log(replica: Replica, watch: Watch | None = None, *, afresh: bool = False) -> Pulled:
    """Copy every log entry that is new to this replica into its queue.

    `afresh`: for whoever acts on there being nothing left to copy. The pointer is read: one that
    this process remembers may be ahead of it since a clone moved it back, and would say so of a
    queue that lacks entries.

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
        remembered = None if afresh else replica.memory.pointer
        pointer = remembered or _read_pointer(replica)
        names, log = _listed(replica, watch)
        start = sequence_number(names[0]) if names else 0
        index = start if pointer.index is None else pointer.index
        new = names[_position(names, index) :]
        nothing_new = not new and pointer.index is not None
        if nothing_new and index >= log.next_sequence:
            replica.memory.pointer = pointer
            return Pulled(taken, queued, index, log.version, pointer.is_lost_version)
        try:
            if nothing_new:  # there were more, and they are gone
                raise _trimmed(replica, log_entry_name(index))
            entries = _read(replica, new[: replica.memory.pull_batch], index)
        except LogTrimmed:
            if _pointer_moved(replica, pointer):
                continue
            raise
        end = index + len(entries)
        copied = _copy(replica, pointer, entries, end)
        if copied is None:
            continue  # another process of this replica pulled first
        taken, queued = taken + len(entries), queued + copied
        if len(entries) == len(new):
            return Pulled(taken, queued, end, log.version, pointer.is_lost_version)


def _listed(replica: Replica, watch: Watch | None) -> tuple[list[str], Stat]:
    try:
        return replica.keeper.children_stat(replica.table.log, watch)
    except Refused as refused:
        raise gone(replica.paths) from refused  # and the whole table with it


def _read_pointer(replica: Replica) -> Pointer:
    """`is_lost` first: a pointer of before a clone never goes with a version of after it."""
    paths = replica.paths
    is_lost, pointer = replica.keeper.get_many([paths.is_lost, paths.log_pointer])
    if pointer is None or is_lost is None:
        raise gone(paths)
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

    `brought`: it wants nothing of its own author, whose part came with it. Not so if a quorum waits
    for it, which counts who has the part as entries are carried out.
    """

    text: bytes
    entry: LogEntry | None
    brought: PartName | None

    @classmethod
    def of(cls, replica: Replica, text: bytes) -> "_Logged":
        try:
            entry = decode(text)
        except Corruption:
            return cls(text, None, None)
        wants_nothing = (
            isinstance(entry, GetPart)
            and entry.source_replica == replica.name
            and not entry.quorum
        )
        return cls(text, entry, result_of(entry) if wants_nothing else None)


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
    queued = [one for one in entries if all_of_them or one.brought is None]
    here = [] if all_of_them else [one.brought for one in entries if one.brought is not None]
    paths = replica.paths
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
    replica.memory.queue.entries.learn(
        {
            node: one.entry
            for node, one in zip(nodes, queued, strict=True)
            if one.entry is not None
        }
    )
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


def _read(replica: Replica, batch: list[str], pointer: int) -> list[_Logged]:
    """The entries, as many as fit one multi. A gap is an error, never skipped (§16.3 Q3)."""
    entries: list[_Logged] = []
    size = 0
    reads = replica.keeper.get_many([replica.table.log_entry(name) for name in batch])
    for position, (name, read) in enumerate(zip(batch, reads, strict=True)):
        if read is None or sequence_number(name) != pointer + position:
            raise _trimmed(replica, log_entry_name(pointer + position))
        size += len(read[0]) + limits.OP_BYTES_OVERHEAD
        if entries and size > limits.MULTI_BYTES_MAX:
            break
        entries.append(_Logged.of(replica, read[0]))
    return entries


def _trimmed(replica: Replica, name: str) -> LogTrimmed:
    return LogTrimmed(
        f"{replica}: log entry {name} is missing from {replica.table.log} and was not copied "
        "before. Restart the replica's server: it clones a replica that has copied the entry. If "
        f"there is none, what the entry said is lost; to go on without it, set "
        f"{replica.paths.log_pointer} to the number of the next entry that is there"
    )
