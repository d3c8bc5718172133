"""The peer to compare with: ClickHouse's own server (Debian's package `clickhouse-server`)."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

import urllib3

from examples.flights.ports import free_port
from rmt_pipeline.zookeeper.paths import TablePaths

BUSY = TablePaths("/clickhouse/busy")

CLIENTS_MAX = 64

_CONFIG = """<?xml version="1.0"?>
<yandex>
  <logger><level>warning</level><log>{data}/server.log</log><errorlog>{data}/error.log</errorlog></logger>
  <http_port>{http}</http_port><tcp_port>{tcp}</tcp_port>
  <interserver_http_port>{interserver}</interserver_http_port>
  <interserver_http_host>127.0.0.1</interserver_http_host>
  <listen_host>127.0.0.1</listen_host>
  <path>{data}/data/</path><tmp_path>{data}/tmp/</tmp_path>
  <mark_cache_size>5368709120</mark_cache_size>
  <users_config>{data}/users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  <zookeeper><node><host>127.0.0.1</host><port>{zookeeper}</port></node></zookeeper>
  <macros><shard>01</shard><replica>{name}</replica></macros>
</yandex>
"""
_USERS = """<?xml version="1.0"?>
<yandex>
  <profiles><default/></profiles>
  <users><default><password></password><networks><ip>::/0</ip></networks>
    <profile>default</profile><quota>default</quota></default></users>
  <quotas><default/></quotas>
</yandex>
"""


def executable() -> str | None:
    return shutil.which("clickhouse-server") or shutil.which(
        "clickhouse-server", path="/usr/sbin"
    )


@contextmanager
def clickhouse_directory() -> Iterator[Path]:
    """A directory for servers' data, removed when they have ended; it stays after an error, for
    who looks why.
    """
    directory = Path(tempfile.mkdtemp(prefix="rmt-bench-clickhouse-"))
    yield directory
    shutil.rmtree(directory)


class ClickHouse:
    """One server; a context manager. `query` goes over one kept connection."""

    def __init__(self, name: str, directory: Path, zookeeper_port: int) -> None:
        self.name = name
        self._directory = directory / name
        self._port = free_port()
        self._directory.mkdir(parents=True)
        text = _CONFIG.format(
            data=self._directory,
            http=self._port,
            tcp=free_port(),
            interserver=free_port(),
            zookeeper=zookeeper_port,
            name=name,
        )
        (self._directory / "config.xml").write_text(text)
        (self._directory / "users.xml").write_text(_USERS)
        self._process: subprocess.Popen[bytes] | None = None
        self._http = urllib3.HTTPConnectionPool(
            "127.0.0.1", self._port, timeout=60, maxsize=CLIENTS_MAX
        )

    def __enter__(self) -> Self:
        program = executable()
        assert program is not None
        self._process = subprocess.Popen(
            [program, f"--config-file={self._directory / 'config.xml'}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(200):
            try:
                self.query("SELECT 1")
            except urllib3.exceptions.HTTPError:
                time.sleep(0.1)
            else:
                return self
        raise RuntimeError(f"clickhouse-server did not answer; see {self._directory}/error.log")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def query(self, text: str, **settings: str | int) -> str:
        target = f"/?{urlencode(settings)}"
        answer = self._http.urlopen("POST", target, body=text.encode(), retries=False)
        body = answer.data.decode()
        if answer.status != 200:
            raise RuntimeError(body)
        return body


@contextmanager
def busy_pair(zookeeper_port: int, clauses: str) -> Iterator[tuple[ClickHouse, ClickHouse]]:
    """Two servers, r1 and r2, with a table `busy` of the columns k, v and p on both, whose path in
    ZooKeeper is BUSY.
    """
    with (
        clickhouse_directory() as directory,
        ClickHouse("r1", directory, zookeeper_port) as one,
        ClickHouse("r2", directory, zookeeper_port) as two,
    ):
        for server in (one, two):
            server.query(
                "CREATE TABLE busy (k Int64, v String, p Int64) ENGINE = "
                f"ReplicatedMergeTree('{BUSY.root}', '{server.name}') {clauses}"
            )
        yield one, two
