"""The lock of the one process that serves from a directory."""

import errno
import os

import pytest

from rmt_pipeline.catalog.directory import DirectoryLock
from rmt_pipeline.protocol.errors import ReplicaIsAlreadyActive


def test_a_full_disk_does_not_keep_a_server_from_starting(tmp_path, monkeypatch):
    """Its process number is only for people."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        lock = DirectoryLock(tmp_path, "r1")
    with pytest.raises(ReplicaIsAlreadyActive, match="process unknown holds"):
        DirectoryLock(tmp_path, "r1")
    lock.release()
    DirectoryLock(tmp_path, "r1").release()
