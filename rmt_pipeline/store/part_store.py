"""The parts of one table on one disk: staged, published, detached, removed.

    begin ─► Staging ──seal──► StagedPart ──publish──► part ──remove──► gone
               └─abandon─► gone    │  ▲                 │
                                   │  └────withdraw─────┤
                                   └─discard─► gone     └─detach─► detached/<reason>_<part>

Invariant: a directory with a part's name holds a whole part. It gets that name by one rename,
after every byte of it is safe, so that a crash at any point leaves a staged directory or a
whole part (style rule 11). What is staged belongs to nobody and may be swept; what is detached
is kept for people. Several processes of one host use one store at once.
"""

import contextlib
import errno
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rmt_pipeline.protocol.errors import Conflict, Corruption, MissingPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.detached import DetachedParts, copy_of, set_aside
from rmt_pipeline.store.disk import Disk, Lock
from rmt_pipeline.store.dropped import DroppedRanges
from rmt_pipeline.store.hashes.checksums import hash_of_chunks
from rmt_pipeline.store.manifest import Manifest, rows_and_bytes
from rmt_pipeline.store.marks import Marks
from rmt_pipeline.store.part_log import PartLog
from rmt_pipeline.store.staging import FetchNote, StagedPart, Staging, all_gone
from rmt_pipeline.store.tally import ErrorCounts, PostponedEntries
from rmt_pipeline.store.whole_parts import WholeParts, says_the_same
from rmt_pipeline.system import IdSource

MANIFESTS_CACHED_MAX = 100_000  # about 2 kB each; who looks at more, one by one, reads all
_UNREADABLE = (errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENOENT, errno.EISDIR)
_WRITTEN_WHOLE: tuple[layout.StageKind, ...] = ("insert", "merge", "fetch")
HELD_TOGETHER_MAX = 256  # locks, each a file descriptor
NOTED_BYTES_MIN = 128 << 10  # what can be hashed in the time that it takes to write a note

Sure = Callable[[Sequence[PartName]], Collection[PartName]]
"""Of parts that nobody else can take away now, those that may go."""


