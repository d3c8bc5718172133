"""The nodes of statements: one frozen class for each statement, as it was typed.

Expressions, types and queries are trees; macros are not expanded yet, and no table was looked up. A
database of None means the session's. `sql.define` makes definitions of the tables of CREATE, and
`sql.run` carries statements out.
"""

from dataclasses import field
from typing import Literal

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.syntax.mutation import Command, Partition
from rmt_pipeline.syntax.nodes import Node, Query
from rmt_pipeline.syntax.settings import Settings
from rmt_pipeline.syntax.statements.definition import AlterSyntax, TableSyntax
from rmt_pipeline.values import dataclass

SYSTEM_DATABASE = "system"


@dataclass(frozen=True, slots=True)
class TableName:
    """`database.name` or `name` as typed; `database` None means the session's."""

    database: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.database is None else f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class AttachTable:
    """`ATTACH TABLE t`: serve a table again that DETACH took away (`syntax` is None) or, with
    columns and engine, a replica that is in ZooKeeper and on this disk.
    """

    table: TableName
    syntax: TableSyntax | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DetachTable:
    """`DETACH TABLE t [PERMANENTLY] [SYNC]`: this server no longer serves the table, whose rows
    stay. Without PERMANENTLY the table is back when the server starts again; SYNC waits for running
    work.
    """

    table: TableName
    if_exists: bool = False
    permanently: bool = False
    sync: bool = False


@dataclass(frozen=True, slots=True)
class DropTable:
    """`DROP TABLE [IF EXISTS] a, b [SYNC]`. With SYNC the rows are gone when the statement returns;
    without it, UNDROP TABLE can bring them back for some minutes.
    """

    tables: tuple[TableName, ...]
    if_exists: bool = False
    sync: bool = False


