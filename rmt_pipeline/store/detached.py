"""Parts set aside under `detached/`, and what brings them back or removes them (spec §9).

    <part> ──rename──► attaching_<part> ──stage──► tmp_attach_… (hard links) ──► a part of the table
       ▲                    │ │
       └──────rename────────┘ └──remove──► gone

Whoever takes one alone has it: of two renames one succeeds. While it is being attached a file in it
is locked: one that nobody holds is of a process that died. Nothing here is removed by itself, but
what was attached by who died.
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
from rmt_pipeline.store.staging import StagedPart, Staging


class DetachedParts:
    """Of one table on one disk."""

    def __init__(self, disk: Disk, root: str, *, durable: bool) -> None:
        self._disk = disk
        self._root = root
        self._durable = durable

    def names(self) -> list[DetachedName]:
        """Those that can be told, sorted by their names; others were put there by people."""
        found = map(layout.parse_detached, self._disk.list(self._path()))
        return [one for one in found if one is not None]

    def manifest(self, name: DetachedName) -> Manifest:
        """Raises MissingPart, Corruption."""
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
        """On the disk."""
        return self._path(directory)

    def directories(self) -> list[str]:
        """All there are, also those whose names nobody here has given."""
        return self._disk.list(self._path())

    def modified_s(self, directory: str) -> float | None:
        """When something in it came or went last; None when it is gone."""
        return self._disk.modified_s(self._path(directory))

    def size_bytes(self, directory: str) -> int:
        """Of all files that are there, whole or broken."""
        files = self._disk.list(self._path(directory))
        return sum(self._disk.size(self._path(directory, file)) or 0 for file in files)

    def verify(self, name: DetachedName) -> Manifest:
        """Every byte is read. Raises MissingPart, Corruption naming what is wrong."""
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
        """The same part for another reason, under the first free name; None when it is gone, or
        somebody else was faster.
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
        """To attach it; None when it is gone, or somebody else was faster. Not its manifest is
        locked: that is one file with the manifest of the part that it was, which readers may have
        pinned, or somebody may be removing.
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

    def died(self) -> Iterator[DetachedName]:
        """What processes have taken that are no more. Nobody else takes it meanwhile."""
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
        """The same files once more, as hard links in an empty `staging`. Raises MissingPart."""
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
        """It loses its name first. False when it is gone, or somebody else was faster."""
        doomed = self.rename(name, "deleting")
        if doomed is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove_tree(self._path(str(doomed)))
        return True

    def _path(self, *names: str) -> str:
        return layout.join(self._root, layout.DETACHED, *names)


def set_aside(
    disk: Disk, root: str, directory: str, part: PartName, reason: layout.DetachReason
) -> str:
    """Rename `directory` to the first free name for this part and reason; the new name.

    Both names are within the table's directory `root`. Nothing is synced. Raises MissingPart;
    UserError when there are ten copies already.
    """
    disk.make_directory(layout.join(root, layout.DETACHED))
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
    """The name that a part's copy would get first, when it is there and says the same of its rows;
    else None, also when that can't be read: then who detaches the part makes another copy.
    """
    target = layout.join(layout.DETACHED, str(layout.DetachedName(reason, part)))
    try:
        mine, theirs = (
            disk.read(layout.join(root, name, layout.MANIFEST)) for name in (str(part), target)
        )
    except OSError:
        return None
    return target if mine is not None and mine == theirs else None
