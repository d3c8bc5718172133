"""The parts of one table on one disk: staged, published, detached, removed.

    begin ─► Staging ──seal──► StagedPart ──publish──► part ──remove──► gone
               └─abandon─► gone    │  ▲                 │
                                   │  └────withdraw─────┤
                                   └─discard─► gone     └─detach─► detached/<reason>_<part>

Invariant: a directory with a part's name holds a whole part. It gets that name by one rename, after
all its bytes are synced, so that a crash at any point leaves a staged directory or a whole part
(style rule 11). Clean-up may sweep staged parts; detached parts are kept until a person removes
them. Several processes of one host may use one store at once.
"""

import contextlib
import errno
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rmt_pipeline.protocol.errors import Conflict, Corruption, DiskFull, MissingPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.detached import DetachedParts, copy_of, set_aside
from rmt_pipeline.store.disk import Disk, Lock, do_all
from rmt_pipeline.store.dropped import DroppedRanges
from rmt_pipeline.store.hashes.checksums import hash_of_chunks
from rmt_pipeline.store.manifest import Manifest, ReadManifests, rows_and_bytes
from rmt_pipeline.store.marks import Marks
from rmt_pipeline.store.part_log import PartLog
from rmt_pipeline.store.staging import FetchNote, StagedPart, Staging, all_gone
from rmt_pipeline.store.tally import ErrorCounts, PostponedEntries
from rmt_pipeline.store.whole_parts import WholeParts, says_the_same
from rmt_pipeline.system import IdSource

_UNREADABLE = (errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENOENT, errno.EISDIR)
_WRITTEN_WHOLE: tuple[layout.StageKind, ...] = ("insert", "merge", "fetch")
HELD_TOGETHER_MAX = 256  # locks, each a file descriptor
NOTED_BYTES_MIN = 128 << 10  # a smaller part is hashed as fast as a note is written

Sure = Callable[[Sequence[PartName]], Collection[PartName]]
"""Returns which of these parts may be removed; called while no other process can take them."""


