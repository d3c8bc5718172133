"""Retrying a command that could not be carried out yet: how often, with which pauses, and the
warning that tells a waiting person why.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from rmt_pipeline.protocol.errors import (
    NoNextSession,
    ReplicaDropped,
    RmtError,
    TableIsReadOnly,
)
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
    _tries_left: int = field(init=False)
    _pause_s: float = field(init=False)
    _told: str = field(default="", init=False)
    _tell_at_s: float = field(init=False)
    _was_dropped: bool = field(default=False, init=False)
    """Whether the last try found the replica dropped."""

    def __post_init__(self) -> None:
        self._tell_at_s = self.clock.monotonic_s() + TELL_AFTER_S
        self._tries_left = self.query.insert_keeper_max_retries
        first_s = self.query.insert_keeper_retry_initial_backoff_ms / 1000
        self._pause_s = min(first_s, self._pause_max_s)

    def pause(self, error: RmtError, *, is_pending: bool = False) -> RmtError | None:
        """Wait before the next try and return None; or return the error with which to end.

        It ends if no try is left, or no session for one; or if no try can succeed until a person
        does something, unless `is_pending`: something was sent, and only a later try can tell what
        became of it.

        A replica that was dropped is looked for once more: SYSTEM RESTORE REPLICA may have made it
        again, or the table may be another one by now, which the next try finds out.
        """
        was_dropped, self._was_dropped = self._was_dropped, isinstance(error, ReplicaDropped)
        is_gone = was_dropped and self._was_dropped
        is_over = not self._tries_left or isinstance(error, NoNextSession)
        if is_over or (is_gone and not is_pending):
            return self._with_reason(error)
        left_s, pause_s = self._left_s(), self._next_pause_s()
        if self.clock.monotonic_s() + pause_s >= self._tell_at_s:
            reason = self._reason(error)
            if reason is not None and reason.needs_somebody and not is_pending:
                return TableIsReadOnly(f"{error}. {reason.words}")
            words = str(error) if reason is None else f"{error}. {reason.words}"
            self._tell(words, left_s)
        self.clock.sleep_s(pause_s)
        return None

    @property
    def _pause_max_s(self) -> float:
        return self.query.insert_keeper_retry_max_backoff_ms / 1000

    def _next_pause_s(self) -> float:
        pause_s = self._pause_s
        self._tries_left -= 1
        self._pause_s = min(2 * pause_s, self._pause_max_s)
        return pause_s

    def _left_s(self) -> float:
        """How long the pauses that are left take together; there may be any number of them."""
        left, pause_s, total_s = self._tries_left, self._pause_s, 0.0
        while left and 0 < pause_s < self._pause_max_s:
            total_s += pause_s
            pause_s = min(2 * pause_s, self._pause_max_s)
            left -= 1
        return total_s + left * pause_s

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
