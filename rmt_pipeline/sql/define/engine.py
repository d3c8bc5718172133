"""The engine of a CREATE TABLE: its kind, its path in ZooKeeper, and the columns that it uses."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import get_args

from rmt_pipeline.protocol.errors import (
    BadTypeOfField,
    NotImplementedStatement,
    SyntaxProblem,
    UnknownColumn,
    UnknownEngine,
    UserError,
)
from rmt_pipeline.protocol.table import PLAIN_ENGINES, Column, Engine, EngineKind
from rmt_pipeline.sql.define.constants import evaluate_constants
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.nodes import Call, Literal, Name, Node
from rmt_pipeline.syntax.statements.definition import TableSyntax
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.translate.expression import SessionValues, compile_node
from rmt_pipeline.types.data_type import DataType

DEFAULT_ZOOKEEPER_PATH = "/clickhouse/tables/{shard}/{database}/{table}"
DEFAULT_REPLICA = "{replica}"
PRIVATE_ZOOKEEPER_PATH = "/clickhouse/private/{server}/{uuid}"
"""The path of a table with a single copy. It is different for each table, and no other replica may
use it.
"""
PRIVATE_REPLICA = "{server}"

_KINDS: dict[str, EngineKind] = {f"Replicated{kind}": kind for kind in get_args(EngineKind)}
ENGINES = {
    **dict.fromkeys((str(kind) for kind in _KINDS.values()), False),
    **dict.fromkeys(PLAIN_ENGINES, False),
    **dict.fromkeys(_KINDS, True),
}
"""The names of all engines, and whether they replicate."""
_NOT_YET = re.compile(r"(Replicated)?(Graphite|Coalescing)MergeTree")
# The arguments after path and replica: how many are required, and what they all are.
_ARGUMENTS: dict[EngineKind, tuple[int, tuple[str, ...]]] = {
    "MergeTree": (0, ()),
    "ReplacingMergeTree": (0, ("version", "is_deleted")),
    "SummingMergeTree": (0, ("columns to sum",)),
    "AggregatingMergeTree": (0, ()),
    "CollapsingMergeTree": (1, ("sign",)),
    "VersionedCollapsingMergeTree": (2, ("sign", "version")),
}


class WrongEngineArguments(UserError):
    """The engine was given more or fewer arguments than it takes."""

    code = "NUMBER_OF_ARGUMENTS_DOESNT_MATCH"


def modern(syntax: TableSyntax, session: SessionValues = ()) -> TableSyntax:
    """Return the table with clauses such as ORDER BY, which the engine's old form has as arguments:
    `([path, replica,] date, [sampling,] key, granularity[, columns of the engine])`.

    A table of an engine without keys has an empty ORDER BY. Raises WrongEngineArguments if it is in
    neither form.
    """
    if syntax.engine in PLAIN_ENGINES:
        return _plain(syntax)
    if syntax.order_by is not None or syntax.primary_key is not None:
        return syntax
    kind, is_private = _kind(syntax.engine)
    own, rest = syntax.engine_arguments, syntax.engine_arguments
    if not is_private:
        rest = _path_and_replica(syntax, session)[2]
    if not rest or syntax.partition_by is not None:
        return syntax
    path = own[: len(own) - len(rest)]
    at = next((at for at, node in enumerate(rest) if _integer(node) is not None), -1)
    _, names = _ARGUMENTS[kind]
    if at not in (2, 3) or len(rest) > at + 1 + len(names):
        given = ", ".join(map(canonical, own))
        raise WrongEngineArguments(
            f"{syntax.engine}({given}) has no ORDER BY beside it; in its old form it takes"
            f" {'' if is_private else 'path, replica, '}date, [sampling expression,] key, index"
            f" granularity{''.join(f', [{name}]' for name in names)}"
        )
    date, key = rest[0], _listed(rest[at - 1])
    granularity = ("index_granularity", str(_integer(rest[at])))
    return replace(
        syntax,
        engine_arguments=(*path, *rest[at + 1 :]),
        partition_by=(Call("toYYYYMM", (date,)),),
        order_by=key,
        sample_by=rest[1] if at == 3 else syntax.sample_by,
        settings=(*syntax.settings, granularity),
    )


def _plain(syntax: TableSyntax) -> TableSyntax:
    keys = (syntax.order_by, syntax.primary_key, syntax.partition_by, syntax.sample_by)
    others = (syntax.engine_arguments, syntax.ttl, syntax.settings)
    if any(each is not None for each in keys) or any(others):
        raise without_keys(syntax.engine)
    return replace(syntax, order_by=())


def without_keys(engine: str) -> WrongEngineArguments:
    """The error for an engine of PLAIN_ENGINES that is to have what these have not."""
    return WrongEngineArguments(
        f"{engine} has neither arguments nor keys nor a TTL nor settings. Take MergeTree with an"
        " ORDER BY for a table with a key"
    )


def _integer(node: Node) -> int | None:
    if not isinstance(node, Literal) or isinstance(node.value, bool):
        return None
    return node.value if isinstance(node.value, int) else None


def engine_of(
    syntax: TableSyntax,
    columns: Sequence[Column],
    keys: frozenset[str],
    session: SessionValues = (),
) -> Engine:
    """Return the engine. Macros in path and replica are not expanded. `keys` are the columns that
    the table's keys use; `session` has the answers of functions about the session, for the path.

    Raises UnknownEngine, UnknownColumn, or a UserError that names the argument.
    """
    kind, is_private = _kind(syntax.engine)
    if is_private:
        path, replica, rest = PRIVATE_ZOOKEEPER_PATH, PRIVATE_REPLICA, syntax.engine_arguments
    else:
        path, replica, rest = _path_and_replica(syntax, session)
    least, names = _ARGUMENTS[kind]
    if not least <= len(rest) <= len(names):
        behind = "" if is_private else " after path and replica"
        raise WrongEngineArguments(
            f"{syntax.engine} takes{behind}: {', '.join(names) or 'nothing'};"
            f" it was given {', '.join(map(canonical, rest)) or 'nothing'}"
        )
    typed_name = (syntax.engine or kind) if is_private else ""
    engine = Engine(kind, path, replica, typed_name=typed_name)
    arguments = _Arguments(syntax.engine, columns)
    match kind:
        case "MergeTree" | "AggregatingMergeTree":
            return engine
        case "SummingMergeTree":
            summed = arguments.summed(rest[0], keys) if rest else ()
            return replace(engine, columns_to_sum=summed)
        case "ReplacingMergeTree":
            version = arguments.version(rest[0]) if rest else ""
            is_deleted = arguments.is_deleted(rest[1], version) if len(rest) > 1 else ""
            return replace(engine, version_column=version, is_deleted_column=is_deleted)
        case "CollapsingMergeTree":
            return replace(engine, sign_column=arguments.sign(rest[0]))
        case "VersionedCollapsingMergeTree":
            sign, version = arguments.sign(rest[0]), arguments.version(rest[1])
            return replace(engine, sign_column=sign, version_column=version)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Checks of the columns that an engine uses (spec §17)."""

    engine: str
    columns: Sequence[Column]

    def sign(self, node: Node) -> str:
        name, data_type = self._column(node, "sign")
        if data_type.text != "Int8":
            raise self._wrong_type(name, data_type, "the sign", "Int8")
        return name

    def version(self, node: Node) -> str:
        name, data_type = self._column(node, "version")
        ordered = data_type.is_numeric or data_type.date_like
        if data_type.nullable or not ordered:
            raise self._wrong_type(name, data_type, "the version", "a number, date or time")
        return name

    def is_deleted(self, node: Node, version: str) -> str:
        name, data_type = self._column(node, "is_deleted")
        if data_type.text != "UInt8" or name == version:
            raise self._wrong_type(name, data_type, "is_deleted", "UInt8, and not the version")
        return name

    def summed(self, node: Node, keys: frozenset[str]) -> tuple[str, ...]:
        """Columns that are no numbers may be among them: merges keep their first value."""
        found: list[str] = []
        for part in _listed(node):
            name = self._summed_name(part)
            if name in keys:
                raise UserError(
                    f"{self.engine}: column {name} is summed, so it can be in no key"
                )
            found.append(name)
        return tuple(found)

    def _summed_name(self, node: Node) -> str:
        """The name of a column, or of a Nested group, whose arrays are summed key by key."""
        if isinstance(node, Name):
            name = ".".join(node.parts)
            if any(column.name.startswith(f"{name}.") for column in self.columns):
                return name
        return self._column(node, "a column to sum")[0]

    def _column(self, node: Node, role: str) -> tuple[str, DataType]:
        if not isinstance(node, Name):
            raise SyntaxProblem(
                f"expected the name of a column as {role} of {self.engine}, found"
                f" {canonical(node)}"
            )
        name = ".".join(node.parts)
        for column in self.columns:
            if column.name == name:
                return name, parse_type(column.type)
        known = ", ".join(column.name for column in self.columns)
        raise UnknownColumn(f"there is no column {name}, {role} of {self.engine}; {known}")

    def _wrong_type(
        self, name: str, data_type: DataType, role: str, wanted: str
    ) -> BadTypeOfField:
        return BadTypeOfField(
            f"column {name}, {role} of {self.engine}, is {data_type}; it must be {wanted}"
        )