class PartStore:
    """The parts of the table in the directory `root` of the disk.

    `durable=False` leaves out every fsync: then a crash of the host (not of a process) may leave
    parts that `verify` finds broken.
    """

    def __init__(
        self, disk: Disk, root: str = "", *, ids: IdSource, durable: bool = True
    ) -> None:
        self._disk = disk
        self._root = self.root = root
        self._ids = ids
        self._durable = durable
        self.drops = DroppedRanges(disk, root, durable=durable)
        self.detached_parts = DetachedParts(disk, root, durable=durable)
        self._read = ReadManifests()
        self.whole = WholeParts(disk)
        self.marks = Marks(disk, root, durable=durable)
        self.part_log = PartLog(disk, root)
        self.errors = ErrorCounts(disk, root)
        self.postponed = PostponedEntries(disk, root)
        self._make_root()

    @property
    def disk(self) -> Disk:
        return self._disk

    # Staging

    def begin(self, kind: layout.StageKind, hint: str) -> Staging:
        """Begin a staging directory. `hint` is a partition id or a part name. Raises MissingPart
        if the table was dropped.
        """
        return Staging.begun(self._disk, self._root, self._new_name(kind, hint))

    def discard(self, staged: StagedPart) -> None:
        """Remove a staged part; do nothing if it is gone.

        It is renamed first, so that a process that adopts it gets a whole part or none.
        """
        doomed = self._path(layout.deleting(staged.directory))
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            self._disk.rename(self._path(staged.directory), doomed)
        self._disk.remove_tree(doomed)

    def adopt(
        self, kind: layout.StageKind, wanted: Mapping[PartName, Callable[[Manifest], bool]]
    ) -> dict[PartName, StagedPart]:
        """Take over whole parts that other attempts have staged and not published. `wanted` are the
        parts, each with a test of the manifest. Adopted parts get new names.

        The caller must be the only one that may produce these parts now: a process that made one
        may still run, but may no longer publish it. A part that was renamed to its own name, but
        not announced, is returned with a new staged name.
        """
        found: dict[PartName, StagedPart] = {}
        for name in self.staged():
            staged = layout.parse_staged(name)
            if staged is None or staged.kind != kind:
                continue
            part = PartName.try_parse(staged.hint)
            if part is not None and part in wanted and part not in found:
                adopted = self._adopted(kind, name, part, wanted[part])
                if adopted is not None:
                    found[part] = adopted
        for part, fits in wanted.items():
            if part not in found and self.is_taken(part):
                with contextlib.suppress(Corruption):
                    manifest = self.verify(part)
                    if fits(manifest):
                        found[part] = StagedPart(self._new_name(kind, str(part)), manifest)
        return found

    def _adopted(
        self,
        kind: layout.StageKind,
        name: str,
        part: PartName,
        fits: Callable[[Manifest], bool],
    ) -> StagedPart | None:
        try:
            data = self._disk.read(self._path(name, layout.MANIFEST))
            manifest = Manifest.decode(data or b"")
            if not fits(manifest):
                return None
            adopted = StagedPart(self._new_name(kind, str(part)), manifest)
            self._disk.rename(self._path(name), self._path(adopted.directory))
        except (Corruption, OSError):  # being written, just removed, or unreadable
            return None
        if self._is_whole(adopted):
            return adopted
        self.discard(adopted)
        return None

    def _is_whole(self, staged: StagedPart) -> bool:
        """Whether all bytes are there: a crash of the host may have torn what was not published."""
        try:
            return all(
                hash_of_chunks(self._disk.chunks(self._path(staged.directory, file.name)))
                == (file.size, file.hash)
                for file in staged.manifest.files
            )
        except OSError:
            return False

    def _new_name(self, kind: layout.StageKind, hint: str) -> str:
        return str(layout.StagedName(kind, hint, self._ids.new_id()))

    def clone_into(
        self,
        staging: Staging,
        part: PartName,
        manifest: Manifest,
        *,
        of: "PartStore | None" = None,
    ) -> StagedPart:
        """Stage the files of `part` (of this store, or the store `of`) in an empty `staging`, as
        hard links if the disks allow it, with another `manifest` of the same files. If the part is
        known to be whole, so is the clone. Raises MissingPart, DiskFull.
        """
        store, target = of or self, self._path(staging.directory)
        try:
            source = layout.join(store.root, str(part))
            before = store.whole.note_now(source, manifest)
            is_known = store.whole.is_known(source, before)
            names = [file.name for file in manifest.files]
            linked = self._link_files(part, staging.directory, names, of=store)
            staged = replace(staging.seal(manifest), is_clone=linked)
        except BaseException:
            staging.abandon()
            raise
        is_small = manifest.bytes_on_disk < NOTED_BYTES_MIN
        note = None if is_small else self.whole.note_now(target, manifest)
        if is_known and before and note and says_the_same(before, note):
            self.whole.learn(target, note, store.whole.read_s(source))
        return staged

    # Publishing

    def publish(self, staged: StagedPart, part: PartName) -> None:
        """Rename `staged` to `part`, after syncing it. Publishing it again does nothing.

        If a part of that name with the same rows in the same order exists, it stays, and `staged`
        is removed. Raises Conflict if its rows differ (the caller knows which one is right),
        MissingPart if neither is there.
        """
        self.publish_all([(staged, part)])

    def publish_all(self, pairs: Sequence[tuple[StagedPart, PartName]]) -> None:
        """Like `publish` of each pair, in order, with one sync for all.

        After an error the earlier ones stay published.
        """
        self._make_safe([staged for staged, _ in pairs])
        try:
            for staged, part in pairs:
                self._publish_one(staged, part)
        finally:
            self._sync_names()

    def _make_safe(self, parts: Sequence[StagedPart]) -> None:
        """Sync all files and names within the staged directories. If that fails the parts are
        discarded: bytes may be lost, and a later sync would not tell.
        """
        if not self._durable:
            return
        try:
            # leaves out directories that are gone: those were published before
            self._disk.fsync_trees(
                [(self._path(staged.directory), staged.names_to_sync()) for staged in parts]
            )
        except (OSError, DiskFull):
            for staged in parts:
                with contextlib.suppress(OSError):
                    self.discard(staged)
            raise

    def _publish_one(self, staged: StagedPart, part: PartName) -> None:
        assert staged.manifest.partition_id == part.partition
        self._note_whole(staged)
        # Read before the rename: after it another process may put another part at that name.
        modified_s = self._disk.modified_s(self._path(staged.directory, layout.MANIFEST))
        try:
            self._disk.rename(self._path(staged.directory), self._path(str(part)))
        except FileNotFoundError:
            if not self.has(part):
                raise MissingPart(
                    f"{part} can't be published: {staged.directory} is gone, and so is the "
                    "part. Did the host's clock jump beyond temporary_directories_lifetime, or was "
                    "the table's directory changed by hand? Nothing was published; try again"
                ) from None
        except FileExistsError:
            published = self.manifest(part)
            if not published.has_rows_of(staged.manifest):
                raise Conflict(
                    f"{part} is on disk with other rows ({published.content_hash:032x}) than "
                    f"{staged.directory} ({staged.manifest.content_hash:032x})"
                ) from None
            self.discard(staged)
        else:  # a merge or a peer may ask for it soon
            self._read.remember(part, modified_s, staged.manifest)

    def _note_whole(self, staged: StagedPart) -> None:
        """Note that a part is whole whose bytes were hashed while they were written, so that its
        first reader need not do that again. Not if its files may be links to another part's. Nor
        if it is small: then reading is as fast as noting, and most are merged before they are read.
        """
        is_small = staged.manifest.bytes_on_disk < NOTED_BYTES_MIN
        name = None if is_small else layout.parse_staged(staged.directory)
        if staged.is_clone or name is None or name.kind not in _WRITTEN_WHOLE:
            return
        directory = self._path(staged.directory)
        self.whole.learn(directory, self.whole.note_now(directory, staged.manifest))

    def withdraw(
        self, part: PartName, staged: StagedPart, sure: Callable[[], bool] | None = None
    ) -> bool:
        """Undo `publish` of a part that is not in ZooKeeper: rename it back to its staged name. Do
        nothing if that is done already.

        `sure` is called while no other process can take the part. Return False, and do nothing, if
        it returns False, or (with `sure`) if a reader has the part pinned.
        """
        with self._held([part] if sure else []) as held:
            if sure and (part not in held or not sure()):
                return False
            self._read.forget(part)
            # If the staged name exists: this was done before, or the part is not the staged one.
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                self._disk.rename(self._path(str(part)), self._path(staged.directory))
                self._sync_names()
        return True

    # Reading

    def has(self, part: PartName) -> bool:
        return self._disk.size(self._path(str(part), layout.MANIFEST)) is not None

    def is_taken(self, part: PartName) -> bool:
        """Whether there is a directory with the part's name, whole or not."""
        return self._disk.modified_s(self._path(str(part))) is not None

    def manifest(self, part: PartName) -> Manifest:
        """The part's manifest. Raises MissingPart, Corruption if it can't be read."""
        path = self._path(str(part), layout.MANIFEST)
        modified_s = self._disk.modified_s(path)
        cached = self._read.get(part)
        # A part that was removed and fetched again has another mtime; None is no mtime to compare.
        if cached is not None and modified_s is not None and cached[0] == modified_s:
            return cached[1]
        with self._reading(part):
            data = self._disk.read(path)
        if data is None:
            self._read.forget(part)
            raise self._missing(part)
        try:
            manifest = Manifest.decode(data)
        except Corruption as error:
            raise Corruption(f"{self._shown(str(part))}: {error}", part=part) from error
        self._read.remember(part, modified_s, manifest)
        return manifest

    def manifest_read(self, part: PartName) -> Manifest | None:
        """The manifest as this process last read or published it; None if it is not cached. The
        disk is not read: good enough to choose parts by, while work on a part needs `manifest`.
        """
        known = self._read.get(part)
        return None if known is None else known[1]

    def counts(self, part: PartName) -> tuple[int, int]:
        """The part's rows and bytes on disk, for the part log: a manifest that is not cached is
        read without checking it. Raises MissingPart, Corruption.
        """
        known = self.manifest_read(part)
        if known is not None:
            return known.rows, known.bytes_on_disk
        with self._reading(part):
            data = self._disk.read(self._path(str(part), layout.MANIFEST))
        if data is None:
            raise self._missing(part)
        return rows_and_bytes(data)

    def parts(self) -> list[PartName]:
        """All parts on the disk, sorted, whether they were announced or not."""
        found = (PartName.try_parse(name) for name in self._disk.list(self._root))
        return sorted(part for part in found if part is not None)

    def names(self) -> frozenset[str]:
        """The names of everything in the table's directory, parts or not."""
        return frozenset(self._disk.list(self._root))

    def names_changed_s(self) -> float | None:
        """When a name in the table's directory last changed (seconds since the epoch)."""
        return self._disk.modified_s(self._root)

    def staged(self) -> list[str]:
        """The names of staging directories, and of parts that are being removed."""
        return [
            name
            for name in self._disk.list(self._root)
            # Nearly all others are parts, perhaps tens of thousands.
            if layout.TEMPORARY in name
            and (
                layout.parse_staged(name) is not None
                or layout.parse_moved(name) is not None
                or layout.is_deleting(name)
            )
        ]

    def staged_at(self, name: str) -> tuple[float, str] | None:
        """When a staging directory last changed (seconds since the epoch), and its absolute path;
        None if it is gone.
        """
        path = self._path(name)
        modified_s = self._disk.modified_s(path)
        return None if modified_s is None else (modified_s, self._disk.local_path(path))

    def fetches(self) -> list[tuple[PartName, FetchNote, int]]:
        """The parts that processes of this host are fetching now, each with its note and the bytes
        that have arrived.
        """
        found: list[tuple[PartName, FetchNote, int]] = []
        for name in self.staged():
            staged = layout.parse_staged(name)
            part = PartName.try_parse(staged.hint) if staged is not None else None
            if staged is None or part is None or staged.kind != "fetch":
                continue
            note = self.fetch_note(name)
            if note is None:
                continue
            sizes = [
                self._disk.size(self._path(name, one))
                for one in self._disk.list(self._path(name))
                if one != layout.FETCHING
            ]
            found.append((part, note, sum(filter(None, sizes))))
        return found

    def fetch_note(self, name: str) -> FetchNote | None:
        """The note of the fetch into the staging directory `name`; None if there is none now."""
        path = self._path(name, layout.FETCHING)
        text = self._disk.read(path)
        if text is None:
            return None
        lock = self._disk.lock(path, shared=False)
        if lock is not None:  # the process that wrote it has ended
            lock.release()
            return None
        with contextlib.suppress(ValueError, TypeError):  # it was just being written
            return FetchNote(**json.loads(text))
        return None

    def staged_files(self, staged: StagedPart) -> list[str]:
        """The absolute paths of a staged part's data files, in key order."""
        return [
            self._disk.local_path(self._path(staged.directory, file.name))
            for file in staged.manifest.files
        ]

    def detached(self) -> list[str]:
        """The names in `detached/`, sorted; `layout.parse_detached` parses them."""
        return self._disk.list(self._path(layout.DETACHED))

    def directory(self, part: PartName) -> str:
        """The absolute path of the part's directory, for programs that read it themselves."""
        return self._disk.local_path(self._path(str(part)))

    def files(self, part: PartName) -> list[str]:
        """The absolute paths of the data files, in key order. Raises like `manifest`."""
        return [
            self._disk.local_path(self._path(str(part), file.name))
            for file in self.manifest(part).files
        ]

    def file_chunks(self, part: PartName, name: str) -> Iterator[bytes]:
        """Yield the bytes of one data file in pieces, to send them to a peer.

        Raises like `manifest`; also MissingPart if the part has no such file, FileNotFoundError (at
        the first piece) if it was removed just now.
        """
        if self.manifest(part).file(name) is None:
            raise MissingPart(f"{self._shown(str(part))} has no file {name}", part=part)
        return self._disk.chunks(self._path(str(part), name))

    def size_on_disk(self, part: PartName) -> int:
        """The bytes of all files in the part's directory, whole or broken; 0 if it is gone."""
        names = self._disk.list(self._path(str(part)))
        return sum(self._disk.size(self._path(str(part), name)) or 0 for name in names)

    def inspect(self, part: PartName) -> Manifest:
        """Check that all data files exist and have their sizes, without reading them. Return the
        manifest. Raises like `verify`.
        """
        manifest = self.manifest(part)
        for file in manifest.files:
            size = self._disk.size(self._path(str(part), file.name))
            shown = self._shown(str(part), file.name)
            if size is None:
                raise self._lacking(part, f"{shown} is missing")
            if size != file.size:
                raise Corruption(f"{shown} has {size} bytes, expected {file.size}", part=part)
        return manifest

    def verify(self, part: PartName, paced: Callable[[int], None] | None = None) -> Manifest:
        """Read every byte, compare it with its hash, and return the manifest. `paced` is called
        with the number of bytes read, and returns when more may be read.

        Raises MissingPart; Corruption that names the file, what was expected and what was found.
        """
        manifest = self.inspect(part)
        for file in manifest.files:
            with self._reading(part):
                chunks = self._disk.chunks(self._path(str(part), file.name))
                _, found = hash_of_chunks(_at_a_pace(chunks, paced) if paced else chunks)
            if found != file.hash:
                shown = self._shown(str(part), file.name)
                raise Corruption(f"{shown} has hash {found}, expected {file.hash}", part=part)
        return manifest

    def verify_changed(self, part: PartName) -> Manifest:
        """Like `verify`, without reading the files of a part that is known to be whole."""
        manifest, directory = self.manifest(part), self._path(str(part))
        note = self.whole.note_now(directory, manifest)
        if not self.whole.is_known(directory, note):
            self.verify(part)
            self.whole.learn(directory, note)
        return manifest

    def verify_again(
        self, part: PartName, paced: Callable[[int], None] | None = None
    ) -> Manifest:
        """Like `verify`, also if the part is known to be whole; note that it was read just now."""
        manifest, directory = self.manifest(part), self._path(str(part))
        note = self.whole.note_now(directory, manifest)
        self.verify(part, paced)
        self.whole.learn(directory, note)
        return manifest

    def verified_s(self, part: PartName) -> float:
        """When the part was last read completely, as `WholeParts.read_s` has it."""
        return self.whole.read_s(self._path(str(part)))

    @contextlib.contextmanager
    def _reading(self, part: PartName) -> Iterator[None]:
        """Turn errors of reading the disk into Corruption, or MissingPart if the part is gone."""
        try:
            yield
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            shown = self._shown(str(part))
            raise self._lacking(part, f"{shown} can't be read: {error}") from error

    @contextlib.contextmanager
    def pin(self, parts: Iterable[PartName]) -> Iterator[None]:
        """Keep all processes from removing these parts while the context is open.

        Raises MissingPart if one of them is gone, or being removed: then list the parts again.
        """
        locks: list[Lock] = []
        try:
            for part in parts:
                lock = self._disk.lock(self._path(str(part), layout.MANIFEST), shared=True)
                if lock is None:
                    raise MissingPart(f"{self._shown(str(part))} is gone", part=part)
                locks.append(lock)
            yield
        finally:
            for lock in locks:
                lock.release()

    def is_pinned(self, part: PartName) -> bool:
        """Whether a reader has the part pinned now."""
        manifest = self._path(str(part), layout.MANIFEST)
        lock = self._disk.lock(manifest, shared=False)
        if lock is None:
            return self._disk.size(manifest) is not None
        lock.release()
        return False

    # Leaving

    def remove(self, part: PartName) -> bool:
        """Remove a part. Return False if a reader has it pinned (try later), True if it is gone."""
        return not self.remove_all([part])

    def remove_all(
        self, parts: Collection[PartName], sure: Sure | None = None
    ) -> list[PartName]:
        """Remove parts. Return those that stay, because readers have them pinned, or `sure` does
        not return them.

        Each part is renamed, and the rename synced, before its first byte is removed: no crash
        leaves half a part under a part's name.
        """
        stay: list[PartName] = []
        todo = list(parts)
        for start in range(0, len(todo), HELD_TOGETHER_MAX):
            some = todo[start : start + HELD_TOGETHER_MAX]
            with self._held(some) as held:
                named = frozenset(held if sure is None else sure(tuple(held)))
                going = {part for part in held if part in named and self._unname(part, held)}
            self._sync_names()
            self._disk.remove_trees(
                [self._path(layout.deleting(part)) for part in sorted(going)]
            )
            stay += [part for part in some if part not in going]
        return stay

    @contextlib.contextmanager
    def _held(self, parts: Iterable[PartName]) -> Iterator[dict[PartName, Lock | None]]:
        """Lock those parts that no reader has pinned. While the context is open no other process
        pins, removes or detaches a locked part, so what ZooKeeper says of it then stays true.

        The lock is None for a directory without a manifest, and for a part that is gone.
        """
        with contextlib.ExitStack() as locks:
            held: dict[PartName, Lock | None] = {}
            for part in parts:
                path = self._path(str(part), layout.MANIFEST)
                lock = self._disk.lock(path, shared=False)
                if lock is not None:
                    locks.callback(lock.release)
                elif self._disk.size(path) is not None:
                    continue
                held[part] = lock
            yield held

    def _unname(self, part: PartName, held: Mapping[PartName, Lock | None]) -> bool:
        """Rename the part to `delete_tmp_<part>`. Return False if it stays."""
        self._read.forget(part)
        if held[part] is None:
            moved = self._moved(part)
            if moved is not None:
                self._disk.remove_tree(self._path(moved))
            return moved is not None or not self.is_taken(part)
        name, doomed = self._path(str(part)), self._path(layout.deleting(part))
        with contextlib.suppress(FileNotFoundError):
            try:
                self._disk.rename(name, doomed)
            except FileExistsError:  # left by a removal that was cut off
                self._disk.remove_tree(doomed)
                self._disk.rename(name, doomed)
        return True

    def _moved(self, part: PartName) -> str | None:
        """Rename the directory of a part without a manifest; its new name, None if it is gone.

        There was nothing to lock, so another process may have put a whole part in its place: then
        it is renamed back, and None returned. Only a sweep finds the new name; it renames the
        directory back, whole or not, because the process that moved it may have died.
        """
        moved = layout.moved(part, self._ids.new_id())
        try:
            self._disk.rename(self._path(str(part)), self._path(moved))
        except FileNotFoundError:
            return None
        if self._disk.size(self._path(moved, layout.MANIFEST)) is not None:
            self._put_back(moved, part)
            return None
        return None if self._disk.modified_s(self._path(moved)) is None else moved

    def _put_back(self, moved: str, part: PartName) -> None:
        """Rename the directory back, or remove it if the part's name is taken by now."""
        try:
            self._disk.rename(self._path(moved), self._path(str(part)))
        except FileNotFoundError:
            return  # another process did
        except FileExistsError:
            doomed = layout.deleting(moved)
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(self._path(moved), self._path(doomed))
            self._disk.remove_tree(self._path(doomed))
        self._sync_names()

    def detach(self, part: PartName, reason: layout.DetachReason) -> str:
        """Rename the part to `detached/<reason>_<part>` and return that path (spec §9.12).

        Not for parts that queries still use (`detach_copy`). Raises MissingPart; UserError if there
        are ten such copies already.
        """
        self._read.forget(part)
        target = set_aside(self._disk, self._root, str(part), part, reason)
        self._sync_names(layout.DETACHED)
        self._sync_names()
        return target

    def detach_if(
        self, part: PartName, reason: layout.DetachReason, sure: Callable[[], bool]
    ) -> str | None:
        """Like `detach`, but return None if the part is gone, a reader has it pinned, or `sure`
        returns False. `sure` is called while no other process can take the part or replace it.
        """
        with self._held([part]) as held:
            if part not in held or not sure():
                return None
            if held[part] is not None:
                return self.detach(part, reason)
            self._read.forget(part)
            moved = self._moved(part)
            if moved is None:
                return None
            try:
                target = set_aside(self._disk, self._root, moved, part, reason)
            except MissingPart:
                return None  # a sweep has renamed it back
            except BaseException:
                self._put_back(moved, part)
                raise
            self._sync_names(layout.DETACHED)
            self._sync_names()
            return target

    def detach_copy(
        self, part: PartName, reason: layout.DetachReason, *, once: bool = False
    ) -> str:
        """Like `detach`, but make hard links to all files in the directory, so that the part stays:
        for DETACH while queries run (§9.3). With `once` an equal copy that exists already, from a
        try that was cut off, is returned instead. Raises like `detach`.
        """
        names = self._disk.list(self._path(str(part)))
        if not names:
            raise self._missing(part)
        if once and (copied := copy_of(self._disk, self._root, part, reason)):
            return copied
        staging = self.begin("attach", str(part))
        try:
            self._link_files(part, staging.directory, names, of=self)
            if self._durable:
                self._disk.fsync_trees([(self._path(staging.directory), names)])
            target = set_aside(self._disk, self._root, staging.directory, part, reason)
        except BaseException:
            staging.abandon()
            raise
        self._sync_names(layout.DETACHED)
        return target

    def detach_staged(
        self, staged: StagedPart, part: PartName, reason: layout.DetachReason
    ) -> str:
        """Detach a staged part that was made as `part` and must not be published, so that a person
        can look at it. Return the path in the table's directory. Raises like `detach`.
        """
        target = set_aside(self._disk, self._root, staged.directory, part, reason)
        self._sync_names(layout.DETACHED)
        return target

    def set_aside_safely(
        self, staged: StagedPart, part: PartName, reason: layout.DetachReason
    ) -> str:
        """Like `detach_staged`, and sync the part first, since it is to be attached later."""
        self._make_safe([staged])
        return self.detach_staged(staged, part, reason)

    def sync_file(self, path: str) -> None:
        """Sync a file two levels below the table's directory, its name and its directory's name."""
        if self._durable:
            self._disk.fsync(path)
            self._disk.fsync_directory(path.rpartition("/")[0])
            self._sync_names()

    def sweep(self, keep: Collection[str], older_than_s: float, now_s: float) -> list[str]:
        """Remove staging directories that are no longer needed; return their names (spec §10.6).
        Those in `keep` (of running work) stay, and those that have changed in the last
        `older_than_s` seconds. Directories that a removal left behind are removed at once.
        """
        removed: list[str] = []

        def sweep_one(name: str) -> None:
            if (moved := layout.parse_moved(name)) is not None:
                self._put_back(name, moved)
                return
            doomed = name
            if not layout.is_deleting(name):  # renamed first: a process staging it notices
                if now_s - (self._disk.modified_s(self._path(name)) or 0.0) < older_than_s:
                    return
                doomed = layout.deleting(name)
                with contextlib.suppress(FileNotFoundError, FileExistsError):  # or next time
                    self._disk.rename(self._path(name), self._path(doomed))
            self._disk.remove_tree(self._path(doomed))
            removed.append(name)

        do_all(sweep_one, [name for name in self.staged() if name not in keep])
        return removed

    def destroy(self) -> None:
        """Remove the directory of a dropped table, detached parts included. This is synced, or a
        loss of power might bring the parts back, into a new table at the same place.
        """
        self._disk.remove_tree(self._root)
        above = self._root.rpartition("/")[0]
        if self._durable and self._disk.modified_s(above) is not None:
            self._disk.fsync_directory(above)
        self.forget_all()

    def forget_all(self) -> None:
        """Let go of what is remembered only to save reading."""
        self._read.clear()
        self.whole.forget_all()

    # Small things

    def _path(self, *names: str) -> str:
        return layout.join(self._root, *names)

    def _shown(self, *names: str) -> str:
        return "/".join([self._root, *names]) if self._root else "/".join(names)

    def _lacking(self, part: PartName, what: str) -> Corruption:
        """The error for a part that can't be read: Corruption, or MissingPart if it was removed."""
        return Corruption(what, part=part) if self.is_taken(part) else self._missing(part)

    def _missing(self, part: PartName) -> MissingPart:
        what = f"has no {layout.MANIFEST}" if self.is_taken(part) else "is not on disk"
        return MissingPart(f"{self._shown(str(part))} {what}", part=part)

    def _make_root(self) -> None:
        if self._disk.modified_s(self._root) is not None:
            return
        self._disk.make_directory(self._root)
        names = self._root.split("/")
        for depth in reversed(range(len(names) if self._durable else 0)):
            self._disk.fsync_directory("/".join(names[:depth]))

    def sync_names(self) -> None:
        """Make the names of all parts survive a crash of the host: the process that gave a part its
        name may have died, or its disk failed, before it did this itself. Raises MissingPart.
        """
        self._sync_names()

    def _sync_names(self, directory: str = "") -> None:
        if not self._durable:
            return
        try:
            self._disk.fsync_directory(self._path(directory) if directory else self._root)
        except FileNotFoundError as error:
            raise all_gone(self._shown(*directory.split())) from error

    def _link_files(
        self, part: PartName, directory: str, names: Iterable[str], *, of: "PartStore"
    ) -> bool:
        """Link these files of a part; False if any was copied. Raises MissingPart."""
        there, linked = layout.join(of.root, str(part)), True
        try:
            for name in names:
                source, target = layout.join(there, name), self._path(directory, name)
                linked &= self._disk.link_from(of.disk, source, target)
        except FileNotFoundError as error:
            raise MissingPart(f"{there} has lost a file: {error}", part=part) from error
        return linked


def _at_a_pace(chunks: Iterator[bytes], paced: Callable[[int], None]) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        paced(len(chunk))