class PartStore:
    """`root` is the table's directory on the disk.

    `durable=False` skips every fsync: then a crash of the host (not of a process) may leave
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
        self._cache: OrderedDict[PartName, tuple[float | None, Manifest]] = OrderedDict()
        self._cache_lock = threading.Lock()
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
        """A new staging directory. `hint` is for people: a partition id or a part name. Raises
        MissingPart when the table was dropped.
        """
        return Staging.begun(self._disk, self._root, self._new_name(kind, hint))

    def discard(self, staged: StagedPart) -> None:
        """Throw a staged part away. Nothing happens when it is gone.

        It loses its name first: whoever adopts it has a whole one, or none.
        """
        doomed = self._path(layout.deleting(staged.directory))
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            self._disk.rename(self._path(staged.directory), doomed)
        self._disk.remove_tree(doomed)

    def adopt(
        self, kind: layout.StageKind, wanted: Mapping[PartName, Callable[[Manifest], bool]]
    ) -> dict[PartName, StagedPart]:
        """What other attempts have made of these parts and not published: whole ones with such a
        manifest. From now on nobody else knows their names.

        Only for parts that the caller alone may produce now. Whoever made them may still be there,
        but may not publish them any more. A part that got its name and was not announced is staged
        under that name.
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
        except (Corruption, OSError):  # being written, thrown away just now, or unreadable
            return None
        if self._is_whole(adopted):
            return adopted
        self.discard(adopted)
        return None

    def _is_whole(self, staged: StagedPart) -> bool:
        """A crash of the host may have torn what was not published."""
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
        """The same rows as `part`, of this table or another, staged again in an empty `staging`:
        hard links, where the disks allow it. `manifest` tells its story, of the same files, which
        are as whole as they were known to be. Raises MissingPart, DiskFull.
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
        """`staged` becomes `part`. Publishing twice is the same as once.

        A part of that name with the same rows in the same order is as good: it stays, `staged`
        goes. Raises Conflict if its rows differ (the caller knows which one is right),
        MissingPart if neither is there.
        """
        self.publish_all([(staged, part)])

    def publish_all(self, pairs: Sequence[tuple[StagedPart, PartName]]) -> None:
        """As `publish` of each, in order, with one sync for all.

        An error leaves the earlier ones published.
        """
        self._make_safe([staged for staged, _ in pairs])
        try:
            for staged, part in pairs:
                self._publish_one(staged, part)
        finally:
            self._sync_names()

    def _make_safe(self, parts: Sequence[StagedPart]) -> None:
        """Every byte and every name within the staged directories survives a crash."""
        if not self._durable:
            return
        self._disk.fsync_trees(  # what was published before is not there, and is done
            [
                (
                    self._path(staged.directory),
                    staged.names_to_sync(),
                )
                for staged in parts
            ]
        )

    def _publish_one(self, staged: StagedPart, part: PartName) -> None:
        assert staged.manifest.partition_id == part.partition
        self._note_whole(staged)
        # Before it has its name, under which somebody else may put another part.
        modified_s = self._disk.modified_s(self._path(staged.directory, layout.MANIFEST))
        try:
            self._disk.rename(self._path(staged.directory), self._path(str(part)))
        except FileNotFoundError:
            if not self.has(part):
                raise MissingPart(
                    f"{part} can't be published: {staged.directory} is gone, and so is the "
                    "part. Was the table's directory changed by hand?"
                ) from None
        except FileExistsError:
            published = self.manifest(part)
            if not published.has_rows_of(staged.manifest):
                raise Conflict(
                    f"{part} is on disk with other rows ({published.content_hash:032x}) than "
                    f"{staged.directory} ({staged.manifest.content_hash:032x})"
                ) from None
            self.discard(staged)
        else:  # who merges or sends it need not read what was just written
            self._remember(part, modified_s, staged.manifest)

    def _note_whole(self, staged: StagedPart) -> None:
        """Its bytes were compared with their hashes while they were written: the first who reads
        it need not do so again. What may be links to another part's files was not. What is small
        is as soon read as noted, and most of it is merged before anybody reads it.
        """
        name = layout.parse_staged(staged.directory)
        is_small = staged.manifest.bytes_on_disk < NOTED_BYTES_MIN
        if is_small or staged.is_clone or name is None or name.kind not in _WRITTEN_WHOLE:
            return
        directory = self._path(staged.directory)
        self.whole.learn(directory, self.whole.note_now(directory, staged.manifest))

    def withdraw(
        self, part: PartName, staged: StagedPart, sure: Callable[[], bool] | None = None
    ) -> bool:
        """Undo `publish` of a part that is not in ZooKeeper: its directory gets its temporary name
        again. Idempotent.

        False when `sure`, which is asked while nobody else can take the part away, says no, or
        when somebody has it pinned: it is not only ours any more.
        """
        with self._held([part] if sure else []) as held:
            if sure and (part not in held or not sure()):
                return False
            self._forget(part)
            # Staged already: either this was done before, or the part is not the one we staged.
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                self._disk.rename(self._path(str(part)), self._path(staged.directory))
                self._sync_names()
        return True

    # Reading

    def has(self, part: PartName) -> bool:
        return self._disk.size(self._path(str(part), layout.MANIFEST)) is not None

    def is_taken(self, part: PartName) -> bool:
        """Whether something has the part's name, whole or not."""
        return self._disk.modified_s(self._path(str(part))) is not None

    def manifest(self, part: PartName) -> Manifest:
        """Raises MissingPart when there is no such part, Corruption when it can't be read."""
        path = self._path(str(part), layout.MANIFEST)
        modified_s = self._disk.modified_s(path)
        with self._cache_lock:
            cached = self._cache.get(part)
            if cached is not None:
                self._cache.move_to_end(part)
        # A part that was removed and fetched again has other files: the time tells.
        if cached is not None and cached[0] == modified_s:
            return cached[1]
        with self._reading(part):
            data = self._disk.read(path)
        if data is None:
            self._forget(part)
            raise self._missing(part)
        try:
            manifest = Manifest.decode(data)
        except Corruption as error:
            raise Corruption(f"{self._shown(str(part))}: {error}", part=part) from error
        self._remember(part, modified_s, manifest)
        return manifest

    def _remember(self, part: PartName, modified_s: float | None, manifest: Manifest) -> None:
        with self._cache_lock:
            self._cache[part] = (modified_s, manifest)
            self._cache.move_to_end(part)
            if len(self._cache) > MANIFESTS_CACHED_MAX:
                self._cache.popitem(last=False)  # the one that was not asked for the longest

    def manifest_read(self, part: PartName) -> Manifest | None:
        """As this process has read or published it last, if it remembers: the disk is not asked.
        Good enough to choose by; whoever works with the part asks for `manifest`.
        """
        with self._cache_lock:
            return self._cache.get(part, (None, None))[1]

    def counts(self, part: PartName) -> tuple[int, int]:
        """Rows and bytes, to be told: of what goes nobody reads, and checks, every manifest anew.
        Raises MissingPart, Corruption.
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
        """Every part on disk, sorted, announced or not."""
        found = (PartName.try_parse(name) for name in self._disk.list(self._root))
        return sorted(part for part in found if part is not None)

    def names(self) -> frozenset[str]:
        """Of parts, and of anything else in the table's directory."""
        return frozenset(self._disk.list(self._root))

    def names_changed_s(self) -> float | None:
        """When a part, or anything else in the table's directory, came or went last."""
        return self._disk.modified_s(self._root)

    def staged(self) -> list[str]:
        """Staging directories, and parts half removed."""
        return [
            name
            for name in self._disk.list(self._root)
            if layout.parse_staged(name) is not None
            or layout.parse_moved(name) is not None
            or layout.is_deleting(name)
        ]

    def staged_at(self, name: str) -> tuple[float, str] | None:
        """When a staging directory changed last (seconds since the epoch), and its absolute path;
        None when it is gone.
        """
        path = self._path(name)
        modified_s = self._disk.modified_s(path)
        return None if modified_s is None else (modified_s, self._disk.local_path(path))

    def fetches(self) -> list[tuple[PartName, FetchNote, int]]:
        """What is being fetched now, by whichever process of this host, and the bytes that are
        there.
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
        """Of the staging directory `name`; None when nobody fetches into it now, or says so."""
        path = self._path(name, layout.FETCHING)
        text = self._disk.read(path)
        if text is None:
            return None
        lock = self._disk.lock(path, shared=False)
        if lock is not None:  # nobody holds it any more
            lock.release()
            return None
        with contextlib.suppress(ValueError, TypeError):  # it was just being written
            return FetchNote(**json.loads(text))
        return None

    def staged_files(self, staged: StagedPart) -> list[str]:
        """Absolute paths of a staged part's data files, in key order."""
        return [
            self._disk.local_path(self._path(staged.directory, file.name))
            for file in staged.manifest.files
        ]

    def detached(self) -> list[str]:
        """Names in `detached/`, sorted; `layout.parse_detached` reads them."""
        return self._disk.list(self._path(layout.DETACHED))

    def directory(self, part: PartName) -> str:
        """The absolute path of the part's directory, for programs that read it themselves."""
        return self._disk.local_path(self._path(str(part)))

    def files(self, part: PartName) -> list[str]:
        """Absolute paths of the data files, in key order. Raises as `manifest`."""
        return [
            self._disk.local_path(self._path(str(part), file.name))
            for file in self.manifest(part).files
        ]

    def file_chunks(self, part: PartName, name: str) -> Iterator[bytes]:
        """One data file in pieces, to send it to a peer.

        Raises as `manifest`; MissingPart too when the part has no such file, FileNotFoundError
        (at the first piece) when it is removed now.
        """
        if self.manifest(part).file(name) is None:
            raise MissingPart(f"{self._shown(str(part))} has no file {name}", part=part)
        return self._disk.chunks(self._path(str(part), name))

    def size_on_disk(self, part: PartName) -> int:
        """Bytes of everything in the part's directory, whole or broken; 0 when it is gone."""
        names = self._disk.list(self._path(str(part)))
        return sum(self._disk.size(self._path(str(part), name)) or 0 for name in names)

    def inspect(self, part: PartName) -> Manifest:
        """The manifest of a part whose files are there and as long as they were. No row is read.

        Raises as `verify`.
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
        """Read every byte. Raises MissingPart; Corruption naming file, expected and found.

        `paced` is told how many bytes were read, and returns when more may be.
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
        """As `verify`; no byte is read of a part that is known to be whole."""
        manifest, directory = self.manifest(part), self._path(str(part))
        note = self.whole.note_now(directory, manifest)
        if not self.whole.is_known(directory, note):
            self.verify(part)
            self.whole.learn(directory, note)
        return manifest

    def verify_again(
        self, part: PartName, paced: Callable[[int], None] | None = None
    ) -> Manifest:
        """As `verify`, whatever is known of it; from now on it was read whole now."""
        manifest, directory = self.manifest(part), self._path(str(part))
        note = self.whole.note_now(directory, manifest)
        self.verify(part, paced)
        self.whole.learn(directory, note)
        return manifest

    def verified_s(self, part: PartName) -> float:
        """As `WholeParts.read_s`."""
        return self.whole.read_s(self._path(str(part)))

    @contextlib.contextmanager
    def _reading(self, part: PartName) -> Iterator[None]:
        """What the disk can't read is as bad as what it reads wrong."""
        try:
            yield
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            shown = self._shown(str(part))
            raise self._lacking(part, f"{shown} can't be read: {error}") from error

    @contextlib.contextmanager
    def pin(self, parts: Iterable[PartName]) -> Iterator[None]:
        """While this is open no process removes these parts.

        Raises MissingPart when one of them is gone, or going: read again which parts there are.
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
        """Whether a reader holds the part right now."""
        manifest = self._path(str(part), layout.MANIFEST)
        lock = self._disk.lock(manifest, shared=False)
        if lock is None:
            return self._disk.size(manifest) is not None
        lock.release()
        return False

    # Leaving

    def remove(self, part: PartName) -> bool:
        """Remove a part. False when a reader has it pinned: try later. True when it is gone."""
        return not self.remove_all([part])

    def remove_all(
        self, parts: Collection[PartName], sure: Sure | None = None
    ) -> list[PartName]:
        """Remove parts; those that stay are returned: readers have them pinned, or `sure` does not
        name them.

        The part loses its name first, and for good, before the first of its bytes goes: no
        crash leaves half a part under a part's name.
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
        """Those that nobody has pinned. While this is open nobody pins, removes or sets aside one
        that is locked. So what ZooKeeper says of it meanwhile is true until it is gone.

        A directory that lost its manifest has nothing to lock.
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
        """Rename to `delete_tmp_<part>`. False when it stays."""
        self._forget(part)
        if held[part] is None:
            moved = self._moved(part)
            if moved is not None:
                self._disk.remove_tree(self._path(moved))
            return moved is not None or not self.is_taken(part)
        name, doomed = self._path(str(part)), self._path(layout.deleting(part))
        with contextlib.suppress(FileNotFoundError):
            try:
                self._disk.rename(name, doomed)
            except FileExistsError:  # from a removal that died
                self._disk.remove_tree(doomed)
                self._disk.rename(name, doomed)
        return True

    def _moved(self, part: PartName) -> str | None:
        """Where the part's directory is now, which has no manifest; None when it is gone, or stays.

        It could not be locked, so somebody may put a whole part in its place at any moment: if that
        is what was moved, it goes back. The name is ours alone, and what it names does not change;
        a sweep that finds it puts it back, whole or not, for whoever moved it may have died.
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
        """If the part's name is taken by now, what was moved is not needed any more."""
        try:
            self._disk.rename(self._path(moved), self._path(str(part)))
        except FileNotFoundError:
            return  # somebody else did
        except FileExistsError:
            doomed = layout.deleting(moved)
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(self._path(moved), self._path(doomed))
            self._disk.remove_tree(self._path(doomed))
        self._sync_names()

    def detach(self, part: PartName, reason: layout.DetachReason) -> str:
        """Set the part aside as `detached/<reason>_<part>` and return that path (spec §9.12).

        Not for parts that queries still use (`detach_copy`). Raises MissingPart; UserError when
        there are ten such copies already.
        """
        self._forget(part)
        target = set_aside(self._disk, self._root, str(part), part, reason)
        self._sync_names(layout.DETACHED)
        self._sync_names()
        return target

    def detach_if(
        self, part: PartName, reason: layout.DetachReason, sure: Callable[[], bool]
    ) -> str | None:
        """As `detach`, unless it is gone, a reader has the part pinned or `sure` says no; then
        None. It is asked while nobody else can take the part away or replace it.
        """
        with self._held([part]) as held:
            if part not in held or not sure():
                return None
            if held[part] is not None:
                return self.detach(part, reason)
            self._forget(part)
            moved = self._moved(part)
            if moved is None:
                return None
            try:
                target = set_aside(self._disk, self._root, moved, part, reason)
            except MissingPart:
                return None  # a sweep has put it back
            except BaseException:
                self._put_back(moved, part)
                raise
            self._sync_names(layout.DETACHED)
            self._sync_names()
            return target

    def detach_copy(
        self, part: PartName, reason: layout.DetachReason, *, once: bool = False
    ) -> str:
        """As `detach`, but the part stays: hard links, for DETACH while queries run (§9.3). Of a
        part that is broken, whatever is in its directory. `once`: a copy that is there already,
        from a try that died, is good enough. Raises as `detach`.
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
        """Set aside, for people to look at, what was made under the name `part` and is not to be
        published; the path in the table's directory. Raises MissingPart, UserError as `detach`.
        """
        target = set_aside(self._disk, self._root, staged.directory, part, reason)
        self._sync_names(layout.DETACHED)
        return target

    def set_aside_safely(
        self, staged: StagedPart, part: PartName, reason: layout.DetachReason
    ) -> str:
        """As `detach_staged`, of what somebody is to attach: it survives a crash of the host."""
        self._make_safe([staged])
        return self.detach_staged(staged, part, reason)

    def sync_file(self, path: str) -> None:
        """A file two levels below the table's directory, its name and that of its directory."""
        if self._durable:
            self._disk.fsync(path)
            self._disk.fsync_directory(path.rpartition("/")[0])
            self._sync_names()

    def sweep(self, keep: Collection[str], older_than_s: float, now_s: float) -> list[str]:
        """Remove staging directories that nobody needs any more; their names (spec §10.6).
        Stays: what is in `keep` (what running work stages) or has changed in the last
        `older_than_s` seconds. What a removal left behind goes at once.
        """
        removed = []
        for name in self.staged():
            moved = layout.parse_moved(name)
            if moved is not None:
                self._put_back(name, moved)
                continue
            modified_s = self._disk.modified_s(self._path(name))
            young = modified_s is not None and now_s - modified_s < older_than_s
            if name in keep or (young and not layout.is_deleting(name)):
                continue
            doomed = name
            if not layout.is_deleting(name):  # it loses its name first: who stages it notices
                doomed = layout.deleting(name)
                with contextlib.suppress(FileNotFoundError, FileExistsError):  # or next time
                    self._disk.rename(self._path(name), self._path(doomed))
            self._disk.remove_tree(self._path(doomed))
            removed.append(name)
        return removed

    def destroy(self) -> None:
        """Remove everything, the detached parts too: the table is dropped. A loss of power must not
        bring it back, to a new table in its place.
        """
        self._disk.remove_tree(self._root)
        above = self._root.rpartition("/")[0]
        if self._durable and self._disk.modified_s(above) is not None:
            self._disk.fsync_directory(above)
        with self._cache_lock:
            self._cache.clear()

    # Small things

    def _path(self, *names: str) -> str:
        return layout.join(self._root, *names)

    def _shown(self, *names: str) -> str:
        return "/".join([self._root, *names]) if self._root else "/".join(names)

    def _lacking(self, part: PartName, what: str) -> Corruption:
        """A part that goes while it is read has lost nothing: its directory has another name."""
        return Corruption(what, part=part) if self.is_taken(part) else self._missing(part)

    def _missing(self, part: PartName) -> MissingPart:
        what = f"has no {layout.MANIFEST}" if self.is_taken(part) else "is not on disk"
        return MissingPart(f"{self._shown(str(part))} {what}", part=part)

    def _forget(self, part: PartName) -> None:
        with self._cache_lock:
            self._cache.pop(part, None)

    def _make_root(self) -> None:
        if self._disk.modified_s(self._root) is not None:
            return
        self._disk.make_directory(self._root)
        names = self._root.split("/")
        for depth in reversed(range(len(names) if self._durable else 0)):
            self._disk.fsync_directory("/".join(names[:depth]))

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
        """False when any had to be copied."""
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
