"""The statements, one frozen class each: what was asked, before any table is looked at.

Expressions, types and queries are trees; macros are as typed. `sql.define` gives a CREATE its
meaning, `sql.run` carries statements out. A database of None means the session's.
"""

from dataclasses import dataclass, field
from typing import Literal

from rmt_pipeline.protocol.alter.commands import AlterCommand, Place, Removable
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.table import DefaultKind
from rmt_pipeline.syntax.mutation import Command, Partition
from rmt_pipeline.syntax.nodes import Node, Query
from rmt_pipeline.syntax.settings import Settings
from rmt_pipeline.syntax.ttl import TtlElement
from rmt_pipeline.types.data_type import DataType

SYSTEM_DATABASE = "system"


@dataclass(frozen=True, slots=True)
class TableName:
    database: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.database is None else f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class ColumnSyntax:
    """`type` is None when only a default was given."""

    name: str
    type: DataType | None = None
    nullable: bool | None = None  # NULL, NOT NULL, or neither
    default_kind: DefaultKind = ""
    default: Node | None = None
    comment: str = ""
    codec: str = ""
    ttl: Node | None = None
    is_primary_key: bool = False


@dataclass(frozen=True, slots=True)
class IndexSyntax:
    """`INDEX name expression TYPE type GRANULARITY n`, whose type is as it was typed."""

    name: str
    expression: Node
    type: str
    granularity: int = 1


@dataclass(frozen=True, slots=True)
class ProjectionSyntax:
    """`PROJECTION name (SELECT …)`; the query is as it was typed, on one line."""

    name: str
    query: str


@dataclass(frozen=True, slots=True)
class ConstraintSyntax:
    name: str
    kind: Literal["CHECK", "ASSUME"]
    expression: Node


@dataclass(frozen=True, slots=True)
class PrimaryKeySyntax:
    """`PRIMARY KEY (…)` among the columns."""

    key: tuple[Node, ...]


ElementSyntax = (
    ColumnSyntax | IndexSyntax | ProjectionSyntax | ConstraintSyntax | PrimaryKeySyntax
)


@dataclass(frozen=True, slots=True)
class TableSyntax:
    """CREATE TABLE as typed. A key that was not given is None, one given as `tuple()` is ()."""

    columns: tuple[ColumnSyntax, ...]
    engine: str
    engine_arguments: tuple[Node, ...]
    partition_by: tuple[Node, ...] | None = None
    order_by: tuple[Node, ...] | None = None
    primary_key: tuple[Node, ...] | None = None
    sample_by: Node | None = None
    ttl: tuple[TtlElement, ...] = ()
    settings: Settings = ()
    comment: str = ""
    indices: tuple[IndexSyntax, ...] = ()
    projections: tuple[ProjectionSyntax, ...] = ()
    constraints: tuple[ConstraintSyntax, ...] = ()


@dataclass(frozen=True, slots=True)
class AttachTable:
    """`syntax` is None for a table whose definition this server still has."""

    table: TableName
    syntax: TableSyntax | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DetachTable:
    """With `sync` what runs is waited for."""

    table: TableName
    if_exists: bool = False
    permanently: bool = False
    sync: bool = False


@dataclass(frozen=True, slots=True)
class DropTable:
    tables: tuple[TableName, ...]
    if_exists: bool = False
    sync: bool = False


