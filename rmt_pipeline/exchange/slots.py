"""How many parts a process fetches at the same time."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Semaphore

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict

CANCEL_LOOK_S = 0.2  # between looks whether a fetch that waits for a slot was cancelled


class FetchSlots:
    """The fetches that may run at once, over all tables of a process. Thread-safe.

    Parts that a replica lost, or lacks as a clone, may not take all slots: some are kept for parts
    that are inserted meanwhile.
    """

    def __init__(self, at_once_max: int) -> None:
        self._all = Semaphore(at_once_max)
        self._recoveries = Semaphore(limits.leaving_some(at_once_max))

    @contextmanager
    def taken(self, is_cancelled: Callable[[], bool], *, recovers: bool) -> Iterator[None]:
        """Hold a slot; waits for one. Raises Conflict if the fetch is cancelled meanwhile."""
        with ExitStack() as taken:
            for slots in (self._recoveries, self._all) if recovers else (self._all,):
                while not slots.acquire(timeout=CANCEL_LOOK_S):
                    if is_cancelled():
                        raise Conflict("the fetch was cancelled before it began")
                taken.callback(slots.release)
            yield