def _kind(name: str) -> tuple[EngineKind, bool]:
    """Return the kind of an engine, and whether the table has a single copy, which is so for names
    without Replicated. Raises UnknownEngine, NotImplementedStatement.
    """
    if name in PLAIN_ENGINES:
        return "MergeTree", True
    for prefix in ("", "Replicated"):
        kind = _KINDS.get(f"{prefix}{name}")
        if kind is not None:
            return kind, bool(prefix)
    if _NOT_YET.fullmatch(name):
        raise NotImplementedStatement(f"the engine {name} is not implemented")
    near = get_close_matches(name, _KINDS, n=1)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else f"there are: {', '.join(_KINDS)}, and the same without Replicated, of one copy"
    )
    raise UnknownEngine(f"there is no engine {name}; {hint}")


def _path_and_replica(
    syntax: TableSyntax, session: SessionValues
) -> tuple[str, str, tuple[Node, ...]]:
    strings = [_string(node, session) for node in syntax.engine_arguments[:2]]
    if len(strings) >= 2 and strings[0] is not None and strings[1] is not None:
        return strings[0], strings[1], syntax.engine_arguments[2:]
    if strings and strings[0] is not None:
        raise UserError(
            f"{syntax.engine} takes both a path in ZooKeeper and the name of a replica, or"
            f" neither; it was given only {canonical(syntax.engine_arguments[0])}"
        )
    return DEFAULT_ZOOKEEPER_PATH, DEFAULT_REPLICA, syntax.engine_arguments


def _string(node: Node, session: SessionValues) -> str | None:
    """Return the value of a constant expression; None if it is no constant, or no string."""
    if isinstance(node, Literal):
        return node.value if isinstance(node.value, str) else None
    if not isinstance(node, Call) or node.name == "tuple":
        return None
    try:
        found = compile_node(node, (), allow_nondeterministic=True, session=session)
    except UnknownColumn:
        return None
    if not found.type.is_string:
        return None
    [value] = evaluate_constants([node], parse_type("String"), session)
    return str(value)


def _listed(node: Node) -> tuple[Node, ...]:
    """Return the nodes of `a` or `(a, b)`."""
    is_tuple = isinstance(node, Call) and node.name.lower() == "tuple"
    return node.arguments if is_tuple and isinstance(node, Call) else (node,)
