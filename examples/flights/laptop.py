"""A deployment on one laptop: an rmt.toml with free ports, and `rmt up` with all that it starts."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from examples.flights.ports import free_port
from rmt_pipeline.config import Config, load_config

WORKSPACE = Path(__file__).with_name("workspace.yaml")
STOP_WITHIN_S = 30.0
ZOOKEEPER_WITHIN_S = 120.0
"""ZooKeeper starts at the same time as its clients, on a machine that may be busy."""


class Ended(Exception):
    """`rmt up` has ended by itself; the message has the end of its log."""


class Everything:
    """A process of `rmt up` with one configuration, writing to one log. As a context manager, it
    starts the process and ends it.

    `options` are options of `rmt up` that make it start less.
    """

    def __init__(self, config: Path, log: Path, *options: str) -> None:
        self.log = log
        self._config = config
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        arguments = ["--config", str(self._config), "up", *self._options]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rmt_pipeline.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._config.parent,
                # A session of its own: Ctrl-C reaches only us, and we end the process in order.
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def require_alive(self) -> None:
        """Raises Ended if the process has ended."""
        process = self._process
        if process is None or process.poll() is None:
            return
        tail = self.log.read_text(errors="replace").splitlines()[-15:]
        last_words = "\n  ".join(tail)
        raise Ended(
            f"`rmt up` ended with status {process.returncode}; "
            f"the end of {self.log}:\n  {last_words}"
        )

    def stop(self) -> bool:
        """End the process. Returns whether everything ended in order; otherwise what is left is
        killed. May be called again.
        """
        process, self._process = self._process, None
        if process is None:
            return True
        process.terminate()
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            process.wait()
            return False
        return not _kill_group(process.pid)


def _kill_group(leader: int) -> bool:
    """Kill the process group. Returns whether any process of it was left."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def write_config(directory: Path) -> Config:
    """Write a new rmt.toml with free ports into the empty `directory`."""
    lines = [
        "[zookeeper]",
        f"port = {free_port()}",
        'data = "zookeeper"',
        f"connect_timeout_s = {ZOOKEEPER_WITHIN_S:g}",
        "[spark]",
        f"port = {free_port()}",
        'data = "spark"',
        "[dagster]",
        f"port = {free_port()}",
        'home = "dagster"',
        f'workspace = "{WORKSPACE}"',
    ]
    for server in ("r1", "r2"):
        lines += [
            f"[servers.{server}]",
            f'data = "{server}"',
            f'listen = "127.0.0.1:{free_port()}"',
            f'macros = {{shard = "01", replica = "{server}"}}',
        ]
    file = directory / "rmt.toml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_config(file)
