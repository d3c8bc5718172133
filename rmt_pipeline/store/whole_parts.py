"""Parts that are known to be whole: every byte was compared with its hash on this host, and nobody
has written to a file of theirs since.

To read a part anew for every query, or for every process, would cost more than the query. So who
has read one leaves a note in its directory: name, hash, inode, size and time of change of each
file. No program sets the time of change of an inode: who writes to a file, or puts another in its
place, gives it another one. A note that is not word for word what would be written now, or that is
missing, means only that the part has to be read. What a disk loses of its own accord shows in no
time of change: for that there is the scrub.
"""

import threading
from contextlib import suppress

from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk
from rmt_pipeline.store.manifest import Manifest

REMEMBERED_MAX = 100_000  # parts; then this process begins anew, by the notes


class WholeParts:
    """Of one disk. Directories are paths on it. Thread-safe."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._known: dict[str, bytes] = {}

    def note_now(self, directory: str, manifest: Manifest) -> bytes | None:
        """What the note on the part would be; None when the disk can't tell."""
        lines = []
        for file in manifest.files:
            stamp = self._disk.stamp(layout.join(directory, file.name))
            if stamp is None:
                return None
            lines.append(
                f"{file.name} {file.hash} {stamp.inode} {stamp.size} {stamp.changed_ns}\n"
            )
        return "".join(lines).encode()

    def is_known(self, directory: str, note: bytes | None) -> bool:
        """Whether the part in the directory, of which this is the note now, is known to be whole.
        A note that can't be read is none.
        """
        if note is None:
            return False
        with self._lock:
            if self._known.get(directory) == note:
                return True
        with suppress(OSError):
            if self._disk.read(layout.join(directory, layout.WHOLE)) == note:
                self._remember(directory, note)
                return True
        return False

    def learn(self, directory: str, note: bytes | None) -> None:
        """The part was read whole after this was its note. That the note can't be kept costs others
        a look.
        """
        if note is None:
            return
        self._remember(directory, note)
        with suppress(OSError, DiskFull):
            self._disk.write(layout.join(directory, layout.WHOLE), [note])

    def _remember(self, directory: str, note: bytes) -> None:
        with self._lock:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[directory] = note
