"""Notes in a table's directory besides its parts: which parts were given up, how many entries the
log had, which parts were active, which replicas the table had, which inserts of several commits are
not known to have ended, and which background work was stopped by hand.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.staging import all_gone

_NOTE = re.compile(r"(?P<insert_id>.+)\.(?P<commit>\d+)\.(?P<digest>[0-9a-f]{32})", re.DOTALL)
"""The name of a commit's note."""


class ActiveSeen(NamedTuple):
    """The parts that were active when ZooKeeper was last asked, for readers while it does not
    answer.
    """

    parts: tuple[PartName, ...]
    seen_s: float
    """Seconds since the epoch."""


class CommitNote(NamedTuple):
    """What the disk remembers of one commit of a large insert: its number among the insert's
    commits, and the record that it writes.

    Two tries of one insert may be at the same commit, with other block numbers. So a note's file is
    named by its content too: a try that fails removes its own note and not the other one's.
    """

    commit: int
    record: bytes

    @property
    def digest(self) -> str:
        """32 hexadecimal digits."""
        return hash_hex(self.record)[:32]


class Marks:
    """The notes of the table in the directory `root`. Several processes of a host may use them at
    once.
    """

    def __init__(self, disk: Disk, root: str, *, durable: bool) -> None:
        self._disk = disk
        self._root = root
        self._durable = durable

    def give_up(self, *parts: PartName, promise: bytes = b"") -> None:
        """Mark parts whose rows this replica does not have until they are fetched again. The marks
        survive a crash of the host. A part that is marked already gets a new time. Raises
        MissingPart if the table was dropped.

        `promise` is the header with which the part was promised. A worker that looks again at the
        part's files on this disk compares them with it.
        """
        for part in parts:
            self._written(partial(self._mark, part, promise))
        if parts and self._durable:
            with self._of_the_table():
                for parent in (self._path(layout.GIVEN_UP), self._root):
                    self._disk.fsync_directory(parent)

    def _mark(self, part: PartName, promise: bytes) -> None:
        self._directory(layout.GIVEN_UP, str(part))
        self._note_promise(part, promise)

    def promise(self, part: PartName) -> bytes:
        """The header with which the part was promised when it was given up. Empty if its files were
        looked at again since, or the part is not given up.
        """
        return self._disk.read(self._path(layout.GIVEN_UP, str(part), layout.PROMISE)) or b""

    def is_unseen(self, part: PartName) -> bool:
        """Whether the part is given up and its files have not been looked at again.
        Reads no file.
        """
        return bool(self._disk.size(self._path(layout.GIVEN_UP, str(part), layout.PROMISE)))

    def looked_again(self, part: PartName) -> None:
        """Note that the part's files were looked at again, and are not whole on this disk."""
        if self.is_unseen(part):
            self._note_promise(part, b"")

    def _note_promise(self, part: PartName, promise: bytes) -> None:
        path = self._path(layout.GIVEN_UP, str(part), layout.PROMISE)
        self._disk.write(path, [promise])
        if self._durable:
            self._disk.fsync(path)
            self._disk.fsync_directory(self._path(layout.GIVEN_UP, str(part)))

    def given_up(self) -> list[PartName]:
        """The parts that are marked, sorted, also those that were fetched since."""
        found = map(PartName.try_parse, self._disk.list(self._path(layout.GIVEN_UP)))
        return sorted(part for part in found if part is not None)

    def given_up_s(self, part: PartName) -> float | None:
        """When the part was last marked, in seconds since the epoch; None if it is not marked."""
        mark = self._path(layout.GIVEN_UP, str(part))
        noted_s = self._disk.modified_s(layout.join(mark, layout.PROMISE))
        return self._disk.modified_s(mark) if noted_s is None else noted_s

    def forget_given_up(self, part: PartName) -> None:
        """Remove the mark of a part that is here again, or no longer wanted.

        The mark is renamed first, so that it is removed as a whole: a mark without its promise
        would say that the part's files were looked at again.
        """
        doomed = self._path(layout.deleting(f"{layout.GIVEN_UP}_{part}"))
        self._disk.remove_tree(doomed)  # left by a process that died here
        with suppress(FileNotFoundError, FileExistsError):  # another process removes it
            self._disk.rename(self._path(layout.GIVEN_UP, str(part)), doomed)
        self._disk.remove_tree(doomed)

    def stop(self, what: Background) -> None:
        """Stop this background work of the table in all processes of this host, until `go_on`, or
        until its server is started again. It need not survive a crash of the host. Does nothing if
        the work is stopped. Raises MissingPart if the table was dropped.
        """
        with self._of_the_table():
            self._directory(layout.STOPPED, what.name)

    def go_on(self, what: Background) -> None:
        """Undo `stop`; do nothing if the work is not stopped."""
        self._disk.remove_tree(self._path(layout.STOPPED, what.name))

    def stopped(self) -> frozenset[Background]:
        """The background work that was stopped by hand."""
        names = self._disk.list(self._path(layout.STOPPED))
        return frozenset(Background[name] for name in names if name in Background.__members__)

    def stopped_s(self, what: Background) -> float | None:
        """Since when the work is stopped, in seconds since the epoch; None if it is not."""
        return self._disk.modified_s(self._path(layout.STOPPED, what.name))

    def log_seen(self) -> int:
        """How many entries the log had ever had when this was last noted; 0 if not known."""
        data = self._disk.read(self._path(layout.LOG_SEEN)) or b""
        return int(data) if data.isdigit() else 0

    def note_log_seen(self, entries: int) -> None:
        """Note how many entries the log has ever had. No error is raised if that fails."""
        with suppress(OSError, DiskFull):
            self._disk.replace(self._path(layout.LOG_SEEN), str(entries).encode())

    def forget_log_seen(self) -> None:
        """Forget the log, in whose place another one begins. This survives a crash of the host: a
        note that comes back would say for ever that ZooKeeper is older than this disk. Raises
        OSError, DiskFull, MissingPart if the table was dropped.
        """
        with self._of_the_table():
            self._disk.replace(self._path(layout.LOG_SEEN), b"0", durable=self._durable)

    def active_seen(self) -> ActiveSeen | None:
        """What `note_active` noted last; None if there is no whole note."""
        path = self._path(layout.ACTIVE_SEEN)
        seen_s, data = self._disk.modified_s(path), self._disk.read(path)
        if seen_s is None or data is None:
            return None
        names, _, check = data.rpartition(b"check ")
        if check.decode(errors="replace") != hash_hex(names):
            return None
        return ActiveSeen(tuple(map(PartName.parse, names.decode().split())), seen_s)

    def note_active(self, parts: Iterable[PartName]) -> bool:
        """Note which parts are active. Return False if that fails: then the earlier note stays."""
        names = "".join(f"{part}\n" for part in parts).encode()
        text = names + b"check " + hash_hex(names).encode()
        with suppress(OSError, DiskFull):
            self._disk.replace(self._path(layout.ACTIVE_SEEN), text)
            return True
        return False

    def replicas_seen(self) -> tuple[str, ...]:
        """The table's replicas as they were last noted; empty if there is no whole note."""
        data = self._disk.read(self._path(layout.REPLICAS_SEEN)) or b""
        names, _, check = data.rpartition(b"check ")
        if check.decode(errors="replace") != hash_hex(names):
            return ()
        return tuple(names.decode().split("\n")[:-1])

    def note_replicas(self, names: Iterable[str]) -> None:
        """Note the table's replicas. No error is raised if that fails.

        The note survives a crash of the host: a replica that knows of no others would restore a
        table that ZooKeeper has lost without the rows of these.
        """
        text = "".join(f"{name}\n" for name in sorted(names)).encode()
        path = self._path(layout.REPLICAS_SEEN)
        with suppress(OSError, DiskFull):
            noted = text + b"check " + hash_hex(text).encode()
            self._disk.replace(path, noted, durable=self._durable)

    def note_commit(self, insert_id: str, note: "CommitNote") -> None:
        """Note a commit of a large insert. It survives a crash of the host. Raises DiskFull,
        MissingPart if the table was dropped.
        """
        self._written(partial(self._note_commit, insert_id, note))

    def _note_commit(self, insert_id: str, note: "CommitNote") -> None:
        directory, path = self._directory(layout.IN_PART), self._commit_path(insert_id, note)
        self._disk.write(path, [note.record])
        if self._durable:
            self._disk.fsync(path)
            for parent in (directory, self._root):
                self._disk.fsync_directory(parent)

    def commit_notes(self) -> dict[str, list["CommitNote"]]:
        """The notes of commits, in their order, by the ids of inserts that are not known to have
        ended. A note that was not written whole is left out.
        """
        found: dict[str, list[CommitNote]] = {}
        for insert_id, commit, digest in self._noted_commits():
            path = self._path(layout.IN_PART, f"{insert_id}.{commit}.{digest}")
            note = CommitNote(int(commit), self._disk.read(path) or b"")
            if note.digest == digest:
                found.setdefault(insert_id, []).append(note)
        return {insert_id: sorted(notes) for insert_id, notes in found.items()}

    def is_in_part(self, insert_id: str) -> bool:
        """Whether a commit of the insert is noted."""
        return any(noted == insert_id for noted, _, _ in self._noted_commits())

    def _noted_commits(self) -> Iterator[tuple[str, str, str]]:
        """The insert id, the commit and the digest of each note. Other files are left alone."""
        for name in self._disk.list(self._path(layout.IN_PART)):
            found = _NOTE.fullmatch(name)
            if found is not None:
                yield found["insert_id"], found["commit"], found["digest"]

    def commit_noted_s(self, insert_id: str, note: "CommitNote") -> float | None:
        """When it was noted, in seconds since the epoch; None if it is not noted any more."""
        return self._disk.modified_s(self._commit_path(insert_id, note))

    def forget_commits(self, insert_id: str, notes: Iterable["CommitNote"]) -> None:
        """Remove these notes; those that are gone already do not matter. A crash of the host does
        not bring them back: a part may be merged across the numbers of a commit that never landed
        once its note is gone.
        """
        paths = [self._commit_path(insert_id, note) for note in notes]
        for path in paths:
            self._disk.remove_file(path)
        if paths and self._durable:
            with suppress(FileNotFoundError):  # the table was dropped
                self._disk.fsync_directory(self._path(layout.IN_PART))

    def _commit_path(self, insert_id: str, note: "CommitNote") -> str:
        return self._path(layout.IN_PART, f"{insert_id}.{note.commit}.{note.digest}")

    def _directory(self, *names: str) -> str:
        """Make a directory within that of the table, which must exist: a table that was dropped
        does not get its directory back. Return the path. Raises FileNotFoundError.
        """
        for depth in range(len(names)):
            self._disk.make_directory(self._path(*names[: depth + 1]), parents=False)
        return self._path(*names)

    def _written(self, write: Callable[[], None]) -> None:
        """Write something, once more whenever another process has removed it meanwhile: an older
        mark, or what is forgotten before it was synced. Raises MissingPart if the table was
        dropped.
        """
        while True:
            with self._of_the_table():
                try:
                    return write()
                except FileNotFoundError:
                    if self._disk.modified_s(self._root) is None:
                        raise

    @contextmanager
    def _of_the_table(self) -> Iterator[None]:
        """Raises MissingPart where a directory is missing, which only a DROP TABLE removes."""
        try:
            yield
        except FileNotFoundError as error:
            raise all_gone(self._root or self._disk.local_path(self._root)) from error

    def _path(self, *names: str) -> str:
        return layout.join(self._root, *names)