@dataclass(frozen=True, slots=True)
class UndropTable:
    """`UNDROP TABLE t [UUID '…']`: undo a DROP TABLE. `uuid` chooses among several dropped tables
    of the name; "" is the one dropped last.
    """

    table: TableName
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class RenameTables:
    """`RENAME TABLE [IF EXISTS] a TO b, c TO d`: give tables new names, one after another. With
    `if_exists`, tables that do not exist are left out.
    """

    moves: tuple[tuple[TableName, TableName], ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ExchangeTables:
    """`EXCHANGE TABLES a AND b`: swap the names of two tables atomically."""

    one: TableName
    other: TableName


@dataclass(frozen=True, slots=True)
class RenameDatabase:
    """`RENAME DATABASE [IF EXISTS] a TO b`."""

    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ReplicatedEngine:
    """`ENGINE = Replicated('path', 'shard', 'replica')`, macros as typed."""

    path: str
    shard: str
    replica: str


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """`CREATE DATABASE [IF NOT EXISTS] d [ENGINE = …]`. `replicated` is None for Atomic, the
    ordinary engine.
    """

    name: str
    if_not_exists: bool = False
    replicated: ReplicatedEngine | None = None


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """`DROP DATABASE [IF EXISTS] d [SYNC]`: drop a database with its tables."""

    name: str
    if_exists: bool = False
    sync: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """`USE d`: change the session's database."""

    database: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """`[NOT] LIKE '…'` or `ILIKE '…'` of SHOW."""

    like: str
    negated: bool = False
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """`FORMAT …` and `SETTINGS …` at the end of a statement that answers with rows."""

    format: str | None = None
    settings: Settings = ()


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    """`SHOW DATABASES [LIKE 'a%'] [LIMIT 5]`."""

    pattern: Pattern | None = None
    limit: int | None = None
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ShowTables:
    """`SHOW TABLES [FROM d] [LIKE 'a%'] [LIMIT 5]`."""

    database: str | None = None
    pattern: Pattern | None = None
    limit: int | None = None
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ShowCreateDatabase:
    """`SHOW CREATE DATABASE d`: the statement that would create the database."""

    name: str
    answer: Answer = Answer()


@dataclass(frozen=True, slots=True)
class ShowCreateTable:
    """`SHOW CREATE TABLE t`: the statement that would create the table."""

    table: TableName
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ShowSettings:
    """`SHOW [CHANGED] SETTINGS [LIKE 'max%']`: the session's settings; with `changed`, only those
    that differ from their default.
    """

    pattern: Pattern | None
    changed: bool = False
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """`DESCRIBE TABLE t`: a row for each column."""

    table: TableName
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ExistsTable:
    """`EXISTS TABLE t`: 1 or 0."""

    table: TableName
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ExistsDatabase:
    """`EXISTS DATABASE d`: 1 or 0."""

    name: str
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ValuesText:
    """`INSERT … VALUES (1, 'a'), (2, 'b')`: the tuples are in `source[start:stop]`. They are not
    copied or parsed yet, since there may be many.
    """

    source: str = field(repr=False)
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class InlineRows:
    """`INSERT … FORMAT CSV`: the rows are in `source[start:stop]` or, if that is empty, on standard
    input.
    """

    format: str
    source: str = field(repr=False)
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FromFile:
    """`INSERT … FROM INFILE 'rows.csv.gz' [COMPRESSION 'gzip'] [FORMAT CSV]`. A format or
    compression of None is found from the file's name.
    """

    path: str
    format: str | None = None
    compression: str | None = None


@dataclass(frozen=True, slots=True)
class FromQuery:
    """The query of `INSERT … SELECT` or `CREATE TABLE … AS SELECT`. `text` is the query as typed,
    for messages.
    """

    query: Query
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`CREATE TABLE t (…) ENGINE = …`, `CREATE TABLE t AS other`, `CREATE TABLE t … AS SELECT …`.

    The table has the columns of the table `like` and, if `syntax` is None, its engine too. The rows
    of `query` are inserted, unless `is_empty`; if no columns are given, the table has those of the
    query.
    """

    table: TableName
    syntax: TableSyntax | None
    if_not_exists: bool = False
    like: TableName | None = None
    query: FromQuery | None = None
    is_empty: bool = False
    or_replace: bool = False


InsertSource = ValuesText | InlineRows | FromFile | FromQuery


@dataclass(frozen=True, slots=True)
class InPlaceOf:
    """What `INSERT OVERWRITE` replaces: partitions, or the rows of WHERE; with neither, the
    partitions that the new rows belong to.
    """

    partitions: tuple[Partition, ...] = ()
    where: Node | None = None


@dataclass(frozen=True, slots=True)
class ColumnsChosen:
    """`COLUMNS('regular expression')`, or `*` (pattern ""), without the columns of EXCEPT."""

    pattern: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Insert:
    """`INSERT INTO t (a, b) …`. `columns` is None when none are named, which means all columns that
    can be inserted into.
    """

    table: TableName
    columns: tuple[str, ...] | ColumnsChosen | None
    source: InsertSource
    settings: Settings = ()
    in_place_of: InPlaceOf | None = None


QueryShows = Literal["", "plan", "columns"]


@dataclass(frozen=True, slots=True)
class SelectStatement:
    """A query, with the FORMAT and SETTINGS at its end in `answer`.

    `text` is the query as typed, for messages. `shows` is "" for the query's rows, "plan" for
    EXPLAIN, and "columns" for DESCRIBE (SELECT …).
    """

    query: Query
    answer: Answer = field(default=Answer())
    text: str = field(default="", compare=False)
    shows: QueryShows = ""


@dataclass(frozen=True, slots=True)
class Optimize:
    """`OPTIMIZE TABLE t [PARTITION p] [FINAL] [DEDUPLICATE [BY a, b]] [CLEANUP]`. `deduplicate_by`
    is () for all columns.
    """

    table: TableName
    partition: Partition | None = None
    final: bool = False
    deduplicate: bool = False
    deduplicate_by: tuple[str, ...] | ColumnsChosen = ()
    cleanup: bool = False
    settings: Settings = ()


SyncReplicaMode = Literal["DEFAULT", "STRICT", "LIGHTWEIGHT", "PULL"]


@dataclass(frozen=True, slots=True)
class CheckTable:
    """`CHECK TABLE t [PARTITION p | PART 'name']`: read the parts again and compare their hashes.
    Without PARTITION and PART, all parts are checked.
    """

    table: TableName
    partition: Partition | None = None
    part: str = ""
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class SystemSyncReplica:
    """`SYSTEM SYNC REPLICA t [STRICT | LIGHTWEIGHT [FROM 'r2'] | PULL]`: wait until this replica
    has carried out what is in the log now; STRICT until its queue is empty, LIGHTWEIGHT without
    merges and mutations, PULL only until the log is copied to its queue.
    """

    table: TableName
    mode: SyncReplicaMode = "DEFAULT"
    from_replicas: tuple[str, ...] = ()
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SystemDropReplica:
    """`SYSTEM DROP REPLICA 'r2' [FROM TABLE t | FROM DATABASE d | FROM ZKPATH '/…']`: remove a dead
    replica from ZooKeeper; without FROM, for every table of this server.
    """

    replica: str
    table: TableName | None = None
    database: str = ""
    zookeeper_path: str = ""


@dataclass(frozen=True, slots=True)
class SystemSyncDatabase:
    """`SYSTEM SYNC DATABASE REPLICA d`: wait until this server has carried out the log of a
    Replicated database.
    """

    database: str


@dataclass(frozen=True, slots=True)
class SystemRestoreDatabase:
    """`SYSTEM RESTORE DATABASE REPLICA d`: make a Replicated database again that ZooKeeper lost."""

    database: str


@dataclass(frozen=True, slots=True)
class SystemDropDatabaseReplica:
    """`SYSTEM DROP DATABASE REPLICA 'shard|replica' [FROM DATABASE d | FROM ZKPATH '/…']`: remove a
    dead replica of a Replicated database from ZooKeeper.
    """

    replica: str
    database: str = ""
    zookeeper_path: str = ""


@dataclass(frozen=True, slots=True)
class SystemRestartReplica:
    """`SYSTEM RESTART REPLICA t`: the server closes the table's replica and starts it anew. A table
    of None is `RESTART REPLICAS`: those of all tables.
    """

    table: TableName | None = None


@dataclass(frozen=True, slots=True)
class SystemRestoreReplica:
    """`SYSTEM RESTORE REPLICA t`: make the table's state in ZooKeeper again from the parts on this
    disk, after ZooKeeper has lost it or went back to an older state.
    """

    table: TableName


@dataclass(frozen=True, slots=True)
class SystemNothingToDo:
    """`SYSTEM FLUSH LOGS`, `FLUSH ASYNC INSERT QUEUE`, `DROP … CACHE` and `RELOAD …`, which do
    nothing: this engine has no such log, queue, cache or dictionary.
    """


@dataclass(frozen=True, slots=True)
class SystemUnfreeze:
    """`SYSTEM UNFREEZE WITH NAME 'n'`: remove the snapshot of that name for all tables."""

    name: str
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class SystemWaitLoadingParts:
    """`SYSTEM WAIT LOADING PARTS t`, which returns at once: the parts of a table are known as soon
    as it is active.
    """

    table: TableName


@dataclass(frozen=True, slots=True)
class SystemSwitch:
    """`SYSTEM STOP MERGES t`, `SYSTEM START FETCHES`: stop or start one kind of background work,
    without a table for all tables. It stays stopped until START, or until the server starts again.
    """

    start: bool
    what: Background
    table: TableName | None = None


@dataclass(frozen=True, slots=True)
class MaterializeColumn:
    """`MATERIALIZE COLUMN c [IN PARTITION p]`: write the values of a DEFAULT or MATERIALIZED column
    to every part.
    """

    column: str
    partition: Partition | None = None


@dataclass(frozen=True, slots=True)
class MaterializeTtl:
    """`MATERIALIZE TTL [IN PARTITION p]`: delete the rows and values that have expired."""

    partition: Partition | None = None


RowsSyntax = Command | MaterializeColumn | MaterializeTtl


@dataclass(frozen=True, slots=True)
class MutateRows:
    """`ALTER TABLE t DELETE | UPDATE | MATERIALIZE …`, and `DELETE FROM t WHERE …`
    (`is_lightweight`).
    """

    table: TableName
    commands: tuple[RowsSyntax, ...]
    settings: Settings = ()
    is_lightweight: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE with commands that change the table's definition (spec §8)."""

    table: TableName
    commands: tuple[AlterSyntax, ...]
    settings: Settings = ()


@dataclass(frozen=True, slots=True)
class AllPartitions:
    """`PARTITION ALL`: every partition that the table has."""


@dataclass(frozen=True, slots=True)
class OnePart:
    """`PART 'all_0_5_1'`, the name as typed."""

    name: str


PartitionTarget = Partition | AllPartitions | OnePart


@dataclass(frozen=True, slots=True)
class DropPartition:
    """`DROP PARTITION p`, `DROP PART 'name'`; with `detach`, DETACH: the parts are set aside and
    stay on the disk.
    """

    target: PartitionTarget
    detach: bool = False


@dataclass(frozen=True, slots=True)
class AttachPartition:
    """`ATTACH PARTITION p`, `ATTACH PART 'name'`: parts come back from `detached/`."""

    target: PartitionTarget


@dataclass(frozen=True, slots=True)
class PartitionFrom:
    """`REPLACE PARTITION p FROM t`; with `attach`, `ATTACH PARTITION p FROM t`, which keeps the
    rows that the partition has.
    """

    partition: Partition
    source: TableName
    attach: bool = False


@dataclass(frozen=True, slots=True)
class MovePartition:
    """`MOVE PARTITION p TO TABLE t`."""

    partition: Partition
    destination: TableName


@dataclass(frozen=True, slots=True)
class DropDetached:
    """`DROP DETACHED PARTITION p`, or `PART 'name'`: remove detached parts for good."""

    target: PartitionTarget


@dataclass(frozen=True, slots=True)
class FreezePartition:
    """`FREEZE [PARTITION p] [WITH NAME 'n']`: take a snapshot by hard links. A partition of None is
    the whole table.
    """

    partition: Partition | AllPartitions | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class UnfreezePartition:
    """`UNFREEZE [PARTITION p] WITH NAME 'n'`: remove the snapshot, or one partition of it."""

    partition: Partition | AllPartitions | None
    name: str


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """`FETCH PARTITION p FROM '/path/in/zookeeper'`, or PART: copy parts from another table's
    replicas into `detached/`.
    """

    target: Partition | AllPartitions | OnePart
    path: str


PartitionCommand = (
    DropPartition
    | AttachPartition
    | DropDetached
    | PartitionFrom
    | MovePartition
    | FreezePartition
    | UnfreezePartition
    | FetchPartition
)


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """ALTER TABLE with commands on partitions and parts (spec §9)."""

    table: TableName
    commands: tuple[PartitionCommand, ...]
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class Truncate:
    """`TRUNCATE TABLE [IF EXISTS] t`: delete all rows and keep the table."""

    table: TableName
    if_exists: bool = False
    settings: Settings = ()


@dataclass(frozen=True, slots=True)
class KillMutation:
    """`KILL MUTATION WHERE … [SYNC | ASYNC | TEST]`. `condition` is over the columns of
    system.mutations; with TEST nothing is killed.

    `sync` says whether to wait until it took hold: True (SYNC), False (ASYNC), or None to wait for
    a short time only.
    """

    condition: Node
    is_test: bool = False
    sync: bool | None = None
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class KillQuery:
    """`KILL QUERY WHERE … [SYNC | ASYNC | TEST]`, over the columns of system.processes. With SYNC
    it waits until they have ended.
    """

    condition: Node
    is_test: bool = False
    sync: bool | None = None
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class SetSettings:
    """`SET max_threads = 1, final = 1`: set settings for the rest of the session."""

    settings: Settings


SystemStatement = (
    SystemSyncReplica
    | SystemSwitch
    | SystemDropReplica
    | SystemRestartReplica
    | SystemRestoreReplica
    | SystemNothingToDo
    | SystemUnfreeze
    | SystemWaitLoadingParts
    | SystemSyncDatabase
    | SystemRestoreDatabase
    | SystemDropDatabaseReplica
)

ClusterStatement = (
    CreateTable
    | AttachTable
    | DetachTable
    | DropTable
    | RenameTables
    | ExchangeTables
    | RenameDatabase
    | CreateDatabase
    | DropDatabase
    | Optimize
    | SystemSyncReplica
    | SystemSyncDatabase
    | SystemRestoreDatabase
    | SystemSwitch
    | SystemRestartReplica
    | SystemRestoreReplica
    | SystemNothingToDo
    | SystemUnfreeze
    | SystemWaitLoadingParts
    | MutateRows
    | AlterTable
    | AlterPartitions
    | Truncate
    | KillMutation
)
"""The statements that may be ON CLUSTER."""


@dataclass(frozen=True, slots=True)
class OnCluster:
    """A statement ON CLUSTER, for every server of a cluster. Macros in the cluster's name are not
    expanded; `text` is the whole statement as typed, which is sent to the servers.
    """

    cluster: str
    statement: ClusterStatement
    text: str = field(compare=False)


ShowStatement = (
    ShowDatabases
    | ShowTables
    | ShowCreateDatabase
    | ShowCreateTable
    | ShowSettings
    | DescribeTable
    | ExistsTable
    | ExistsDatabase
)

Statement = (
    CreateTable
    | AttachTable
    | DetachTable
    | DropTable
    | UndropTable
    | RenameTables
    | ExchangeTables
    | RenameDatabase
    | CreateDatabase
    | DropDatabase
    | Use
    | ShowStatement
    | Insert
    | SelectStatement
    | Optimize
    | CheckTable
    | SystemStatement
    | MutateRows
    | AlterTable
    | AlterPartitions
    | Truncate
    | KillMutation
    | KillQuery
    | SetSettings
    | OnCluster
)
