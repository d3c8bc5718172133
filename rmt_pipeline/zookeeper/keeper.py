"""What the engine asks of ZooKeeper, as data and one protocol. Adapters live elsewhere.

A keeper is bound to one session. When that session is over it retires: every later call raises
ReplicaRetired, and a new keeper is needed. No call is ever retried inside a keeper: whether a
write that got no answer landed is the caller's question (OutcomeUnknown).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from rmt_pipeline.protocol.errors import Conflict

if TYPE_CHECKING:
    from rmt_pipeline.zookeeper.strays import Strays

ANY_VERSION = -1


@dataclass(frozen=True, slots=True)
class Stat:
    """What ZooKeeper tells about a node. Times are ZooKeeper's clock, in milliseconds.

    A recreated node starts again at version 0: a version alone does not identify a node;
    `created_zxid` does.
    """

    version: int
    created_ms: int
    modified_ms: int
    created_zxid: int
    children_version: int
    children_count: int
    ephemeral_owner: int
    data_length: int

    @property
    def next_sequence(self) -> int:
        """The number that the next sequence child gets: how many children there ever were. (Their
        version counts creations and removals.)
        """
        return (self.children_version + self.children_count) // 2


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. With `sequence`, ZooKeeper appends ten digits to the path's last name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children, of this version unless ANY_VERSION."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data of a node, of this version unless ANY_VERSION."""

    path: str
    data: bytes = b""
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """The node exists, and has this version unless ANY_VERSION."""

    path: str
    version: int = ANY_VERSION


Op = Create | Delete | SetData | Check


def absent(path: str) -> list[Op]:
    """Operations that succeed only when nothing is at `path`, and leave nothing there."""
    return [Create(path), Delete(path)]


class RefusalKind(StrEnum):
    """Why ZooKeeper refuses an operation."""

    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    BAD_VERSION = "bad version"
    NOT_EMPTY = "not empty"
    NO_CHILDREN_FOR_EPHEMERALS = "ephemeral nodes have no children"


class Refused(Conflict):
    """ZooKeeper refused operation `index` (of a multi, else 0) on `path`; nothing was written."""

    code = "UNEXPECTED_ZOOKEEPER_ERROR"

    def __init__(self, kind: RefusalKind, path: str, index: int = 0) -> None:
        super().__init__(f"ZooKeeper refused operation {index} on {path}: {kind}")
        self.kind = kind
        self.path = path
        self.index = index


Watch = Callable[[], None]
"""Called once, from another thread, after the watched thing changed (or the session ended)."""


class Keeper(Protocol):
    """One ZooKeeper session. All methods may raise ReplicaRetired.

    Reads raise Unavailable when there was no answer. Writes raise Refused, or OutcomeUnknown
    when there was no answer.
    """

    @property
    def session_id(self) -> int: ...

    @property
    def strays(self) -> "Strays":
        """Ephemeral nodes that this session left. Each call sees to them first."""
        ...

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Raises Refused(NO_NODE)."""
        ...

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Pipelined reads, in order; None where there is no node. Not one snapshot."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The node's Stat, or None. The watch fires when the node changes, goes, or appears."""
        ...

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]: ...

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted. Raises Refused(NO_NODE). The watch fires on changes of the children."""
        ...

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        """Like `children`, with the stat of `path` from the same read."""
        ...

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]: ...

    def await_children(self, path: str, watch: Watch) -> bool:
        """Call `watch` once, when children of `path` come or go that the reads after this call may
        not see; or when the node does. It costs a request only the first time in a connection.

        False where ZooKeeper has no watches that stay: then list the children with the watch.
        """
        ...

    def multi(self, ops: Sequence[Op]) -> list[str]:
        """All operations or none. Returns one string per operation: the created path, else "".

        Raises Refused with the index of the culprit.
        """
        ...

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        """Pipelined independent multis; each result is what `multi` returns, or the error it
        would raise (Refused, OutcomeUnknown, ReplicaRetired).
        """
        ...

    def sync(self, path: str) -> None:
        """After it, reads of this session see every write decided before the call."""
        ...

    def close(self) -> None:
        """End the session: ephemeral nodes vanish. The keeper is retired. Idempotent."""
        ...


class LivingKeeper(Keeper, Protocol):
    """A keeper that knows whether its session is over."""

    @property
    def is_retired(self) -> bool: ...
