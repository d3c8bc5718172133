"""Every znode path of the protocol, made and parsed in one place (spec §0.3; ours: design §4).

`T` is a table's root, shared by its replicas; `R` = `T/replicas/<name>` is one replica's.
"""

import re
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class ReplicaPaths:
    """`R`: what one replica promises and has to do."""

    root: str

    @property
    def name(self) -> str:
        return last_name(self.root)

    @property
    def host(self) -> str:
        return f"{self.root}/host"

    @property
    def is_active(self) -> str:
        return f"{self.root}/is_active"

    @property
    def is_lost(self) -> str:
        return f"{self.root}/is_lost"

    @property
    def log_pointer(self) -> str:
        return f"{self.root}/log_pointer"

    @property
    def queue(self) -> str:
        return f"{self.root}/queue"

    def queue_entry(self, node: str) -> str:
        return f"{self.root}/queue/{node}"

    @property
    def queue_prefix(self) -> str:
        return f"{self.root}/queue/queue-"

    @property
    def executing(self) -> str:
        """Parent of the claims; its data version is what serialises claiming (design §4)."""
        return f"{self.root}/executing"

    def claim(self, node: str) -> str:
        return f"{self.root}/executing/{node}"

    @property
    def attempts(self) -> str:
        return f"{self.root}/attempts"

    def attempts_of(self, node: str) -> str:
        return f"{self.root}/attempts/{node}"

    @property
    def parts(self) -> str:
        return f"{self.root}/parts"

    def part(self, part: object) -> str:
        return f"{self.root}/parts/{part}"

    @property
    def flags(self) -> str:
        return f"{self.root}/flags"

    @property
    def force_restore_data(self) -> str:
        """A flag that people set: the next start sets aside whatever ZooKeeper does not know."""
        return f"{self.flags}/force_restore_data"

    @property
    def metadata(self) -> str:
        return f"{self.root}/metadata"

    @property
    def columns(self) -> str:
        return f"{self.root}/columns"

    @property
    def metadata_version(self) -> str:
        return f"{self.root}/metadata_version"

    @property
    def mutation_pointer(self) -> str:
        return f"{self.root}/mutation_pointer"

    @property
    def finished_mutations(self) -> str:
        """Those after the pointer that are finished all the same; absent while there are none."""
        return f"{self.root}/finished_mutations"

    @property
    def min_unprocessed_insert_time(self) -> str:
        return f"{self.root}/min_unprocessed_insert_time"

    @property
    def max_processed_insert_time(self) -> str:
        return f"{self.root}/max_processed_insert_time"

    @property
    def creator_info(self) -> str:
        return f"{self.root}/creator_info"

    @property
    def creations(self) -> str:
        """Its one child is named after what the replica was made with. Ours."""
        return f"{self.root}/creation"

    def creation(self, uuid: str) -> str:
        return f"{self.root}/creation/{uuid}"

    @property
    def detached(self) -> str:
        """There while the replica's server does not serve it because it was told so. Ours."""
        return f"{self.root}/detached"

    @property
    def dropping(self) -> str:
        """Held by whoever removes the replica. Ours."""
        return f"{self.root}/dropping"


