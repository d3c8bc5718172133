"""The files of the catalog. Each is about one table: its definition, or a drop of it. The error for
a file that can't be read says what to do about it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmt_pipeline.catalog.definition import decode_definition, encode_definition
from rmt_pipeline.files import FILE_NAME_BYTES_MAX, escape_file_name, read_file
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.values import dataclass

TABLE_SUFFIX = ".json"
DETACHED_SUFFIX = ".detached"
PERMANENT_SUFFIX = ".permanent"
DROPPING_SUFFIX = ".dropping"
REMOVING_SUFFIX = ".removing"
SUFFIXES = (TABLE_SUFFIX, DROPPING_SUFFIX, DETACHED_SUFFIX, PERMANENT_SUFFIX)
"""The suffixes of files about a table; the first is that of the table itself."""


@dataclass(frozen=True, slots=True)
class UnfinishedDrop:
    """A dropped table of which something may be left in ZooKeeper and on disk.

    `replica_czxid` is the ZooKeeper transaction that created its replica, or 0 if it had none. A
    replica of the same name that another transaction created belongs to another table.
    """

    definition: TableDefinition
    replica_czxid: int


@dataclass(frozen=True, slots=True)
class DetachedTable:
    """A table that the server does not serve since DETACH TABLE. Its parts and its replica in
    ZooKeeper stay. Unless it was detached `permanently`, the server's next start attaches it again.
    """

    definition: TableDefinition
    permanently: bool
    file: Path

    @property
    def words(self) -> str:
        return "detached permanently" if self.permanently else "detached"


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table that was dropped at `dropped_s`, whose parts and replica are still there: UNDROP
    TABLE brings it back, unless `is_removing`.
    """

    drop: UnfinishedDrop
    dropped_s: int
    number: int
    """Grows with each drop on this server, whatever the clock says: the order of drops."""
    drop_id: str
    """Identifies this drop. A table that is taken back and dropped again has another one, so that
    `Catalog.begin_removal` notices.
    """
    is_removing: bool
    file: Path

    @property
    def definition(self) -> TableDefinition:
        return self.drop.definition


def home_directory(definition: TableDefinition) -> str:
    """The directory that is named after the table, relative to `data/`."""
    return "/".join(map(escape_file_name, (definition.database, definition.name)))


def directory_of_its_own(definition: TableDefinition, uuid: str) -> str:
    """A directory that no other table ever has, relative to `data/`. It has the beginning of the
    table's name, as much as a file's name takes.
    """
    database, name = home_directory(definition).split("/")
    return f"{database}/{name[: FILE_NAME_BYTES_MAX - len(uuid) - 1]}~{uuid}"


def full_name_of(definition: TableDefinition) -> tuple[str, str]:
    """Database and name of a table."""
    return definition.database, definition.name


def renamed_table(definition: TableDefinition, database: str, name: str) -> TableDefinition:
    """The definition under another name. The table's parts stay in the directory where they are:
    `directory` names it if it is not the one that is named after the new name.
    """
    directory = definition.directory or home_directory(definition)
    renamed = replace(definition, database=database, name=name, directory="")
    is_home = directory == home_directory(renamed)
    return renamed if is_home else replace(renamed, directory=directory)


def read_table(file: Path, database: str, name: str) -> TableDefinition:
    """The definition in `file`, under the name that the file's place says: its database may have
    been renamed since the file was written. Raises FileNotFoundError, Corruption.
    """
    with _remedied(_TABLE_STAYS):
        written = decode_definition(read_file(file), str(file))
    if (written.database, written.name) == (database, name):
        return written
    return renamed_table(written, database, name)


def problems_of(file: Path, database: str = "", name: str = "") -> list[str]:
    """What is wrong with a file of the catalog: one message, or none."""
    try:
        if file.suffix == DROPPING_SUFFIX:
            read_drop(file)
        elif not name:
            read_dropped(file)
        else:
            read_table(file, database, name)
    except FileNotFoundError:  # it went after it was listed
        return []
    except Corruption as error:
        return [str(error)]
    return []


@contextmanager
def _remedied(remedy: str) -> Iterator[None]:
    """Add `remedy` to the message of a Corruption."""
    try:
        yield
    except Corruption as error:
        raise Corruption(f"{error}. {remedy}") from error


_COPY = (
    "It is left as it is, and so are the table's parts and its replica. Put a copy of it back"
)
_TABLE_STAYS = (
    f"{_COPY}; without one, move the file out of the server's metadata/: then ATTACH TABLE, with "
    "the table's columns and its Replicated engine, takes its replica up again"
)
_DROP_STAYS = (
    f"{_COPY}, and the drop goes on; without one, move the file out of the server's metadata/, and "
    "remove by hand what the drop has left: the parts in data/, and with SYSTEM DROP REPLICA the "
    "replica"
)


def encode_drop(drop: UnfinishedDrop) -> bytes:
    """The bytes of a drop's file, as JSON; `read_drop` is the inverse."""
    definition = json.loads(encode_definition(drop.definition))
    content = {"replica_czxid": drop.replica_czxid, "definition": definition}
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def read_drop(file: Path) -> UnfinishedDrop:
    """Read a `.dropping` file. Raises FileNotFoundError, Corruption."""
    with _remedied(_DROP_STAYS):
        return _decode_drop(read_file(file), file)[0]


def read_dropped(file: Path) -> DroppedTable:
    """Read a file of `metadata/.dropped`. Raises FileNotFoundError, Corruption."""
    with _remedied(_DROP_STAYS):
        drop, raw = _decode_drop(read_file(file), file)
        try:
            dropped_s, number = (int(raw.get(key, 0)) for key in ("dropped_s", "number"))
        except (ValueError, TypeError) as error:
            raise Corruption(f"{file} does not say when it was dropped: {error}") from error
    is_removing = file.suffix == REMOVING_SUFFIX
    return DroppedTable(drop, dropped_s, number, str(raw.get("id", "")), is_removing, file)


def _decode_drop(content: bytes, file: Path) -> tuple[UnfinishedDrop, dict[str, Any]]:
    try:
        raw = json.loads(content)
        definition = json.dumps(raw["definition"]).encode()
        czxid = int(raw["replica_czxid"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Corruption(f"{file} does not say what is being dropped: {error!r}") from error
    return UnfinishedDrop(decode_definition(definition, str(file)), czxid), raw
