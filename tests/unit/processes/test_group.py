"""Children that end together."""

import io
import os
import sys
from pathlib import Path

from rmt_pipeline.processes.group import Group
from tests.support.waiting import until

CHILD = """
import signal, sys, time
from pathlib import Path

name, takes_s, directory = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])


def end(*_):
    time.sleep(takes_s)
    with (directory / "ended").open("a") as file:
        file.write(name + " ")
    sys.exit()


signal.signal(signal.SIGTERM, end)
(directory / name).touch()
signal.pause()
"""


def test_the_first_is_asked_to_end_when_the_others_have_ended(tmp_path: Path) -> None:
    """So what ZooKeeper's clients have to tidy up there, they can."""
    group = Group(["needed", "needs"], io.StringIO())
    for name, takes_s in (("needed", "0"), ("needs", "0.3")):
        command = [sys.executable, "-c", CHILD, name, takes_s, str(tmp_path)]
        group.start(name, command, os.environ)
    until(lambda: (tmp_path / "needed").exists() and (tmp_path / "needs").exists())
    group.stop()
    assert (tmp_path / "ended").read_text().split() == ["needs", "needed"]
