"""Which databases of a server are Replicated: a file beside the database's directory.

    <data>/metadata/<database>.replicated

The file is written before the directory is made, and removed after the directory is gone. Without a
directory it means nothing, so a later database of the same name is not taken for a Replicated one.
"""

import hashlib
import json
from dataclasses import asdict, dataclass

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.files import read_file
from rmt_pipeline.protocol.errors import Corruption, UserError


@dataclass(frozen=True, slots=True)
class ReplicatedDatabase:
    """The engine of a database, `Replicated(path, shard, replica)`, with its macros replaced;
    `typed` is the engine as the user wrote it. `is_dropping`: DROP DATABASE has begun on this
    server, so nothing may be created in it any more.
    """

    path: str
    shard: str
    replica: str
    typed: str
    is_dropping: bool = False

    @property
    def name(self) -> str:
        """This replica's name in ZooKeeper: `<shard>|<replica>`."""
        return f"{self.shard}|{self.replica}"


def replicated_database(catalog: Catalog, database: str) -> ReplicatedDatabase | None:
    """How a database is replicated; None if it is not, or does not exist. Raises Corruption."""
    try:
        file = catalog.replicated_file(database)
        content = read_file(file)
    except (FileNotFoundError, UserError):  # there is, or can be, no such file
        return None
    if not file.with_suffix("").is_dir():
        return None
    try:
        raw = json.loads(content)
        path, shard, replica, typed = (
            str(raw[key]) for key in ("path", "shard", "replica", "typed")
        )
        return ReplicatedDatabase(path, shard, replica, typed, bool(raw["is_dropping"]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Corruption(
            f"{file} does not say where the database is: {error!r}. Its tables are served, but "
            "statements for it wait. Put a copy of the file back: another server's, with "
            "the shard and the replica of this one in it"
        ) from error


def require_replicated(catalog: Catalog, database: str) -> ReplicatedDatabase:
    """How a database is replicated. Raises UnknownDatabase, UserError if it is not, Corruption."""
    catalog.require_database(database)
    found = replicated_database(catalog, database)
    if found is None:
        raise UserError(f"database {database!r} is not Replicated")
    return found


def uuid_made_by(origin: str, server: str) -> str:
    """The uuid of the table on a server that the statement with the id `origin` makes."""
    return hashlib.sha256(f"{origin} {server}".encode()).hexdigest()[:32]


def encode_replicated(definition: ReplicatedDatabase) -> bytes:
    """The content of the file, which `replicated_database` reads back."""
    return (json.dumps(asdict(definition)) + "\n").encode()
