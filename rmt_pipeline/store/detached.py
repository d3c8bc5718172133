"""Parts set aside under `detached/`, and what brings them back or removes them (spec §9).

    <part> ──rename──► attaching_<part> ──stage──► tmp_attach_… (hard links) ──► a part of the table
       ▲                    │ │
       └──────rename────────┘ └──remove──► gone

A part is taken by renaming it: of two processes that rename it only one succeeds. While a process
attaches a part it holds a lock on a file in it; if that is not locked, the process has died.
Nothing in `detached/` is removed automatically, except what a process that died was attaching, or
removing.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from rmt_pipeline.protocol.errors import Corruption, MissingPart, UserError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk, Lock
from rmt_pipeline.store.hashes.checksums import hash_of_chunks
from rmt_pipeline.store.layout import DetachedName
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.staging import StagedPart, Staging, make_in_table


class DetachedParts:
    """The detached parts of one table on one disk."""

    def __init__(self, disk: Disk, root: str, *, durable: bool) -> None:
        self._disk = disk
        self._root = root
        self._durable = durable

    def names(self) -> list[DetachedName]:
        """The detached parts, sorted by name. Directories with other names were put there by people
        and are left out.
        """
        found = map(layout.parse_detached, self._disk.list(self._path()))
        return [one for one in found if one is not None]

    def manifest(self, name: DetachedName) -> Manifest:
        """The part's manifest. Raises MissingPart, Corruption."""
        try:
            data = self._disk.read(self._path(str(name), layout.MANIFEST))
        except OSError as error:
            raise Corruption(f"{layout.DETACHED}/{name} can't be read: {error}") from error
        if data is None:
            raise MissingPart(f"{layout.DETACHED}/{name} has no {layout.MANIFEST}")
        try:
            return Manifest.decode(data)
        except Corruption as error:
            raise Corruption(f"{layout.DETACHED}/{name}: {error}") from error

    def path(self, directory: str) -> str:
        """The path of a directory in `detached/`, on the disk."""
        return self._path(directory)

    def directories(self) -> list[str]:
        """The names of everything in `detached/`, also of what people have put there."""
        return self._disk.list(self._path())

    def modified_s(self, directory: str) -> float | None:
        """When a file in it was last added or removed (seconds since the epoch); None if it is
        gone.
        """
        return self._disk.modified_s(self._path(directory))

    def size_bytes(self, directory: str) -> int:
        """The bytes of all files in it, whole or broken."""
        files = self._disk.list(self._path(directory))
        return sum(self._disk.size(self._path(directory, file)) or 0 for file in files)

    def verify(self, name: DetachedName) -> Manifest:
        """Read every byte and return the manifest. Raises MissingPart, and Corruption that names
        the file and what is wrong.
        """
        manifest = self.manifest(name)
        for file in manifest.files:
            shown = f"{layout.DETACHED}/{name}/{file.name}"
            try:
                chunks = self._disk.chunks(self._path(str(name), file.name))
                found = hash_of_chunks(chunks)
            except OSError as error:
                raise Corruption(f"{shown} can't be read: {error}") from error
            if found != (file.size, file.hash):
                raise Corruption(
                    f"{shown} has {found[0]} bytes with hash {found[1]}, expected {file.size} with "
                    f"{file.hash}"
                )
        return manifest

    def rename(self, name: DetachedName, reason: layout.DetachReason) -> DetachedName | None:
        """Rename the part to the first free name for another reason. Return that name; None if the
        part is gone, or another process has renamed it first, or all names are taken.
        """
        for copy in range(layout.DETACHED_COPIES_MAX):
            renamed = replace(name, reason=reason, copy=copy)
            try:
                self._disk.rename(self._path(str(name)), self._path(str(renamed)))
            except FileExistsError:
                continue
            except FileNotFoundError:
                return None
            if self._durable:
                self._disk.fsync_directory(self._path())
            return renamed
        return None

    def take(self, name: DetachedName) -> tuple[DetachedName, Lock] | None:
        """Take the part in order to attach it: its new name, and the lock that the caller releases.
        None if the part is gone, or another process has taken it first.

        The lock is on a file of its own, not on the manifest: that may be a hard link to the
        manifest of the part that was detached, which readers may have pinned, or a process may be
        removing.
        """
        path = self._path(str(name), layout.ATTACHING)
        try:
            self._disk.append(path, b"")
        except FileNotFoundError:
            return None
        lock = self._disk.lock(path, shared=False)
        if lock is None:
            return None
        taken = None
        try:
            taken = self.rename(name, "attaching")
        finally:
            if taken is None:
                lock.release()
        return None if taken is None else (taken, lock)

    def note_attempt(self, name: DetachedName, attempt: str) -> None:
        """Note in a taken part which ATTACH has taken it; "" for one with deduplication."""
        path = self._path(str(name), layout.ATTEMPT)
        if attempt:
            self._disk.replace(path, attempt.encode(), durable=self._durable)
        else:
            self._disk.remove_file(path)

    def attempt(self, name: DetachedName) -> str:
        """What was noted last."""
        return (self._disk.read(self._path(str(name), layout.ATTEMPT)) or b"").decode()

    def died(self) -> Iterator[DetachedName]:
        """Yield the parts that a process had taken to attach them, and then died. Each is locked
        until the next is asked for.
        """
        for name in self.names():
            if name.reason != "attaching":
                continue
            lock = self._disk.lock(self._path(str(name), layout.ATTACHING), shared=False)
            if lock is not None:
                try:
                    yield name
                finally:
                    lock.release()

    def stage(self, name: DetachedName, staging: Staging, manifest: Manifest) -> StagedPart:
        """Stage the part's files as hard links in an empty `staging`, with this manifest. On an
        error `staging` is abandoned. Raises MissingPart.
        """
        try:
            for file in manifest.files:
                target = layout.join(self._root, staging.directory, file.name)
                source = self._path(str(name), file.name)
                self._disk.link_from(self._disk, source, target)
            return staging.seal(manifest)
        except BaseException as error:
            staging.abandon()
            if isinstance(error, FileNotFoundError):
                raise MissingPart(
                    f"{layout.DETACHED}/{name} has lost a file: {error}"
                ) from error
            raise

    def remove(self, name: DetachedName) -> bool:
        """Remove the part, after renaming it, so that it is never seen half removed. False if it
        is gone, or another process has renamed it first.
        """
        doomed = self.rename(name, "deleting")
        if doomed is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove_tree(self._path(str(doomed)))
        return True

    def finish_removals(self, older_than_s: float, now_s: float) -> list[str]:
        """Remove what is left of directories whose removal a process had begun, and died: in which
        nothing has changed for `older_than_s` seconds. Return their names.
        """
        left = [str(one) for one in self.names() if one.reason == "deleting"]
        old = [
            one
            for one in left
            if (since := self.modified_s(one)) is not None and now_s - since >= older_than_s
        ]
        self._disk.remove_trees([self._path(one) for one in old])
        return old

    def _path(self, *names: str) -> str:
        return layout.join(self._root, layout.DETACHED, *names)