@dataclass(frozen=True, slots=True)
class UndropTable:
    """`uuid` is "" when it was not given."""

    table: TableName
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class RenameTables:
    """Each table and its new name, in turn; with `if_exists` tables that are not there are left
    out.
    """

    moves: tuple[tuple[TableName, TableName], ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ExchangeTables:
    one: TableName
    other: TableName


@dataclass(frozen=True, slots=True)
class RenameDatabase:
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
    name: str
    if_not_exists: bool = False
    replicated: ReplicatedEngine | None = None


@dataclass(frozen=True, slots=True)
class DropDatabase:
    name: str
    if_exists: bool = False
    sync: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    database: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """`[NOT] LIKE '…'` or `ILIKE '…'` of SHOW."""

    like: str
    negated: bool = False
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What may follow any statement that answers with rows."""

    format: str | None = None
    settings: Settings = ()


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    pattern: Pattern | None = None
    limit: int | None = None
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ShowTables:
    database: str | None = None
    pattern: Pattern | None = None
    limit: int | None = None
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ShowCreateDatabase:
    name: str
    answer: Answer = Answer()


@dataclass(frozen=True, slots=True)
class ShowCreateTable:
    table: TableName
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ShowSettings:
    pattern: Pattern
    changed: bool = False
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class DescribeTable:
    table: TableName
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ExistsTable:
    table: TableName
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ExistsDatabase:
    name: str
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class ValuesText:
    """Rows as SQL tuples, in `source[start:stop]` (not copied: there may be many)."""

    source: str = field(repr=False)
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class InlineRows:
    """Rows in a format, in `source[start:stop]`; nothing there means: on standard input."""

    format: str
    source: str = field(repr=False)
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FromFile:
    """`format` and `compression` are found from the name's ending when None."""

    path: str
    format: str | None = None
    compression: str | None = None


@dataclass(frozen=True, slots=True)
class FromQuery:
    """`text` is the query as typed, for messages."""

    query: Query
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`like` is another table, whose columns it has, and whose engine too without a `syntax`. The
    rows of `query` go in, unless `is_empty`; where no columns are given it has the query's.
    """

    table: TableName
    syntax: TableSyntax | None
    if_not_exists: bool = False
    like: TableName | None = None
    query: FromQuery | None = None
    is_empty: bool = False


InsertSource = ValuesText | InlineRows | FromFile | FromQuery


@dataclass(frozen=True, slots=True)
class InPlaceOf:
    """What INSERT OVERWRITE replaces: partitions, or rows for which a condition holds; with
    neither, the partitions that the rows are in.
    """

    partitions: tuple[Partition, ...] = ()
    where: Node | None = None


@dataclass(frozen=True, slots=True)
class ColumnsChosen:
    """`COLUMNS('regular expression')`, or `*` (""), with EXCEPT."""

    pattern: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Insert:
    """`columns` is None when every column (that can be inserted) is meant."""

    table: TableName
    columns: tuple[str, ...] | ColumnsChosen | None
    source: InsertSource
    settings: Settings = ()
    in_place_of: InPlaceOf | None = None


@dataclass(frozen=True, slots=True)
class SelectStatement:
    """A query, without the FORMAT and SETTINGS that may stand at its end.

    `text` is the query as typed, for messages. `explain`: it is not asked for its rows, but for how
    it would be carried out.
    """

    query: Query
    answer: Answer = field(default=Answer())
    text: str = field(default="", compare=False)
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Optimize:
    """`deduplicate_by` is () for DEDUPLICATE over all columns."""

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
    """Of all parts, those of a partition, or one by its name."""

    table: TableName
    partition: Partition | None = None
    part: str = ""
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class SystemSyncReplica:
    table: TableName
    mode: SyncReplicaMode = "DEFAULT"
    from_replicas: tuple[str, ...] = ()
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SystemDropReplica:
    """Of one table, of the tables of a database, of the table at a path in ZooKeeper, or of all
    tables of this server.
    """

    replica: str
    table: TableName | None = None
    database: str = ""
    zookeeper_path: str = ""


@dataclass(frozen=True, slots=True)
class SystemSyncDatabase:
    database: str


@dataclass(frozen=True, slots=True)
class SystemDropDatabaseReplica:
    """`shard|replica` of a Replicated database, which is one of this server or at a path."""

    replica: str
    database: str = ""
    zookeeper_path: str = ""


@dataclass(frozen=True, slots=True)
class SystemRestartReplica:
    """The server starts the table's replica anew; all of them when none is named."""

    table: TableName | None = None


@dataclass(frozen=True, slots=True)
class SystemRestoreReplica:
    """ZooKeeper has nothing of the table, or an older state: it is made again from the disk."""

    table: TableName


@dataclass(frozen=True, slots=True)
class SystemNothingToDo:
    """FLUSH LOGS, FLUSH ASYNC INSERT QUEUE, DROP … CACHE: what is held back or kept there is not
    here.
    """


@dataclass(frozen=True, slots=True)
class SystemUnfreeze:
    """SYSTEM UNFREEZE WITH NAME 'n': of all tables."""

    name: str
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class SystemWaitLoadingParts:
    """Parts are known as soon as the server is active."""

    table: TableName


@dataclass(frozen=True, slots=True)
class SystemSwitch:
    """SYSTEM STOP or START of one kind of background work, until the server starts again; for all
    tables that there are when none is named.
    """

    start: bool
    what: Background
    table: TableName | None = None


@dataclass(frozen=True, slots=True)
class MaterializeColumn:
    """The values of a DEFAULT or MATERIALIZED column are written to every part."""

    column: str
    partition: Partition | None = None


@dataclass(frozen=True, slots=True)
class MaterializeTtl:
    """What has expired by now goes now."""

    partition: Partition | None = None


RowsSyntax = Command | MaterializeColumn | MaterializeTtl


@dataclass(frozen=True, slots=True)
class MutateRows:
    """ALTER TABLE … DELETE, UPDATE, MATERIALIZE, and DELETE FROM (`is_lightweight`)."""

    table: TableName
    commands: tuple[RowsSyntax, ...]
    settings: Settings = ()
    is_lightweight: bool = False


@dataclass(frozen=True, slots=True)
class AddColumnSyntax:
    column: ColumnSyntax
    place: Place | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class ModifyColumnSyntax:
    """`column.type` is None when the type stays, and so are `comment`, `codec` and `ttl`."""

    column: ColumnSyntax
    comment: str | None = None
    codec: str | None = None
    ttl: Node | None = None
    remove: Removable = ""
    place: Place | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ClearColumnSyntax:
    column: str
    partition: Partition | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ModifyKeySyntax:
    """MODIFY ORDER BY, as typed."""

    order_by: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ModifyTtlSyntax:
    ttl: tuple[TtlElement, ...]


@dataclass(frozen=True, slots=True)
class AddIndexSyntax:
    index: IndexSyntax
    place: Place | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddConstraintSyntax:
    constraint: ConstraintSyntax
    if_not_exists: bool = False


AlterSyntax = (
    AddColumnSyntax
    | AddIndexSyntax
    | AddConstraintSyntax
    | ModifyColumnSyntax
    | ClearColumnSyntax
    | ModifyKeySyntax
    | ModifyTtlSyntax
    | AlterCommand
)
"""A command of ALTER as typed; those without types and expressions are what they will be."""


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE with commands that change what the table is (spec §8)."""

    table: TableName
    commands: tuple[AlterSyntax, ...]
    settings: Settings = ()


@dataclass(frozen=True, slots=True)
class AllPartitions:
    """PARTITION ALL."""


@dataclass(frozen=True, slots=True)
class OnePart:
    """PART 'name', as typed."""

    name: str


PartitionTarget = Partition | AllPartitions | OnePart


@dataclass(frozen=True, slots=True)
class DropPartition:
    """DROP, or DETACH, PARTITION or PART."""

    target: PartitionTarget
    detach: bool = False


@dataclass(frozen=True, slots=True)
class AttachPartition:
    """ATTACH PARTITION or PART, from `detached/`."""

    target: PartitionTarget


@dataclass(frozen=True, slots=True)
class PartitionFrom:
    """REPLACE PARTITION p FROM t, or with `attach` ATTACH PARTITION p FROM t."""

    partition: Partition
    source: TableName
    attach: bool = False


@dataclass(frozen=True, slots=True)
class MovePartition:
    """MOVE PARTITION p TO TABLE t."""

    partition: Partition
    destination: TableName


@dataclass(frozen=True, slots=True)
class DropDetached:
    """DROP DETACHED PARTITION or PART: for good."""

    target: PartitionTarget


@dataclass(frozen=True, slots=True)
class FreezePartition:
    """FREEZE [PARTITION p] [WITH NAME 'n']; None: all of them."""

    partition: Partition | AllPartitions | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class UnfreezePartition:
    """UNFREEZE [PARTITION p] WITH NAME 'n'."""

    partition: Partition | AllPartitions | None
    name: str


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """FETCH PARTITION p, or PART, FROM 'a path in ZooKeeper'."""

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
    table: TableName
    if_exists: bool = False
    settings: Settings = ()


@dataclass(frozen=True, slots=True)
class KillMutation:
    """`condition` is over the columns of system.mutations. With TEST nothing is killed.

    `sync`: wait until it took hold (SYNC, True), don't (ASYNC, False), or a little (None).
    """

    condition: Node
    is_test: bool = False
    sync: bool | None = None
    answer: Answer = field(default=Answer())


@dataclass(frozen=True, slots=True)
class SetSettings:
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
"""What may be ON CLUSTER."""


@dataclass(frozen=True, slots=True)
class OnCluster:
    """A statement for every server of a cluster; macros in the cluster's name are as typed. `text`
    is all of it as typed: what the servers are given.
    """

    cluster: str
    statement: ClusterStatement
    text: str = field(compare=False)


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
    | ShowDatabases
    | ShowTables
    | ShowCreateDatabase
    | ShowCreateTable
    | ShowSettings
    | DescribeTable
    | ExistsTable
    | ExistsDatabase
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
    | SetSettings
    | OnCluster
)
