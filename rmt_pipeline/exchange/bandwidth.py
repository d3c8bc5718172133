"""A limit of bytes per second, shared by all transfers that use one object."""

import threading
from collections.abc import Callable

from rmt_pipeline.system import Clock

LIMIT_VALID_S = 1.0  # asked for with every chunk, and possibly read from a disk


class Bandwidth:
    """A limit of bytes per second. Thread-safe.

    `limit` gives the limit (0: none) and is called again each second, so that a changed setting
    counts almost at once. `within` is a wider limit, of all tables, say, which holds as well.
    """

    def __init__(
        self, limit: Callable[[], int], clock: Clock, within: "Bandwidth | None" = None
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._within = within
        self._free_at_s = 0.0
        self._known: tuple[float, int] | None = None
        self._lock = threading.Lock()

    def wait_s(self, size: int) -> float:
        """How many seconds the caller, who has just moved `size` bytes, should wait before the
        next.
        """
        within_s = 0.0 if self._within is None else self._within.wait_s(size)
        return max(within_s, self._own_wait_s(size, is_moved=True))

    def would_wait_s(self, size: int) -> float:
        """How many seconds it would be for `size` bytes, which nobody has moved yet."""
        within_s = 0.0 if self._within is None else self._within.would_wait_s(size)
        return max(within_s, self._own_wait_s(size, is_moved=False))

    def _own_wait_s(self, size: int, *, is_moved: bool) -> float:
        now_s = self._clock.monotonic_s()
        known = self._known
        if known is None or now_s - known[0] > LIMIT_VALID_S:
            known = self._known = now_s, self._limit()
        limit = known[1]
        if not limit:
            return 0.0
        with self._lock:
            now_s = self._clock.monotonic_s()
            free_at_s = max(self._free_at_s, now_s) + size / limit
            if is_moved:
                self._free_at_s = free_at_s
            return free_at_s - now_s