def set_aside(
    disk: Disk, root: str, directory: str, part: PartName, reason: layout.DetachReason
) -> str:
    """Rename `directory` to the first free name in `detached/` for this part and reason. Return the
    new name. Both names are relative to the table's directory `root`.

    Nothing is synced. Raises MissingPart; UserError when there are ten copies already.
    """
    make_in_table(disk, root, layout.DETACHED)
    for copy in range(layout.DETACHED_COPIES_MAX):
        target = layout.join(layout.DETACHED, str(layout.DetachedName(reason, part, copy)))
        try:
            disk.rename(layout.join(root, directory), layout.join(root, target))
        except FileExistsError:
            continue
        except FileNotFoundError:
            raise MissingPart(f"{layout.join(root, directory)} is not on disk") from None
        return target
    first = layout.join(root, layout.DETACHED, str(layout.DetachedName(reason, part)))
    raise UserError(
        f"{first} exists {layout.DETACHED_COPIES_MAX} times; look at the copies and remove those "
        "that are not needed"
    )


def copy_of(disk: Disk, root: str, part: PartName, reason: layout.DetachReason) -> str | None:
    """The first name that a copy of this part would get in `detached/`, if a copy with the same
    manifest is there already. None if not, or if a manifest can't be read: then the caller makes
    another copy.
    """
    target = layout.join(layout.DETACHED, str(layout.DetachedName(reason, part)))
    try:
        mine, theirs = (
            disk.read(layout.join(root, name, layout.MANIFEST)) for name in (str(part), target)
        )
    except OSError:
        return None
    return target if mine is not None and mine == theirs else None
