"""Retrying a command that could not be carried out yet: how often, with which pauses, and the
warning that tells a waiting person why.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from rmt_pipeline.protocol.errors import ReplicaDropped, RmtError, TableIsReadOnly
from rmt_pipeline.protocol.refusal import ReadOnlyReason
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.system import Clock

TELL_AFTER_S = 1.0
TELL_EVERY_S = 10.0


class StillTrying(UserWarning):
    """A command could not be carried out yet, and is tried again: the message says why."""


def nobody_knows() -> ReadOnlyReason | None:
    """The `why_read_only` of a replica whose server can't be asked."""
    return None


@dataclass(slots=True)
class Tries:
    """The tries of one command (`insert_keeper_max_retries`, with pauses that double from
    `insert_keeper_retry_initial_backoff_ms` to `insert_keeper_retry_max_backoff_ms`). After
    TELL_AFTER_S of waiting a warning, StillTrying, tells the reason; another one follows when the
    reason changes, every TELL_EVERY_S at most.
    """

    what: str
    """The command and its table, as in "INSERT into default.t"."""
    query: QuerySettings
    clock: Clock
    why_read_only: Callable[[], ReadOnlyReason | None] = nobody_knows
    """Asks the replica's server, when the replica is found to be read-only."""
    _pauses_s: list[float] = field(init=False)
    _told: str = field(default="", init=False)
    _tell_at_s: float = field(init=False)
    _was_dropped: bool = field(default=False, init=False)
    """Whether the last try found the replica dropped."""

    def __post_init__(self) -> None:
        first, most = (
            self.query.insert_keeper_retry_initial_backoff_ms / 1000,
            self.query.insert_keeper_retry_max_backoff_ms / 1000,
        )
        tries = range(self.query.insert_keeper_max_retries)
        self._tell_at_s = self.clock.monotonic_s() + TELL_AFTER_S
        self._pauses_s = [min(first * 2**n, most) for n in tries]

    def pause(self, error: RmtError, *, is_pending: bool = False) -> RmtError | None:
        """Wait before the next try and return None; or return the error with which to end.

        It ends if no try is left; or if no try can succeed until a person does something, unless
        `is_pending`: something was sent, and only a later try can tell what became of it.

        A replica that was dropped is looked for once more: SYSTEM RESTORE REPLICA may have made it
        again, or the table may be another one by now, which the next try finds out.
        """
        was_dropped, self._was_dropped = self._was_dropped, isinstance(error, ReplicaDropped)
        is_gone = was_dropped and self._was_dropped
        if not self._pauses_s or (is_gone and not is_pending):
            return self._with_reason(error)
        pause_s = self._pauses_s.pop(0)
        if self.clock.monotonic_s() + pause_s >= self._tell_at_s:
            reason = self._reason(error)
            if reason is not None and reason.needs_somebody and not is_pending:
                return TableIsReadOnly(f"{error}. {reason.words}")
            words = str(error) if reason is None else f"{error}. {reason.words}"
            self._tell(words, pause_s + sum(self._pauses_s))
        self.clock.sleep_s(pause_s)
        return None

    def _tell(self, words: str, left_s: float) -> None:
        if words == self._told:
            return
        self._told, self._tell_at_s = words, self.clock.monotonic_s() + TELL_EVERY_S
        warnings.warn(
            f"{self.what} waits, and is tried again for up to {left_s:.0f} s "
            f"(insert_keeper_max_retries): {words}",
            StillTrying,
            stacklevel=2,
        )

    def _reason(self, error: RmtError) -> ReadOnlyReason | None:
        return self.why_read_only() if isinstance(error, TableIsReadOnly) else None

    def _with_reason(self, error: RmtError) -> RmtError:
        reason = self._reason(error)
        return error if reason is None else TableIsReadOnly(f"{error}. {reason.words}")
