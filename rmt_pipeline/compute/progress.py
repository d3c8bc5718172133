"""How far the units of a running job are, for people who look: one small file beside the result.

`progress` stands in the job's staging directory: a slot of fixed size for each unit, at the place
of its ordinal, written by whoever runs the unit. So it can be read wherever the replica's disk
can, whatever process works: a server, a Dagster run, a Spark executor elsewhere. It counts what
is done, is never synced, and is gone before the part is published. Nothing decides by it.
"""

import contextlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path

FILE = "progress"
_SLOT = struct.Struct("<QQQQ")


@dataclass(frozen=True, slots=True)
class Progress:
    """What the units of a job have read and written so far. Bytes are uncompressed."""

    rows_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0

    def __add__(self, other: "Progress") -> "Progress":
        return Progress(
            self.rows_read + other.rows_read,
            self.bytes_read + other.bytes_read,
            self.rows_written + other.rows_written,
            self.bytes_written + other.bytes_written,
        )


class UnitProgress:
    """The slot of one unit. No unit fails because it can't tell how far it is."""

    def __init__(self, output: str, ordinal: int) -> None:
        """`output`: the absolute path of the file that the unit makes."""
        self._path = os.path.join(os.path.dirname(output), FILE)  # noqa: PTH118, PTH120
        self._offset = ordinal * _SLOT.size

    def tell(self, progress: Progress) -> None:
        data = _SLOT.pack(
            progress.rows_read,
            progress.bytes_read,
            progress.rows_written,
            progress.bytes_written,
        )
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(file, data, self._offset)
            finally:
                os.close(file)


def read_progress(staging: str) -> Progress | None:
    """What all units of the job that fills this directory (an absolute path) have done; None
    when none has begun, or all have ended.
    """
    try:
        data = (Path(staging) / FILE).read_bytes()
    except OSError:
        return None
    whole = len(data) // _SLOT.size * _SLOT.size
    slots = (Progress(*slot) for slot in _SLOT.iter_unpack(data[:whole]))
    return sum(slots, Progress())


def forget_progress(staging: str) -> None:
    """The job has ended; its directory holds the part's files alone again."""
    with contextlib.suppress(OSError):
        (Path(staging) / FILE).unlink(missing_ok=True)
