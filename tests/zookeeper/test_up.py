"""`rmt up`: everything starts, and everything ends with it, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.flights.ports import free_port
from rmt_pipeline.processes.zookeeper import answers
from tests.support.waiting import LIMIT_S, until

pytestmark = pytest.mark.zookeeper


class Up:
    """`rmt up` without Dagster and Spark, and the processes that it started."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        file = directory / "rmt.toml"
        file.write_text(
            f"[zookeeper]\nport = {self.port}\ndata = 'zookeeper'\n"
            f"[servers.r1]\ndata = 'r1'\nlisten = '127.0.0.1:{free_port()}'\n"
        )
        self.log = directory / "up.log"
        command = [sys.executable, "-m", "rmt_pipeline.cli", "--config", str(file), "up"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--no-dagster", "--no-spark"], stderr=log
            )
        until(lambda: "everything is ready" in self.log.read_text(), self.log.read_text)
        self.started = descendants(self.process.pid)

    def pid_of(self, name: str) -> int:
        line = next(
            line for line in self.log.read_text().splitlines() if f"{name} started" in line
        )
        return int(line.rpartition("pid=")[2].rstrip(")"))

    def all_gone(self) -> bool:
        until(lambda: not any(map(is_alive, self.started)), self.log.read_text)
        return not answers("127.0.0.1", self.port)


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [one for child in map(int, children) for one in (child, *descendants(child))]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def up(tmp_path):
    up = Up(tmp_path)
    assert len(up.started) >= 5, "ZooKeeper's java, both commands, and a guardian of each"
    yield up
    for pid in up.started:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    up.process.kill()
    up.process.wait()


def test_one_signal_ends_everything(up):
    up.process.terminate()
    assert up.process.wait(LIMIT_S) == 0
    assert up.all_gone()


def test_nobody_outlives_it_even_when_it_is_killed(up):
    up.process.kill()
    up.process.wait()
    assert up.all_gone()


def test_one_that_ends_by_itself_ends_all(up):
    os.kill(up.pid_of("r1"), signal.SIGKILL)
    assert up.process.wait(LIMIT_S) == 1
    assert up.all_gone()
    assert "one process ended by itself" in up.log.read_text()
