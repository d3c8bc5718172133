"""The catalog: the tables of one server, on its disk."""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from rmt_pipeline.catalog import journal
from rmt_pipeline.catalog.definition import encode_definition
from rmt_pipeline.catalog.entries import (
    DROPPING_SUFFIX,
    REMOVING_SUFFIX,
    DetachedTable,
    DroppedTable,
    UnfinishedDrop,
    encode_drop,
    full_name_of,
    home_directory,
    problems_of,
    read_drop,
    read_dropped,
    read_table,
    renamed_table,
)
from rmt_pipeline.catalog.files import (
    checked_file_name,
    escape_file_name,
    held_file,
    is_at,
    modified_ns,
    stage_file,
    sync_directory,
    unescape_file_name,
    unwritable,
)
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    DatabaseAlreadyExists,
    DatabaseNotEmpty,
    RmtError,
    TableAlreadyExists,
    TableDetached,
    UnknownDatabase,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.system import IdSource, RandomIds

DEFAULT_DATABASE = "default"
_SUFFIX = ".json"
_DETACHED = ".detached"
_PERMANENT = ".permanent"
_SUFFIXES = (_SUFFIX, DROPPING_SUFFIX, _DETACHED, _PERMANENT)
_REPLICATED = ".replicated"
_STAGING = ".staging"  # an escaped name has no dot
_VERSION = ".version"
_LOCK = ".lock"
_JOURNAL = ".renaming"
_DROPPED = ".dropped"

FullName = tuple[str, str]
"""Database and table."""


@dataclass(frozen=True, slots=True)
class CatalogVersion:
    """Two equal ones: nothing changed in between. Opaque."""

    token: str
    modified_ns: tuple[int, ...]


