"""Reading the catalog of one server: its databases, and its tables, also detached and
dropped ones.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO

from rmt_pipeline.catalog import journal
from rmt_pipeline.catalog.entries import (
    DETACHED_SUFFIX,
    DROPPING_SUFFIX,
    PERMANENT_SUFFIX,
    REMOVING_SUFFIX,
    SUFFIXES,
    TABLE_SUFFIX,
    DetachedTable,
    DroppedTable,
    full_name_of,
    home_directory,
    problems_of,
    read_dropped,
    read_table,
)
from rmt_pipeline.files import (
    checked_file_name,
    modified_ns,
    stage_file,
    sync_directory,
    unescape_file_name,
    unwritable,
)
from rmt_pipeline.protocol.errors import (
    Corruption,
    DiskFull,
    RmtError,
    TableAlreadyExists,
    TableDetached,
    UnknownDatabase,
    UnknownTable,
)
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.system import IdSource, RandomIds

DEFAULT_DATABASE = "default"
_REPLICATED = ".replicated"
_STAGING = ".staging"  # an escaped name has no dot
_VERSION = ".version"
_TOKEN_BYTES_MAX = 64
_LOCK = ".lock"
_JOURNAL = ".renaming"
_DROPPED = ".dropped"

FullName = tuple[str, str]
"""Database and name of a table."""


@dataclass(frozen=True, slots=True)
class CatalogVersion:
    """A state of the catalog. If two are equal, nothing changed in between."""

    token: str
    modified_ns: tuple[int, ...]


class CatalogContents:
    """The tables of one server, to be read. Nothing is cached: every method reads the disk."""

    def __init__(self, data: Path, ids: IdSource | None = None) -> None:
        """Makes the directories that are missing. `data` is the server's data directory."""
        self._data = data
        self._root = data / "metadata"
        self._version = self._root / _VERSION
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
        """The directory of this table's parts, which no other table uses."""
        return self._data / "data" / (definition.directory or home_directory(definition))

    def version(self) -> CatalogVersion:
        """The version of the catalog. Take it before reading: if it differs later, read again.

        It consists of a token from a small file and the modification times of the database
        directories. The times alone would miss two changes within one tick of the kernel's clock;
        the token alone would miss a change whose process died before it wrote the token.
        """
        token = ""
        with suppress(OSError):  # no such file yet, or unreadable: the times must do
            # Every insert asks: a file object takes twice as many system calls, at each of which
            # other threads may take the interpreter.
            descriptor = os.open(self._version, os.O_RDONLY)
            try:
                token = os.read(descriptor, _TOKEN_BYTES_MAX).hex()
            finally:
                os.close(descriptor)
        with os.scandir(self._root) as entries:
            times = sorted((e.name, modified_ns(e)) for e in entries if _is_database(e))
        return CatalogVersion(token, tuple(time_ns for _, time_ns in times))

    # Databases

    def databases(self) -> list[str]:
        """All names, sorted; `default` is always one of them."""
        with os.scandir(self._root) as entries:
            names = (unescape_file_name(e.name) for e in entries if _is_database(e))
            return sorted(name for name in names if name is not None)

    def require_database(self, name: str) -> None:
        """Raises UnknownDatabase, with the nearest name that exists, if there is no
        such database.
        """
        if not self._database(name).is_dir():
            hint = _near(name, self.databases())
            raise UnknownDatabase(f"database {name!r} does not exist{hint}")

    def replicated_file(self, database: str) -> Path:
        """The file that makes a database Replicated. It stands beside the database's directory, and
        means nothing without it. Raises UserError for a name that can't be a file's.
        """
        return self._root / checked_file_name(database, "database", _REPLICATED)

    # Tables

    def tables(self, database: str) -> list[str]:
        """Names of the database's tables, sorted. Raises UnknownDatabase."""
        return self._names(database, TABLE_SUFFIX)

    def has(self, database: str, name: str) -> bool:
        return self._file(database, name).exists()

    def names(self) -> list[tuple[str, str]]:
        """Database and name of every table, sorted."""
        with self._locked(shared=True):
            return self._table_names()

    def definition(self, database: str, name: str) -> TableDefinition:
        """Raises UnknownDatabase, UnknownTable (with the nearest name), or Corruption."""
        file = self._file(database, name)
        try:
            return read_table(file, database, name)
        except FileNotFoundError:
            self.require_database(database)
            raise self._unknown_table(database, name) from None

    def definitions(self) -> list[TableDefinition]:
        """Every table of every database, sorted by database and name. Tables whose file is damaged
        are left out (see `damaged`), so that one bad file does not stop all others.
        """
        with self._locked(shared=True):
            return self._definitions()

    def current(self, definition: TableDefinition) -> TableDefinition | None:
        """The table's definition as it is now, found by its uuid even if it was renamed or altered;
        None if it was dropped. A definition without a uuid (never stored in a catalog) is looked up
        by name. Raises TableDetached; UnknownTable if another table has its name.
        """
        with self._locked(shared=True):
            return self._current(definition)

    def is_free(self, database: str, name: str) -> bool:
        """Whether no table, nor a detached one, has the name."""
        return not self.has(database, name) and self._detached(database, name) is None

    def require_free(self, database: str, name: str) -> None:
        """Raises TableAlreadyExists if a table, or a detached table, has the name."""
        words = "already exists"
        if not self.has(database, name):
            found = self._detached(database, name)
            if found is None:
                return
            words = f"already exists ({found.words}): ATTACH TABLE takes it up again"
        raise TableAlreadyExists(f"table {database}.{name} {words}")

    # Detached tables, and dropped ones

    def detached(self, *databases: str) -> list[DetachedTable]:
        """Detached tables of these databases (of all, if none is named), sorted by database and
        name. Damaged files are left out.
        """
        with self._locked(shared=True):
            return self._all_detached(*databases)

    def dropped(self) -> list[DroppedTable]:
        """Dropped tables that are not removed yet, in the order of their drops. Damaged files are
        left out.
        """
        found = []
        for file in self._dropped_files():
            with suppress(FileNotFoundError, Corruption):  # it may be gone by now
                found.append(read_dropped(file))
        return sorted(found, key=lambda one: (one.number, one.dropped_s, one.definition.uuid))

    def to_take_back(self, database: str, name: str, uuid: str = "") -> DroppedTable:
        """The table that UNDROP TABLE means: the last dropped one of that name, or the one with
        that `uuid`. Raises UnknownTable, UnknownDatabase, TableAlreadyExists.
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

    def is_dropping(self, database: str, name: str) -> bool:
        """Whether a DROP TABLE … SYNC of that table has begun and not ended."""
        file = self._file(database, name)
        return file.with_suffix(DROPPING_SUFFIX).exists() and not file.exists()

    def dropping(self, database: str) -> list[str]:
        """Tables whose DROP TABLE … SYNC has begun and not ended, sorted. Raises
        UnknownDatabase.
        """
        return [
            name
            for name in self._names(database, DROPPING_SUFFIX)
            if not self.has(database, name)  # else the DROP died before it had dropped anything
        ]

    # Files that can't be read

    def damaged(self, *databases: str) -> list[str]:
        """A message for each file that can't be read: its name, what is wrong, and what to do about
        it. Without arguments it covers all databases, and the dropped tables.
        """
        with self._locked(shared=True):
            return self._damaged(*databases)

    def damaged_aside(self) -> list[str]:
        """As `damaged`, but only files of detached and dropped tables, and of drops that go on."""
        with self._locked(shared=True):
            return self._damaged(suffixes=SUFFIXES[1:])

    def require_readable(self, database: str) -> None:
        """Raises Corruption if the file of one of the database's tables is damaged."""
        for problem in self.damaged(database):
            raise Corruption(problem)

    def _damaged(self, *databases: str, suffixes: Sequence[str] = SUFFIXES) -> list[str]:
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

    # The methods below expect that the caller holds the lock

    @contextmanager
    def _locked(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the catalog's lock: one process that changes it, or (`shared`) several that read."""
        with self._lock_file(shared=shared) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            while (self._root / _JOURNAL).exists():  # a process died while it renamed
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._complete()
                fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield

    def _lock_file(self, *, shared: bool) -> IO[bytes]:
        """The file of the lock, open. An account that may only read locks it, too."""

        def made(path: str, flags: int) -> int:
            return os.open(path, flags | os.O_CREAT, 0o666)

        try:
            return open(self._root / _LOCK, "rb" if shared else "r+b", opener=made)
        except OSError as error:
            raise unwritable(self._root / _LOCK, error) from error

    def _finish_renames(self) -> None:
        """Finish a RENAME whose process died."""
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
        """As `current`."""
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
                f"table {definition.full_name} was dropped and created again: open it again"
            )
        return None

    def _all_detached(self, *databases: str) -> list[DetachedTable]:
        found = []
        for database in databases or self.databases():
            with suppress(UnknownDatabase):  # dropped since it was listed
                names = {
                    *self._names(database, DETACHED_SUFFIX),
                    *self._names(database, PERMANENT_SUFFIX),
                }
                for name in sorted(names):
                    with suppress(Corruption):
                        found.append(self._detached(database, name))
        return [one for one in found if one is not None]

    def _detached(self, database: str, name: str) -> DetachedTable | None:
        served = self._file(database, name)
        for suffix in (PERMANENT_SUFFIX, DETACHED_SUFFIX):
            file = served.with_suffix(suffix)
            with suppress(FileNotFoundError):  # or attached since it was listed
                definition = read_table(file, database, name)
                return DetachedTable(definition, suffix == PERMANENT_SUFFIX, file)
        return None

    def _require_same(self, definition: TableDefinition) -> TableDefinition:
        """The table's definition as it is now. Raises UnknownTable if it is not the same table."""
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
                f"the DROP of table {database}.{name} was interrupted: the server finishes it; so "
                "does DROP TABLE or CREATE TABLE of the same name"
            )
        hint = _near(name, self.tables(database))
        if any(full_name_of(one.definition) == (database, name) for one in self.dropped()):
            hint = ": it was dropped, and UNDROP TABLE takes it up again"
        return UnknownTable(f"table {database}.{name} does not exist{hint}")

    # Files

    def _database(self, name: str) -> Path:
        return self._root / checked_file_name(name, "database", *SUFFIXES).removesuffix(
            TABLE_SUFFIX
        )

    def _names(self, database: str, suffix: str) -> list[str]:
        """Names of tables that have a file with this suffix, sorted."""
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
        return self._database(database) / checked_file_name(name, "table", *SUFFIXES)

    def _dropped_files(self) -> list[Path]:
        files = (self._root / _DROPPED).iterdir()
        return sorted(file for file in files if file.suffix in (TABLE_SUFFIX, REMOVING_SUFFIX))

    def _dropped_file(self, uuid: str) -> Path:
        return self._root / _DROPPED / f"{uuid}{TABLE_SUFFIX}"

    def _replace(self, replaced: Mapping[Path, Path], gone: Sequence[Path]) -> None:
        """Change several files as one; `replaced` maps each file to the staged one
        that becomes it.
        """
        staged = self._staged(self._ids.new_id())
        try:
            journal.decide(self._root / _JOURNAL, staged, replaced, gone)
        except RmtError:
            for one in replaced.values():
                one.unlink(missing_ok=True)
            raise
        self._complete()

    def _complete(self) -> None:
        """Carry out the change that was decided, if there is one."""
        try:
            is_done = journal.complete(self._root / _JOURNAL)
        except OSError as error:
            raise unwritable(self._root, error) from error
        if is_done:
            self._changed(self._root)

    def _stage(self, content: bytes) -> Path:
        return stage_file(self._staged(self._ids.new_id()), content)

    def _staged(self, name: str) -> Path:
        return self._root / _STAGING / name

    def _changed(self, directory: Path) -> None:
        """Make a change durable, and tell all processes of it. If the disk is too full for another
        token, it gets none: the change is made, and must not be reported as one that was not.
        """
        sync_directory(directory)
        try:
            self._stage(self._ids.new_id().encode()).replace(self._version)
        except DiskFull:
            self._version.unlink(missing_ok=True)


def _is_database(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and unescape_file_name(entry.name) is not None


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
