"""Parts that are known to be whole: every byte was compared with its hash on this host, and nobody
has written to a file of theirs since.

To read a part anew for every query, or for every process, would cost more than the query. So who
has read one leaves a note in its directory: name, hash and stamp of each file. No program sets the
time of change of an inode: who writes to a file, or puts another in its place, gives it another
one. So does a hard link that comes or goes, as snapshots and replaced partitions make many, and it
writes no byte: a file that has more or fewer names than it had, and was not written since, is as it
was. A note that says anything else than what would be written now, or that is missing, means only
that the part has to be read. What a disk loses of its own accord shows in no time: for that there
is the scrub.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress

from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk
from rmt_pipeline.store.manifest import Manifest

_READ = b"read %r\n"
"""The first line, when the bytes were read before the note was written."""
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
            lines.append(f"{file.name} {file.hash} {' '.join(map(str, stamp))}\n")
        return "".join(lines).encode()

    def is_known(self, directory: str, note: bytes | None) -> bool:
        """Whether the part in the directory, of which this is the note now, is known to be whole.
        A note that can't be read is none.
        """
        if note is None:
            return False
        with self._lock:
            known = self._known.get(directory)
        if known == note:
            return True
        is_known = (known is not None and says_the_same(known, note)) or says_the_same(
            self._kept(directory)[1], note
        )
        if is_known:
            self._remember(directory, note)
        return is_known

    def learn(self, directory: str, note: bytes | None, read_s: float = 0.0) -> None:
        """The part was read whole at `read_s`, 0 for just now, after this was its note; or that
        from which it has its files was. That the note can't be kept costs others a look.
        """
        if note is None:
            return
        self._remember(directory, note)
        told = [_READ % read_s] if read_s else []
        with suppress(OSError, DiskFull):
            self._disk.write(layout.join(directory, layout.WHOLE), [*told, note])

    def read_s(self, directory: str) -> float:
        """When somebody of this host read the part whole last, in seconds since the epoch; 0 when
        nobody has said so.
        """
        return self._kept(directory)[0]

    def _kept(self, directory: str) -> tuple[float, bytes]:
        """When the part was read, and the note on it."""
        path = layout.join(directory, layout.WHOLE)
        with suppress(OSError, ValueError):  # ValueError: torn by a crash
            data = self._disk.read(path) or b""
            if data.startswith(_READ[:5]):
                told, _, note = data.partition(b"\n")
                return float(told[5:]), note
            return self._disk.modified_s(path) or 0.0, data
        return 0.0, b""

    def _remember(self, directory: str, note: bytes) -> None:
        with self._lock:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[directory] = note


def says_the_same(note: bytes, other: bytes) -> bool:
    """Whether nobody has written to the files of a part between these notes on it."""
    lines = [note.splitlines(), other.splitlines()]
    return len(lines[0]) == len(lines[1]) and all(
        one == other or _is_only_linked(one.rsplit(b" ", 2), other.rsplit(b" ", 2))
        for one, other in zip(*lines, strict=True)
    )


def _is_only_linked(line: Sequence[bytes], other: Sequence[bytes]) -> bool:
    """Of lines with their last two words apart: links and time of change."""
    return line[0] == other[0] and line[1] != other[1]
