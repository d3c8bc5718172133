"""Two servers over one ZooKeeper, or an ensemble of three, as processes, in a temporary directory."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import urllib3

from benchmarks.asking import Relay
from examples.flights.ports import free_port
from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from tests.support.ensemble import Ensemble

_ALONE = """
port = {port}
data = "zookeeper"
"""
_CONFIG = """
[zookeeper]
{zookeeper}
[servers.r1]
data = "r1"
listen = "127.0.0.1:{r1}"
macros = {{shard = "01", replica = "r1"}}
[servers.r2]
data = "r2"
listen = "127.0.0.1:{r2}"
macros = {{shard = "01", replica = "r2"}}
"""


class Cluster:
    """`rmt serve --server r1` and `rmt serve --server r2`, with `--work` when wanted; a context
    manager. With `ensemble`, ZooKeeper is three servers. With `relayed`, what the servers ask of the
    one ZooKeeper is in `asked`; with `traced`, they note what they do in `trace`.
    """

    def __init__(
        self,
        *,
        work: bool,
        ensemble: bool = False,
        relayed: bool = False,
        traced: bool = False,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="rmt-bench-"))
        port = free_port()
        self._zookeeper: EmbeddedZooKeeper | Ensemble
        if ensemble:
            self._zookeeper = Ensemble(self.directory)
            self._members = self._zookeeper.members
            section = f'hosts = "{self._zookeeper.hosts}"'
        else:
            self._zookeeper = EmbeddedZooKeeper(self.directory / "zookeeper", port)
            self._members = [self._zookeeper]
            section = _ALONE.format(port=port)
        ports = {"r1": free_port(), "r2": free_port()}
        (self.directory / "rmt.toml").write_text(_CONFIG.format(zookeeper=section, **ports))
        self.config = load_config(self.directory / "rmt.toml")
        self._work = work
        self._traced = traced
        self._questions = 0
        self.asked = {name: Relay(port) for name in ports if relayed}
        for name in ports:
            if relayed:
                section = _ALONE.format(port=self.asked[name].port)
            file = self.directory / f"{name}.toml"
            file.write_text(_CONFIG.format(zookeeper=section, **ports))
        self._ports = ports
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._zookeeper.start()
        for name in self._ports:
            self.serve(name)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Data and logs stay for who looks why it failed."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            process.wait(30)
        self._zookeeper.stop()
        if kind is None:
            shutil.rmtree(self.directory)

    def serve(self, name: str) -> None:
        options = ["--work"] if self._work else []
        module = (
            ["benchmarks.traced", str(self.trace(name))]
            if self._traced
            else ["rmt_pipeline.cli"]
        )
        log = (self.directory / f"{name}.log").open("wb")
        self._processes[name] = subprocess.Popen(
            [sys.executable, "-m", *module, "serve", "--server", name, *options],
            env={**os.environ, "RMT_CONFIG": str(self.directory / f"{name}.toml")},
            stderr=log,
            stdout=log,
        )
        for _ in range(300):
            try:
                url = f"http://127.0.0.1:{self._ports[name]}/health"
                if urllib3.request("GET", url, retries=False).status == 200:
                    return
            except urllib3.exceptions.HTTPError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"rmt serve {name} is not ready; see {self.directory}/{name}.log")

    def trace(self, name: str) -> Path:
        return self.directory / f"{name}.trace"

    @property
    def zookeeper_port(self) -> int:
        """Of the one ZooKeeper, or of the first of the ensemble."""
        return self._members[0].port

    def requests(self) -> int:
        """How many packets ZooKeeper has received so far, from anybody but this method; pings of
        idle sessions are among them.
        """
        self._questions += 1
        return sum(_received(one.port) - self._questions for one in self._members)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def zookeeper_pid(self) -> int:
        pid = self._members[0].pid
        assert pid is not None
        return pid

    def context(self, name: str) -> ServerContext:
        return ServerContext.open(self.config, name, purpose="benchmark")


def _received(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(b"srvr")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    match = re.search(rb"Received: (\d+)", answer)
    assert match is not None, answer
    return int(match[1])
