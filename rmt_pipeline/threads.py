"""Work for the threads of a pool, as long as threads can be started."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")


def handed_over(pool: Executor, work: Callable[[], T]) -> Future[T]:
    """Have a thread of the pool do the work. Raises RuntimeError if the pool is closed, or none can
    be started: a pool may keep the work all the same, and do it later; then it is not done.

    To be cancelled with the Future, not by the pool's `shutdown`.
    """
    future = Future[T]()
    try:
        pool.submit(_do, work, future)
    except BaseException:
        if future.cancel():  # else a thread that was there has begun
            raise
    return future


def done_here(work: Callable[[], T]) -> Future[T]:
    """Do the work in this thread."""
    future = Future[T]()
    _do(work, future)
    return future


def _do(work: Callable[[], T], future: Future[T]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  whoever waits for it is told
            future.set_exception(error)
