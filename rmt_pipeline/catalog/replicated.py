"""Which databases of a server are Replicated: a file beside the database's directory.

    <data>/metadata/<database>.replicated

It is written before the directory is made, and removed after that is gone: without a directory it
means nothing, and a database that gets its name later does not take it up.
"""

import json
from dataclasses import asdict, dataclass

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.files import read_file
from rmt_pipeline.protocol.errors import Corruption, UserError


@dataclass(frozen=True, slots=True)
class ReplicatedDatabase:
    """`ENGINE = Replicated(path, shard, replica)`, with macros filled in; `typed` as it was said.

    `is_dropping`: DROP DATABASE has begun here, and nothing is created in it any more.
    """

    path: str
    shard: str
    replica: str
    typed: str
    is_dropping: bool = False

    @property
    def name(self) -> str:
        """Of this replica, as it stands in ZooKeeper."""
        return f"{self.shard}|{self.replica}"


def replicated_database(catalog: Catalog, database: str) -> ReplicatedDatabase | None:
    """None of one that is not Replicated, or not there. Raises Corruption."""
    try:
        file = catalog.replicated_file(database)
        content = read_file(file)
    except (FileNotFoundError, UserError):  # or no such file can be
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
            f"{file} does not say where the database is: {error!r}. Its tables are served, what "
            "is said to it waits. Put a copy of the file back: another server's, with "
            "the shard and the replica of this one in it"
        ) from error


def encode_replicated(definition: ReplicatedDatabase) -> bytes:
    """`replicated_database` reads it back."""
    return (json.dumps(asdict(definition)) + "\n").encode()
