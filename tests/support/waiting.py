"""Waiting for what must come, however busy the machine is. The limit is for what never comes."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 300.0
LOOK_EVERY_S = 0.02
LASTING_S = 50.0
"""The timeout of ZooKeeper sessions that no test means to end. A busy machine stands still for some
seconds now and then, and shorter sessions are over then. The embedded ZooKeeper grants a minute.
"""
BUSY = 12.0
"""How much longer than promised something may take on a machine that does much else meanwhile: what
is promised is for one that does not. It may stand still for half a minute, too.
"""


def until(
    condition: Callable[[], object],
    what: Callable[[], str] = lambda: "what the test waits for did not come",
    *,
    limit_s: float = LIMIT_S,
) -> None:
    """Returns as soon as `condition` holds. `what` says what there is instead."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, f"{what()}, after {limit_s:g} s"
        time.sleep(LOOK_EVERY_S)


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until every thread stands still: one that runs may still answer."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    if tasks.exists():
        until(lambda: all(_is_stopped(task) for task in tasks.iterdir()))


def _is_stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
