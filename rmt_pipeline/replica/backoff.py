"""When an entry that failed may be tried again, and what people are told about it."""

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
    """At which it failed since all that have the part were tried last."""


@dataclass(slots=True)
class Backoff:
    """This process's failures by queue node. The wait doubles from 0.1 s to `longest_s`.

    Thread-safe: failures come from whoever carries entries out, the questions from who chooses.
    """

    failures: dict[str, _Failure] = field(default_factory=dict)
    mutations: frozenset[str] = frozenset()
    """Ids that were there when mutations had failed, at the last look."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def failed(
        self, node: str, now_s: float, longest_s: float = RETRY_MAX_S, *, peer: str = ""
    ) -> int:
        """Remember one more failure, of a fetch at this peer; how many there were."""
        with self._lock:
            before = self.failures.get(node, _Failure(0, now_s))
            tries = before.tries + 1
            delay_s = min(RETRY_FIRST_S * 2 ** min(tries - 1, 20), longest_s)
            # Who is asked again is so because nobody else is left: the others get their turn, too.
            others = frozenset() if peer in before.peers else before.peers
            peers = others | {peer} if peer else before.peers
            self.failures[node] = _Failure(tries, now_s + delay_s, peers)
        return tries

    def peers_failed(self, node: str) -> frozenset[str]:
        """Who is asked for its part only when nobody else has it."""
        with self._lock:
            failure = self.failures.get(node)
        return failure.peers if failure is not None else frozenset()

    def forgive(self, node: str) -> None:
        """What the others have may not be taken: who can't send the wanted part is asked again."""
        with self._lock:
            if node in self.failures:
                self.failures[node].peers = frozenset()

    def has_failed(self, node: str) -> bool:
        """Also when it is not waiting any more."""
        with self._lock:
            return node in self.failures

    @property
    def has_any(self) -> bool:
        with self._lock:
            return bool(self.failures)

    def waiting(self, now_s: float) -> frozenset[str]:
        """All that wait now."""
        with self._lock:
            return frozenset(
                node for node, failure in self.failures.items() if now_s < failure.not_before_s
            )

    def notice_kills(self, replica: Replica, entries: Mapping[str, LogEntry]) -> None:
        """Mutations that failed are tried at once when one was killed: there is less to do.

        `entries` are all that are queued.
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
        """Seconds until the first may be tried again of those that had to wait at `looked_s`. None
        when there is none: what did not have to wait was tried then, or waits for something else,
        and time will not tell when that has come.
        """
        with self._lock:
            waits = [
                failure.not_before_s - now_s
                for failure in self.failures.values()
                if failure.not_before_s > looked_s
            ]
        return max(0.0, min(waits)) if waits else None


def longest_wait_s(replica: Replica, entry: LogEntry) -> float:
    """Between two tries of an entry that fails."""
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
    """Leave the reason for `system.replication_queue`, and give back the claim of `holder`. `tries`
    are those of this process; `is_unseen` as in `Attempts`.

    Without an answer it may be lost, and is left at the next try. The claim is given back in any
    case.
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
            if holder is not None:  # if it is given back, somebody else may have it by now
                holder.leave([node])
            return
        else:
            return
    if holder is not None:  # the note came and went between the two tries
        holder.give_back([node])


def _tries_noted(replica: Replica, path: str) -> int:
    """0 when none are, and when nobody answers."""
    try:
        [noted] = replica.keeper.get_many([path])
        return 0 if noted is None else Attempts.decode(noted[0]).tries
    except ReplicaRetired:
        raise
    except RmtError:
        return 0
