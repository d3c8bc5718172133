"""Snapshots of parts, made by FREEZE and removed by UNFREEZE (spec §9.9), in a server's data
directory.

shadow/increment.txt                     the number of the last snapshot that got no name
shadow/<name>/lock                       held by the process that changes the snapshot
shadow/<name>/data/<database>/<table>/   like the table's own directory below the data directory
    <part name>/                         hard links to the files of the part
    frozen_000001.json                   a list of the snapshot's parts; the last one counts
shadow/.removed_<id>/                    being removed

1. A part is in a snapshot if the last list has it. FREEZE writes the list after the names of all
   files are synced; UNFREEZE writes a list without the part before it removes the part's files. So
   the lists alone say what a snapshot has, at whatever moment a process dies. Directories of parts
   that the list does not have were left by a FREEZE or UNFREEZE that died; the next one with that
   name and table removes them.
2. Nothing else removes anything here: clean-up, DROP and TRUNCATE touch only a table's own
   directory. The files of a part never change, so a hard link to them is as good as a copy.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rmt_pipeline.catalog.definition import decode_definition, encode_definition
from rmt_pipeline.files import escape_file_name, unescape_file_name
from rmt_pipeline.protocol.errors import Conflict, Corruption, MissingPart, UserError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk, Lock
from rmt_pipeline.store.manifest import Manifest, seal_json, unseal_json
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import Clock, IdSource

SHADOW = "shadow"
FORMAT = 1  # Bump when the text of a list changes; keep reading every older number.
LOCK_WAIT_S = 120.0  # for another command; the original waits as long for a lock
LOCK_POLL_S = 0.05
NAME_BYTES_MAX = 200  # of a snapshot's name, escaped

_INCREMENT = "increment.txt"
_LOCK = "lock"
_REMOVED = ".removed_"  # no escaped name begins like this
_LIST = re.compile(r"frozen_([0-9]{6,})\.json", re.ASCII)
_STAGED_LIST = "frozen.tmp"


class BadSnapshotName(UserError):
    """The name in FREEZE or UNFREEZE WITH NAME can't be that of a directory: it is too long, or
    would lead elsewhere.
    """

    code = "BAD_ARGUMENTS"


class DirectoryAlreadyExists(UserError):
    """The snapshot has this part already. Nothing was frozen."""

    code = "DIRECTORY_ALREADY_EXISTS"


class SnapshotIsBusy(Conflict):
    """Another FREEZE or UNFREEZE under that name is running. Nothing was changed."""


class FrozenPart(NamedTuple):
    """The entry of a part in a snapshot's list. Hashes are in hex."""

    name: PartName
    rows: int
    size_bytes: int
    row_hash: str
    content_hash: str
    hash_of_all_files: str

    @classmethod
    def of(cls, name: PartName, manifest: Manifest) -> "FrozenPart":
        """The entry of a part with this manifest."""
        return cls(
            name,
            manifest.rows,
            manifest.bytes_on_disk,
            f"{manifest.row_hash:032x}",
            f"{manifest.content_hash:032x}",
            manifest.files_hash.hex(),
        )


@dataclass(frozen=True, slots=True)
class Frozen:
    """The parts that one FREEZE has put into a snapshot, when, and the table's definition then."""

    frozen_s: int
    definition: TableDefinition
    parts: tuple[FrozenPart, ...]


class InSnapshot(NamedTuple):
    """A part that was frozen or unfrozen, its snapshot, and the directory that has it."""

    part: PartName
    snapshot: str
    directory: str
    """The absolute path of the table's directory in the snapshot, with a slash at its end."""

    @property
    def part_directory(self) -> str:
        """The absolute path of the part's directory, with a slash at its end."""
        return f"{self.directory}{self.part}/"


