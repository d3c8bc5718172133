"""ALTER TABLE: computes a table's definition after some commands, or raises why that is not
possible (spec §8.1).

    definition, commands ──► Altered: the next definition, the changes of columns' names by which
                             older parts are read, and the commands that parts have to be
                             rewritten for

No data is read here: whether old values can be converted to a new type is tried elsewhere.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, assert_never

from rmt_pipeline.protocol.alter.commands import (
    AddColumn,
    AddDeclared,
    AlterCommand,
    ClearColumn,
    DeclaredKind,
    DropColumn,
    DropDeclared,
    LeaveDeclared,
    ModifyColumn,
    ModifyComment,
    ModifyOrderBy,
    ModifySettings,
    ModifyTtl,
    Place,
    Removable,
    RenameColumn,
    ResetSettings,
    name_text,
)
from rmt_pipeline.protocol.errors import (
    DuplicateColumn,
    IllegalColumn,
    NotImplementedStatement,
    UserError,
)
from rmt_pipeline.protocol.table import (
    Column,
    ColumnChange,
    Constraint,
    TableDefinition,
    nested_group,
)

READONLY_SETTINGS = frozenset({"index_granularity", "index_granularity_bytes"})
"""Parts depend on these settings, so they can't change after the table was created."""


Uses = Callable[[str, Sequence[Column]], Collection[str]]
"""A function that returns the names of the columns that an expression (a text) uses."""

Rename = Callable[[str, str, str], str]
"""A function that returns an expression after a column was renamed. Its arguments are the
expression's text, the column's old name and the new one.
"""


KeyUse = Literal["", "partition", "order", "expression", "version", "sum", "engine"]
"""How a key or the engine uses a column:

* `partition`, `order`: as an expression of its own in the partition key or the sorting key;
* `expression`: inside an expression of a key, or for sampling;
* `version`, `sum`: as the version, or as a column to sum;
* `engine`: as the sign or is_deleted column;
* "": not at all.
"""

KeepsRows = Callable[[str, str, KeyUse], bool]
"""A function that says whether a column with this use may change from one type to another, because
every row stays in its place.
"""


class ColumnNotFound(UserError):
    """An ALTER names a column that the table does not have."""

    code = "NOT_FOUND_COLUMN_IN_BLOCK"


class ForbiddenAlter(UserError):
    """The column decides where or how rows are stored, so an ALTER may not change it."""

    code = "ALTER_OF_COLUMN_IS_FORBIDDEN"


class IllegalProjection(UserError):
    """ADD PROJECTION with the name of another projection of the table."""

    code = "ILLEGAL_PROJECTION"


class NoSuchProjection(UserError):
    """DROP, CLEAR or MATERIALIZE PROJECTION names a projection that the table does not have."""

    code = "NO_SUCH_PROJECTION_IN_TABLE"


class BrokenIndex(UserError):
    """A column is dropped that an index is made of."""

    code = "UNKNOWN_IDENTIFIER"


class ReadonlySetting(UserError):
    """MODIFY or RESET SETTING of a setting that can't change after the table was created."""

    code = "READONLY_SETTING"


_QUOTED = re.compile(r"`((?:[^`\\]|\\.)*)`")


@dataclass(frozen=True, slots=True)
class Altered:
    """The result of a list of commands.

    `definition` is the table's next one, `changes` the changes of columns' names, `mutation` the
    commands for which parts have to be rewritten. `is_local` says that nothing changes that
    replicas have to agree on, so that nothing is written to ZooKeeper (spec §8.1).
    """

    definition: TableDefinition
    changes: tuple[ColumnChange, ...]
    mutation: tuple[AlterCommand, ...]
    is_local: bool

    def changes_nothing(self, before: TableDefinition) -> bool:
        """Whether the definition is the one `before`. One for which parts have to be rewritten has
        a version of its own.
        """
        return self.definition == before


