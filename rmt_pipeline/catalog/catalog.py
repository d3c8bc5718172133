"""The catalog: the definitions of one server's tables, as files on its disk, and how they change.

Each table has one file, `metadata/<database>/<table>.json`. What may become of it:

    DETACH, ATTACH        the file gets another suffix, and its old one back
    RENAME, EXCHANGE      several files change as one, through a journal (`catalog.journal`)
    DROP TABLE            the file moves to `metadata/.dropped`; UNDROP moves it back; when
                          `drop_delay_s` is over, `begin_removal` makes the drop final
    DROP TABLE … SYNC     the file becomes `<table>.dropping` until nothing of the table is left

Every change happens under one file lock (`_locked`), which the kernel releases when its process
dies. Each step leaves files from which the next process to take the lock can go on.
"""

import errno
import fcntl
import hashlib
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
    directory_of_its_own,
    encode_drop,
    full_name_of,
    read_drop,
    read_dropped,
    renamed_table,
)
from rmt_pipeline.files import (
    escape_file_name,
    held_file,
    is_at,
    made_and_held,
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
    """The tables of one server, to be read and changed. Only one process changes them at a time."""

    # Databases

    def create_database(
        self, name: str, *, if_not_exists: bool = False, replicated: bytes = b""
    ) -> bool:
        """Make an empty database. Returns False if it existed and `if_not_exists` was given.

        `replicated` is the content of its `.replicated` file (see `catalog.replicated`), empty for
        an ordinary database. It replaces such a file left behind by a CREATE or DROP DATABASE that
        died. Raises DatabaseAlreadyExists, DiskFull.
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
        if name == DEFAULT_DATABASE:
            raise UserError(f"database {name} cannot be dropped: it always exists")
        with self._locked():
            self.require_database(name)
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
        """Replace the `.replicated` file of an existing database. Raises
        UnknownDatabase, DiskFull.
        """
        with self._locked():
            self.require_database(database)
            self._save_replicated(database, content)
            self._changed(self._root)

    def _save_replicated(self, database: str, content: bytes) -> None:
        """Write the database's `.replicated` file, or remove it if `content` is empty. The caller
        holds the catalog's lock.
        """
        if content:
            self._stage(content).replace(self.replicated_file(database))
            sync_directory(self._root)
            return
        with suppress(UserError):  # no such file was ever written
            self.replicated_file(database).unlink(missing_ok=True)

    # Tables

    def add(self, definition: TableDefinition) -> None:
        """Add a new table, durably. If several processes add the same name at once, exactly one
        succeeds. Raises TableAlreadyExists, UnknownDatabase, DiskFull.
        """
        file = self._file(definition.database, definition.name)
        self.require_database(definition.database)
        with self._locked():
            self.require_free(definition.database, definition.name)
            self._require_ended(definition.database, definition.name)
            self._require_not_dropped(definition)
            own = directory_of_its_own(definition, definition.uuid or self._ids.new_id())
            found = replace(definition, directory=own)  # ATTACH of a table whose file was lost
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

    @contextmanager
    def making(self, database: str, name: str) -> Iterator[bool]:
        """Hold a name for a table that is to get it, from the look whether it is free until it is
        `add`ed: else of two processes that make one table, perhaps at two paths in ZooKeeper, the
        second one has made its nodes when it finds the name taken. Yields False while somebody else
        holds it; the kernel lets go of it when that process dies.
        """
        of_it = hashlib.sha256(repr((database, name)).encode()).hexdigest()
        file = self._staged(f"making_{of_it}")
        held = made_and_held(file)
        if held is None:
            yield False
            return
        with held:
            try:
                yield True
            finally:
                with suppress(OSError):  # what was made is no failure because of that
                    file.unlink()

    def require_room(self, definition: TableDefinition) -> None:
        """Raises DiskFull, or BadConfiguration if this account may not write, as `add` would."""
        self._stage(encode_definition(definition)).unlink()

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
        """Apply `change` to the table's current definition and store the result, which is returned.

        Read and write happen under one lock, so no change by another process is lost. A table that
        was dropped, or dropped and created again, is not brought back: raises UnknownTable. Also
        raises DiskFull.
        """
        with self._locked():
            before = self._current(definition)
            if before is None:
                raise self._unknown_table(definition.database, definition.name)
            after = change(before)
            if after != before:
                self.save(after)
        return after

    # Detaching a table: its file gets another suffix, so that no lookup finds it

    def detach(self, database: str, name: str, *, permanently: bool = False) -> TableDefinition:
        """Hide the table from every lookup until it is attached again; returns its definition.
        Raises UnknownTable, UnknownDatabase.
        """
        file = self._file(database, name)
        with self._locked():  # a concurrent ALTER must not write the file back
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
        """Attach every table that was not detached permanently, as a server does when it starts."""
        with self._locked():
            for database in self.databases():
                for name in self._names(database, DETACHED_SUFFIX):
                    file = self._file(database, name)
                    if file.exists():  # somebody put a copy there by hand: keep both
                        continue
                    file.with_suffix(DETACHED_SUFFIX).replace(file)
                    self._changed(file.parent)

    # Renaming: a table's parts stay where they are

    def rename_tables(self, moves: Sequence[tuple[FullName, FullName]]) -> None:
        """Carry out these renames one after the other, all or none of them. Another process that
        lists the tables sees the state before or after, nothing in between. Raises UnknownTable,
        UnknownDatabase, TableAlreadyExists, DiskFull.
        """
        with self._locked():
            # Which table has each name, after the moves so far.
            now: dict[FullName, FullName | None] = {}
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
        """Swap the names of two tables. Raises UnknownTable, UnknownDatabase, DiskFull."""
        with self._locked():
            self._move({one: other, other: one}, [])

    def rename_database(self, old: str, new: str) -> None:
        """Rename a database with all its tables, in one step. Raises UnknownDatabase,
        DatabaseAlreadyExists, UserError; Corruption if the file of one of its tables is damaged.
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
            for problem in self._damaged(old):  # we could not tell where that table's parts are
                raise Corruption(problem)
            detached = [one.definition for one in self._all_detached(old)]
            for definition in [*self._definitions(old), *detached]:
                self._keep_directory(definition)
            self._save_replicated(new, b"")  # left by a CREATE or DROP that died
            self._database(old).rename(self._database(new))
            self._changed(self._root)

    def _move(self, moved: Mapping[FullName, FullName], gone: Sequence[FullName]) -> None:
        """Give tables new names, all at once. `moved` maps each new name to the old one; `gone` are
        old names that no table has afterwards. The caller holds the catalog's lock.
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
        """Make the table's directory, even if it stays empty, so that the next table of that name
        finds it taken.
        """
        self.table_directory(definition).mkdir(parents=True, exist_ok=True)

    def _is_taken(self, directory: Path) -> bool:
        """Whether a new table must not use this directory: another table has it, under whatever
        name, or a dropped table had it. The latter because of this race:

        1. A worker has claimed a merge and has yet to make its staging directory. 2. The table is
        dropped, and another one of the same name is created. 3. The worker makes its staging
        directory and publishes the part: in a table that never had such a part.

        A removal that died halfway would also be repeated, and take the new table's parts along.
        """
        if _may_be_reused(directory) and _used(directory).exists():
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
            raise Corruption(f"the table that {directory} belongs to is not known: {problem}")
        return False

    # DROP TABLE: the table is put away for `drop_delay_s`, and its name is free at once

    def put_away(self, definition: TableDefinition, replica_czxid: int, now_s: float) -> None:
        """Drop the table so that `take_back` can still bring it back, until `begin_removal`. Raises
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
        """UNDROP TABLE: bring a dropped table back. Raises what `to_take_back` raises, and
        Conflict.
        """
        with self._locked():
            last = self.to_take_back(database, name, uuid)
            self._require_ended(database, name)
            staged = self._stage(encode_definition(last.definition))
            self._replace({self._file(database, name): staged}, [last.file])
        return last.definition

    @contextmanager
    def begin_removal(self, dropped: DroppedTable) -> Iterator[UnfinishedDrop | None]:
        """Make a drop final. While this is open no other process removes the table. Yields what is
        to be removed, or None if the table was taken back or is gone already. Raises Conflict while
        another process removes it.
        """
        with held_file(dropped.file, dropped.definition.full_name) as opened:
            with self._locked():
                is_there = (
                    opened is not None
                    and is_at(opened.fileno(), dropped.file)
                    and read_dropped(dropped.file) == dropped  # else dropped again
                )
                if is_there:
                    dropped.file.replace(dropped.file.with_suffix(REMOVING_SUFFIX))
                    self._changed(dropped.file.parent)
            yield dropped.drop if is_there else None

    def end_removal(self, definition: TableDefinition) -> None:
        """Forget a dropped table of which nothing is left. Called within `begin_removal`."""
        self._note_used(definition)
        file = self._dropped_file(definition.uuid).with_suffix(REMOVING_SUFFIX)
        file.unlink(missing_ok=True)
        self._changed(file.parent)

    def _require_not_dropped(self, definition: TableDefinition) -> None:
        """Refuse a new table with the same replica as a dropped one that is still to be removed:
        the removal would take the new table's replica along. Raises TableAlreadyExists.
        """
        for one in self.dropped():
            if one.definition.engine.root == definition.engine.root:
                raise TableAlreadyExists(
                    f"replica {definition.engine.root} is {one.definition.full_name}'s, which was "
                    "dropped and is not removed yet: UNDROP TABLE takes it up again"
                )

    # DROP TABLE … SYNC: the name is free only when nothing is left of the table

    @contextmanager
    def begin_drop(
        self, definition: TableDefinition, replica_czxid: int
    ) -> Iterator[UnfinishedDrop]:
        """Replace the table by a drop that is to be finished (`end_drop`). While this is open no
        other process goes on with it. Raises UnknownTable, DiskFull.
        """
        file = self._file(definition.database, definition.name)
        drop = UnfinishedDrop(definition, replica_czxid)
        staged = self._stage(encode_drop(drop))
        with staged.open("rb") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            try:
                with self._locked():  # a concurrent ALTER must not write the file back
                    self._require_same(definition)
                    # Both files exist for a moment. A process that dies here has dropped nothing.
                    staged.replace(file.with_suffix(DROPPING_SUFFIX))
                    sync_directory(file.parent)
                    file.unlink()
                    self._changed(file.parent)
            except RmtError:
                staged.unlink(missing_ok=True)
                raise
            yield drop

    @contextmanager
    def resume_drop(self, database: str, name: str) -> Iterator[UnfinishedDrop | None]:
        """Go on with a drop that died. Yields it, locked for this process, or None if there is none
        of that name. Raises Conflict while another process is at it.
        """
        with self._drop_file(database, name) as file:
            yield None if file is None else read_drop(file)

    def end_drop(self, definition: TableDefinition) -> None:
        """Free the name of a table of which nothing is left. Called within `begin_drop` or
        `resume_drop`.
        """
        self._note_used(definition)
        file = self._file(definition.database, definition.name).with_suffix(DROPPING_SUFFIX)
        file.unlink(missing_ok=True)
        self._changed(file.parent)

    def _note_used(self, definition: TableDefinition) -> None:
        """Leave a mark that this directory was used, so that no other table gets it (`_is_taken`).
        The mark need not survive a power loss: the late workers that it is for die with the host.
        """
        directory = self.table_directory(definition)
        if _may_be_reused(directory) and directory.parent.exists():
            _used(directory).touch()

    def _require_ended(self, database: str, name: str) -> None:
        """Raises Conflict while a DROP of that name is unfinished: a new table of the name would
        hide it, and nothing would finish it.
        """
        if self.is_dropping(database, name):
            raise Conflict(
                f"the DROP of table {database}.{name} has not ended; try again in a moment"
            )

    def _forget_void_drop(self, file: Path) -> None:
        """Remove the `.dropping` file of a DROP that died before it had dropped anything. When the
        table has another name, that file would look like a drop to finish. The caller holds the
        lock.
        """
        file.with_suffix(DROPPING_SUFFIX).unlink(missing_ok=True)

    @contextmanager
    def _drop_file(self, database: str, name: str) -> Iterator[Path | None]:
        """The file of an unfinished drop, locked until this is closed or the process
        dies; or None.
        """
        file = self._file(database, name).with_suffix(DROPPING_SUFFIX)
        if not self.is_dropping(database, name):
            yield None
            return
        with held_file(file, f"{database}.{name}") as opened:
            # The process that held the lock before us may have finished the drop, and another table
            # may have the name by now.
            is_there = opened is not None and is_at(opened.fileno(), file)
            yield file if is_there and self.is_dropping(database, name) else None


def _may_be_reused(directory: Path) -> bool:
    """Whether it is called by a table's name alone, which others get, too: only then is it marked
    that it was used. The name of another one may be as long as a file's can be.
    """
    return "~" not in directory.name


def _used(directory: Path) -> Path:
    """The mark that a dropped table had this directory. Escaped names of tables have no `~`."""
    return directory.with_name(f"{directory.name}~")