@dataclass(frozen=True, slots=True)
class TablePaths:
    """`T`: what all replicas of one table share."""

    root: str

    @property
    def metadata(self) -> str:
        return f"{self.root}/metadata"

    @property
    def columns(self) -> str:
        return f"{self.root}/columns"

    @property
    def log(self) -> str:
        return f"{self.root}/log"

    @property
    def log_prefix(self) -> str:
        return f"{self.root}/log/log-"

    def log_entry(self, name: str) -> str:
        return f"{self.root}/log/{name}"

    @property
    def blocks(self) -> str:
        return f"{self.root}/blocks"

    def block(self, block_id: str) -> str:
        return f"{self.root}/blocks/{block_id}"

    @property
    def inserts(self) -> str:
        return f"{self.root}/inserts"

    def insert(self, insert_id: str) -> str:
        return f"{self.root}/inserts/{insert_id}"

    def insert_batch(self, insert_id: str, number: int) -> str:
        """What one commit of an insert that is too large for one put into the table."""
        return f"{self.root}/inserts/{insert_id}/{number:0{SEQUENCE_DIGITS}d}"

    @property
    def block_numbers(self) -> str:
        return f"{self.root}/block_numbers"

    def partition(self, partition_id: str) -> str:
        return f"{self.root}/block_numbers/{partition_id}"

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

    @property
    def quorum(self) -> str:
        return f"{self.root}/quorum"

    @property
    def quorum_status(self) -> str:
        return f"{self.root}/quorum/status"

    @property
    def quorum_parallel(self) -> str:
        return f"{self.root}/quorum/parallel"

    def quorum_of(self, part: object) -> str:
        """The node of a part that waits for its quorum beside others."""
        return f"{self.root}/quorum/parallel/{part}"

    @property
    def quorum_last_part(self) -> str:
        return f"{self.root}/quorum/last_part"

    @property
    def quorum_failed_parts(self) -> str:
        return f"{self.root}/quorum/failed_parts"

    def quorum_failed(self, part: object) -> str:
        return f"{self.root}/quorum/failed_parts/{part}"

    @property
    def mutations(self) -> str:
        return f"{self.root}/mutations"

    def mutation(self, mutation_id: str) -> str:
        return f"{self.root}/mutations/{mutation_id}"

    @property
    def alters(self) -> str:
        """What each ALTER did to the names of columns. Ours: its version orders ALTERs."""
        return f"{self.root}/alters"

    def alter(self, version: int) -> str:
        """The ALTER that made this version of the metadata."""
        return f"{self.root}/alters/{version:0{SEQUENCE_DIGITS}d}"

    @property
    def alter_partition_version(self) -> str:
        return f"{self.root}/alter_partition_version"

    @property
    def lost_part_count(self) -> str:
        return f"{self.root}/lost_part_count"

    @property
    def lost_parts(self) -> str:
        """Which they were, and whose rows. Ours."""
        return f"{self.root}/lost_parts"

    def lost_part(self, part: object) -> str:
        return f"{self.root}/lost_parts/{part}"

    @property
    def restoring(self) -> str:
        """While the table is made again from the disks of its replicas: nobody is active. Ours."""
        return f"{self.root}/restoring"

    def restoring_replica(self, name: str) -> str:
        """A replica that is waited for, and what it has announced."""
        return f"{self.root}/restoring/{name}"

    @property
    def restoring_lock(self) -> str:
        """Held by whoever opens the table again."""
        return f"{self.root}/restoring_lock"

    @property
    def replicas(self) -> str:
        return f"{self.root}/replicas"

    @property
    def dropped(self) -> str:
        return f"{self.root}/dropped"

    @property
    def dropped_lock(self) -> str:
        return f"{self.root}/dropped/lock"

    def replica(self, name: str) -> ReplicaPaths:
        return ReplicaPaths(f"{self.root}/replicas/{name}")


@dataclass(frozen=True, slots=True)
class TaskPaths:
    """One statement for the servers of a cluster. A server is `host:port` in all names."""

    root: str

    @property
    def name(self) -> str:
        return last_name(self.root)

    @property
    def active(self) -> str:
        return f"{self.root}/active"

    def active_on(self, host: str) -> str:
        """Ephemeral: this server is at it."""
        return f"{self.root}/active/{host}"

    @property
    def finished(self) -> str:
        return f"{self.root}/finished"

    def finished_on(self, host: str) -> str:
        return f"{self.root}/finished/{host}"

    @property
    def synced(self) -> str:
        return f"{self.root}/synced"

    def synced_on(self, host: str) -> str:
        """It is done there, without an error."""
        return f"{self.root}/synced/{host}"

    @property
    def begun(self) -> str:
        return f"{self.root}/begun"

    def begun_on(self, host: str) -> str:
        """What the statement's names stood for there before it began. Ours."""
        return f"{self.root}/begun/{host}"

    @property
    def shards(self) -> str:
        return f"{self.root}/shards"

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

    @property
    def task_prefix(self) -> str:
        return f"{self.root}/query-"

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

    @property
    def metadata(self) -> str:
        return f"{self.root}/metadata"

    def table(self, name: str) -> str:
        """What the table is now."""
        return f"{self.root}/metadata/{_database_node(name)}"

    @property
    def replicas(self) -> str:
        return f"{self.root}/replicas"

    def replica(self, name: str) -> str:
        return f"{self.root}/replicas/{name}"

    @property
    def dropping(self) -> str:
        """Ephemeral: held by whoever removes the database with its last replica."""
        return f"{self.root}/dropping"

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
