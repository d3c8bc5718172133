"""What `rmt` makes is for its user alone, unless [files] umask says otherwise."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from tests.support.waiting import LIMIT_S


def modes(directory: Path) -> set[str]:
    """Of all that is below it, and of itself: `d700` for instance."""
    found = [directory, *directory.rglob("*")]
    assert len(found) > 3
    return {
        ("d" if path.is_dir() else "f") + f"{stat.S_IMODE(path.stat().st_mode):o}"
        for path in found
    }


def written(directory: Path, text: str = "") -> Path:
    file = directory / "rmt.toml"
    file.write_text(
        "[zookeeper]\nhosts = '127.0.0.1:1'\nconnect_timeout_s = 0.2\n"  # there is none
        f"[servers.r1]\ndata = 'deep/r1'\nlisten = '127.0.0.1:1'\n{text}"
    )
    return file


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", {"d700", "f600"}), ("[files]\numask = '027'", {"d750", "f640"})],
)
def test_what_a_command_makes_is_private(tmp_path, text, expected):
    """The shell that it is started from would let everybody read."""
    command = [sys.executable, "-m", "rmt_pipeline.cli", "--config", written(tmp_path, text)]
    statement = "CREATE DATABASE d; CREATE TABLE d.t (n Int8) ENGINE = MergeTree ORDER BY n"
    subprocess.run(
        [*command, "sql", statement],
        check=False,
        umask=0o022,
        capture_output=True,
        timeout=LIMIT_S,
    )
    assert modes(tmp_path / "deep" / "r1") == expected


def test_a_library_makes_a_directory_that_others_can_not_enter(tmp_path):
    """It leaves the process's umask alone: other files of that process are its own business."""
    config = load_config(written(tmp_path))
    before = os.umask(0o022)
    try:
        ServerContext.open(config, "r1").close()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    data = config.server("r1").data
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    data.chmod(0o755)
    ServerContext.open(config, "r1").close()
    assert stat.S_IMODE(data.stat().st_mode) == 0o755, "somebody has opened it on purpose"
