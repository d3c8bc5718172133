"""Makes and parses every znode path of the protocol (spec §0.3; nodes of our own: design §4).

`T` is the root of a table, shared by its replicas; `R` = `T/replicas/<name>` that of one replica.
Docstrings say "Ours" of nodes that the original does not have.
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
    """The name after the last slash of a path, such as `queue-0000000007`."""
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
    """An attribute with the path of the node at a fixed place below the root."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = f"/{place}"

    def __get__(self, paths: _Rooted, kind: type) -> str:
        return paths.root + self._place


class _Each:
    """An attribute with a function from a name to the path of its node, below a fixed place."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = f"/{place}/"

    def __get__(self, paths: _Rooted, kind: type) -> Callable[[object], str]:
        place = paths.root + self._place
        return lambda name: f"{place}{name}"


@dataclass(frozen=True, slots=True)
class ReplicaPaths:
    """The nodes of one replica, `R`: the parts that it promises and the entries that
    it has queued.
    """

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
    """The parent of the claims. Its data version serialises claiming (design §4). Ours."""
    claim = _Each("executing")
    attempts = _Below("attempts")
    attempts_of = _Each("attempts")
    parts = _Below("parts")
    part = _Each("parts")
    flags = _Below("flags")
    force_restore_data = _Below("flags/force_restore_data")
    """A flag, set by a person or a restore: the next start sets aside every part on the disk that
    ZooKeeper does not know, however many they are.
    """
    metadata = _Below("metadata")
    columns = _Below("columns")
    metadata_version = _Below("metadata_version")
    mutation_pointer = _Below("mutation_pointer")
    finished_mutations = _Below("finished_mutations")
    """The mutations after the pointer that are finished all the same; absent while there are none.
    Ours.
    """
    min_unprocessed_insert_time = _Below("min_unprocessed_insert_time")
    max_processed_insert_time = _Below("max_processed_insert_time")
    creator_info = _Below("creator_info")
    creations = _Below("creation")
    """Its one child is named after the uuid that the replica was created with. Ours."""
    creation = _Each("creation")
    detached = _Below("detached")
    """Exists while the replica's server does not serve it because of a DETACH or DROP. Ours."""
    dropping = _Below("dropping")
    """Ephemeral: held by the process that removes the replica. Ours."""


@dataclass(frozen=True, slots=True)
class TablePaths:
    """The nodes of one table, `T`, which all its replicas share."""

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
        """The node of one commit of an insert that is too large for a single commit. Ours."""
        return f"{self.root}/inserts/{insert_id}/{number:0{SEQUENCE_DIGITS}d}"

    block_numbers = _Below("block_numbers")
    partition = _Each("block_numbers")

    def lock_prefix(self, partition_id: str) -> str:
        """The path to which ZooKeeper appends a block number, to make its lock."""
        return f"{self.root}/block_numbers/{partition_id}/block-"

    def lock(self, partition_id: str, number: int) -> str:
        """The lock of a block number while it is in flight."""
        return f"{self.lock_prefix(partition_id)}{number:010d}"

    def insert_lock_data(self, holder: str) -> bytes:
        """The text of the lock of an insert, which a DROP may cancel (spec §0.4.9); and, ours, a
        second line with the name of the holder, which is unique.

        Inserts without deduplication have this text too. In the original a DROP can't cancel
        those, so they may commit a smaller number after the DROP is in the log.
        """
        return f"{self.root}/temp/abandonable_lock-insert\n{holder}".encode()

    def other_lock_data(self, holder: str) -> bytes:
        """The text of a lock that a DROP may not cancel: not of an insert. See
        `insert_lock_data`.
        """
        return f"{self.root}/temp/abandonable_lock-other\n{holder}".encode()

    quorum = _Below("quorum")
    quorum_status = _Below("quorum/status")
    quorum_parallel = _Below("quorum/parallel")
    quorum_of = _Each("quorum/parallel")
    """The node of a part that waits for its quorum, in parallel with others."""
    quorum_last_part = _Below("quorum/last_part")
    quorum_failed_parts = _Below("quorum/failed_parts")
    quorum_failed = _Each("quorum/failed_parts")
    mutations = _Below("mutations")
    mutation = _Each("mutations")
    alters = _Below("alters")
    """Below it, for each ALTER, what it did to the names of columns. Its version orders ALTERs.
    Ours.
    """

    def alter(self, version: int) -> str:
        """The record of the ALTER that made this version of the metadata."""
        return f"{self.root}/alters/{version:0{SEQUENCE_DIGITS}d}"

    alter_partition_version = _Below("alter_partition_version")
    lost_part_count = _Below("lost_part_count")
    lost_parts = _Below("lost_parts")
    """Below it, the parts that were lost, with the inserts whose rows they had. Ours."""
    lost_part = _Each("lost_parts")
    restoring = _Below("restoring")
    """Exists while the table is restored from the disks of its replicas; no replica is active then.
    Ours.
    """
    restoring_replica = _Each("restoring")
    """A replica that the restore waits for; its data is what the replica has announced."""
    restoring_lock = _Below("restoring_lock")
    """Ephemeral: held by the process that opens the restored table, or joins it. Ours."""
    replicas = _Below("replicas")
    dropped = _Below("dropped")
    dropped_lock = _Below("dropped/lock")

    def replica(self, name: str) -> ReplicaPaths:
        return ReplicaPaths(f"{self.root}/replicas/{name}")


