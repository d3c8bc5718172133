"""Commands of ALTER TABLE that change what a table is: one class per kind (spec §8).

Types and expressions are canonical texts, partitions are ids: what was typed has been checked as
far as that needs no more than the text. `str` gives the command as `system.mutations` shows it.
"""

import re
from dataclasses import dataclass
from typing import Literal

from rmt_pipeline.protocol.table import Column, DefaultKind
from rmt_pipeline.protocol.text import quote

Removable = Literal[
    "", "DEFAULT", "MATERIALIZED", "ALIAS", "EPHEMERAL", "COMMENT", "CODEC", "TTL"
]
"""What `MODIFY COLUMN c REMOVE …` can take away; "" is nothing."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column goes: behind the column `after`, or to the front (`after` "")."""

    after: str

    def __str__(self) -> str:
        return f" AFTER {name_text(self.after)}" if self.after else " FIRST"


@dataclass(frozen=True, slots=True)
class AddColumn:
    """`ADD COLUMN c UInt8`; without a place it becomes the last one. Parts that are there stay as
    they are: their rows have its default when they are read.
    """

    column: Column
    place: Place | None = None
    if_not_exists: bool = False

    def __str__(self) -> str:
        column = self.column
        exists = "IF NOT EXISTS " if self.if_not_exists else ""
        default = f" {column.default_kind} {column.default}" if column.default_kind else ""
        place = "" if self.place is None else str(self.place)
        name = name_text(column.name)
        return f"ADD COLUMN {exists}{name} {column.type}{default.rstrip()}{place}"


@dataclass(frozen=True, slots=True)
class DropColumn:
    """`DROP COLUMN c`. The column's values are not read any more; merges and a mutation take them
    out of the parts.
    """

    column: str
    if_exists: bool = False

    def __str__(self) -> str:
        return f"DROP COLUMN {_exists(self.if_exists)}{name_text(self.column)}"


@dataclass(frozen=True, slots=True)
class ClearColumn:
    """The rows that are there get the column's default; in one partition (an id), or in all."""

    column: str
    partition_id: str | None = None
    if_exists: bool = False

    def __str__(self) -> str:
        where = self.partition_id
        place = "" if where is None else f" IN PARTITION ID {quote(where)}"
        return f"CLEAR COLUMN {_exists(self.if_exists)}{name_text(self.column)}{place}"


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """RENAME COLUMN; both names stand for the column in expressions that follow."""

    column: str
    renamed_to: str
    if_exists: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """Before and after."""
        return self.column, self.renamed_to

    def __str__(self) -> str:
        names = f"{name_text(self.column)} TO {name_text(self.renamed_to)}"
        return f"RENAME COLUMN {_exists(self.if_exists)}{names}"


@dataclass(frozen=True, slots=True)
class ModifyColumn:
    """What is None stays as it is; with a `default_kind` there is another default. COMMENT COLUMN
    is this with a comment alone.
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
        """Whether nothing but the comment changes, which each replica keeps for itself. REMOVE
        COMMENT goes to all of them, as in the original.
        """
        others = (self.type, self.default_kind, self.codec, self.ttl, self.place)
        comment = self.comment is not None and not self.remove
        return comment and all(one is None for one in others)

    def __str__(self) -> str:
        words = [f"MODIFY COLUMN {_exists(self.if_exists)}{name_text(self.column)}"]
        words += [] if self.type is None else [self.type]
        words += [self.default_kind, self.default] if self.default_kind else []
        words += [] if self.comment is None else [f"COMMENT {quote(self.comment)}"]
        words += [] if self.codec is None else [f"CODEC({self.codec})"]
        words += [] if self.ttl is None else [f"TTL {self.ttl}"]
        words += [f"REMOVE {self.remove}"] if self.remove else []
        return " ".join(filter(None, words)) + ("" if self.place is None else str(self.place))


@dataclass(frozen=True, slots=True)
class ModifySettings:
    """Settings of the table by their own names, with values that they can have."""

    settings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        pairs = (f"{name} = {quote(value)}" for name, value in self.settings)
        return f"MODIFY SETTING {', '.join(pairs)}"


@dataclass(frozen=True, slots=True)
class ResetSettings:
    """RESET SETTING: these have their defaults again."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"RESET SETTING {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class ModifyOrderBy:
    """MODIFY ORDER BY: the sorting key, longer by columns that the same ALTER adds."""

    order_by: tuple[str, ...]

    def __str__(self) -> str:
        return f"MODIFY ORDER BY ({', '.join(self.order_by)})"


@dataclass(frozen=True, slots=True)
class ModifyTtl:
    """The table's TTL, `""` is REMOVE TTL."""

    ttl: str

    def __str__(self) -> str:
        return f"MODIFY TTL {self.ttl}" if self.ttl else "REMOVE TTL"


@dataclass(frozen=True, slots=True)
class ModifyComment:
    """MODIFY COMMENT, of the table."""

    comment: str

    def __str__(self) -> str:
        return f"MODIFY COMMENT {quote(self.comment)}"


DeclaredKind = Literal["INDEX", "PROJECTION", "CONSTRAINT"]
"""What is declared beside the columns."""


@dataclass(frozen=True, slots=True)
class AddDeclared:
    """`text` is as in CREATE TABLE, and begins with the name. Without a place it is the last."""

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
    """MATERIALIZE, CLEAR: there is nothing built, so there is nothing to do, if it is declared."""

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
    """The commands as they are written in ALTER TABLE, with commas between."""
    return ", ".join(map(str, commands))


def name_text(name: str) -> str:
    """A column's name as it stands in a statement."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _exists(if_exists: bool) -> str:
    return "IF EXISTS " if if_exists else ""
