"""Remembers which parts are whole: every byte was compared with its hash on this host, and no file
was written since.

To read each part completely for every query, or in every process, would cost more than the query.
So the process that has read a part leaves a note in its directory, with the name, hash and stamp of
each file. A write to a file, or another file in its place, changes the stamp, since no program can
set the time of change of an inode (ctime).

A hard link that is made or removed changes the ctime too, without writing a byte; snapshots and
replaced partitions make many. So a file whose number of names has changed, while its inode, size
and mtime have not, counts as unchanged. If the note is missing, or differs in anything else from
the note that would be written now, the part has to be read again. Bytes that a disk loses by itself
do not change the stamp: the scrub finds those.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress

from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk
from rmt_pipeline.store.manifest import Manifest

_READ = b"read %r\n"
"""The first line of a note, if the bytes were not read just before it was written:
when they were.
"""
REMEMBERED_MAX = 100_000  # parts; then this process forgets all and reads the notes again


class WholeParts:
    """The parts of one disk that are known to be whole. Directories are paths on it.
    Thread-safe.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._known: dict[str, bytes] = {}

    def note_now(self, directory: str, manifest: Manifest) -> bytes | None:
        """The note that would be written on the part now; None if the disk has no
        stamp for a file.
        """
        lines = []
        for file in manifest.files:
            stamp = self._disk.stamp(layout.join(directory, file.name))
            if stamp is None:
                return None
            lines.append(f"{file.name} {file.hash} {' '.join(map(str, stamp))}\n")
        return "".join(lines).encode()

    def is_known(self, directory: str, note: bytes | None) -> bool:
        """Whether the part in the directory is known to be whole. `note` is what `note_now`
        returned for it. A note on the disk that can't be read counts as missing.
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
        """Note that the part was read whole at `read_s` (0: just now), or that the part was to
        whose files its own are links. `note` must come from `note_now` before the bytes were read.

        If the note can't be written, other processes have to read the part themselves.
        """
        if note is None:
            return
        self._remember(directory, note)
        told = [_READ % read_s] if read_s else []
        with suppress(OSError, DiskFull):
            self._disk.write(layout.join(directory, layout.WHOLE), [*told, note])

    def read_s(self, directory: str) -> float:
        """When a process of this host last read the whole part, in seconds since the epoch; 0 if
        there is no note.
        """
        return self._kept(directory)[0]

    def _kept(self, directory: str) -> tuple[float, bytes]:
        """When the part was read, and the note on the disk; 0 and an empty note if
        there is none.
        """
        path = layout.join(directory, layout.WHOLE)
        with suppress(OSError, ValueError):  # ValueError: torn by a crash
            data = self._disk.read(path) or b""
            if data.startswith(_READ[:5]):
                told, _, note = data.partition(b"\n")
                return float(told[5:]), note
            return self._disk.modified_s(path) or 0.0, data
        return 0.0, b""

    def forget_all(self) -> None:
        """Read the notes on the disk again when they are needed."""
        with self._lock:
            self._known.clear()

    def _remember(self, directory: str, note: bytes) -> None:
        with self._lock:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[directory] = note


def says_the_same(note: bytes, other: bytes) -> bool:
    """Whether no file of the part was written between these two notes."""
    lines = [note.splitlines(), other.splitlines()]
    return len(lines[0]) == len(lines[1]) and all(
        one == other or _is_only_linked(one.rsplit(b" ", 2), other.rsplit(b" ", 2))
        for one, other in zip(*lines, strict=True)
    )


def _is_only_linked(line: Sequence[bytes], other: Sequence[bytes]) -> bool:
    """Whether the lines of a file differ only in that it got or lost a name. Each line is split
    into its beginning, the number of links, and the time of change.
    """
    return line[0] == other[0] and line[1] != other[1]