class Catalog:
    """The tables of one server. Every method reads or writes the disk; nothing is cached."""

    def __init__(self, data: Path, ids: IdSource | None = None) -> None:
        """Makes the directories that are missing. `data` is the server's data directory."""
        self._data = data
        self._root = data / "metadata"
        self._ids = ids or RandomIds()
        try:
            (self._root / DEFAULT_DATABASE).mkdir(parents=True, exist_ok=True)
            (self._root / _STAGING).mkdir(exist_ok=True)
            (self._root / _DROPPED).mkdir(exist_ok=True)
        except OSError as error:
            raise unwritable(data, error) from error
        self._finish_renames()

    @property
    def data(self) -> Path:
        return self._data

    def table_directory(self, definition: TableDefinition) -> Path:
        """Where the parts of this table are; nobody else's."""
        return self._data / "data" / (definition.directory or home_directory(definition))

    def version(self) -> CatalogVersion:
        """Take it before reading: a change after it then shows as another version.

        Reads one small file and the times of the database directories. The times alone would
        miss two changes in one tick of the kernel's clock, the token alone a change whose
        maker died before it wrote the token.
        """
        try:
            token = (self._root / _VERSION).read_bytes().hex()
        except OSError:  # none yet; or the disk does not give it: the times are there
            token = ""
        directories = (self._database(name) for name in self.databases())
        return CatalogVersion(token, tuple(map(modified_ns, directories)))

    # Databases

    def databases(self) -> list[str]:
        """Sorted; `default` is always one of them."""
        with os.scandir(self._root) as entries:
            names = (unescape_file_name(e.name) for e in entries if e.is_dir())
            return sorted(name for name in names if name is not None)

    def create_database(
        self, name: str, *, if_not_exists: bool = False, replicated: bytes = b""
    ) -> bool:
        """False when it was there already and that is fine. `replicated` is what its file of that
        name says; one that a process which died has left is no namesake's. Raises
        DatabaseAlreadyExists, DiskFull.
        """
        directory = self._database(name)
        with self._locked():
            if directory.exists():
                if if_not_exists:
                    return False
                raise DatabaseAlreadyExists(f"database {name!r} already exists")
            self._save_replicated(name, replicated)
            try:
                directory.mkdir()
            except OSError as error:
                raise unwritable(self._root, error) from error
            self._changed(self._root)
        return True

    def drop_database(self, name: str) -> None:
        """Remove an empty database. Raises UnknownDatabase; UserError while it has tables."""
        self.require_database(name)
        if name == DEFAULT_DATABASE:
            raise UserError(f"database {name} cannot be dropped: it always exists")
        with self._locked():
            try:
                self._database(name).rmdir()
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise unwritable(self._root, error) from error
                unfinished = [
                    f"{table} (its DROP is not finished)" for table in self.dropping(name)
                ]
                detached = [
                    f"{one.definition.name} ({one.words})" for one in self._all_detached(name)
                ]
                damaged = self._damaged(name)
                tables = ", ".join([*self.tables(name), *detached, *unfinished, *damaged])
                raise DatabaseNotEmpty(
                    f"database {name} still has tables: {tables}; drop them first, detached ones "
                    "after ATTACH TABLE"
                ) from None
            self._save_replicated(name, b"")
            with suppress(OSError):  # only when no table of it ever left data behind
                (self._data / "data" / escape_file_name(name)).rmdir()
            self._changed(self._root)

    def replicated_file(self, database: str) -> Path:
        """Beside the directory of a Replicated database, without which it means nothing. Raises
        UserError.
        """
        return self._root / checked_file_name(database, "database", _REPLICATED)

    def save_replicated(self, database: str, content: bytes) -> None:
        """What the file of a database that is there says from now on. Raises UnknownDatabase,
        DiskFull.
        """
        with self._locked():
            self.require_database(database)
            self._save_replicated(database, content)
            self._changed(self._root)

    def _save_replicated(self, database: str, content: bytes) -> None:
        """b"": there is none. For who has locked the catalog."""
        if content:
            self._stage(content).replace(self.replicated_file(database))
            sync_directory(self._root)
            return
        with suppress(UserError):  # no such file was ever written
            self.replicated_file(database).unlink(missing_ok=True)

    def require_database(self, name: str) -> None:
        """Raises UnknownDatabase with the nearest name."""
        if not self._database(name).is_dir():
            hint = _near(name, self.databases())
            raise UnknownDatabase(f"database {name!r} does not exist{hint}")

    # Tables

    def tables(self, database: str) -> list[str]:
        """Sorted. Raises UnknownDatabase."""
        return self._names(database, _SUFFIX)

    def has(self, database: str, name: str) -> bool:
        return self._file(database, name).exists()

    def definition(self, database: str, name: str) -> TableDefinition:
        """Raises UnknownDatabase, UnknownTable (with the nearest name), or Corruption."""
        file = self._file(database, name)
        try:
            return read_table(file, database, name)
        except FileNotFoundError:
            self.require_database(database)
            raise self._unknown_table(database, name) from None

    def names(self) -> list[tuple[str, str]]:
        """Database and name of every table, sorted."""
        with self._locked(shared=True):
            return self._table_names()

    def definitions(self) -> list[TableDefinition]:
        """Every table of every database, sorted by database and name; but for those that `damaged`
        has: one file is no reason to do nothing for all others.
        """
        with self._locked(shared=True):
            return self._definitions()

    def damaged(self, *databases: str) -> list[str]:
        """What is wrong with each file that can't be read, with its name and what to do about it.
        Without databases, of all, and of the dropped tables.
        """
        with self._locked(shared=True):
            return self._damaged(*databases)

    def damaged_aside(self) -> list[str]:
        """As `damaged`, of what is no table at present: detached, dropped, being dropped."""
        with self._locked(shared=True):
            return self._damaged(suffixes=_SUFFIXES[1:])

    def _damaged(self, *databases: str, suffixes: Sequence[str] = _SUFFIXES) -> list[str]:
        found: list[str] = []
        for database in databases or self.databases():
            for suffix in suffixes:
                names: list[str] = []
                with suppress(UnknownDatabase):  # dropped since it was listed
                    names = self._names(database, suffix)
                for name in names:
                    file = self._file(database, name).with_suffix(suffix)
                    found += problems_of(file, database, name)
        for file in self._dropped_files() if not databases else ():
            found += problems_of(file)
        return found

    def require_readable(self, database: str) -> None:
        """Raises Corruption: it is not known what one of the files of its tables is of."""
        for problem in self.damaged(database):
            raise Corruption(problem)

    def current(self, definition: TableDefinition) -> TableDefinition | None:
        """What the table is now, whatever it is called by now; None when it was dropped. One that
        was never in a catalog, and so has no uuid, is whichever has the name. Raises TableDetached;
        UnknownTable when another one has its name.
        """
        with self._locked(shared=True):
            return self._current(definition)

    def add(self, definition: TableDefinition) -> None:
        """Remember a new table, durably. Raises TableAlreadyExists, UnknownDatabase, DiskFull.

        Of several processes that add one name at the same time, one succeeds.
        """
        file = self._file(definition.database, definition.name)
        self.require_database(definition.database)
        with self._locked():
            self.require_free(definition.database, definition.name)
            self._require_ended(definition.database, definition.name)
            self._require_not_dropped(definition)
            if self._is_taken(self.table_directory(definition)):
                own = f"{home_directory(definition)}~{definition.uuid or self._ids.new_id()}"
                definition = replace(definition, directory=own)
            staged = self._stage(encode_definition(definition))
            try:
                os.link(staged, file)  # unlike a rename, it refuses to replace
            except FileNotFoundError:
                self.require_database(definition.database)
                raise
            finally:
                staged.unlink(missing_ok=True)
            self._changed(file.parent)

    def require_free(self, database: str, name: str) -> None:
        """Raises TableAlreadyExists: a detached table keeps its name."""
        words = "already exists"
        if not self.has(database, name):
            found = self._detached(database, name)
            if found is None:
                return
            words = f"already exists ({found.words}): ATTACH TABLE takes it up again"
        raise TableAlreadyExists(f"table {database}.{name} {words}")

    def save(self, definition: TableDefinition) -> None:
        """Replace the definition of a table that is there. Raises UnknownTable, DiskFull."""
        file = self._file(definition.database, definition.name)
        if not file.is_file():
            self.require_database(definition.database)
            raise self._unknown_table(definition.database, definition.name)
        self._stage(encode_definition(definition)).replace(file)
        self._changed(file.parent)

    def update_table(
        self,
        definition: TableDefinition,
        change: Callable[[TableDefinition], TableDefinition],
    ) -> TableDefinition:
        """What `change` makes of the definition that the table has now, durably. Of several
        processes that change one catalog each sees what those before it did. A table that was
        dropped, or dropped and created again, stays away: raises UnknownTable. Also DiskFull.
        """
        with self._locked():
            before = self._current(definition)
            if before is None:
                raise self._unknown_table(definition.database, definition.name)
            after = change(before)
            if after != before:
                self.save(after)
        return after

    # Detaching a table: its file gets another suffix, and nobody finds the table

    def detach(self, database: str, name: str, *, permanently: bool = False) -> TableDefinition:
        """From here on there is no such table, for whoever looks, until it is attached again.
        Raises UnknownTable, UnknownDatabase.
        """
        file = self._file(database, name)
        with self._locked():  # nobody who alters it now writes it anew
            definition = self.definition(database, name)
            self._forget_void_drop(file)
            file.replace(file.with_suffix(_PERMANENT if permanently else _DETACHED))
            self._changed(file.parent)
        return definition

    def attach(self, database: str, name: str) -> TableDefinition:
        """Bring a detached table back. Raises TableAlreadyExists, UnknownTable, Corruption."""
        file = self._file(database, name)
        with self._locked():
            if file.is_file():
                raise TableAlreadyExists(f"table {database}.{name} is attached already")
            found = self._detached(database, name)
            if found is None:
                self.require_database(database)
                raise self._unknown_table(database, name)
            found.file.replace(file)
            self._changed(file.parent)
        return found.definition

    def attach_again(self) -> None:
        """What a server's start does: bring back what was not detached permanently."""
        with self._locked():
            for database in self.databases():
                for name in self._names(database, _DETACHED):
                    file = self._file(database, name)
                    if file.exists():  # somebody put a copy there: neither is lost
                        continue
                    file.with_suffix(_DETACHED).replace(file)
                    self._changed(file.parent)

    def detached(self, *databases: str) -> list[DetachedTable]:
        """Of these databases, none: of all; sorted by database and name, but for what `damaged`
        has.
        """
        with self._locked(shared=True):
            return self._all_detached(*databases)

    def _all_detached(self, *databases: str) -> list[DetachedTable]:
        found = []
        for database in databases or self.databases():
            with suppress(UnknownDatabase):  # dropped since it was listed
                names = {*self._names(database, _DETACHED), *self._names(database, _PERMANENT)}
                for name in sorted(names):
                    with suppress(Corruption):
                        found.append(self._detached(database, name))
        return [one for one in found if one is not None]

    def _detached(self, database: str, name: str) -> DetachedTable | None:
        for suffix in (_PERMANENT, _DETACHED):
            file = self._file(database, name).with_suffix(suffix)
            with suppress(FileNotFoundError):  # or attached since it was listed
                definition = read_table(file, database, name)
                return DetachedTable(definition, suffix == _PERMANENT, file)
        return None

    # Renaming: a table's parts stay where they are

    def rename_tables(self, moves: Sequence[tuple[FullName, FullName]]) -> None:
        """Each in its turn, all or none; whoever lists the tables sees the state before or after.
        Raises UnknownTable, UnknownDatabase, TableAlreadyExists; DiskFull.
        """
        with self._locked():
            now: dict[FullName, FullName | None] = {}  # which table has a name by then
            for old, new in moves:
                source = now[old] if old in now else old if self.has(*old) else None
                if source is None:
                    self.require_database(old[0])
                    raise self._unknown_table(*old)
                self.require_database(new[0])
                if now.get(new) is not None:
                    raise TableAlreadyExists(f"table {'.'.join(new)} already exists by then")
                if new not in now:
                    self.require_free(*new)
                    self._require_ended(*new)
                now[old], now[new] = None, source
            moved = {new: old for new, old in now.items() if old is not None and old != new}
            self._move(moved, [name for name, table in now.items() if table is None])

    def exchange_tables(self, one: FullName, other: FullName) -> None:
        """Each gets the other's name. Raises UnknownTable, UnknownDatabase, DiskFull."""
        with self._locked():
            self._move({one: other, other: one}, [])

    def rename_database(self, old: str, new: str) -> None:
        """With all its tables, in one step. Raises UnknownDatabase, DatabaseAlreadyExists,
        UserError.
        """
        with self._locked():
            self.require_database(old)
            if old == DEFAULT_DATABASE:
                raise UserError(f"database {old} cannot be renamed: it always exists")
            if self.dropping(old):
                tables = ", ".join(self.dropping(old))
                raise UserError(
                    f"database {old} has tables whose DROP is not finished: {tables}"
                )
            if self._database(new).exists():
                raise DatabaseAlreadyExists(f"database {new!r} already exists")
            for problem in self._damaged(old):  # where its parts are is not known
                raise Corruption(problem)
            detached = [one.definition for one in self._all_detached(old)]
            for definition in [*self._definitions(old), *detached]:
                self._keep_directory(definition)
            self._save_replicated(new, b"")  # of who died: it is not this one's
            self._database(old).rename(self._database(new))
            self._changed(self._root)

    def _move(self, moved: Mapping[FullName, FullName], gone: Sequence[FullName]) -> None:
        """`moved`: the names that tables had, by those that they get; `gone`: names that nobody has
        then. For who has locked the catalog.
        """
        replaced: dict[Path, Path] = {}
        try:
            for new, old in moved.items():
                renamed = renamed_table(self.definition(*old), *new)
                self._keep_directory(renamed)
                self._forget_void_drop(self._file(*old))
                replaced[self._file(*new)] = self._stage(encode_definition(renamed))
        except RmtError:
            for staged in replaced.values():
                staged.unlink()
            raise
        self._replace(replaced, [self._file(*name) for name in gone if self.has(*name)])

    def _replace(self, replaced: Mapping[Path, Path], gone: Sequence[Path]) -> None:
        """All at once. `replaced`: staged files by what they become."""
        decided = self._root / _JOURNAL
        journal.decide(decided, self._root / _STAGING / self._ids.new_id(), replaced, gone)
        journal.complete(decided)
        self._changed(self._root)

    def _keep_directory(self, definition: TableDefinition) -> None:
        """Whoever gets the name next sees that the directory is somebody's, although empty."""
        self.table_directory(definition).mkdir(parents=True, exist_ok=True)

    def _is_taken(self, directory: Path) -> bool:
        """Whether it is a table's, whatever that is called by now; until a removal has ended even
        when it is gone: who goes on with that removes it once more, with what is in it by then.
        """
        known = [one.definition for one in self.dropped()]
        for database in self.databases():
            for name in self.dropping(database):
                file = self._file(database, name).with_suffix(DROPPING_SUFFIX)
                with suppress(FileNotFoundError, Corruption):
                    known.append(read_drop(file).definition)
        if directory.exists():
            known += [*self._definitions(), *(one.definition for one in self._all_detached())]
        if any(self.table_directory(one) == directory for one in known):
            return True
        for problem in self._damaged() if directory.exists() else ():
            raise Corruption(f"whose {directory} is cannot be said: {problem}")
        return False

    # Dropping a table for later: it is put away, and its name is free at once

    def put_away(self, definition: TableDefinition, replica_czxid: int, now_s: float) -> None:
        """From here on there is no such table; `take_back` undoes it until `begin_removal`. Raises
        UnknownTable, DiskFull.
        """
        with self._locked():
            definition = self._require_same(definition)
            drop = UnfinishedDrop(
                renamed_table(definition, *full_name_of(definition)), replica_czxid
            )
            file = self._file(definition.database, definition.name)
            self._forget_void_drop(file)
            self._keep_directory(definition)
            content = {
                "dropped_s": int(now_s),
                "number": 1 + max((one.number for one in self.dropped()), default=0),
                "id": self._ids.new_id(),
                **json.loads(encode_drop(drop)),
            }
            staged = self._stage(json.dumps(content, indent=1, ensure_ascii=False).encode())
            self._replace({self._dropped_file(definition.uuid): staged}, [file])

    def to_take_back(self, database: str, name: str, uuid: str = "") -> DroppedTable:
        """What UNDROP is for: of several dropped tables of one name the last one. Raises
        UnknownTable, UnknownDatabase, TableAlreadyExists.
        """
        self.require_database(database)
        self.require_free(database, name)
        named = [
            one
            for one in self.dropped()
            if full_name_of(one.definition) == (database, name)
            and uuid in ("", one.definition.uuid)
        ]
        found = [one for one in named if not one.is_removing]
        if not found:
            words = "is being removed already" if named else "is not among those dropped"
            raise UnknownTable(f"table {database}.{name} {words}: see system.dropped_tables")
        return found[-1]

    def take_back(self, database: str, name: str, uuid: str = "") -> TableDefinition:
        """UNDROP. Raises what `to_take_back` does; Conflict."""
        with self._locked():
            last = self.to_take_back(database, name, uuid)
            self._require_ended(database, name)
            staged = self._stage(encode_definition(last.definition))
            self._replace({self._file(database, name): staged}, [last.file])
        return last.definition

    def dropped(self) -> list[DroppedTable]:
        """Those that are not removed yet, the first ones first; but for what `damaged` has."""
        found = []
        for file in self._dropped_files():
            with suppress(FileNotFoundError, Corruption):  # or removed since it was listed
                found.append(read_dropped(file))
        return sorted(found, key=lambda one: (one.number, one.dropped_s, one.definition.uuid))

    def _dropped_files(self) -> list[Path]:
        files = (self._root / _DROPPED).iterdir()
        return sorted(file for file in files if file.suffix in (_SUFFIX, REMOVING_SUFFIX))

    @contextmanager
    def begin_removal(self, dropped: DroppedTable) -> Iterator[UnfinishedDrop | None]:
        """From here on it can't be taken back, and nobody else removes it; None when it was taken
        back, or is gone. Raises Conflict while another process is at it.
        """
        with held_file(dropped.file, dropped.definition.full_name) as opened:
            with self._locked():
                is_there = (
                    opened is not None
                    and is_at(opened, dropped.file)
                    and read_dropped(dropped.file) == dropped  # else it was dropped again
                )
                if is_there:
                    dropped.file.replace(dropped.file.with_suffix(REMOVING_SUFFIX))
                    self._changed(dropped.file.parent)
            yield dropped.drop if is_there else None

    def end_removal(self, definition: TableDefinition) -> None:
        """Nothing is left of it. For who has begun its removal."""
        file = self._dropped_file(definition.uuid).with_suffix(REMOVING_SUFFIX)
        file.unlink(missing_ok=True)
        self._changed(file.parent)

    def _dropped_file(self, uuid: str) -> Path:
        return self._root / _DROPPED / f"{uuid}{_SUFFIX}"

    def _require_not_dropped(self, definition: TableDefinition) -> None:
        """One replica is not to be two tables, of which one goes some minutes later."""
        for one in self.dropped():
            if one.definition.engine.root == definition.engine.root:
                raise TableAlreadyExists(
                    f"replica {definition.engine.root} is {one.definition.full_name}'s, which was "
                    "dropped and is not removed yet: UNDROP TABLE takes it up again"
                )

    # Dropping a table: its name is given up only when nothing is left of it

    @contextmanager
    def begin_drop(
        self, definition: TableDefinition, replica_czxid: int
    ) -> Iterator[UnfinishedDrop]:
        """From here on there is no such table, for whoever looks, but a drop to finish; and
        nobody else finishes it meanwhile. Raises UnknownTable, DiskFull.
        """
        file = self._file(definition.database, definition.name)
        drop = UnfinishedDrop(definition, replica_czxid)
        staged = self._stage(encode_drop(drop))
        with staged.open("rb") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            with self._locked():  # nobody who alters it now writes it anew
                try:
                    self._require_same(definition)
                except RmtError:
                    staged.unlink()
                    raise
                # Both are there for a moment. Whoever dies now has dropped nothing.
                staged.replace(file.with_suffix(DROPPING_SUFFIX))
                sync_directory(file.parent)
                file.unlink()
                self._changed(file.parent)
            yield drop

    @contextmanager
    def resume_drop(self, database: str, name: str) -> Iterator[UnfinishedDrop | None]:
        """What is left to drop of that name, for us alone; None when nothing is. Raises Conflict
        while another process is at it.
        """
        with self._drop_file(database, name) as file:
            yield None if file is None else read_drop(file)

    def end_drop(self, definition: TableDefinition) -> None:
        """Nothing is left of the table: its name is free. For whoever has the drop."""
        file = self._file(definition.database, definition.name).with_suffix(DROPPING_SUFFIX)
        file.unlink(missing_ok=True)
        self._changed(file.parent)

    def is_dropping(self, database: str, name: str) -> bool:
        """Whether a DROP of that table has begun and not ended."""
        file = self._file(database, name)
        return file.with_suffix(DROPPING_SUFFIX).exists() and not file.exists()

    def dropping(self, database: str) -> list[str]:
        """The tables whose DROP has begun and not ended, sorted. Raises UnknownDatabase."""
        return [
            name
            for name in self._names(database, DROPPING_SUFFIX)
            if not self.has(database, name)  # else it died before it had dropped anything
        ]

    def _require_ended(self, database: str, name: str) -> None:
        """Raises Conflict: while a table has the name, nobody would go on with its DROP."""
        if self.is_dropping(database, name):
            raise Conflict(
                f"the DROP of table {database}.{name} has not ended; try again in a moment"
            )

    @contextmanager
    def _drop_file(self, database: str, name: str) -> Iterator[Path | None]:
        """Locked; the lock ends with the process."""
        file = self._file(database, name).with_suffix(DROPPING_SUFFIX)
        if not self.is_dropping(database, name):
            yield None
            return
        with held_file(file, f"{database}.{name}") as opened:
            # Who had the lock before us may have finished; the name may be another table's by now.
            is_there = opened is not None and is_at(opened, file)
            yield file if is_there and self.is_dropping(database, name) else None

    # Files

    @contextmanager
    def _locked(self, *, shared: bool = False) -> Iterator[None]:
        """One process at a time, or several who only read; ends with the process."""
        with (self._root / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            while (self._root / _JOURNAL).exists():  # who renamed has died
                fcntl.flock(lock, fcntl.LOCK_EX)
                if journal.complete(self._root / _JOURNAL):
                    self._changed(self._root)
                fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield

    def _finish_renames(self) -> None:
        """What a process that died has left of a RENAME."""
        if (self._root / _JOURNAL).exists():
            with self._locked():
                pass

    def _table_names(self, *databases: str) -> list[FullName]:
        found = []
        for database in databases or self.databases():
            with suppress(UnknownDatabase):  # dropped since it was listed
                found += [(database, name) for name in self.tables(database)]
        return found

    def _definitions(self, *databases: str) -> list[TableDefinition]:
        found = []
        for name in self._table_names(*databases):
            with suppress(UnknownDatabase, UnknownTable, Corruption):
                found.append(self.definition(*name))
        return found

    def _current(self, definition: TableDefinition) -> TableDefinition | None:
        """As `current`. For who has locked the catalog."""
        database, name, uuid = definition.database, definition.name, definition.uuid
        there = _read_if_there(self._file(database, name), database, name)
        if there is not None and uuid in ("", there.uuid):
            return there
        for known in self._definitions() if uuid else ():
            if known.uuid == uuid:
                return known
        for one in self._all_detached():
            table = one.definition
            if (table.uuid or table.full_name) == (uuid or definition.full_name):
                raise self._unknown_table(table.database, table.name)
        for dropped in self.dropped() if uuid else ():
            if dropped.definition.uuid == uuid:
                name = dropped.definition.full_name
                raise TableDetached(f"table {name} was dropped; UNDROP TABLE takes it up again")
        if there is not None:
            raise UnknownTable(
                f"table {definition.full_name} was dropped and created again: open it anew"
            )
        return None

    def _forget_void_drop(self, file: Path) -> None:
        """Of who died before it had dropped anything: it is not to be gone on with when the table
        has another name. For who has locked the catalog.
        """
        file.with_suffix(DROPPING_SUFFIX).unlink(missing_ok=True)

    def _database(self, name: str) -> Path:
        return self._root / checked_file_name(name, "database", *_SUFFIXES).removesuffix(
            _SUFFIX
        )

    def _names(self, database: str, suffix: str) -> list[str]:
        """Of the tables of which there is a file with this suffix, sorted."""
        try:
            files = [file.name for file in self._database(database).iterdir()]
        except FileNotFoundError:
            self.require_database(database)
            raise
        names = (
            unescape_file_name(f.removesuffix(suffix)) for f in files if f.endswith(suffix)
        )
        return sorted(name for name in names if name is not None)

    def _file(self, database: str, name: str) -> Path:
        return self._database(database) / checked_file_name(name, "table", *_SUFFIXES)

    def _require_same(self, definition: TableDefinition) -> TableDefinition:
        """What the table is now. Raises UnknownTable."""
        found = self.definition(definition.database, definition.name)
        if found.uuid != definition.uuid:
            raise UnknownTable(f"table {definition.full_name} was dropped and created again")
        return found

    def _unknown_table(self, database: str, name: str) -> UnknownTable:
        detached = self._detached(database, name)
        if detached is not None:
            return TableDetached(
                f"table {database}.{name} is {detached.words}: ATTACH TABLE takes it up again"
            )
        if self.is_dropping(database, name):
            return UnknownTable(
                f"table {database}.{name} was dropped, and that was cut off: the server goes on "
                "with it, and so does DROP TABLE or CREATE TABLE of the same name"
            )
        hint = _near(name, self.tables(database))
        if any(full_name_of(one.definition) == (database, name) for one in self.dropped()):
            hint = ": it was dropped, and UNDROP TABLE takes it up again"
        return UnknownTable(f"table {database}.{name} does not exist{hint}")

    def _stage(self, content: bytes) -> Path:
        return stage_file(self._root / _STAGING / self._ids.new_id(), content)

    def _changed(self, directory: Path) -> None:
        sync_directory(directory)
        self._stage(self._ids.new_id().encode()).replace(self._root / _VERSION)


def _read_if_there(file: Path, database: str, name: str) -> TableDefinition | None:
    try:
        return read_table(file, database, name)
    except FileNotFoundError:
        return None


def _near(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are: {', '.join(known)}" if 0 < len(known) <= 10 else ""