def apply_alter(
    definition: TableDefinition,
    commands: Sequence[AlterCommand],
    uses: Uses,
    rename: Rename,
    keeps_rows: KeepsRows,
) -> Altered:
    """Apply the commands one after the other; each sees the changes of those before it.

    Raises a UserError that names the column or setting and the remedy.
    """
    alter = _Alter(definition, uses, rename, keeps_rows)
    for command in commands:
        alter.apply(command)
    return alter.result()


def refuse_broken_indices(before: TableDefinition, now: TableDefinition, uses: Uses) -> None:
    """Raises BrokenIndex if a column of an INDEX is dropped that is not dropped, too."""
    here = {column.name for column in now.columns}
    gone = [column for column in before.columns if column.name not in here]
    for text in now.indices if gone else ():
        _, expression, _ = _index_parts(text)
        try:
            used = uses(expression, [*now.columns, *gone])
        except UserError:
            continue  # it uses a column that an earlier build has dropped
        for name in used:
            if name not in here:
                raise BrokenIndex(
                    f"column {name} can't be dropped: there is the INDEX {text}. DROP it, too"
                )


class _Alter:
    """The state between the commands of one ALTER."""

    def __init__(
        self, definition: TableDefinition, uses: Uses, rename: Rename, keeps_rows: KeepsRows
    ) -> None:
        self._before = definition
        self._uses = uses
        self._rename_in = rename
        self._keeps_rows = keeps_rows
        self._now = definition
        self._version = definition.metadata_version + 1
        self._changes: list[ColumnChange] = []
        self._mutation: list[AlterCommand] = []
        self._added: set[str] = set()
        self._is_local = True

    def result(self) -> Altered:
        now = self._now
        if not any(column.is_stored for column in now.columns):
            raise UserError(
                f"{now.full_name} would have no column left that is stored; drop the table instead"
            )
        if not self._is_local and (now != self._before or self._mutation):
            history = (*now.history, *self._changes)
            now = replace(now, metadata_version=self._version, history=history)
        return Altered(now, tuple(self._changes), tuple(self._mutation), self._is_local)

    def apply(self, command: AlterCommand) -> None:  # noqa: C901, PLR0912  one line each
        match command:
            case AddColumn():
                self._add(command)
            case DropColumn():
                self._drop(command)
            case ClearColumn():
                self._clear(command)
            case RenameColumn():
                self._rename(command)
            case ModifyColumn():
                self._modify(command)
            case ModifySettings():
                self._set(command)
            case ResetSettings():
                self._reset(command)
            case ModifyOrderBy():
                self._order_by(command)
            case ModifyTtl():
                if not (command.ttl or self._now.ttl):
                    raise UserError(f"{self._now.full_name} has no TTL to remove")
                self._now = replace(self._now, ttl=command.ttl)
                self._is_local = False
            case ModifyComment():
                self._now = replace(self._now, comment=command.comment)
            case AddDeclared():
                self._declare(command)
            case DropDeclared() | LeaveDeclared():
                self._undeclare(command)
            case _:
                assert_never(command)

    # --- columns ---

    def _add(self, command: AddColumn) -> None:
        column = command.column
        if self._now.column(column.name) is not None:
            if command.if_not_exists:
                return
            raise DuplicateColumn(
                f"{self._now.full_name} has a column {column.name} already; say ADD COLUMN IF NOT"
                " EXISTS if that is fine"
            )
        self._refuse_unknown_inputs(column)
        self._is_local = False
        self._added.add(column.name)
        self._put([*self._now.columns, column])
        self._move(column.name, command.place)

    def _drop(self, command: DropColumn) -> None:
        if self._may_be_gone(command.column, "DROP", if_exists=command.if_exists):
            return
        self._refuse_key(command.column, "DROP")
        self._refuse_inputs(command.column)
        column = self._column(command.column)
        self._put([one for one in self._now.columns if one.name != command.column])
        self._changed(command, column, ColumnChange(self._version, command.column))

    def _rename(self, command: RenameColumn) -> None:
        self._refuse_other_group(command)
        if self._may_be_gone(command.column, "RENAME", if_exists=command.if_exists):
            return
        if self._now.column(command.renamed_to) is not None:
            raise DuplicateColumn(
                f"column {command.column} can't be renamed to {command.renamed_to}: "
                f"{self._now.full_name} has a column of that name already"
            )
        self._refuse_key(command.column, "RENAME")
        column = self._column(command.column)
        self._put(
            [
                replace(
                    one,
                    name=command.renamed_to if one is column else one.name,
                    default=self._renamed(one.default, command),
                    ttl=self._renamed(one.ttl, command),
                )
                for one in self._now.columns
            ]
        )
        self._now = replace(
            self._now,
            ttl=self._renamed(self._now.ttl, command),
            indices=tuple(self._renamed_index(one, command) for one in self._now.indices),
            constraints=tuple(
                str(replace(one, expression=self._renamed(one.expression, command)))
                for one in map(Constraint.parse, self._now.constraints)
            ),
        )
        change = ColumnChange(self._version, command.column, command.renamed_to)
        self._changed(command, column, change)

    def _renamed(self, text: str, command: RenameColumn) -> str:
        """A default, constraint or TTL after a column that it may use was renamed."""
        return self._rename_in(text, *command.names) if text else ""

    def _renamed_index(self, text: str, command: RenameColumn) -> str:
        """An index such as `i v TYPE minmax …` after `v` was renamed. After TYPE no columns are
        named.
        """
        name, expression, kind = _index_parts(text)
        return f"{name} {self._renamed(expression, command)}{kind}"

    def _refuse_other_group(self, command: RenameColumn) -> None:
        """Refuse a RENAME of a whole Nested group, or of a column into or out of one."""
        columns, (before, after) = self._now.columns, command.names
        if any(nested_group(one.name) == before for one in columns):
            raise NotImplementedStatement(
                f"RENAME COLUMN of the whole Nested {before} is not implemented, nor is it in the "
                "original: a column of a group stays in it"
            )
        if nested_group(before) != nested_group(after):
            raise UserError(
                f"column {before} can't be renamed to {after}: a column of Nested stays in its "
                "group, and no other one comes into it"
            )

    def _changed(
        self, command: DropColumn | RenameColumn, column: Column, change: ColumnChange
    ) -> None:
        """Note that the column's name has changed its meaning. If parts have the column, they are
        read by this change, and rewritten.
        """
        self._is_local = False
        self._added.discard(column.name)
        if column.is_stored:
            self._changes.append(change)
            self._mutation.append(replace(command, if_exists=False))

    def _clear(self, command: ClearColumn) -> None:
        if self._may_be_gone(command.column, "CLEAR", if_exists=command.if_exists):
            return
        self._refuse_key(command.column, "CLEAR")
        self._refuse_not_stored(command.column, "CLEAR")
        self._refuse_unknown_inputs(self._column(command.column))
        self._is_local = False
        self._mutation.append(replace(command, if_exists=False))

    def _modify(self, command: ModifyColumn) -> None:
        if self._may_be_gone(command.column, "MODIFY", if_exists=command.if_exists):
            return
        before = self._column(command.column)
        after = self._modified(before, command)
        uses = key_uses(before.name, self._now, self._uses)
        if not all(self._keeps_rows(before.type, after.type, use) for use in uses):
            self._refuse_key(command.column, f"MODIFY {before.type} to {after.type} of")
        if before.is_stored != after.is_stored:
            raise IllegalColumn(
                f"column {before.name} is {before.default_kind or 'stored'} and can't become "
                f"{after.default_kind or 'stored'}: its values would have to come or to go. "
                "ADD another column, or DROP this one first"
            )
        if after.default != before.default:
            self._refuse_unknown_inputs(after)
        if not command.is_comment:
            self._is_local = False
        self._put([after if one is before else one for one in self._now.columns])
        self._move(command.column, command.place)
        if after.is_stored and not self._is_read_as_it_is(before.type, after.type):
            self._mutation.append(ModifyColumn(command.column, type=after.type))

    def _is_read_as_it_is(self, before: str, after: str) -> bool:
        """Whether files with values of the type `before` stay as they are: it is the same type, or
        an Enum that got further elements (spec §8.1).
        """
        return before == after or (
            "Enum" in before and self._keeps_rows(before, after, "expression")
        )

    @staticmethod
    def _modified(before: Column, command: ModifyColumn) -> Column:
        after = replace(
            before,
            type=_or(command.type, before.type),
            comment=_or(command.comment, before.comment),
            codec=_or(command.codec, before.codec),
            ttl=_or(command.ttl, before.ttl),
        )
        if command.default_kind is not None:
            after = replace(after, default_kind=command.default_kind, default=command.default)
        return _without(after, command.remove) if command.remove else after

    # --- the rest of the table ---

    def _declare(self, command: AddDeclared) -> None:
        texts = list(self._declared(command.kind))
        names = list(map(declared_name, texts))
        if command.name in names:
            if command.if_not_exists:
                return
            wrong = IllegalProjection if command.kind == "PROJECTION" else IllegalColumn
            raise wrong(
                f"{self._now.full_name} has {command.kind.lower()} {command.name} already"
            )
        at = len(texts)
        if command.place is not None:
            after = command.place.after
            if after and after not in names:
                raise self._undeclared(command.kind, after)
            at = names.index(after) + 1 if after else 0
        self._put_declared(command.kind, [*texts[:at], command.text, *texts[at:]])

    def _undeclare(self, command: DropDeclared | LeaveDeclared) -> None:
        texts = self._declared(command.kind)
        kept = [one for one in texts if declared_name(one) != command.name]
        if len(kept) == len(texts):
            if not command.if_exists:
                raise self._undeclared(command.kind, command.name)
        elif isinstance(command, DropDeclared):
            self._put_declared(command.kind, kept)

    def _declared(self, kind: DeclaredKind) -> tuple[str, ...]:
        match kind:
            case "INDEX":
                return self._now.indices
            case "PROJECTION":
                return self._now.projections
            case _:
                return self._now.constraints

    def _put_declared(self, kind: DeclaredKind, texts: Sequence[str]) -> None:
        match kind:
            case "INDEX":
                self._now = replace(self._now, indices=tuple(texts))
            case "PROJECTION":
                self._now = replace(self._now, projections=tuple(texts))
            case _:
                self._now = replace(self._now, constraints=tuple(texts))
        self._is_local = False

    def _undeclared(self, kind: DeclaredKind, name: str) -> UserError:
        known = ", ".join(map(declared_name, self._declared(kind))) or "none"
        wrong = NoSuchProjection if kind == "PROJECTION" else UserError
        return wrong(f"{self._now.full_name} has no {kind.lower()} {name}; there are: {known}")

    def _set(self, command: ModifySettings) -> None:
        for name, _ in command.settings:
            if name in READONLY_SETTINGS:
                raise ReadonlySetting(
                    f"the setting {name} is decided when a table is created: create another table "
                    "and INSERT … SELECT"
                )
        settings = {**dict(self._now.settings), **dict(command.settings)}
        self._now = replace(self._now, settings=tuple(settings.items()))

    def _reset(self, command: ResetSettings) -> None:
        for name in command.names:
            if name in READONLY_SETTINGS:
                raise ReadonlySetting(f"the setting {name} is decided when a table is created")
        kept = tuple(pair for pair in self._now.settings if pair[0] not in command.names)
        self._now = replace(self._now, settings=kept)

    def _order_by(self, command: ModifyOrderBy) -> None:
        """MODIFY ORDER BY. Rows are not sorted again, so they must be in the new order already: the
        primary key stays, expressions may be left out from the end, and others may be added
        behind the primary key if they only use columns that the same ALTER adds without a
        default: all rows have the same values of these.
        """
        now, wanted = self._now, command.order_by
        if wanted == now.order_by:
            return
        primary_key = now.order_by if now.primary_key is None else now.primary_key
        if wanted[: len(primary_key)] != primary_key:
            raise UserError(
                f"ORDER BY ({', '.join(wanted)}) does not begin with the primary key, "
                f"({', '.join(primary_key)}), which stays as it is"
            )
        known = list(now.order_by)
        for text in wanted:
            if known and text == known[0]:
                del known[0]
                continue
            for name in self._uses(text, now.columns):
                self._refuse_old(name, text)
        self._now = replace(now, order_by=wanted, primary_key=primary_key)
        self._is_local = False

    def _refuse_old(self, name: str, text: str) -> None:
        if name not in self._added:
            raise UserError(
                f"ORDER BY {text} uses the column {name}, whose rows are not in that order: only "
                "a column that the same ALTER adds can be appended"
            )
        column = self._column(name)
        if column.default_kind:
            raise UserError(
                f"ORDER BY {text} uses the new column {name}, which is {column.default_kind} "
                f"{column.default}: rows that are there would not be in that order. Add it without"
            )

    # --- small things ---

    def _put(self, columns: Sequence[Column]) -> None:
        self._now = replace(self._now, columns=tuple(columns))

    def _column(self, name: str) -> Column:
        column = self._now.column(name)
        assert column is not None
        return column

    def _move(self, name: str, place: Place | None) -> None:
        if place is None:
            return
        column = self._column(name)
        rest = [one for one in self._now.columns if one is not column]
        at = 0
        if place.after:
            names = [one.name for one in rest]
            if place.after not in names:
                raise ColumnNotFound(
                    f"column {name} can't stand AFTER {place.after}: {self._unknown(place.after)}"
                )
            at = names.index(place.after) + 1
        self._put([*rest[:at], column, *rest[at:]])

    def _may_be_gone(self, name: str, verb: str, *, if_exists: bool) -> bool:
        if self._now.column(name) is not None:
            return False
        if if_exists:
            return True
        raise ColumnNotFound(f"{verb} COLUMN {name}: {self._unknown(name)}")

    def _unknown(self, name: str) -> str:
        known = [column.name for column in self._now.columns]
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
        return f"{self._now.full_name} has no column {name}; {hint}"

    def _refuse_key(self, name: str, verb: str) -> None:
        place = place_of(name, self._now, self._uses)
        if place is not None:
            raise ForbiddenAlter(
                f"{verb} COLUMN {name}: {name} is {place} and says where or how rows are kept. "
                "Create another table with the columns that you want, and INSERT … SELECT"
            )

    def _users(self, name: str) -> list[Column]:
        """The columns whose default uses this one. None uses itself."""
        columns = self._now.columns
        return [
            one for one in columns if one.default and name in self._uses(one.default, columns)
        ]

    def _refuse_inputs(self, name: str) -> None:
        for column in self._users(name):
            raise IllegalColumn(
                f"column {name} can't be dropped: column {column.name} is "
                f"{column.default_kind} {column.default}. DROP or MODIFY {column.name} first"
            )
        for text in self._now.constraints:
            if name in self._uses(Constraint.parse(text).expression, self._now.columns):
                raise IllegalColumn(
                    f"column {name} can't be dropped: there is the CONSTRAINT {text}. DROP it first"
                )

    def _refuse_unknown_inputs(self, column: Column) -> None:
        """Refuse a default that uses an EPHEMERAL column: rows without a value of `column` are read
        with that default, and no part has values of an EPHEMERAL column.
        """
        if not column.default or column.default_kind == "EPHEMERAL":
            return
        ephemeral = {one.name for one in self._now.columns if one.default_kind == "EPHEMERAL"}
        for name in self._uses(column.default, [*self._now.columns, column]):
            if name in ephemeral:
                raise NotImplementedStatement(
                    f"column {column.name} is {column.default_kind} {column.default}, and {name} "
                    f"is EPHEMERAL: rows that are there have no {name}, so the column can't be "
                    "read from them. Use another column, or create another table"
                )

    def _refuse_not_stored(self, name: str, verb: str) -> None:
        column = self._column(name)
        if not column.is_stored:
            raise IllegalColumn(
                f"{verb} COLUMN {name}: it is {column.default_kind} and has no stored values"
            )


