"""Stopping a job that runs: a small file in its staging directory, looked for between batches.

So it reaches the units wherever they run: in this process, in Spark's executors, on another host
that writes to the replica's disk. A unit that finds it ends with Conflict; the directory goes.
"""

import contextlib
import os
from pathlib import Path

from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.store import layout

FILE = layout.STOP


def ask_to_stop(staging: str, reason: str) -> None:
    """`staging` is a job's directory (an absolute path). Nothing happens when it is gone."""
    with contextlib.suppress(OSError):
        (Path(staging) / FILE).write_text(reason, encoding="utf-8")


def forget_stop(staging: str) -> None:
    """The job has ended all the same: its directory holds the part's files alone again."""
    with contextlib.suppress(OSError):
        (Path(staging) / FILE).unlink(missing_ok=True)


def raise_if_stopped(output: str) -> None:
    """`output` is the absolute path of the file that a unit makes. Raises Conflict."""
    path = os.path.join(os.path.dirname(output), FILE)  # noqa: PTH118, PTH120  in a hot loop
    if os.access(path, os.F_OK):
        raise Conflict(Path(path).read_text(encoding="utf-8"))
