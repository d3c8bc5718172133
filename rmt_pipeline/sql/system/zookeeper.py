"""system.zookeeper: the nodes below the paths that the query names."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import SystemScope
from rmt_pipeline.syntax.nodes import Call, Literal, Name, Node, Query, walk

ZOOKEEPER: Columns = (
    ("name", "String"),
    ("value", "String"),
    ("czxid", "Int64"),
    ("ctime", "DateTime"),
    ("mtime", "DateTime"),
    ("version", "Int32"),
    ("cversion", "Int32"),
    ("ephemeralOwner", "Int64"),
    ("dataLength", "Int32"),
    ("numChildren", "Int32"),
    ("path", "String"),
)


def zookeeper(scope: SystemScope) -> Iterator[tuple[object, ...]]:
    r"""Sorted by path and name; a path that does not exist has no nodes.

    Bytes of a value that are no text are written as `\xNN`. Raises UserError when the query
    does not say which paths it wants: the whole tree can be very large.
    """
    paths = paths_in(scope.query)
    if not paths:
        raise UserError(
            "SELECT from system.zookeeper needs a condition path = '…' or path IN ('…', …) in"
            " WHERE: the whole tree is not read"
        )
    keeper = scope.server.keeper()
    for path, names in zip(paths, keeper.children_many(paths), strict=True):
        below = path.rstrip("/")
        reads = keeper.get_many([f"{below}/{name}" for name in names or []])
        for name, read in zip(names or [], reads, strict=True):
            if read is None:
                continue  # removed since its name was listed
            data, stat = read
            yield (
                name,
                data.decode("utf-8", "backslashreplace"),
                stat.created_zxid,
                datetime.fromtimestamp(stat.created_ms // 1000, UTC),
                datetime.fromtimestamp(stat.modified_ms // 1000, UTC),
                stat.version,
                stat.children_version,
                stat.ephemeral_owner,
                stat.data_length,
                stat.children_count,
                path,
            )


def paths_in(query: Query) -> list[str]:
    """The constants that the query compares a column `path` with, sorted."""
    found: set[str] = set()
    for node in walk(query):
        match node:
            case Call("equals", (left, right)):
                if _is_path(left) or _is_path(right):
                    found.update(_strings((left, right)))
            case Call("in", (left, Call("tuple" | "array", members))) if _is_path(left):
                found.update(_strings(members))
            case Call("in", (left, Literal() as member)) if _is_path(left):
                found.update(_strings((member,)))
            case _:
                pass
    return sorted(found)


def _is_path(node: Node) -> bool:
    return isinstance(node, Name) and node.parts[-1] == "path"


def _strings(nodes: Iterable[Node]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Literal) and isinstance(node.value, str):
            yield node.value
