"""Dagster's daemon as we start it: a backfill does not wait for half a minute."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._cli import dev
from dagster._daemon import controller
from dagster._daemon.backfill import execute_backfill_iteration_loop

from rmt_pipeline.dagster import daemon


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
        with dg.instance_for_test() as instance:
            asked: Any = SimpleNamespace(instance=instance)
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
    monkeypatch.setattr(dev, "open_ipc_subprocess", dev.open_ipc_subprocess)
    monkeypatch.setattr(daemon, "open_ipc_subprocess", start)
    with pytest.raises(SystemExit):
        daemon.main(["dev", "--empty-workspace"])
    assert started == ["dagster_webserver", "rmt_pipeline.dagster.daemon"]
