"""system.zookeeper: the nodes below the paths that the query names."""

from collections.abc import Iterator
from datetime import UTC, datetime

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.scope import Scope
from rmt_pipeline.syntax.sql_cursor import Cursor
from rmt_pipeline.syntax.sql_tokens import Kind

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


def zookeeper(scope: Scope) -> Iterator[tuple[object, ...]]:
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


def paths_in(query: str) -> list[str]:
    """The constants that the query compares a column `path` with, sorted."""
    found: set[str] = set()
    cursor = Cursor(query, 0, len(query))
    while not cursor.at_end:
        first, second, third = cursor.token, cursor.peek(1), cursor.peek(2)
        if third.text == "path" and second.text in ("=", "==") and first.kind is Kind.STRING:
            found.add(cursor.string())
        elif first.text in ("path", "`path`", '"path"') and second.text in ("=", "=="):
            cursor.advance()
            cursor.advance()
            if cursor.token.kind is Kind.STRING:
                found.add(cursor.string())
        elif first.text in ("path", "`path`", '"path"') and second.upper == "IN":
            cursor.advance()
            cursor.advance()
            found.update(_strings(cursor))
        else:
            cursor.advance()
    return sorted(found)


def _strings(cursor: Cursor) -> list[str]:
    """`('a', 'b')` or `['a', 'b']`; nothing when it is something else."""
    found: list[str] = []
    if cursor.token.text not in ("(", "["):
        return found
    cursor.advance()
    while cursor.token.kind is Kind.STRING:
        found.append(cursor.string())
        cursor.accept_mark(",")
    return found
