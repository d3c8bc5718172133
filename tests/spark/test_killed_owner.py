"""Whoever has a JVM of his own is killed: nothing of it is left, Python workers and temporary files
included.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import until
from tests.unit.processes.test_child import linux, mark, marked

__all__ = ["mark"]  # a fixture

pytestmark = pytest.mark.spark

OWNER = """
import sys, time
from rmt_pipeline.compute.jobs.spark import SparkSessions

session = SparkSessions(master="local[2]", java_home=sys.argv[1]).get()
many = session.range(0, 8, 1, 8).mapInArrow(lambda batches: (one for one in batches), "id long")
print(many.count(), flush=True)
if sys.argv[2] == "busy":
    def slow(batches):
        for one in batches:
            time.sleep(1000)
            yield one
    session.range(0, 8, 1, 8).mapInArrow(slow, "id long").count()
time.sleep(1000)
"""


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@linux
@pytest.mark.parametrize("state", ["idle", "busy"])
def test_a_killed_owner_takes_its_jvm_and_the_workers_along(
    mark, java_home, state, tmp_path
) -> None:
    """`kill -9`: nothing of the owner's own runs any more."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, java_home, state],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"8\n"
        javas = [pid for pid in marked(mark) if b"java" in command_of(pid).split(b"\0")[0]]
        assert len(javas) == 1, "its JVM runs"
        made = {path.name.partition("-")[0] for path in tmp_path.glob("*/*")}
        assert made >= {"blockmgr", "spark"}, "and has temporary files"
        os.kill(owner.pid, signal.SIGKILL)
    until(
        lambda: marked(mark) == [],
        lambda: f"these are left: {[command_of(pid)[:100] for pid in marked(mark)]}",
    )
    until(
        lambda: not any(tmp_path.iterdir()),
        lambda: f"these are left: {[*map(str, tmp_path.rglob('*'))]}",
    )
