"""A place that a child server can't write to is named, in an error for people."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from rmt_pipeline.processes.java import JavaCommand
from rmt_pipeline.processes.server import ChildServer
from rmt_pipeline.processes.spark import ConnectServer, SessionJvm
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from rmt_pipeline.protocol.errors import BadConfiguration, DiskFull, Unavailable


def zookeeper(directory: Path) -> ChildServer:
    return EmbeddedZooKeeper(directory, 0, java=JavaCommand(Path("java"), {}, 17))


def spark(directory: Path) -> ChildServer:
    return ConnectServer(directory / "spark.log", port=0)


@pytest.mark.parametrize("server", [zookeeper, spark])
def test_a_directory_that_can_not_be_is_named(server, tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfiguration, match="file/here"):
        server(tmp_path / "file" / "here").start()


def test_a_host_without_a_directory_for_temporary_files_is_told(tmp_path, monkeypatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    for server in (spark(tmp_path), SessionJvm({})):
        with pytest.raises(Unavailable, match="No usable temporary directory found"):
            server.start()


@pytest.mark.parametrize("server", [zookeeper, spark])
def test_a_full_disk_is_told(server, tmp_path, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("open", "write_text"):
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(DiskFull, match="no space left to write"):
        server(tmp_path).start()
