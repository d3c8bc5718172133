"""Every znode path of the protocol, made and parsed in one place (spec §0.3; ours: design §4).

`T` is a table's root, shared by its replicas; `R` = `T/replicas/<name>` is one replica's.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, unquote

SEQUENCE_DIGITS = 10


def sequence_number(path: str) -> int:
    """The number that ZooKeeper appended to a sequential node."""
    return int(path[-SEQUENCE_DIGITS:])


def last_name(path: str) -> str:
    """What stands after the last slash: `queue-0000000007`."""
    return path.rsplit("/", 1)[1]


def ancestors(path: str) -> list[str]:
    """The nodes above `path`, outermost first: those of `/a/b/c` are `/a` and `/a/b`."""
    names = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(names[: count + 1]) for count in range(len(names))]


def log_entry_name(number: int) -> str:
    """The name of a log entry by its number: 7 is `log-0000000007`."""
    return f"log-{number:010d}"


class _Rooted(Protocol):
    @property
    def root(self) -> str: ...


class _Below:
    """The path of the node at a fixed place below the root."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = f"/{place}"

    def __get__(self, paths: _Rooted, kind: type) -> str:
        return paths.root + self._place


class _Each:
    """The path of the node of a name, below a fixed place below the root."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = f"/{place}/"

    def __get__(self, paths: _Rooted, kind: type) -> Callable[[object], str]:
        place = paths.root + self._place
        return lambda name: f"{place}{name}"


@dataclass(frozen=True, slots=True)
class ReplicaPaths:
    """`R`: what one replica promises and has to do."""

    root: str

    @property
    def name(self) -> str:
        return last_name(self.root)

    host = _Below("host")
    is_active = _Below("is_active")
    is_lost = _Below("is_lost")
    log_pointer = _Below("log_pointer")
    queue = _Below("queue")
    queue_entry = _Each("queue")
    queue_prefix = _Below("queue/queue-")
    executing = _Below("executing")
    """Parent of the claims; its data version is what serialises claiming (design §4)."""
    claim = _Each("executing")
    attempts = _Below("attempts")
    attempts_of = _Each("attempts")
    parts = _Below("parts")
    part = _Each("parts")
    flags = _Below("flags")
    force_restore_data = _Below("flags/force_restore_data")
    """A flag that people set: the next start sets aside whatever ZooKeeper does not know."""
    metadata = _Below("metadata")
    columns = _Below("columns")
    metadata_version = _Below("metadata_version")
    mutation_pointer = _Below("mutation_pointer")
    finished_mutations = _Below("finished_mutations")
    """Those after the pointer that are finished all the same; absent while there are none."""
    min_unprocessed_insert_time = _Below("min_unprocessed_insert_time")
    max_processed_insert_time = _Below("max_processed_insert_time")
    creator_info = _Below("creator_info")
    creations = _Below("creation")
    """Its one child is named after what the replica was made with. Ours."""
    creation = _Each("creation")
    detached = _Below("detached")
    """There while the replica's server does not serve it because it was told so. Ours."""
    dropping = _Below("dropping")
    """Held by whoever removes the replica. Ours."""


