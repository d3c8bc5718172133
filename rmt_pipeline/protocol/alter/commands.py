"""The commands of ALTER TABLE that change a table's definition, one class per kind (spec §8).

Types and expressions are canonical texts, partitions are ids: the parser has checked everything
that the text alone can tell. `str` gives the command as `system.mutations` shows it.
"""

import re
from dataclasses import dataclass
from typing import Literal

from rmt_pipeline.protocol.table import Column, DefaultKind
from rmt_pipeline.protocol.text import quote

Removable = Literal[
    "", "DEFAULT", "MATERIALIZED", "ALIAS", "EPHEMERAL", "COMMENT", "CODEC", "TTL"
]
"""What `MODIFY COLUMN c REMOVE …` can remove; "" is nothing."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column is put: behind the column `after`, or first if `after` is ""."""

    after: str

    def __str__(self) -> str:
        return f" AFTER {name_text(self.after)}" if self.after else " FIRST"


@dataclass(frozen=True, slots=True)
class AddColumn:
    """`ADD COLUMN c UInt8`. Without a place the column becomes the last one. Existing parts are not
    rewritten: when they are read, their rows have the column's default.
    """

    column: Column
    place: Place | None = None
    if_not_exists: bool = False

    def __str__(self) -> str:
        column = self.column
        exists = "IF NOT EXISTS " if self.if_not_exists else ""
        default = f" {column.default_kind} {column.default}".rstrip()
        place = "" if self.place is None else str(self.place)
        name = name_text(column.name)
        return f"ADD COLUMN {exists}{name} {column.type}{default}{place}"


@dataclass(frozen=True, slots=True)
class DropColumn:
    """`DROP COLUMN c`. The column's values are not read any more; merges and a mutation remove them
    from the parts.
    """

    column: str
    if_exists: bool = False

    def __str__(self) -> str:
        return f"DROP COLUMN {_exists(self.if_exists)}{name_text(self.column)}"


@dataclass(frozen=True, slots=True)
class ClearColumn:
    """CLEAR COLUMN: existing rows get the column's default, in one partition (its id) or in all."""

    column: str
    partition_id: str | None = None
    if_exists: bool = False

    def __str__(self) -> str:
        where = self.partition_id
        place = "" if where is None else f" IN PARTITION ID {quote(where)}"
        return f"CLEAR COLUMN {_exists(self.if_exists)}{name_text(self.column)}{place}"


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """RENAME COLUMN. Expressions in the table's definition that use the column are changed too."""

    column: str
    renamed_to: str
    if_exists: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """The old and the new name."""
        return self.column, self.renamed_to

    def __str__(self) -> str:
        names = f"{name_text(self.column)} TO {name_text(self.renamed_to)}"
        return f"RENAME COLUMN {_exists(self.if_exists)}{names}"


@dataclass(frozen=True, slots=True)
class ModifyColumn:
    """MODIFY COLUMN. Properties that are None stay as they are; if there is a `default_kind`,
    `default` is the new default. COMMENT COLUMN is this command with a comment alone.
    """

    column: str
    type: str | None = None
    default_kind: DefaultKind | None = None
    default: str = ""
    comment: str | None = None
    codec: str | None = None
    ttl: str | None = None
    remove: Removable = ""
    place: Place | None = None
    if_exists: bool = False

    @property
    def is_comment(self) -> bool:
        """Whether only the comment changes, which each replica has for itself. REMOVE COMMENT is
        sent to all replicas, as in the original.
        """
        others = (self.type, self.default_kind, self.codec, self.ttl, self.place)
        comment = self.comment is not None and not self.remove
        return comment and all(one is None for one in others)

    def __str__(self) -> str:
        words: list[str | None]
        words = [f"MODIFY COLUMN {_exists(self.if_exists)}{name_text(self.column)}"]
        words += [self.type, self.default_kind, self.default]
        words += [] if self.comment is None else [f"COMMENT {quote(self.comment)}"]
        words += [] if self.codec is None else [f"CODEC({self.codec})"]
        words += [] if self.ttl is None else [f"TTL {self.ttl}"]
        words += [f"REMOVE {self.remove}"] if self.remove else []
        return " ".join(filter(None, words)) + ("" if self.place is None else str(self.place))


@dataclass(frozen=True, slots=True)
class ModifySettings:
    """MODIFY SETTING, with the settings' own names and values that they can have."""

    settings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        pairs = (f"{name} = {quote(value)}" for name, value in self.settings)
        return f"MODIFY SETTING {', '.join(pairs)}"


@dataclass(frozen=True, slots=True)
class ResetSettings:
    """RESET SETTING: these settings get their defaults again."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"RESET SETTING {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class ModifyOrderBy:
    """MODIFY ORDER BY: the new sorting key. What it can be is in `definition.apply_alter`."""

    order_by: tuple[str, ...]

    def __str__(self) -> str:
        return f"MODIFY ORDER BY ({', '.join(self.order_by)})"


@dataclass(frozen=True, slots=True)
class ModifyTtl:
    """MODIFY TTL of the table; with `""` REMOVE TTL."""

    ttl: str

    def __str__(self) -> str:
        return f"MODIFY TTL {self.ttl}" if self.ttl else "REMOVE TTL"


@dataclass(frozen=True, slots=True)
class ModifyComment:
    """MODIFY COMMENT of the table."""

    comment: str

    def __str__(self) -> str:
        return f"MODIFY COMMENT {quote(self.comment)}"


DeclaredKind = Literal["INDEX", "PROJECTION", "CONSTRAINT"]
"""The kinds of declarations that a table has beside its columns."""


@dataclass(frozen=True, slots=True)
class AddDeclared:
    """ADD INDEX, PROJECTION or CONSTRAINT. `text` is as in CREATE TABLE, and begins with the name.
    Without a place it becomes the last one.
    """

    kind: DeclaredKind
    name: str
    text: str
    place: Place | None = None
    if_not_exists: bool = False

    def __str__(self) -> str:
        exists = "IF NOT EXISTS " if self.if_not_exists else ""
        return f"ADD {self.kind} {exists}{self.text}{'' if self.place is None else self.place}"


@dataclass(frozen=True, slots=True)
class DropDeclared:
    """DROP INDEX, PROJECTION or CONSTRAINT."""

    kind: DeclaredKind
    name: str
    if_exists: bool = False

    def __str__(self) -> str:
        return f"DROP {self.kind} {_exists(self.if_exists)}{name_text(self.name)}"


@dataclass(frozen=True, slots=True)
class LeaveDeclared:
    """MATERIALIZE or CLEAR of an index or a projection. Nothing is stored for these, so nothing is
    done, but the name must be declared.
    """

    kind: DeclaredKind
    name: str
    if_exists: bool = False

    def __str__(self) -> str:
        return f"MATERIALIZE {self.kind} {_exists(self.if_exists)}{name_text(self.name)}"


AlterCommand = (
    AddColumn
    | DropColumn
    | ClearColumn
    | RenameColumn
    | ModifyColumn
    | ModifySettings
    | ResetSettings
    | ModifyOrderBy
    | ModifyTtl
    | ModifyComment
    | AddDeclared
    | DropDeclared
    | LeaveDeclared
)


def alter_text(commands: tuple[AlterCommand, ...]) -> str:
    """The commands as they stand in ALTER TABLE, separated by commas."""
    return ", ".join(map(str, commands))


def name_text(name: str) -> str:
    """A column's name as it stands in a statement."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _exists(if_exists: bool) -> str:
    return "IF EXISTS " if if_exists else ""
