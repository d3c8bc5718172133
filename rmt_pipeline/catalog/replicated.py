"""Which databases of a server are Replicated: a file beside the database's directory.

    <data>/metadata/<database>.replicated

It is written before the directory is made, and removed after that is gone: without a directory it
means nothing.
"""

import errno
import json
from dataclasses import asdict, dataclass

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.files import escape_file_name, stage_file, sync_directory
from rmt_pipeline.protocol.errors import Corruption

_SUFFIX = ".replicated"


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
    root = catalog.data / "metadata"
    name = escape_file_name(database)
    file = root / f"{name}{_SUFFIX}"
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # else no such file was ever written
            raise
        return None
    if not (root / name).is_dir():
        return None
    try:
        raw = json.loads(content)
        path, shard, replica, typed = (
            str(raw[key]) for key in ("path", "shard", "replica", "typed")
        )
        return ReplicatedDatabase(path, shard, replica, typed, bool(raw["is_dropping"]))
    except (ValueError, TypeError, KeyError) as error:
        raise Corruption(f"{file} does not say where the database is: {error!r}") from error


def save_replicated(catalog: Catalog, database: str, definition: ReplicatedDatabase) -> None:
    """Durably. Raises DiskFull."""
    root = catalog.data / "metadata"
    name = f"{escape_file_name(database)}{_SUFFIX}"
    staged = stage_file(root / f".{name}", (json.dumps(asdict(definition)) + "\n").encode())
    staged.replace(root / name)
    sync_directory(root)


def forget_replicated(catalog: Catalog, database: str) -> None:
    (catalog.data / "metadata" / f"{escape_file_name(database)}{_SUFFIX}").unlink(
        missing_ok=True
    )
