"""What clean-up may remove from ZooKeeper and the disk, and why it must keep the rest (spec §10.2,
§10.3, §10.5, §7.9).

Pure decisions over facts that were read. Some rely on facts that may change; the multis that carry
them out assert these, and the docstrings say which they are.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from rmt_pipeline.protocol.mutations import FinishedMutations
from rmt_pipeline.protocol.parts.name import PartName

HYSTERESIS = (1.05, 1.15)
"""The range from which each replica draws a factor at each clean-up. It trims the log only once
that is longer than the minimum by this factor, so that not all replicas trim it at once (spec
§10.2).
"""


@dataclass(frozen=True, slots=True)
class ReplicaLogFacts:
    """What one replica's nodes said, for trimming the log.

    `log_pointer` is the next entry to pull, 0 if the replica never pulled. `is_lost` is None for
    very old tables, which have no such node. `host_version` is the version of `R/host`, by which a
    multi checks later that the replica has not come back.
    """

    name: str
    is_active: bool
    is_lost: bool | None
    log_pointer: int
    host_version: int


@dataclass(frozen=True, slots=True)
class LogTrim:
    """What to do about the shared log.

    `mark_lost`: replicas to mark as lost first, each in a multi with a check of its host's version.
    `check_hosts`: (replica, host version) pairs that every removal asserts: then no replica that
    was taken for lost has come back and relies on the log. `remove`: numbers of entries, oldest
    first. `kept_because`: why the others stay, for people.
    """

    remove: tuple[int, ...] = ()
    mark_lost: tuple[str, ...] = ()
    check_hosts: tuple[tuple[str, int], ...] = ()
    kept_because: tuple[str, ...] = ()


def log_trim(
    entries: Sequence[int],
    replicas: Sequence[ReplicaLogFacts],
    *,
    keep_min: int,
    keep_max: int,
    hysteresis: float = 1.0,
    recovering_pointers: Mapping[str, int] | None = None,
) -> LogTrim:
    """Which entries of the log no replica needs any more (claim P21).

    `entries` are their numbers, ascending. `keep_min` and `keep_max` are the settings min_ and
    max_replicated_logs_to_keep. `hysteresis` is drawn by the caller from HYSTERESIS.
    `recovering_pointers` are the log pointers of replicas that are active and lost, read once more
    after `replicas`: a pointer moves backwards while its replica is cloned from another (spec
    §16.7 C3).

    An active replica pins the log however slow it is. An inactive one pins it until it is
    `keep_max` entries behind; then it is marked lost, and will clone itself when it returns.
    """
    if not entries:
        return LogTrim(kept_because=("there are none",))
    if len(entries) < keep_min * hysteresis:
        return LogTrim(kept_because=(f"{len(entries)} entries are fewer than are kept anyway",))
    threshold = entries[-keep_max:][0]  # the first one if there are fewer
    standing = _standing(replicas, threshold)
    pins = {replica.name: replica.log_pointer for replica in standing.pinning}
    if standing.candidates and not pins:
        names = ", ".join(replica.name for replica in standing.candidates)
        return LogTrim(
            kept_because=(f"every replica that is not lost would become lost: {names}",),
        )
    again = recovering_pointers or {}
    for replica in standing.recovering:
        pins[replica.name] = min(replica.log_pointer, again.get(replica.name, 0))
    if standing.recovering:  # one may be cloned from a candidate, and copy its pointer
        pins |= {replica.name: replica.log_pointer for replica in standing.candidates}
    return _trim(entries, pins, standing, keep_min)


@dataclass(frozen=True, slots=True)
class _Standing:
    """The replicas by the table of spec §10.2: those that pin the log, those that would become lost
    (`candidates`), those that are lost and active (`recovering`), and the other lost ones.
    """

    pinning: list[ReplicaLogFacts]
    candidates: list[ReplicaLogFacts]
    recovering: list[ReplicaLogFacts]
    lost: list[ReplicaLogFacts]


def _standing(replicas: Sequence[ReplicaLogFacts], threshold: int) -> _Standing:
    standing = _Standing([], [], [], [])
    for replica in replicas:
        if replica.is_lost:
            (standing.recovering if replica.is_active else standing.lost).append(replica)
        elif replica.is_active or replica.is_lost is None or replica.log_pointer >= threshold:
            standing.pinning.append(replica)
        else:
            standing.candidates.append(replica)
    return standing


def _trim(
    entries: Sequence[int], pins: Mapping[str, int], standing: _Standing, keep_min: int
) -> LogTrim:
    first_needed = min(pins.values(), default=entries[-1] + 1)
    removable = entries[: max(0, len(entries) - keep_min)]
    remove = tuple(number for number in removable if number < first_needed)
    kept_because = [f"the last {keep_min} entries are kept in any case"]
    kept_because += [
        f"{name} has still to pull from entry {pointer} on"
        for name, pointer in sorted(pins.items())
        if pointer == first_needed and pointer <= entries[-1]
    ]
    if not remove:
        return LogTrim(kept_because=tuple(kept_because))
    gone = [*standing.lost, *standing.recovering, *standing.candidates]
    return LogTrim(
        remove=remove,
        mark_lost=tuple(replica.name for replica in standing.candidates),
        check_hosts=tuple((replica.name, replica.host_version) for replica in gone),
        kept_because=tuple(kept_because),
    )


@dataclass(frozen=True, slots=True)
class IdRetention:
    """The ids of blocks or inserts to remove, oldest first; how many stay, and why."""

    remove: tuple[str, ...]
    kept: int
    kept_because: str


class Written(NamedTuple):
    """When ZooKeeper created a node, or wrote it last: the transaction, and its time in ms by the
    clock of the server that was the leader then.
    """

    zxid: int
    ms: int


def outdated_ids(
    created: Mapping[str, Written], *, window: int, window_seconds: int, now_s: float
) -> IdRetention:
    """Which deduplication ids to forget (spec §10.3, §16.2 I6): those outside either window.

    Transactions say which ids are newer: the clocks of ZooKeeper's servers may differ, and a new
    leader's may be behind. By the clock it would seem that the ids which it creates are the oldest,
    and a retry of what was inserted a moment ago would be inserted again. The age of an id is the
    time from its creation to that of the newest one, by a clock that stands still until a leader's
    has caught up. So no local clock makes an id old, and the newest one never becomes too old.

    But `now_s`, of the local clock, keeps ids: a leader's clock may be ahead by days for a moment,
    and what it dates then makes all that came before look old. The two clocks have to agree.
    """
    oldest_first = sorted(created, key=lambda name: (created[name].zxid, name))
    clock_ms = [*accumulate((created[name].ms for name in oldest_first), max)]
    until_ms = min(clock_ms[-1], now_s * 1000) if clock_ms else 0
    too_old = bisect_left(clock_ms, until_ms - window_seconds * 1000)
    outdated = max(too_old, len(oldest_first) - window)
    return IdRetention(
        tuple(oldest_first[:outdated]),
        len(oldest_first) - outdated,
        f"among the newest {window}, and not {window_seconds} s older than the newest",
    )


def outdated_records(
    written: Mapping[str, Written],
    ids: Mapping[str, Written],
    *,
    window: int,
    window_seconds: int,
    now_s: float,
) -> IdRetention:
    """Which records of inserts to forget: those outside either window, if they were also written
    before the oldest block id that is kept. `written`: when each record was written last; `ids`:
    when each block id was created.

    An insert's block ids are created with its record, and must not outlive it. Otherwise a retry
    that is cut into other blocks could find some of them among the ids of the first cut, and insert
    the others, whose rows are in the table too. So more records than the windows say are kept if
    their inserts created no block ids.
    """
    which = partial(outdated_ids, window=window, window_seconds=window_seconds, now_s=now_s)
    outdated, gone = which(written), which(ids).remove
    oldest = min((ids[one].zxid for one in ids.keys() - set(gone)), default=None)
    remove = tuple(
        one for one in outdated.remove if oldest is None or written[one].zxid < oldest
    )
    return replace(outdated, remove=remove, kept=len(written) - len(remove))


@dataclass(frozen=True, slots=True)
class OldPart:
    """A part of this replica that another one covers, or that was dropped (`covered_by` None),
    `outdated_s` seconds ago. So many `readers` have it pinned.
    """

    part: PartName
    covered_by: PartName | None
    outdated_s: float
    readers: int = 0


@dataclass(frozen=True, slots=True)
class PartRetention:
    """The parts to remove, from ZooKeeper first, then from disk; the others, each with
    the reason.
    """

    remove: tuple[PartName, ...]
    kept: tuple[tuple[PartName, str], ...]


def outdated_parts(
    parts: Iterable[OldPart], *, lifetime_s: float, limit: int = 0
) -> PartRetention:
    """Which outdated parts may be removed now (spec §10.5), at most `limit` (0: any number).

    Covered parts are kept for `lifetime_s`, because the part that covers them may turn out to be
    damaged: then they are the only good copy here. Dropped parts are not kept.
    """
    remove: list[PartName] = []
    kept: list[tuple[PartName, str]] = []
    for old in sorted(parts, key=lambda old: (-old.outdated_s, old.part)):
        reason = _reason_to_keep(old, lifetime_s)
        if reason is None and limit and len(remove) >= limit:
            reason = f"{limit} parts are removed at once, and older ones come first"
        if reason is None:
            remove.append(old.part)
        else:
            kept.append((old.part, reason))
    return PartRetention(tuple(remove), tuple(kept))


def _reason_to_keep(old: OldPart, lifetime_s: float) -> str | None:
    if old.readers:
        return f"{old.readers} readers have it pinned"
    if old.covered_by is not None and old.outdated_s <= lifetime_s:
        return (
            f"covered by {old.covered_by} for {old.outdated_s:.0f} s, "
            f"and stays for {lifetime_s:.0f} s"
        )
    return None


def finished_mutations(
    ids: Iterable[str], by_replica: Mapping[str, FinishedMutations], *, keep: int
) -> tuple[str, ...]:
    """Which mutations may be removed, oldest first: those that every replica, also an inactive one,
    has finished, except the newest `keep` of these. If `keep` is 0, none (spec §7.9, §16.8 U10).
    The multi that removes them asserts that no replica was added since.
    """
    if keep == 0 or not by_replica:
        return ()
    finished = [one for one in sorted(ids) if all(one in has for has in by_replica.values())]
    return tuple(finished[: max(0, len(finished) - keep)])
