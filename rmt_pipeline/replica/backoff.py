"""When an entry that failed may be tried again, and what people are told about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmt_pipeline.protocol.entries import LogEntry, MutatePart
from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.protocol.records import Attempts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Refused, SetData

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 60.0


@dataclass(slots=True)
class _Failure:
    tries: int
    not_before_s: float


@dataclass(slots=True)
class Backoff:
    """This process's failures by queue node. The wait doubles from 0.1 s to `longest_s`."""

    failures: dict[str, _Failure] = field(default_factory=dict)
    mutations: frozenset[str] = frozenset()
    """Ids that were there when mutations had failed, at the last look."""

    def failed(self, node: str, now_s: float, longest_s: float = RETRY_MAX_S) -> int:
        """Remember one more failure; how many there were."""
        tries = self.failures[node].tries + 1 if node in self.failures else 1
        delay_s = min(RETRY_FIRST_S * 2 ** min(tries - 1, 20), longest_s)
        self.failures[node] = _Failure(tries, now_s + delay_s)
        return tries

    def waits(self, node: str, now_s: float) -> bool:
        return node in self.failures and now_s < self.failures[node].not_before_s

    def notice_kills(self, replica: Replica, entries: Mapping[str, LogEntry]) -> None:
        """Mutations that failed are tried at once when one was killed: there is less to do.

        `entries` are all that are queued.
        """
        failed = [node for node in self.failures if isinstance(entries[node], MutatePart)]
        ids: frozenset[str] = frozenset()
        if failed:
            ids = frozenset(replica.keeper.children(replica.table.mutations))
        if self.mutations - ids:
            for node in failed:
                del self.failures[node]
        self.mutations = ids

    def keep_only(self, nodes: frozenset[str]) -> None:
        for node in [node for node in self.failures if node not in nodes]:
            del self.failures[node]

    def next_s(self, now_s: float) -> float | None:
        """Seconds until the first of them may be tried again; None when nothing failed."""
        waits = [failure.not_before_s - now_s for failure in self.failures.values()]
        return max(0.0, min(waits)) if waits else None


def longest_wait_s(replica: Replica, entry: LogEntry) -> float:
    """Between two tries of an entry that fails."""
    if not isinstance(entry, MutatePart):
        return RETRY_MAX_S
    longest_ms = replica.settings.max_postpone_time_for_failed_mutations_ms
    return max(longest_ms / 1000, RETRY_FIRST_S)


def record_failure(
    replica: Replica, node: str, tries: int, reason: str, *, release: bool
) -> None:
    """Give the claim back and leave the reason for `system.replication_queue`.

    Best effort: a claim that stays is gone with its session, and the reason is only for people.
    """
    attempts = Attempts(
        tries=tries,
        last_exception=reason,
        last_attempt_s=int(replica.clock.now_s()),
        postpone_reason="",
    )
    path = replica.paths.attempts_of(node)
    claim: list[Op] = [Delete(replica.paths.claim(node))] if release else []
    writes: list[Op] = [SetData(path, attempts.encode()), Create(path, attempts.encode())]
    if tries == 1:
        writes.reverse()
    for write in writes:
        try:
            replica.keeper.multi([*claim, write])
        except Refused as refused:
            if refused.path != path:
                return  # the claim is gone: a DROP removed the entry, or the session ended
        except OutcomeUnknown:
            return
        else:
            return
