"""Several inserts under way at once: the next one is staged while the last one is committed."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import BoundedSemaphore
from typing import Any, Self

from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.threads import handed_over

IN_FLIGHT_MAX = 64  # more would not hide more latency: a commit takes two round trips


class InsertPipeline:
    """Several inserts into one table side by side, at most `in_flight` at once; `insert` waits
    while there are that many.

    Each insert is exactly once and all or nothing by itself; they may be committed in any order.
    Leaving the block waits for all of them, and raises the first error of an insert that failed.
    """

    def __init__(self, insert: Callable[..., InsertResult], in_flight: int) -> None:
        assert 1 <= in_flight <= IN_FLIGHT_MAX, f"in_flight is 1 to {IN_FLIGHT_MAX}"
        self._insert = insert
        self._room = BoundedSemaphore(in_flight)
        self._pool = ThreadPoolExecutor(in_flight, thread_name_prefix="insert")
        self._futures: list[Future[InsertResult]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._pool.shutdown(wait=True)
        if error is None:
            for future in self._futures:
                future.result()

    def insert(self, data: Any, **options: Any) -> Future[InsertResult]:
        """Start `Table.insert` in another thread and return its Future. Waits while `in_flight`
        other inserts are under way.
        """
        self._room.acquire()
        self._futures = [one for one in self._futures if not _is_fine(one)]
        try:
            future = handed_over(self._pool, partial(self._insert, data, **options))
        except BaseException:  # the block was left, or no thread can be started
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        self._futures.append(future)
        return future


def _is_fine(future: Future[InsertResult]) -> bool:
    """Whether the insert is done and succeeded, so that there is no error to raise for it."""
    return future.done() and future.exception() is None
