"""`rmt status` beside what fails."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.cli import status
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import Unavailable, ZooKeeperUnreachable
from rmt_pipeline.store.disk import LocalDisk
from tests.support.local_session import session_with_two_tables


@pytest.mark.parametrize("away", [None, ZooKeeperUnreachable("no ZooKeeper")])
def test_a_table_whose_directory_fails_hides_no_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    away: ZooKeeperUnreachable | None,
) -> None:
    with session_with_two_tables(tmp_path) as session:
        server = session.context.server
        monkeypatch.setattr(ServerContext, "open", lambda *_, **__: server)
        root = server.table("t").store.disk.local_path("")
        for does in ("list", "read", "modified_s"):
            monkeypatch.setattr(LocalDisk, does, failing(getattr(LocalDisk, does), root))
        asked = status._ZooKeeper(server.config, away)
        assert not status._print_tables(asked, server.server, Unavailable("down"))
        shown = capsys.readouterr().out
        assert "default.t: its directory fails: [Errno 5] Input/output error" in shown
        assert "default.u: " in shown


def failing(
    does: Callable[[LocalDisk, str], Any], root: str
) -> Callable[[LocalDisk, str], Any]:
    """The same, but for the disk with this root."""

    def fails(disk: LocalDisk, path: str) -> Any:
        if disk.local_path("") == root:
            raise OSError(errno.EIO, "Input/output error")
        return does(disk, path)

    return fails