@dataclass(frozen=True, slots=True)
class TablePaths:
    """`T`: what all replicas of one table share."""

    root: str

    metadata = _Below("metadata")
    columns = _Below("columns")
    log = _Below("log")
    log_prefix = _Below("log/log-")
    log_entry = _Each("log")
    blocks = _Below("blocks")
    block = _Each("blocks")
    inserts = _Below("inserts")
    insert = _Each("inserts")

    def insert_batch(self, insert_id: str, number: int) -> str:
        """What one commit of an insert that is too large for one put into the table."""
        return f"{self.root}/inserts/{insert_id}/{number:0{SEQUENCE_DIGITS}d}"

    block_numbers = _Below("block_numbers")
    partition = _Each("block_numbers")

    def lock_prefix(self, partition_id: str) -> str:
        return f"{self.root}/block_numbers/{partition_id}/block-"

    def lock(self, partition_id: str, number: int) -> str:
        return f"{self.lock_prefix(partition_id)}{number:010d}"

    def insert_lock_data(self, holder: str) -> bytes:
        """What the lock of an insert, which a DROP may cancel, holds (spec §0.4.9), and, ours, in a
        second line who holds it: no two holders have one name. Here also that of an insert without
        deduplication: the original lets it commit below a DROP that is in the log already.
        """
        return f"{self.root}/temp/abandonable_lock-insert\n{holder}".encode()

    def other_lock_data(self, holder: str) -> bytes:
        return f"{self.root}/temp/abandonable_lock-other\n{holder}".encode()

    quorum = _Below("quorum")
    quorum_status = _Below("quorum/status")
    quorum_parallel = _Below("quorum/parallel")
    quorum_of = _Each("quorum/parallel")
    """The node of a part that waits for its quorum beside others."""
    quorum_last_part = _Below("quorum/last_part")
    quorum_failed_parts = _Below("quorum/failed_parts")
    quorum_failed = _Each("quorum/failed_parts")
    mutations = _Below("mutations")
    mutation = _Each("mutations")
    alters = _Below("alters")
    """What each ALTER did to the names of columns. Ours: its version orders ALTERs."""

    def alter(self, version: int) -> str:
        """The ALTER that made this version of the metadata."""
        return f"{self.root}/alters/{version:0{SEQUENCE_DIGITS}d}"

    alter_partition_version = _Below("alter_partition_version")
    lost_part_count = _Below("lost_part_count")
    lost_parts = _Below("lost_parts")
    """Which they were, and whose rows. Ours."""
    lost_part = _Each("lost_parts")
    restoring = _Below("restoring")
    """While the table is made again from the disks of its replicas: nobody is active. Ours."""
    restoring_replica = _Each("restoring")
    """A replica that is waited for, and what it has announced."""
    restoring_lock = _Below("restoring_lock")
    """Held by whoever opens the table again."""
    replicas = _Below("replicas")
    dropped = _Below("dropped")
    dropped_lock = _Below("dropped/lock")

    def replica(self, name: str) -> ReplicaPaths:
        return ReplicaPaths(f"{self.root}/replicas/{name}")


@dataclass(frozen=True, slots=True)
class TaskPaths:
    """One statement for the servers of a cluster. A server is `host:port` in all names."""

    root: str

    @property
    def name(self) -> str:
        return last_name(self.root)

    active = _Below("active")
    active_on = _Each("active")
    """Ephemeral: this server is at it."""
    finished = _Below("finished")
    finished_on = _Each("finished")
    synced = _Below("synced")
    synced_on = _Each("synced")
    """It is done there, without an error."""
    begun = _Below("begun")
    begun_on = _Each("begun")
    """What the statement's names stood for there before it began. Ours."""
    shards = _Below("shards")

    def shard(self, table: TablePaths) -> str:
        """What the replicas of one table agree on: one of them carries the statement out."""
        return f"{self.root}/shards/{table.root.replace('/', '%2F')}"

    def lock(self, table: TablePaths) -> str:
        """Ephemeral: the replica that carries it out."""
        return f"{self.shard(table)}/lock"

    def executed(self, table: TablePaths, step: int) -> str:
        """That it is done, and what came of it; written in the multi that does it. Ours: of a
        statement with several commands, one for each.
        """
        return f"{self.shard(table)}/executed-{step}"


@dataclass(frozen=True, slots=True)
class TaskQueuePaths:
    """The queue of statements for the servers of a cluster."""

    root: str

    task_prefix = _Below("query-")

    def task(self, name: str) -> TaskPaths:
        return TaskPaths(f"{self.root}/{name}")

    @property
    def servers(self) -> str:
        return f"{self.root.rsplit('/', 1)[0]}/replicas"

    def server(self, host: str) -> str:
        return f"{self.servers}/{host}"

    def server_active(self, host: str) -> str:
        """Ephemeral: the server works the queue off."""
        return f"{self.servers}/{host}/active"


@dataclass(frozen=True, slots=True)
class DatabasePaths:
    """A Replicated database. A replica of it is `shard|replica` in all names."""

    root: str

    @property
    def queue(self) -> TaskQueuePaths:
        """Its log: the statements that every replica carries out."""
        return TaskQueuePaths(f"{self.root}/log")

    metadata = _Below("metadata")

    def table(self, name: str) -> str:
        """What the table is now."""
        return f"{self.root}/metadata/{_database_node(name)}"

    replicas = _Below("replicas")
    replica = _Each("replicas")
    dropping = _Below("dropping")
    """Ephemeral: held by whoever removes the database with its last replica."""

    def log_ptr(self, name: str) -> str:
        """The last statement that this replica is done with, one way or another."""
        return f"{self.root}/replicas/{name}/log_ptr"


_ESCAPED = re.compile("[%/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""What ZooKeeper takes in no name, and % itself."""


def _database_node(table: str) -> str:
    """`database_table` gives the name back."""
    if table in (".", ".."):
        return table.replace(".", "%2E")
    return _ESCAPED.sub(lambda found: quote(found[0], safe=""), table)


def database_table(node: str) -> str:
    """The table that a node below `metadata` is of."""
    return unquote(node)