def _index_parts(text: str) -> tuple[str, str, str]:
    """The name of an index, its expression, and ` TYPE …`, of its text."""
    declared, word, kind = text.rpartition(" TYPE ")
    quoted = _QUOTED.match(declared)
    name = quoted[0] if quoted else declared.partition(" ")[0]
    return name, declared.removeprefix(name).strip(), f"{word}{kind}"


def _or(given: str | None, otherwise: str) -> str:
    return otherwise if given is None else given


def _without(column: Column, what: Removable) -> Column:
    has = {"COMMENT": column.comment, "CODEC": column.codec, "TTL": column.ttl}
    if not has.get(what, column.default_kind == what):
        raise UserError(f"column {column.name} has no {what} to remove")
    match what:
        case "COMMENT":
            return replace(column, comment="")
        case "CODEC":
            return replace(column, codec="")
        case "TTL":
            return replace(column, ttl="")
        case _:
            return replace(column, default_kind="", default="")


def key_uses(name: str, definition: TableDefinition, uses: Uses) -> frozenset[KeyUse]:
    """All uses of the column by keys and the engine."""
    engine, columns = definition.engine, definition.columns
    order = (*definition.order_by, *(definition.primary_key or ()))
    keys: tuple[tuple[KeyUse, tuple[str, ...]], ...] = (
        ("partition", definition.partition_by),
        ("order", order),
        ("expression", (definition.sample_by,) if definition.sample_by else ()),
    )
    found: set[KeyUse] = set()
    for use, expressions in keys:
        for text in expressions:
            if name_text(name) == text or name == text:
                found.add(use)
            elif name in uses(text, columns):
                found.add("expression")
    if name == engine.version_column:
        found.add("version")
    if name in engine.columns_to_sum:
        found.add("sum")
    if name in (engine.sign_column, engine.is_deleted_column):
        found.add("engine")
    return frozenset(found)


