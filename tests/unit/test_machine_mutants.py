"""Whoever is killed while he measures which tests run which lines has lost the last file only."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.machine.tests_of_lines import ROOT

KILLS = """
import os, signal, time

def test_who_measures_is_killed_when_something_was_kept():
    while not os.path.exists({measured!r}):
        time.sleep(0.01)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
    os.write({told}, b"lived on")
"""


def measuring(lanes: Path, measured: Path, *told: int) -> subprocess.Popen[bytes]:
    """No bug is planted. All of its forks have `told` open."""
    command = [sys.executable, "-m", "tests.mutants.machine", "--only", "none of them"]
    options = ["--processes", "2", "--tests", str(measured), "--lanes", str(lanes), "--then"]
    return subprocess.Popen(
        [*command, *options], cwd=ROOT, stdout=subprocess.DEVNULL, pass_fds=told
    )


@pytest.mark.skipif(
    sys.platform != "linux", reason="only there a child can end with its parent"
)
def test_what_was_measured_is_kept_and_nobody_outlives_who_is_killed(tmp_path: Path) -> None:
    lanes, measured, ran = tmp_path / "lanes", tmp_path / "tests.json", tmp_path / "ran"
    lanes.mkdir()
    hears, told = os.pipe()
    (lanes / "test_a.py").write_text(f"def test_a():\n    open({str(ran)!r}, 'a').write('a')\n")
    (lanes / "test_b.py").write_text(KILLS.format(told=told, measured=str(measured)))
    killed = measuring(lanes, measured, told)
    os.close(told)
    with os.fdopen(hears, "rb") as heard:  # to the end of the last who has it open
        assert heard.read() == b""
    killed.wait()
    [only] = json.loads(measured.read_text())["seconds"]
    assert only.endswith("test_a.py::test_a")

    (lanes / "test_b.py").write_text("def test_b():\n    pass\n")
    assert measuring(lanes, measured).wait() == 0
    assert len(json.loads(measured.read_text())["seconds"]) == 2
    assert ran.read_text() == "a"
