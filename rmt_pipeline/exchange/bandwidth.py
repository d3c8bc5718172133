"""At most so many bytes per second, over everybody who shares the object."""

import threading
from collections.abc import Callable

from rmt_pipeline.system import Clock


class Bandwidth:
    """Thread-safe. `limit` is asked at every use (bytes per second; 0 is any), so that a changed
    setting counts at once.
    """

    def __init__(self, limit: Callable[[], int], clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._free_at_s = 0.0
        self._lock = threading.Lock()

    def wait_s(self, size: int) -> float:
        """How long whoever has just moved `size` bytes waits before moving more."""
        limit = self._limit()
        if not limit:
            return 0.0
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._free_at_s = max(self._free_at_s, now_s) + size / limit
            return self._free_at_s - now_s
