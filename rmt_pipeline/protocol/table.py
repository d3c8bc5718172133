"""A table's definition: columns, engine, keys, settings. Their texts in ZooKeeper are in
`nodes.metadata` and `nodes.columns`.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, Self

EngineKind = Literal[
    "MergeTree",
    "ReplacingMergeTree",
    "SummingMergeTree",
    "AggregatingMergeTree",
    "CollapsingMergeTree",
    "VersionedCollapsingMergeTree",
]
PLAIN_ENGINES = ("Memory", "Log", "TinyLog", "StripeLog")
"""The original's engines of tables without a key, which are MergeTree tables of one copy here."""
_CONSTRAINT = re.compile(r"((?:`(?:[^`\\]|\\.)*`|\w+) (?:CHECK|ASSUME)) (.+)", re.DOTALL)
DefaultKind = Literal["", "DEFAULT", "MATERIALIZED", "ALIAS", "EPHEMERAL"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `type` is the canonical ClickHouse text, e.g. `LowCardinality(String)`."""

    name: str
    type: str
    default_kind: DefaultKind = ""
    default: str = ""
    comment: str = ""
    codec: str = ""
    ttl: str = ""

    @property
    def is_stored(self) -> bool:
        """Whether parts have its values. They have none of an ALIAS, which is computed when it is
        read, nor of an EPHEMERAL column, from which an insert only computes other columns.
        """
        return self.default_kind not in ("ALIAS", "EPHEMERAL")


def nested_group(name: str) -> str:
    """The Nested group that a column of this name belongs to: `n` for `n.a`, "" for `n`."""
    group, _, element = name.partition(".")
    return group if element else ""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint. `declared` is its name and kind, such as `c CHECK` or `c ASSUME`."""

    declared: str
    expression: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`."""
        found = _CONSTRAINT.fullmatch(text)
        assert found is not None, text
        return cls(found[1], found[2])

    @property
    def is_checked(self) -> bool:
        return self.declared.endswith(" CHECK")

    def __str__(self) -> str:
        return f"{self.declared} {self.expression}"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """What an ALTER did to a column's name: the ALTER that made metadata `version` renamed
    `column`, or dropped it (`renamed_to` ""). Parts that were written before have the old name.

    The changes of one ALTER are in the order of its commands.
    """

    version: int
    column: str
    renamed_to: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """`Replicated<kind>('path', 'replica', arguments…)`, macros expanded.

    The arguments of the specialised engines are in the fields below, as names of columns.
    """

    kind: EngineKind
    zookeeper_path: str
    replica: str
    version_column: str = ""
    is_deleted_column: str = ""
    sign_column: str = ""
    columns_to_sum: tuple[str, ...] = ()
    typed_path: str = field(default="", compare=False)
    """The path as the user typed it, with its macros; "" if that is not known. `typed_replica` is
    the same for the replica's name.
    """
    typed_replica: str = field(default="", compare=False)
    typed_name: str = field(default="", compare=False)
    """`MergeTree` or the like if the user asked for such a table, which has a single replica; else
    "".
    """

    @property
    def name(self) -> str:
        """The engine's name in a statement."""
        return self.typed_name or f"Replicated{self.kind}"

    @property
    def root(self) -> str:
        """The replica's path in ZooKeeper, which also identifies it in the part exchange."""
        return f"{self.zookeeper_path}/replicas/{self.replica}"

    @property
    def is_private(self) -> bool:
        """Whether the table has a single replica, at a path that the user did not choose."""
        return bool(self.typed_name)

    @property
    def is_plain(self) -> bool:
        """Whether the user asked for an engine that has neither keys nor settings."""
        return self.typed_name in PLAIN_ENGINES

    @property
    def columns(self) -> frozenset[str]:
        """The version, is_deleted and sign columns, as far as the engine has them."""
        names = (self.version_column, self.is_deleted_column, self.sign_column)
        return frozenset(name for name in names if name)


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """One table of one server: a replica of the ZooKeeper path that its engine names.

    Expressions are canonical ClickHouse texts. `order_by` and `partition_by` are tuples of
    expressions; an empty tuple means `tuple()`.
    """

    database: str
    name: str
    columns: tuple[Column, ...]
    engine: Engine
    order_by: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    primary_key: tuple[str, ...] | None = None  # None unless it was given explicitly
    sample_by: str = ""
    ttl: str = ""
    comment: str = ""
    settings: tuple[tuple[str, str], ...] = field(default=())
    indices: tuple[str, ...] = ()
    """Skipping indices as declared: `i v TYPE minmax GRANULARITY 1`. Only kept and shown."""
    projections: tuple[str, ...] = ()
    """Projections as declared: `p (SELECT k, sum(v) GROUP BY k)`. Only kept and shown."""
    constraints: tuple[str, ...] = ()
    """Constraints as declared: `c CHECK k < 100`. ASSUME has no effect."""
    uuid: str = ""
    """Identifies this table on this server. A table that is dropped and created again gets another
    one, so that what was remembered about the old table is not used for the new one.
    """
    directory: str = field(default="", compare=False)
    """The directory of its parts, below the server's directory for parts; "" if it follows from the
    table's name. The parts of a renamed table stay where they are.
    """
    metadata_version: int = 0
    """The version of `metadata` in ZooKeeper, which grows by one with each ALTER (spec §8.1)."""
    history: tuple[ColumnChange, ...] = ()
    """The columns that ALTERs renamed or dropped, by ascending version. Used to read
    older parts.
    """
    restored: str = ""
    """Identifies the last time that SYSTEM RESTORE REPLICA made the replica again; "" for never."""

    @property
    def creation(self) -> str:
        """Identifies one creation of the table's replica; the name of a node in ZooKeeper. "" if
        the table has no uuid.
        """
        return f"{self.uuid}.{self.restored}" if self.uuid and self.restored else self.uuid

    def with_creation(self, name: str) -> Self:
        """The definition whose `creation` is `name`."""
        uuid, _, restored = name.partition(".")
        return replace(self, uuid=uuid, restored=restored)

    def of_creation(self, names: Iterable[str]) -> Self | None:
        """The definition for a replica that has these creations, with the creation that is of this
        table; None if all are of other tables.
        """
        found = map(self.with_creation, names)
        return next((one for one in found if one.uuid == self.uuid), None)

    def may_be(self, names: Collection[str]) -> bool:
        """Whether a replica that has these creations may be this table's. It is another table's if
        they are noted, and all are of others.
        """
        return not self.uuid or not names or self.of_creation(names) is not None

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def with_columns(self, columns: tuple[Column, ...]) -> Self:
        return replace(self, columns=columns)
