"""What a table is: columns, engine, keys, settings. Pure values; texts are in `formats`."""

import re
from collections.abc import Iterable
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
        """Whether parts have its values: not those of an ALIAS, computed when it is read, nor of
        an EPHEMERAL column, which only an insert's other columns are computed from.
        """
        return self.default_kind not in ("ALIAS", "EPHEMERAL")


def nested_group(name: str) -> str:
    """The group of Nested that a column of this name belongs to: `n` for `n.a`, else ""."""
    group, _, element = name.partition(".")
    return group if element else ""


@dataclass(frozen=True, slots=True)
class Constraint:
    """`declared` is its name and what it is: `c CHECK`."""

    declared: str
    expression: str

    @classmethod
    def parse(cls, text: str) -> Self:
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
    """What an ALTER did to a column's name: the one that made metadata `version` renamed
    `column`, or dropped it (`renamed_to` ""). Parts that were written before have the old name.

    The changes of one ALTER are in the order of its commands.
    """

    version: int
    column: str
    renamed_to: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """`Replicated<kind>('path', 'replica', arguments…)`, macros expanded.

    The arguments of the specialised engines are in the fields below; column names as given.
    """

    kind: EngineKind
    zookeeper_path: str
    replica: str
    version_column: str = ""
    is_deleted_column: str = ""
    sign_column: str = ""
    columns_to_sum: tuple[str, ...] = ()
    typed_path: str = field(default="", compare=False)
    """As it was typed, with its macros; "" where nobody remembers, and so `typed_replica`."""
    typed_replica: str = field(default="", compare=False)
    typed_name: str = field(default="", compare=False)
    """`MergeTree` for the table of one copy that was asked for as such; else ""."""

    @property
    def name(self) -> str:
        """What the engine is called in a statement."""
        return self.typed_name or f"Replicated{self.kind}"

    @property
    def root(self) -> str:
        """The replica's ZooKeeper path: its endpoint in the part exchange."""
        return f"{self.zookeeper_path}/replicas/{self.replica}"

    @property
    def is_private(self) -> bool:
        """Whether the table has one copy, for itself, at a path that nobody typed."""
        return bool(self.typed_name)

    @property
    def columns(self) -> frozenset[str]:
        """The columns whose values the engine works with, but for those that it only sums."""
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
    primary_key: tuple[str, ...] | None = None  # only when it was given explicitly
    sample_by: str = ""
    ttl: str = ""
    comment: str = ""
    settings: tuple[tuple[str, str], ...] = field(default=())
    indices: tuple[str, ...] = ()
    """Skipping indices as they are declared: `i v TYPE minmax GRANULARITY 1`. Kept and shown."""
    projections: tuple[str, ...] = ()
    """As declared: `p (SELECT k, sum(v) GROUP BY k)`. Kept and shown."""
    constraints: tuple[str, ...] = ()
    """As declared: `c CHECK k < 100`; of ASSUME nothing is made."""
    uuid: str = ""
    """Of this table on this server: another one if it is dropped and created again. What was
    remembered about a table is worth nothing for its namesake."""
    directory: str = field(default="", compare=False)
    """Where its parts are, below the server's directory for parts, when not under its name: those
    of a renamed table stay where they are."""
    metadata_version: int = 0
    """Of `metadata` in ZooKeeper: one more with each ALTER (spec §8.1)."""
    history: tuple[ColumnChange, ...] = ()
    """Columns that ALTERs renamed and dropped, ascending: what older parts are read with."""
    restored: str = ""
    """The last time that SYSTEM RESTORE REPLICA made its replica again; "" when it never did."""

    @property
    def creation(self) -> str:
        """What its replica was made with, once: the name of a node. "" of one without uuid."""
        return f"{self.uuid}.{self.restored}" if self.uuid and self.restored else self.uuid

    def with_creation(self, name: str) -> Self:
        uuid, _, restored = name.partition(".")
        return replace(self, uuid=uuid, restored=restored)

    def of_creation(self, names: Iterable[str]) -> Self | None:
        """With the replica that has these creations; None when it is another table's."""
        found = map(self.with_creation, names)
        return next((one for one in found if one.uuid == self.uuid), None)

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def with_columns(self, columns: tuple[Column, ...]) -> Self:
        return replace(self, columns=columns)