def place_in_keys(name: str, definition: TableDefinition, uses: Uses) -> str | None:
    """The first key that uses the column, in words; None if none does."""
    keys = (
        ("in the partition key", definition.partition_by),
        ("in the sorting key", definition.order_by),
        ("in the primary key", definition.primary_key or ()),
        ("in the sampling key", (definition.sample_by,) if definition.sample_by else ()),
    )
    for words, expressions in keys:
        if any(name in uses(text, definition.columns) for text in expressions):
            return words
    return None


def place_of(name: str, definition: TableDefinition, uses: Uses) -> str | None:
    """The use of the column by a key or the engine, in words; None if there is none."""
    engine = definition.engine
    in_keys = place_in_keys(name, definition, uses)
    if in_keys is not None:
        return in_keys
    roles = (
        ("the engine's version column", engine.version_column),
        ("the engine's sign column", engine.sign_column),
        ("the engine's is_deleted column", engine.is_deleted_column),
    )
    for words, column in roles:
        if name == column:
            return words
    return "a column that the engine sums" if name in engine.columns_to_sum else None


def declared_name(text: str) -> str:
    """The name of an index, projection or constraint, with which its text begins, quoted if need
    be.
    """
    if not text.startswith("`"):
        return text.partition(" ")[0]
    found = _QUOTED.match(text)
    assert found is not None, text
    return re.sub(r"\\(.)", r"\1", found[1])
