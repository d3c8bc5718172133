"""A test that waits for ever fails by its name, and the run goes on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from tests.support.waiting import LIMIT_S

TEST_LIMIT_S = 2 * LIMIT_S  # who waits for one thing says sooner what did not come
AGAIN_S = 20.0  # what the failed test leaves behind may wait for ever, too


@contextmanager
def time_limit(name: str, seconds: float = TEST_LIMIT_S) -> Iterator[None]:
    """Fails what runs inside, in the main thread, once `seconds` are over. The traceback says where
    it waited. A second limit inside the first puts it off until the second is over.
    """

    def give_up(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"{name} has not ended after {seconds:g} s")

    handler = signal.signal(signal.SIGALRM, give_up)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
