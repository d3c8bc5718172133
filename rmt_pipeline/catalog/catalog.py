"""The catalog: the tables of one server, on its disk, and how they change."""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from rmt_pipeline.catalog.contents import DEFAULT_DATABASE, CatalogContents, FullName
from rmt_pipeline.catalog.definition import encode_definition
from rmt_pipeline.catalog.entries import (
    DETACHED_SUFFIX,
    DROPPING_SUFFIX,
    PERMANENT_SUFFIX,
    REMOVING_SUFFIX,
    DroppedTable,
    UnfinishedDrop,
    encode_drop,
    full_name_of,
    home_directory,
    read_drop,
    read_dropped,
    renamed_table,
)
from rmt_pipeline.catalog.files import (
    escape_file_name,
    held_file,
    is_at,
    sync_directory,
    unwritable,
)
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    DatabaseAlreadyExists,
    DatabaseNotEmpty,
    RmtError,
    TableAlreadyExists,
    UserError,
)
from rmt_pipeline.protocol.table import TableDefinition


class Catalog(CatalogContents):
    """The tables of one server. Of several processes that change them one does at a time."""

    # Databases

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

    # Tables

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
            own = f"{home_directory(definition)}~{definition.uuid or self._ids.new_id()}"
            found = replace(definition, directory=own)  # by who attaches what he has lost
            if self.table_directory(found).exists() or self._is_taken(
                self.table_directory(definition)
            ):
                definition = found
            staged = self._stage(encode_definition(definition))
            try:
                os.link(staged, file)  # unlike a rename, it refuses to replace
            except FileNotFoundError:
                self.require_database(definition.database)
                raise
            finally:
                staged.unlink(missing_ok=True)
            self._changed(file.parent)

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
            file.replace(file.with_suffix(PERMANENT_SUFFIX if permanently else DETACHED_SUFFIX))
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
                for name in self._names(database, DETACHED_SUFFIX):
                    file = self._file(database, name)
                    if file.exists():  # somebody put a copy there: neither is lost
                        continue
                    file.with_suffix(DETACHED_SUFFIX).replace(file)
                    self._changed(file.parent)

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

    def _keep_directory(self, definition: TableDefinition) -> None:
        """Whoever gets the name next sees that the directory is somebody's, although empty."""
        self.table_directory(definition).mkdir(parents=True, exist_ok=True)

    def _is_taken(self, directory: Path) -> bool:
        """Whether it is a table's, whatever that is called by now, or was one's that was dropped:

        1. A worker has claimed a merge, and has yet to make its staging directory. 2. DROP TABLE,
        and CREATE TABLE of the same name. 3. The worker makes its directory, and gives the part its
        name: in the place of a table that has never had such a part.

        And who goes on with a removal removes it once more, with what is in it by then.
        """
        if _used(directory).exists():
            return True
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

    def take_back(self, database: str, name: str, uuid: str = "") -> TableDefinition:
        """UNDROP. Raises what `to_take_back` does; Conflict."""
        with self._locked():
            last = self.to_take_back(database, name, uuid)
            self._require_ended(database, name)
            staged = self._stage(encode_definition(last.definition))
            self._replace({self._file(database, name): staged}, [last.file])
        return last.definition

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
        self._note_used(definition)
        file = self._dropped_file(definition.uuid).with_suffix(REMOVING_SUFFIX)
        file.unlink(missing_ok=True)
        self._changed(file.parent)

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
        self._note_used(definition)
        file = self._file(definition.database, definition.name).with_suffix(DROPPING_SUFFIX)
        file.unlink(missing_ok=True)
        self._changed(file.parent)

    def _note_used(self, definition: TableDefinition) -> None:
        """A place that goes by a name is no other table's. Nothing is synced: who may be late to it
        dies with the host.
        """
        directory = self.table_directory(definition)
        if "~" not in directory.name and directory.parent.exists():
            _used(directory).touch()

    def _require_ended(self, database: str, name: str) -> None:
        """Raises Conflict: while a table has the name, nobody would go on with its DROP."""
        if self.is_dropping(database, name):
            raise Conflict(
                f"the DROP of table {database}.{name} has not ended; try again in a moment"
            )

    def _forget_void_drop(self, file: Path) -> None:
        """Of who died before it had dropped anything: it is not to be gone on with when the table
        has another name. For who has locked the catalog.
        """
        file.with_suffix(DROPPING_SUFFIX).unlink(missing_ok=True)

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


def _used(directory: Path) -> Path:
    """Is there when a table that was dropped had this directory. No table's name has a `~`."""
    return directory.with_name(f"{directory.name}~")
