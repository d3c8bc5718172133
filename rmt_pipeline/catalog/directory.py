"""Which server owns a data directory, and the lock by which only one process serves from it."""

import fcntl
import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rmt_pipeline.files import stage_file, sync_directory, unwritable
from rmt_pipeline.protocol.errors import BadConfiguration, Corruption, ReplicaIsAlreadyActive
from rmt_pipeline.system import IdSource, RandomIds

FORMAT = 1  # of server.json


@dataclass(frozen=True, slots=True)
class Owner:
    """What `server.json` says. `server_id` is drawn when the directory is made, and is unique.
    `cluster` is empty until the server has reached ZooKeeper once.
    """

    server: str
    cluster: str
    server_id: str


def directory_owner(data: Path) -> Owner | None:
    """The server that owns the directory; None for a new one. Raises Corruption,
    BadConfiguration.
    """
    file = data / "server.json"
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unwritable(data, error) from error
    try:
        raw = json.loads(content)
        return Owner(*(str(raw[key]) for key in ("server", "cluster", "id")))
    except (ValueError, TypeError, KeyError) as error:
        raise Corruption(
            f"{file} does not name the server of the directory: {error!r}. Put a copy of it back; "
            "or, if you know the server, remove the file: the server writes it when it starts"
        ) from error


def require_owner(data: Path, server: str) -> Owner | None:
    """As `directory_owner`, but raises BadConfiguration if another server owns it: the parts of two
    replicas in one directory would destroy each other.
    """
    owner = directory_owner(data)
    if owner is not None and owner.server != server:
        raise BadConfiguration(
            f"{data} is the data directory of server {owner.server!r}, not of {server!r}: "
            f"give [servers.{server}] a data directory of its own"
        )
    return owner


def claim_data_directory(
    data: Path, server: str, cluster_id: str = "", ids: IdSource | None = None
) -> str:
    """Make `data` the directory of `server` in this cluster, for good; idempotent. A server that
    has not reached ZooKeeper yet does not know the cluster, and says so later.

    Returns the server's identity: the same text on every call, and another one for a copy of the
    directory, on this host or another. Raises BadConfiguration if another server owns the
    directory, or if it belongs to another ZooKeeper.
    """
    owner = require_owner(data, server)
    if owner is None or (cluster_id and not owner.cluster):
        server_id = (ids or RandomIds()).new_id() if owner is None else owner.server_id
        owner = Owner(server, cluster_id, server_id)
        _write(data, owner)
    if cluster_id and owner.cluster != cluster_id:
        raise BadConfiguration(
            f"{data} belongs to the ZooKeeper cluster {owner.cluster}, but the configured one is "
            f"{cluster_id}: point [zookeeper] at the right one. If ZooKeeper was replaced on "
            f"purpose, remove {data / 'server.json'}"
        )
    # A copied directory has the same server.json, but cannot have the same inode on this host.
    return f"{server} {owner.server_id} {socket.gethostname()} {data.stat().st_ino}"


def _write(data: Path, owner: Owner) -> None:
    content = {
        "format": FORMAT,
        "server": owner.server,
        "cluster": owner.cluster,
        "id": owner.server_id,
    }
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(data, error) from error
    staged = stage_file(data / f".server-{owner.server_id}", json.dumps(content).encode())
    staged.replace(data / "server.json")
    sync_directory(data)


def make_data_directory(data: Path, umask: int) -> None:
    """Make the data directory with the permissions that `umask` leaves: by default only the
    server's user may enter it, and so read anything below. The permissions of an existing directory
    are left alone, since they may have been set on purpose. Raises BadConfiguration.
    """
    try:
        data.parent.mkdir(parents=True, exist_ok=True)
        data.mkdir(mode=0o777 & ~umask, exist_ok=True)
    except OSError as error:
        raise unwritable(data, error) from error


class DirectoryLock:
    """The lock of the one process that serves from a directory. It ends with the process."""

    def __init__(self, data: Path, server: str) -> None:
        """Take the lock. Raises ReplicaIsAlreadyActive if another process has it."""
        file = data / "server.lock"
        try:
            data.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable(data, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 20).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise ReplicaIsAlreadyActive(
                f"server {server} runs already: process {holder or 'unknown'} holds {file}. "
                "Stop it first, or give this one another name and data directory"
            ) from None
        with suppress(OSError):  # a full disk: the number is only for people
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Give the lock up. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def started_s(data: Path) -> float | None:
    """When the server of this directory was started last, in seconds since 1970: when it took its
    lock. None if it never was.
    """
    try:
        return (data / "server.lock").stat().st_mtime
    except FileNotFoundError:
        return None
