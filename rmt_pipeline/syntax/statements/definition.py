"""The nodes for the elements of a table's definition, as typed in CREATE TABLE and ALTER TABLE.

The statements that they are parts of are in `nodes`; `sql.define` makes definitions of them.
"""

from typing import Literal

from rmt_pipeline.protocol.alter.commands import AlterCommand, Place, Removable
from rmt_pipeline.protocol.table import DefaultKind
from rmt_pipeline.syntax.mutation import Partition
from rmt_pipeline.syntax.nodes import Node
from rmt_pipeline.syntax.settings import Settings
from rmt_pipeline.syntax.ttl import TtlElement
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.values import dataclass


@dataclass(frozen=True, slots=True)
class ColumnSyntax:
    """One column of CREATE TABLE or ALTER: `n UInt8 DEFAULT 1 COMMENT 'count' CODEC(ZSTD) TTL d +
    1`. `type` is None when only a default was given; `nullable` is True for NULL, False for NOT
    NULL, and None for neither.
    """

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
    """`INDEX name expression TYPE type GRANULARITY n`. The type is text, as typed."""

    name: str
    expression: Node
    type: str
    granularity: int = 1


@dataclass(frozen=True, slots=True)
class ProjectionSyntax:
    """`PROJECTION name (SELECT …)`. The query is text, as typed, on one line."""

    name: str
    query: str


@dataclass(frozen=True, slots=True)
class ConstraintSyntax:
    """`CONSTRAINT positive CHECK n > 0` among the columns. ASSUME is kept and shown, but not
    checked.
    """

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
    """The columns and clauses of CREATE TABLE. A key that was not given is None;
    `tuple()` is ().
    """

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
class AddColumnSyntax:
    """`ADD COLUMN [IF NOT EXISTS] c UInt8 [FIRST | AFTER a]`."""

    column: ColumnSyntax
    place: Place | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class ModifyColumnSyntax:
    """`MODIFY COLUMN [IF EXISTS] c UInt16 [COMMENT …] [REMOVE DEFAULT]`. Of `column.type`,
    `comment`, `codec` and `ttl`, None means no change.
    """

    column: ColumnSyntax
    comment: str | None = None
    codec: str | None = None
    ttl: Node | None = None
    remove: Removable = ""
    place: Place | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ClearColumnSyntax:
    """`CLEAR COLUMN [IF EXISTS] c [IN PARTITION p]`: the column's values become its default."""

    column: str
    partition: Partition | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ModifyKeySyntax:
    """`MODIFY ORDER BY (a, b)`."""

    order_by: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ModifyTtlSyntax:
    """`MODIFY TTL d + INTERVAL 1 MONTH, …`: replace the table's TTL rules."""

    ttl: tuple[TtlElement, ...]


@dataclass(frozen=True, slots=True)
class AddIndexSyntax:
    """`ADD INDEX [IF NOT EXISTS] i (expression) TYPE minmax [FIRST | AFTER j]`."""

    index: IndexSyntax
    place: Place | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddConstraintSyntax:
    """`ADD CONSTRAINT [IF NOT EXISTS] positive CHECK n > 0`."""

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
"""A command of ALTER as typed. Commands without types and expressions are those of `protocol.alter`
already.
"""
