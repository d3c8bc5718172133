"""What a table's directory remembers besides its parts: which of them were given up, how far it has
seen the log, which were active when ZooKeeper was asked last, which replicas the table had, which
inserts of several commits are not known to have ended, and what was stopped by hand.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk
from rmt_pipeline.store.hashes.checksums import hash_hex


class ActiveSeen(NamedTuple):
    """Which parts were active when ZooKeeper was last asked: what a reader goes by while it can't
    be.
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
    """Of the table in the directory `root`. Several processes of one host use them at once."""

    def __init__(self, disk: Disk, root: str, *, durable: bool) -> None:
        self._disk = disk
        self._root = root
        self._durable = durable

    def give_up(self, *parts: PartName, promise: bytes = b"") -> None:
        """The parts' rows are not to be had here until they are fetched again. Safe when this
        returns, also from a crash of the host. Of one that is marked already the time begins anew.

        `promise`: the header under which the part was promised, for who looks again at what is left
        of it on this disk.
        """
        for part in parts:
            try:
                self._mark(part, promise)
            except FileNotFoundError:  # an older mark was forgotten just now
                self._mark(part, promise)
        parents = (self._path(layout.GIVEN_UP), self._root)
        for parent in parents if parts and self._durable else ():
            self._disk.fsync_directory(parent)

    def _mark(self, part: PartName, promise: bytes) -> None:
        self._disk.make_directory(self._path(layout.GIVEN_UP, str(part)))
        self._note_promise(part, promise)

    def promise(self, part: PartName) -> bytes:
        """As it was given up. Nothing when it was looked at again since, or is not given up."""
        return self._disk.read(self._path(layout.GIVEN_UP, str(part), layout.PROMISE)) or b""

    def is_unseen(self, part: PartName) -> bool:
        """Whether nobody has looked again at what is left of the part. No byte is read."""
        return bool(self._disk.size(self._path(layout.GIVEN_UP, str(part), layout.PROMISE)))

    def looked_again(self, part: PartName) -> None:
        """In vain: nothing of the part is whole on this disk."""
        if self.is_unseen(part):
            self._note_promise(part, b"")

    def _note_promise(self, part: PartName, promise: bytes) -> None:
        path = self._path(layout.GIVEN_UP, str(part), layout.PROMISE)
        self._disk.write(path, [promise])
        if self._durable:
            self._disk.fsync(path)
            self._disk.fsync_directory(self._path(layout.GIVEN_UP, str(part)))

    def given_up(self) -> list[PartName]:
        """What is marked, sorted; also what has been fetched since."""
        found = map(PartName.try_parse, self._disk.list(self._path(layout.GIVEN_UP)))
        return sorted(part for part in found if part is not None)

    def given_up_s(self, part: PartName) -> float | None:
        """When it was marked last, in seconds since the epoch; None when it is not."""
        mark = self._path(layout.GIVEN_UP, str(part))
        noted_s = self._disk.modified_s(layout.join(mark, layout.PROMISE))
        return self._disk.modified_s(mark) if noted_s is None else noted_s

    def forget_given_up(self, part: PartName) -> None:
        """It is here again, or nobody wants it any more. The mark goes as a whole: without its
        promise it would say that somebody has looked again at what is left of the part.
        """
        doomed = self._path(layout.deleting(f"{layout.GIVEN_UP}_{part}"))
        self._disk.remove_tree(doomed)  # of who died in it
        with suppress(FileNotFoundError, FileExistsError):  # somebody else is at it
            self._disk.rename(self._path(layout.GIVEN_UP, str(part)), doomed)
        self._disk.remove_tree(doomed)

    def stop(self, what: Background) -> None:
        """No process of this host does it for the table any more, until `go_on` or until its server
        is started again. Idempotent. It is not to survive a crash of the host.
        """
        self._disk.make_directory(self._path(layout.STOPPED, what.name))

    def go_on(self, what: Background) -> None:
        """Idempotent."""
        self._disk.remove_tree(self._path(layout.STOPPED, what.name))

    def stopped(self) -> frozenset[Background]:
        """What was stopped by hand."""
        names = self._disk.list(self._path(layout.STOPPED))
        return frozenset(Background[name] for name in names if name in Background.__members__)

    def stopped_s(self, what: Background) -> float | None:
        """Since when, in seconds since the epoch; None when it is not stopped."""
        return self._disk.modified_s(self._path(layout.STOPPED, what.name))

    def log_seen(self) -> int:
        """Entries that the log had when this was noted last; 0 when that is not known."""
        data = self._disk.read(self._path(layout.LOG_SEEN)) or b""
        return int(data) if data.isdigit() else 0

    def note_log_seen(self, entries: int) -> None:
        """If it can't be noted, what was noted before stands."""
        with suppress(OSError, DiskFull):
            self._disk.write(self._path(layout.LOG_SEEN), [str(entries).encode()])

    def active_seen(self) -> ActiveSeen | None:
        """None when it was never noted, or the note is torn."""
        path = self._path(layout.ACTIVE_SEEN)
        seen_s, data = self._disk.modified_s(path), self._disk.read(path)
        if seen_s is None or data is None:
            return None
        names, _, check = data.rpartition(b"check ")
        if check.decode(errors="replace") != hash_hex(names):
            return None
        return ActiveSeen(tuple(map(PartName.parse, names.decode().split())), seen_s)

    def note_active(self, parts: Iterable[PartName]) -> bool:
        """False when it can't be noted, and nothing is: a list of other parts would be believed."""
        names = "".join(f"{part}\n" for part in parts).encode()
        text = names + b"check " + hash_hex(names).encode()
        with suppress(OSError, DiskFull):
            self._disk.write(self._path(layout.ACTIVE_SEEN), [text])
            return True
        return False

    def replicas_seen(self) -> tuple[str, ...]:
        """The table's replicas when they were noted last; none when that is not known."""
        data = self._disk.read(self._path(layout.REPLICAS_SEEN)) or b""
        names, _, check = data.rpartition(b"check ")
        if check.decode(errors="replace") != hash_hex(names):
            return ()
        return tuple(names.decode().splitlines())

    def note_replicas(self, names: Iterable[str]) -> None:
        """If it can't be noted, what was noted before stands. Survives a crash of the host: one
        that knows of no other replica opens a table that ZooKeeper has lost without their rows.
        """
        text = "".join(f"{name}\n" for name in sorted(names)).encode()
        path = self._path(layout.REPLICAS_SEEN)
        with suppress(OSError, DiskFull):
            self._disk.write(path, [text + b"check " + hash_hex(text).encode()])
            if self._durable:
                self._disk.fsync(path)
                self._disk.fsync_directory(self._root)

    def note_commit(self, insert_id: str, note: "CommitNote") -> None:
        """Note a commit of a large insert. It survives a crash of the host. Raises DiskFull."""
        try:
            self._note_commit(insert_id, note)
        except FileNotFoundError:  # the table was dropped, and its directory removed just now
            self._note_commit(insert_id, note)

    def _note_commit(self, insert_id: str, note: "CommitNote") -> None:
        directory, path = self._path(layout.IN_PART), self._commit_path(insert_id, note)
        self._disk.make_directory(directory)
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
        for name in self._disk.list(self._path(layout.IN_PART)):
            insert_id, commit, digest = name.rsplit(".", 2)
            note = CommitNote(
                int(commit), self._disk.read(self._path(layout.IN_PART, name)) or b""
            )
            if note.digest == digest:
                found.setdefault(insert_id, []).append(note)
        return {insert_id: sorted(notes) for insert_id, notes in found.items()}

    def is_in_part(self, insert_id: str) -> bool:
        """Whether a commit of the insert is noted."""
        names = self._disk.list(self._path(layout.IN_PART))
        return any(name.rsplit(".", 2)[0] == insert_id for name in names)

    def commit_noted_s(self, insert_id: str, note: "CommitNote") -> float | None:
        """When it was noted, in seconds since the epoch; None if it is not noted any more."""
        return self._disk.modified_s(self._commit_path(insert_id, note))

    def forget_commits(self, insert_id: str, notes: Iterable["CommitNote"]) -> None:
        """Remove these notes; those that are gone already do not matter."""
        for note in notes:
            self._disk.remove_file(self._commit_path(insert_id, note))

    def _commit_path(self, insert_id: str, note: "CommitNote") -> str:
        return self._path(layout.IN_PART, f"{insert_id}.{note.commit}.{note.digest}")

    def _path(self, *names: str) -> str:
        return layout.join(self._root, *names)