class Shadow:
    """All snapshots of one server. `disk` is its data directory. Several processes may use it."""

    def __init__(
        self, disk: Disk, *, clock: Clock, ids: IdSource, durable: bool = True
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.durable = durable
        self._ids = ids

    def of_table(self, home: str) -> "FrozenParts":
        """The snapshots of one table. `home` is its directory, relative to the data directory."""
        return FrozenParts(self, home)

    def names(self) -> list[str]:
        """The names of all snapshots."""
        found = map(unescape_file_name, self.disk.list(SHADOW))
        return [name for name in found if name is not None]

    def next_number(self) -> str:
        """A number as the name of a snapshot that gets no other name. It is never
        given out again.
        """
        path = layout.join(SHADOW, _INCREMENT)
        with self._locked(SHADOW, _INCREMENT):
            written = (self.disk.read(path) or b"").strip()
            taken = [int(name) for name in self.names() if name.isascii() and name.isdigit()]
            number = max([int(written) if written.isdigit() else 0, *taken]) + 1
            self.disk.write(path, [f"{number}\n".encode()])
            if self.durable:
                self.disk.fsync(path)
                self.sync_directories(SHADOW)
        return str(number)

    def remove(self, name: str) -> list[InSnapshot]:
        """Remove a snapshot of all tables, also of dropped ones, for SYSTEM UNFREEZE. Return the
        parts that it had.
        """
        place = self.place(name)
        if self.disk.modified_s(place) is None:
            return []
        with self.held(name):
            had = [
                InSnapshot(part, name, self.shown(home))
                for home in self._homes(place)
                for part in _Home(self, home).parts()
            ]
            self.retire(place)
        return had

    def place(self, name: str) -> str:
        """The directory of a snapshot, on the disk. Raises BadSnapshotName."""
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise BadSnapshotName(
                f"{name!r} is no name of a snapshot: it would lead out of {self.shown(SHADOW)}"
            )
        escaped = escape_file_name(name)
        if len(escaped) > NAME_BYTES_MAX:
            raise BadSnapshotName(
                f"the name of the snapshot, {name[:40]!r}…, is too long: as a directory it has "
                f"{len(escaped)} bytes, and may have {NAME_BYTES_MAX}"
            )
        return layout.join(SHADOW, escaped)

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Lock the snapshot against other changes while the context is open, and finish removals
        that were cut off. Raises SnapshotIsBusy.
        """
        with self._locked(self.place(name), _LOCK):
            for one in self.disk.list(SHADOW):
                if one.startswith(_REMOVED):
                    self.disk.remove_tree(layout.join(SHADOW, one))
            yield

    def retire(self, directory: str) -> None:
        """Remove a directory, after renaming it, so that it is never found in part."""
        doomed = layout.join(SHADOW, _REMOVED + self._ids.new_id())
        with suppress(FileNotFoundError):  # a SYSTEM UNFREEZE was faster
            self.disk.rename(directory, doomed)
            self.sync_directories(directory.rpartition("/")[0])
        self.disk.remove_tree(doomed)

    def sync_directories(self, directory: str) -> None:
        """Sync the names in this directory and in all directories above it."""
        while self.durable:
            self.disk.fsync_directory(directory)
            if not directory:
                return
            directory = directory.rpartition("/")[0]

    def shown(self, directory: str) -> str:
        """The absolute path of a directory, with a slash at its end."""
        return f"{self.disk.local_path(directory)}/"

    def _homes(self, directory: str) -> Iterator[str]:
        """The tables' directories in a snapshot."""
        names = self.disk.list(directory)
        if any(_LIST.fullmatch(name) or PartName.try_parse(name) for name in names):
            yield directory
            return
        for name in names:
            yield from self._homes(layout.join(directory, name))

    @contextmanager
    def _locked(self, directory: str, name: str) -> Iterator[None]:
        deadline_s = self.clock.monotonic_s() + LOCK_WAIT_S
        while (lock := self._lock(directory, name)) is None:
            if self.clock.monotonic_s() >= deadline_s:
                raise SnapshotIsBusy(
                    f"another FREEZE or UNFREEZE has held {self.shown(directory)}{name} for "
                    f"{LOCK_WAIT_S:g} s; nothing was changed, try again"
                )
            self.clock.sleep_s(LOCK_POLL_S)
        try:
            yield
        finally:
            lock.release()

    def _lock(self, directory: str, name: str) -> Lock | None:
        path = layout.join(directory, name)
        try:
            self.disk.make_directory(directory)
            self.disk.append(path, b"")
        except FileNotFoundError:  # a SYSTEM UNFREEZE removed the directory in between
            return None
        return self.disk.lock(path, shared=False)


class FrozenParts:
    """The snapshots of one table on one server."""

    def __init__(self, shadow: Shadow, home: str) -> None:
        self._shadow = shadow
        self._home = home

    def freeze(
        self,
        store: PartStore,
        definition: TableDefinition,
        parts: Collection[tuple[PartName, Manifest]],
        name: str = "",
    ) -> list[InSnapshot]:
        """Add these parts, which the caller has pinned, to the snapshot `name`, all or none. ""
        makes a new snapshot with a number as its name.

        Raises BadSnapshotName, DirectoryAlreadyExists if the snapshot has one of the parts,
        SnapshotIsBusy, MissingPart, DiskFull; Corruption if the snapshot's list can't be read.
        """
        if name:
            self._shadow.place(name)
        else:
            name = self._shadow.next_number()
        with self._shadow.held(name):
            self._in(name).add(store, definition, parts)
            return [InSnapshot(part, name, self.directory(name)) for part, _ in parts]

    def unfreeze(self, name: str, partition: str | None = None) -> list[InSnapshot]:
        """Remove the table's parts, or those of one partition, from the snapshot. Return them; an
        empty list if there is no such snapshot. Raises BadSnapshotName, SnapshotIsBusy, DiskFull,
        Corruption.
        """
        if self._shadow.disk.modified_s(self._in(name).path) is None:
            return []
        with self._shadow.held(name):
            gone = self._in(name).take(partition)
            return [InSnapshot(part, name, self.directory(name)) for part in gone]

    def snapshot(self, name: str) -> tuple[Frozen, ...]:
        """The snapshot's list for this table. Raises BadSnapshotName, Corruption."""
        return self._in(name).read()[1]

    def directory(self, name: str) -> str:
        """The table's directory in the snapshot, as in `InSnapshot.directory`."""
        return self._shadow.shown(self._in(name).path)

    def names(self) -> frozenset[str]:
        """The names of all parts of this table that some snapshot has. Lists that can't be read are
        left out.
        """
        found: set[str] = set()
        for name in self._shadow.names():
            with suppress(Corruption):
                found.update(map(str, _known(self._in(name).read()[1])))
        return frozenset(found)

    def _in(self, name: str) -> "_Home":
        return _Home(self._shadow, layout.join(self._shadow.place(name), self._home))


@dataclass(frozen=True, slots=True)
class _Home:
    """A table's directory in a snapshot. To change it the caller must hold the snapshot's lock."""

    shadow: Shadow
    path: str

    def read(self) -> tuple[int, tuple[Frozen, ...]]:
        """The number of the last list, and the list; 0 and an empty one if there is none. Raises
        Corruption.
        """
        numbers = self._lists()
        if not numbers:
            return 0, ()
        place = layout.join(self.path, numbers[-1][1])
        data = self.shadow.disk.read(place) or b""
        try:
            return numbers[-1][0], _decode(data, self.shadow.disk.local_path(place))
        except Corruption as error:
            name = unescape_file_name(self.path.split("/")[1])
            raise Corruption(
                f"{error}. Only the whole snapshot can be removed, with what it has of other "
                f"tables: SYSTEM UNFREEZE WITH NAME {name!r} removes it"
            ) from error

    def parts(self) -> list[PartName]:
        """The parts that have a directory here, whether the list has them or not."""
        found = map(PartName.try_parse, self.shadow.disk.list(self.path))
        return sorted(part for part in found if part is not None)

    def add(
        self,
        store: PartStore,
        definition: TableDefinition,
        parts: Collection[tuple[PartName, Manifest]],
    ) -> None:
        """Link the parts and add them to the list, as `FrozenParts.freeze` describes."""
        number, frozen = self.read()
        known = _known(frozen)
        for part, _ in parts:
            if part in known:
                raise DirectoryAlreadyExists(
                    f"Directory {self.shadow.shown(self.path)}{part} already exists and is not "
                    "empty: it was frozen under this name before. Nothing was frozen now: give "
                    "another name, or UNFREEZE that one first"
                )
        self._sweep(known)
        new = tuple(FrozenPart.of(part, manifest) for part, manifest in parts)
        try:
            self.shadow.disk.make_directory(self.path)
            self._link(store, parts)
            now_s = int(self.shadow.clock.now_s())
            self._commit(number + 1, (*frozen, Frozen(now_s, definition, new)))
        except BaseException:
            if self.read()[0] == number:
                self._sweep(known)
            raise

    def take(self, partition: str | None) -> list[PartName]:
        """Remove parts, as `FrozenParts.unfreeze` describes."""
        number, frozen = self.read()
        known = _known(frozen)
        going = sorted(part for part in known if partition in (None, part.partition))
        left = tuple(
            replace(one, parts=tuple(part for part in one.parts if part.name not in going))
            for one in frozen
        )
        staying = tuple(one for one in left if one.parts)
        if not staying and (going or partition is None):
            self.shadow.retire(self.path)
            return going
        if going:
            self._commit(number + 1, staying)
        self._sweep(_known(staying) if going else known)
        return going

    def _link(self, store: PartStore, parts: Collection[tuple[PartName, Manifest]]) -> None:
        disk = self.shadow.disk
        trees: list[tuple[str, Sequence[str]]] = []
        for part, manifest in parts:
            target = layout.join(self.path, str(part))
            disk.make_directory(target)
            names = [*(file.name for file in manifest.files), layout.MANIFEST]
            try:
                copied = [
                    name
                    for name in names
                    if not disk.link_from(
                        store.disk,
                        layout.join(store.root, str(part), name),
                        layout.join(target, name),
                    )
                ]
            except FileNotFoundError as error:
                raise MissingPart(f"{part} has lost a file: {error}", part=part) from error
            trees.append((target, copied))
        if self.shadow.durable:
            disk.fsync_trees(trees)

    def _commit(self, number: int, frozen: tuple[Frozen, ...]) -> None:
        """Write this list, so that it is there whole or not at all, and remove older ones."""
        disk = self.shadow.disk
        staged = layout.join(self.path, _STAGED_LIST)
        older = self._lists()
        disk.write(staged, [_encode(frozen)])
        if self.shadow.durable:
            disk.fsync(staged)
            disk.fsync_directory(self.path)  # the parts' names, before the list that has them
        disk.rename(staged, layout.join(self.path, f"frozen_{number:06d}.json"))
        self.shadow.sync_directories(self.path)
        for _, name in older:
            disk.remove_file(layout.join(self.path, name))

    def _sweep(self, keep: Collection[PartName]) -> None:
        """Remove the directories of all other parts."""
        for part in self.parts():
            if part not in keep:
                self.shadow.disk.remove_tree(layout.join(self.path, str(part)))

    def _lists(self) -> list[tuple[int, str]]:
        found = map(_LIST.fullmatch, self.shadow.disk.list(self.path))
        return sorted((int(match[1]), match[0]) for match in found if match is not None)


def _known(frozen: Sequence[Frozen]) -> frozenset[PartName]:
    return frozenset(part.name for one in frozen for part in one.parts)


def _encode(frozen: Sequence[Frozen]) -> bytes:
    return seal_json(
        {
            "format": FORMAT,
            "frozen": [
                {
                    "frozen_s": one.frozen_s,
                    "definition": json.loads(encode_definition(one.definition)),
                    "parts": [{**part._asdict(), "name": str(part.name)} for part in one.parts],
                }
                for one in frozen
            ],
        }
    )


def _decode(data: bytes, place: str) -> tuple[Frozen, ...]:
    """The inverse of `_encode`; `place` is the file's path, for errors. Raises Corruption."""
    raw = unseal_json(data, place)
    try:
        if raw["format"] != FORMAT:
            raise Corruption(
                f"{place} has format {raw['format']!r}; this version reads {FORMAT}"
            )
        return tuple(_frozen(one, place) for one in raw["frozen"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corruption(f"{place} is not the list of a snapshot: {error!r}") from error


def _frozen(raw: dict[str, Any], place: str) -> Frozen:
    parts = (
        FrozenPart(**{**part, "name": PartName.parse(part["name"])}) for part in raw["parts"]
    )
    definition = decode_definition(json.dumps(raw["definition"]).encode(), place)
    return Frozen(int(raw["frozen_s"]), definition, tuple(parts))
