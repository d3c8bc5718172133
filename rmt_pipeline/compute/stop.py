"""Stopping a running job: by a small file in its staging directory, for which the units look
between batches.

That way it reaches the units wherever they run: in this process, in Spark's executors, or on
another host that writes to the replica's disk. A unit that finds the file raises Conflict; then the
directory is removed.
"""

import contextlib
import os
from pathlib import Path

from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.store import layout

FILE = layout.STOP


def ask_to_stop(staging: str, reason: str) -> None:
    """Ask the units of a job to stop. `staging` is its directory (an absolute path). Does nothing
    if that is gone.
    """
    with contextlib.suppress(OSError):
        (Path(staging) / FILE).write_text(reason, encoding="utf-8")


def forget_stop(staging: str) -> None:
    """Remove the request to stop from a job that has ended nevertheless, so that only the part's
    files are left.
    """
    with contextlib.suppress(OSError):
        (Path(staging) / FILE).unlink(missing_ok=True)


def raise_if_stopped(output: str) -> None:
    """Raises Conflict if the job was asked to stop. `output` is the absolute path of the file that
    the unit makes.
    """
    path = f"{output.rpartition('/')[0]}/{FILE}"  # in a hot loop
    if os.access(path, os.F_OK):
        raise Conflict(Path(path).read_text(encoding="utf-8"))
