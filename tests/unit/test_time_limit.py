"""A test that hangs: it is named, wherever it waits, and those after it run."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tests.support.time_limit import time_limit

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")


def for_a_process() -> None:
    process = subprocess.Popen(SLEEP)
    try:
        process.wait()
    finally:
        process.kill()
        process.wait()


def for_a_thread() -> None:
    for_ever = threading.Thread(target=threading.Event().wait, daemon=True)
    for_ever.start()
    for_ever.join()


@pytest.mark.parametrize(
    "wait",
    [
        for_a_process,
        lambda: threading.Event().wait(),
        for_a_thread,
    ],
)
def test_whoever_waits_for_ever_is_named(wait: Callable[[], object]) -> None:
    with (
        pytest.raises(pytest.fail.Exception, match=r"a test has not ended after 0\.05 s"),
        time_limit("a test", 0.05),
    ):
        wait()


def test_the_outer_limit_goes_on_after_an_inner_one() -> None:
    with time_limit("outer", 100.0):
        with time_limit("inner"):
            pass
        assert 90 < signal.getitimer(signal.ITIMER_REAL)[0] <= 100
        with (
            pytest.raises(pytest.fail.Exception, match="inner"),
            time_limit("inner", 0.01),
        ):
            threading.Event().wait()
        assert 90 < signal.getitimer(signal.ITIMER_REAL)[0] <= 100


def test_every_test_has_a_limit() -> None:
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
