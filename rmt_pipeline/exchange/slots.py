"""How many parts a process fetches at the same time, and whose they are."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Semaphore

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict

CANCEL_LOOK_S = 0.2  # while one waits for a slot


class FetchSlots:
    """Of all tables of a process. What a replica has lost, or lacks as one that is cloned, leaves
    some of them to what is inserted meanwhile. Thread-safe.
    """

    def __init__(self, at_once_max: int) -> None:
        self._all = Semaphore(at_once_max)
        self._recoveries = Semaphore(limits.leaving_some(at_once_max))

    @contextmanager
    def taken(self, is_cancelled: Callable[[], bool], *, recovers: bool) -> Iterator[None]:
        """Waits for one. Raises Conflict when it was cancelled meanwhile."""
        with ExitStack() as taken:
            for slots in (self._recoveries, self._all) if recovers else (self._all,):
                while not slots.acquire(timeout=CANCEL_LOOK_S):
                    if is_cancelled():
                        raise Conflict("the fetch was cancelled before it began")
                taken.callback(slots.release)
            yield
