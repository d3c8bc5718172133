"""Dagster's daemon as we start it: a backfill does not wait for half a minute."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._cli import dev
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._daemon import controller
from dagster._daemon.backfill import execute_backfill_iteration_loop
from dagster._grpc.client import DagsterGrpcClient

from examples.flights.ports import free_port
from rmt_pipeline.dagster import daemon, instance
from tests.support.waiting import LIMIT_S, until


class Noted(threading.Event):
    """Which naps somebody wanted to take."""

    def __init__(self) -> None:
        super().__init__()
        self.naps: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.naps.append(timeout)
        return False


def test_it_looks_for_backfills_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster's own loop, as the daemon runs it."""
    monkeypatch.setattr(controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", 30)
    noted = Noted()

    def run(arguments: Sequence[str], **_: Any) -> None:
        assert arguments == ["run", "--workspace", "workspace.yaml"]
        with dg.instance_for_test() as fresh:
            asked: Any = SimpleNamespace(instance=fresh)
            loop = execute_backfill_iteration_loop(asked, logging.getLogger("test"), noted)
            while not noted.naps:
                next(iter(loop))

    monkeypatch.setattr(daemon, "daemon_cli", run)
    daemon.main(["run", "--workspace", "workspace.yaml"])
    [nap_s] = noted.naps
    assert nap_s is not None
    assert nap_s <= 5


@pytest.mark.filterwarnings("ignore:Function `dev_command` is superseded")
def test_dagster_dev_starts_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Dagster's own command, up to the processes that it would start."""
    started: list[str] = []

    def start(parts: Sequence[str], **_: Any) -> Any:
        started.append(parts[parts.index("-m") + 1])

        def poll() -> None:
            raise KeyboardInterrupt

        return SimpleNamespace(poll=poll, wait=lambda **_: 0)

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    for name in ("open_ipc_subprocess", "ProxyServerManager"):  # `main` puts ours there
        monkeypatch.setattr(dev, name, getattr(dev, name))
    monkeypatch.setattr(daemon, "open_ipc_subprocess", start)
    with pytest.raises(SystemExit):
        daemon.main(["dev", "--empty-workspace"])
    assert started == ["dagster_webserver", "rmt_pipeline.dagster.daemon"]


def process_with_the_code() -> int | None:
    """The `dagster api grpc` below a `dagster code-server` that this process has started."""
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if b"api\0grpc\0" in (directory / "cmdline").read_bytes():
                parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
                grandparent = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2]
                if int(grandparent.split()[1]) == os.getpid():
                    return int(directory.name)
    return None


@pytest.mark.dagster
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
def test_a_code_server_of_dagster_dev_that_is_killed_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Dagster's own stays away for ever, and with it every sensor and schedule."""
    monkeypatch.setattr(daemon, "CODE_SERVERS_EVERY_S", 0.2)
    definitions = tmp_path / "definitions.py"
    definitions.write_text("import dagster as dg\n\ndefs = dg.Definitions()\n")
    target = PythonFileTarget(str(definitions), None, str(tmp_path), "location")
    with (
        dg.instance_for_test() as fresh,
        daemon.WatchedCodeServers(fresh, target, "WARNING") as servers,
    ):
        [spec] = servers.get_code_server_specs()
        client = DagsterGrpcClient(socket=spec["grpc_server"]["socket"])
        assert client.ping("here")["echo"] == "here"
        killed = process_with_the_code()
        assert killed is not None
        os.kill(killed, signal.SIGKILL)

        def answers() -> bool:
            try:
                return bool(client.ping("again")["echo"] == "again")
            except DagsterUserCodeUnreachableError:
                return False

        until(lambda: process_with_the_code() not in (None, killed) and answers(), limit_s=120)


A_TICK_THAT_WAITS = """
import threading
from pathlib import Path

import dagster as dg


@dg.sensor(
    minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING, asset_selection="*"
)
def waits():
    Path("waits").touch()
    threading.Event().wait()


defs = dg.Definitions(sensors=[waits])
"""


@pytest.mark.dagster
def test_it_ends_when_asked_though_a_tick_waits_and_says_nothing_of_it(tmp_path: Path) -> None:
    """As Ctrl-C of `rmt up` ends it, with its code servers at the same time."""
    (tmp_path / "definitions.py").write_text(A_TICK_THAT_WAITS)
    instance.prepare_home(tmp_path)
    command = [sys.executable, "-m", "rmt_pipeline.dagster.daemon", "dev"]
    command += ["-f", "definitions.py", "-h", "127.0.0.1", "-p", str(free_port())]
    environment = {**os.environ, **instance.ENVIRONMENT, "DAGSTER_HOME": str(tmp_path)}
    environment["DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS"] = "3600"
    output = tmp_path / "output"
    with output.open("wb") as said:
        dev_process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=said, stderr=said, process_group=0
        )
    try:
        until((tmp_path / "waits").exists)
        os.killpg(dev_process.pid, signal.SIGTERM)
        assert dev_process.wait(LIMIT_S) == 0
        said_last = output.read_text()
        assert "Dagster services shut down" in said_last
        for words in ("Traceback", "did not terminate cleanly", "it is started again"):
            assert words not in said_last
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(dev_process.pid, signal.SIGKILL)  # the code server, whose tick waits
