"""When a queue entry that failed may be tried again, and the note about its failure."""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rmt_pipeline.protocol.errors import OutcomeUnknown, ReplicaRetired, RmtError
from rmt_pipeline.protocol.log.entry import LogEntry, MutatePart
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.replica.claims import Holder
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Refused, SetData

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 60.0


@dataclass(slots=True)
class _Failure:
    tries: int
    not_before_s: float
    peers: frozenset[str] = frozenset()
    """Peers at which the fetch failed since the last time that every holder of the part had been
    tried.
    """


@dataclass(slots=True)
class Backoff:
    """The failures of this process, by queue node. The wait before the next try doubles from 0.1 s
    to `longest_s`.

    Thread-safe: the threads that carry entries out report failures, and the loop that chooses
    entries asks about them.
    """

    failures: dict[str, _Failure] = field(default_factory=dict)
    mutations: frozenset[str] = frozenset()
    """Ids of the mutations that existed at the last `notice_kills`; empty if no MUTATE_PART entry
    had failed by then.
    """
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def failed(
        self, node: str, now_s: float, longest_s: float = RETRY_MAX_S, *, peer: str = ""
    ) -> int:
        """Record one more failure of the entry, and return how many there are now. `peer` is the
        replica from which its part was fetched; "" if it was not a fetch.
        """
        with self._lock:
            before = self.failures.get(node, _Failure(0, now_s))
            tries = before.tries + 1
            delay_s = min(RETRY_FIRST_S * 2 ** min(tries - 1, 20), longest_s)
            # A peer that failed before is asked again only if every holder has failed. Then a new
            # round begins, in which the others are asked again, too.
            others = frozenset() if peer in before.peers else before.peers
            peers = others | {peer} if peer else before.peers
            self.failures[node] = _Failure(tries, now_s + delay_s, peers)
        return tries

    def peers_failed(self, node: str) -> frozenset[str]:
        """The replicas at which the fetch of this entry failed. They are asked again only when no
        other replica has the part.
        """
        with self._lock:
            failure = self.failures.get(node)
        return failure.peers if failure is not None else frozenset()

    def forgive(self, node: str) -> None:
        """Forget at which peers the fetch failed, so that these are asked again: the larger parts
        that other replicas offer may not be taken.
        """
        with self._lock:
            if node in self.failures:
                self.failures[node].peers = frozenset()

    def has_failed(self, node: str) -> bool:
        """Whether the entry has failed, even if its wait is over."""
        with self._lock:
            return node in self.failures

    @property
    def has_any(self) -> bool:
        with self._lock:
            return bool(self.failures)

    def waiting(self, now_s: float) -> frozenset[str]:
        """The queue nodes of the failed entries that may not be tried again yet."""
        with self._lock:
            return frozenset(
                node for node, failure in self.failures.items() if now_s < failure.not_before_s
            )

    def notice_kills(self, replica: Replica, entries: Mapping[str, LogEntry]) -> None:
        """When a mutation was killed, let the failed MUTATE_PART entries be tried at once: there is
        less to do for them now.

        `entries` are all entries of the queue. ZooKeeper is asked only if one of the failed ones is
        a MUTATE_PART entry.
        """
        with self._lock:
            known = [node for node in self.failures if node in entries]
        failed = [node for node in known if isinstance(entries[node], MutatePart)]
        ids: frozenset[str] = frozenset()
        if failed:
            ids = frozenset(replica.keeper.children(replica.table.mutations))
        if self.mutations - ids:
            with self._lock:
                for node in failed:
                    self.failures.pop(node, None)
        self.mutations = ids

    def keep_only(self, nodes: Collection[str]) -> None:
        with self._lock:
            for node in [node for node in self.failures if node not in nodes]:
                del self.failures[node]

    def next_s(self, looked_s: float, now_s: float) -> float | None:
        """Seconds until the first of the entries that were still waiting at `looked_s` may be tried
        again; None if there is no such entry.

        Entries whose wait was over at `looked_s` are left out: they were tried then, or wait for
        something else, and no amount of time tells when that has come.
        """
        with self._lock:
            waits = [
                failure.not_before_s - now_s
                for failure in self.failures.values()
                if failure.not_before_s > looked_s
            ]
        return max(0.0, min(waits)) if waits else None


def longest_wait_s(replica: Replica, entry: LogEntry) -> float:
    """The longest wait between two tries of an entry that keeps failing, in seconds."""
    if not isinstance(entry, MutatePart):
        return RETRY_MAX_S
    longest_ms = replica.settings.max_postpone_time_for_failed_mutations_ms
    return max(longest_ms / 1000, RETRY_FIRST_S)


def record_failure(
    replica: Replica,
    node: str,
    tries: int,
    reason: str,
    *,
    holder: Holder | None = None,
    is_unseen: bool = False,
) -> None:
    """Write the reason of a failure for `system.replication_queue`, and give back the claim of
    `holder` if one is given. `tries` counts the tries of this process; `is_unseen` is as in
    `Attempts`.

    If ZooKeeper does not answer, the note may be lost; the next failure writes it again. The claim
    is given back in any case.
    """
    path = replica.paths.attempts_of(node)
    before = _tries_noted(replica, path)  # also by processes that tried before us
    tries = max(tries, before + 1)
    attempts = Attempts(
        tries=tries,
        last_exception=reason,
        last_attempt_s=int(replica.clock.now_s()),
        postpone_reason="",
        is_unseen=is_unseen,
    )
    claim: list[Op] = [Delete(replica.paths.claim(node))] if holder is not None else []
    writes: list[Op] = [SetData(path, attempts.encode()), Create(path, attempts.encode())]
    if not before:
        writes.reverse()
    for write in writes:
        try:
            replica.keeper.multi([*claim, write])
        except Refused as refused:
            if refused.path != path:
                return  # the claim is gone: a DROP removed the entry, or the session ended
        except OutcomeUnknown:
            if holder is not None:  # if it is gone, another worker may have claimed the entry
                holder.leave([node])
            return
        else:
            return
    if holder is not None:  # the note was created and deleted between the two tries
        holder.give_back([node])


def _tries_noted(replica: Replica, path: str) -> int:
    """How many tries the note at `path` counts; 0 if there is no note or ZooKeeper does not
    answer.
    """
    try:
        [noted] = replica.keeper.get_many([path])
        return 0 if noted is None else Attempts.read(noted[0]).tries
    except ReplicaRetired:
        raise
    except RmtError:
        return 0