@dataclass(frozen=True, slots=True)
class TaskPaths:
    """The nodes of one statement for the servers of a cluster. Names have servers as
    `host:port`.
    """

    root: str

    @property
    def name(self) -> str:
        return last_name(self.root)

    active = _Below("active")
    active_on = _Each("active")
    """Ephemeral: this server is carrying the statement out."""
    finished = _Below("finished")
    finished_on = _Each("finished")
    synced = _Below("synced")
    synced_on = _Each("synced")
    """Exists when the statement is done on this server, without an error."""
    begun = _Below("begun")
    begun_on = _Each("begun")
    """Which tables the statement's names stood for on this server before it began. Ours."""
    shards = _Below("shards")

    def shard(self, table: TablePaths) -> str:
        """The node below which the replicas of one table agree which of them carries the statement
        out.
        """
        return f"{self.root}/shards/{table.root.replace('/', '%2F')}"

    def lock(self, table: TablePaths) -> str:
        """Ephemeral: held for the replica that carries the statement out."""
        return f"{self.shard(table)}/lock"

    def executed(self, table: TablePaths, step: int) -> str:
        """Exists when the statement's command number `step` is done. It is created in the multi
        that carries the command out; its data is the outcome. Ours: one for each command.
        """
        return f"{self.shard(table)}/executed-{step}"


@dataclass(frozen=True, slots=True)
class TaskQueuePaths:
    """The nodes of the queue of statements for the servers of a cluster."""

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
        """Ephemeral: this server carries out the queue's statements."""
        return f"{self.servers}/{host}/active"


@dataclass(frozen=True, slots=True)
class DatabasePaths:
    """The nodes of a Replicated database. Names have its replicas as `shard|replica`."""

    root: str

    @property
    def queue(self) -> TaskQueuePaths:
        """The database's log: the statements that every replica carries out."""
        return TaskQueuePaths(f"{self.root}/log")

    metadata = _Below("metadata")

    def table(self, name: str) -> str:
        """The node with the present definition of the table."""
        return f"{self.root}/metadata/{_database_node(name)}"

    replicas = _Below("replicas")
    replica = _Each("replicas")
    dropping = _Below("dropping")
    """Ephemeral: held by the process that removes the database with its last replica."""

    dropped_replicas = _Below("dropped_replicas")
    dropped_replica = _Each("dropped_replicas")
    """There if another server than its own has dropped this replica. Ours."""

    restored = _Below("restored")
    """For servers of earlier builds: without it they take a replica that is not there for dropped,
    and say to drop the database.
    """

    def log_ptr(self, name: str) -> str:
        """The node with the number of the last statement that this replica is done with, whether it
        succeeded or not.
        """
        return f"{self.root}/replicas/{name}/log_ptr"


_ESCAPED = re.compile("[%/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""The characters that ZooKeeper allows in no name, and the slash and % itself."""


def _database_node(table: str) -> str:
    """The name of a table as the name of a node; `database_table` is the inverse."""
    if table in (".", ".."):
        return table.replace(".", "%2E")
    return _ESCAPED.sub(lambda found: quote(found[0], safe=""), table)


def database_table(node: str) -> str:
    """The name of the table that a node below `metadata` describes."""
    return unquote(node)
