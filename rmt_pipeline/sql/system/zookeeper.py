"""system.zookeeper: the nodes below the paths that the query names."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rmt_pipeline.protocol.errors import UnknownColumn, UserError
from rmt_pipeline.protocol.text import require_path
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import SystemScope
from rmt_pipeline.syntax.nodes import (
    Aliased,
    ArrayJoin,
    Call,
    Derived,
    Join,
    Literal,
    Name,
    NamedTable,
    Node,
    Query,
    Select,
    SetOperation,
    Star,
    Subquery,
    TableExpression,
    WithItem,
    names_in,
    walk,
)

ZOOKEEPER: Columns = (
    ("name", "String"),
    ("value", "String"),
    ("czxid", "Int64"),
    ("mzxid", "Int64"),
    ("ctime", "DateTime"),
    ("mtime", "DateTime"),
    ("version", "Int32"),
    ("cversion", "Int32"),
    ("aversion", "Int32"),
    ("ephemeralOwner", "Int64"),
    ("dataLength", "Int32"),
    ("numChildren", "Int32"),
    ("pzxid", "Int64"),
    ("path", "String"),
)

Ask = Callable[[Query], Sequence[Sequence[object]]]
"""Returns the rows that answer a query."""


class NoNode(UserError):
    """A path that a query asks for does not exist."""

    code = "KEEPER_EXCEPTION"


def zookeeper(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    r"""Rows of system.zookeeper, sorted by path and name. A path that ends with a slash is the same
    node's, and is shown as it was typed.

    Bytes of a value that are not text are written as `\xNN`. Raises NoNode for a path that does not
    exist, as the original does; UserError when the query does not say which paths it wants, since
    the whole tree can be very large.
    """
    paths = paths_wanted(scope.query, scope.ask)
    keeper = scope.server.keeper()
    plain = [path.rstrip("/") for path in paths]
    listed = keeper.children_many([path or "/" for path in plain])
    for path, below, names in zip(paths, plain, listed, strict=True):
        if names is None:
            raise NoNode(f"there is no node {path} in ZooKeeper")
        reads = keeper.get_many([f"{below}/{name}" for name in names])
        for name, read in zip(names, reads, strict=True):
            if read is None:
                continue  # removed since its name was listed
            data, stat = read
            yield (
                name,
                data.decode("utf-8", "backslashreplace"),
                stat.created_zxid,
                stat.modified_zxid,
                datetime.fromtimestamp(stat.created_ms // 1000, UTC),
                datetime.fromtimestamp(stat.modified_ms // 1000, UTC),
                stat.version,
                stat.children_version,
                0,  # changes of the access list, which this engine sets when it makes a node
                stat.ephemeral_owner,
                stat.data_length,
                stat.children_count,
                stat.children_zxid,
                path,
            )


def paths_wanted(query: Query, ask: Ask) -> list[str]:
    """The paths that the conditions of the query allow, wherever it reads the table, sorted. There
    may be too many, since DuckDB applies all conditions afterwards.

    Raises UserError for a use of the table without such a condition.
    """
    found: set[str] = set()
    for use in _uses(query, (), ()):
        paths = use.paths(ask)
        if paths is None:
            raise UserError(
                "SELECT from system.zookeeper needs a condition path = '…', path IN ('…', …) or"
                " path IN (SELECT …) in WHERE, beside other ones with AND: the whole tree is not"
                " read",
            )
        found |= paths
    for path in found - {"", "/"}:
        require_path("/" + path.strip("/"), "path =")
    return sorted(found)


@dataclass(frozen=True, slots=True)
class _Use:
    """One place that reads the table: the table's names there, the conditions that every row of it
    must fulfil, and the names that WITH and aliases define there.
    """

    names: frozenset[str]
    conditions: tuple[Node, ...]
    known: tuple[WithItem, ...]

    def paths(self, ask: Ask) -> set[str] | None:
        """The paths that the conditions allow; None when they do not limit them."""
        found = [self._limits(condition, ask) for condition in self.conditions]
        limits = [paths for paths in found if paths is not None]
        return set.intersection(*limits) if limits else None

    def _limits(self, node: Node, ask: Ask) -> set[str] | None:
        match node:
            case Aliased():
                return self._limits(node.node, ask)
            case Call("and", sides):
                found = [self._limits(side, ask) for side in sides]
                limits = [paths for paths in found if paths is not None]
                return set.intersection(*limits) if limits else None
            case Call("or", sides):
                found = [self._limits(side, ask) for side in sides]
                limits = [paths for paths in found if paths is not None]
                return set[str]().union(*limits) if len(limits) == len(sides) else None
            case Call("equals", (left, right)) if self._is_path(left):
                return self._value(right, ask)
            case Call("equals", (left, right)) if self._is_path(right):
                return self._value(left, ask)
            case Call("in", (left, Subquery(query))) if self._is_path(left):
                return set(_texts(row[0] for row in ask(self._within(query))))
            case Call("in", (left, right)) if self._is_path(left):
                return self._value(right, ask)
            case _:
                return None

    def _is_path(self, node: Node) -> bool:
        if not isinstance(node, Name) or node.parts[-1] != "path":
            return False
        return len(node.parts) == 1 or node.parts[-2] in self.names

    def _value(self, node: Node, ask: Ask) -> set[str] | None:
        """The texts of a constant; None when `node` is not a constant."""
        if isinstance(node, Literal):
            return set(_texts([node.value]))
        try:
            [row] = ask(Select((node,), with_items=self._named_in(node)))
        except UnknownColumn:
            return None
        return set(_texts(row))

    def _within(self, query: Query) -> Query:
        """The query, in which the names of WITH mean what they mean here."""
        return Select((Star(),), with_items=self.known, source=Derived(query))

    def _named_in(self, node: Node) -> tuple[WithItem, ...]:
        """Those of the known names that `node` needs, and those that these need."""
        wanted = names_in(node) | _tables_in(node)
        needed: list[WithItem] = []
        for item in reversed(self.known):
            if item.name in wanted:
                wanted |= names_in(item.value) | _tables_in(item.value)
                needed.append(item)
        return tuple(reversed(needed))


def _texts(values: Iterable[object]) -> Iterator[str]:
    """The texts in a constant, which may be a tuple or an array."""
    for value in values:
        match value:
            case str():
                yield value
            case dict():
                yield from _texts(value.values())
            case list() | tuple():
                yield from _texts(value)
            case _:
                pass


def _tables_in(node: Node | Query) -> set[str]:
    return {one.table for one in walk(node) if isinstance(one, NamedTable)}


def _uses(query: Query, outer: tuple[Node, ...], known: tuple[WithItem, ...]) -> Iterator[_Use]:
    """The places where a query reads the table. `outer` are conditions on the query's result,
    `known` the names that are defined around it.
    """
    if isinstance(query, SetOperation):
        yield from _uses(query.left, outer, known)
        yield from _uses(query.right, outer, known)
        return
    named = known + query.with_items + _aliases(query)
    conditions = tuple(each for each in (query.prewhere, query.where) if each is not None)
    if query.source is not None:
        inherited = outer if _gives_paths(query) else ()
        yield from _sources(query.source, (*conditions, *inherited), named)
    rest = replace(query, source=None, with_items=())
    for node in walk(rest):
        if isinstance(node, Subquery):
            yield from _uses(node.query, (), named)
    for item in query.with_items:
        if isinstance(item.value, Select | SetOperation):
            yield from _uses(item.value, (), known)


def _sources(
    source: TableExpression,
    conditions: tuple[Node, ...],
    known: tuple[WithItem, ...],
) -> Iterator[_Use]:
    match source:
        case NamedTable(_, "zookeeper"):
            names = frozenset({source.alias or "zookeeper", "zookeeper"})
            yield _Use(names, conditions, known)
        case Derived():
            yield from _uses(source.query, conditions, known)
        case Join():
            on = () if source.on is None else (source.on,)
            left = on if source.kind in ("INNER", "RIGHT") else ()
            right = on if source.kind in ("INNER", "LEFT") else ()
            yield from _sources(source.left, (*conditions, *left), known)
            yield from _sources(source.right, (*conditions, *right), known)
        case ArrayJoin():
            yield from _sources(source.left, conditions, known)
        case _:
            pass


def _aliases(query: Select) -> tuple[WithItem, ...]:
    return tuple(
        WithItem(item.alias, item.node) for item in query.items if isinstance(item, Aliased)
    )


def _gives_paths(query: Select) -> bool:
    """Whether each row's `path` is the table's, so that an outer condition on it also
    holds inside.
    """
    limits = (query.limit, query.limit_by, query.offset)
    renamed = any(isinstance(i, Aliased) and i.alias == "path" for i in query.items)
    as_it_is = any(
        isinstance(item, Star) or (isinstance(item, Name) and item.parts[-1] == "path")
        for item in query.items
    )
    over = any(isinstance(node, Call) and node.over is not None for node in walk(query.items))
    return as_it_is and not renamed and not over and all(limit is None for limit in limits)
