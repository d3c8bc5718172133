"""How far the units of a running job are, to show to people, in a small file beside the result.

The file `progress` in the job's staging directory has a slot of fixed size for each unit, at the
place of its ordinal, which the process that runs the unit writes. So it can be read wherever the
replica's disk can, whichever process runs the unit: a server, a Dagster run, a Spark executor on
another host. It is never synced, and removed before the part is published. No decision depends on
it.
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
    """What units have read and written so far. Bytes are uncompressed."""

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
    """Writes the slot of one unit. A unit does not fail because the slot can't be written."""

    def __init__(self, output: str, ordinal: int) -> None:
        """`output`: the absolute path of the file that the unit makes."""
        self._path = os.path.join(os.path.dirname(output), FILE)  # noqa: PTH118, PTH120
        self._offset = ordinal * _SLOT.size

    def tell(self, progress: Progress) -> None:
        """Write the unit's progress to its slot."""
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
    """What all units of the job with this staging directory (an absolute path) have done. None
    before any unit has written its progress, and after the job has ended.
    """
    try:
        data = (Path(staging) / FILE).read_bytes()
    except OSError:
        return None
    whole = len(data) // _SLOT.size * _SLOT.size
    slots = (Progress(*slot) for slot in _SLOT.iter_unpack(data[:whole]))
    return sum(slots, Progress())


def forget_progress(staging: str) -> None:
    """Remove the progress of a job that has ended, so that only the part's files are left."""
    with contextlib.suppress(OSError):
        (Path(staging) / FILE).unlink(missing_ok=True)
