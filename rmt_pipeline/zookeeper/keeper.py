"""What the engine asks of ZooKeeper: operations as data, and the protocol `Keeper`. The adapters
that implement it are in other modules.

A keeper is bound to one session. When that session is over the keeper retires: every later call
raises ReplicaRetired, and a new keeper is needed. A keeper never retries a call: when a write gets
no answer (OutcomeUnknown), the caller has to find out whether it was carried out.
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
    """The stat of a node. Times are milliseconds, by ZooKeeper's clock.

    A node that is deleted and created again starts at version 0 again, so a version alone does not
    identify a node; `created_zxid` does.
    """

    version: int
    created_ms: int
    modified_ms: int
    created_zxid: int
    children_version: int
    children_count: int
    ephemeral_owner: int
    data_length: int
    modified_zxid: int
    children_zxid: int

    @property
    def next_sequence(self) -> int:
        """The number that the next sequence child gets, which is how many children were ever
        created: `children_version` counts creations and removals, `children_count` is their
        difference. The former has four bytes with a sign, and goes on below zero after 2**31.
        """
        return (self.children_version + self.children_count) % 2**32 // 2


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
    """Assert that the node exists, and has this version unless ANY_VERSION."""

    path: str
    version: int = ANY_VERSION


Op = Create | Delete | SetData | Check


def absent(path: str) -> list[Op]:
    """Operations that succeed only if there is no node at `path`, and leave none there."""
    return [Create(path), Delete(path)]


class RefusalKind(StrEnum):
    """Why ZooKeeper refuses an operation."""

    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    BAD_VERSION = "bad version"
    NOT_EMPTY = "not empty"
    NO_CHILDREN_FOR_EPHEMERALS = "ephemeral nodes have no children"


class Refused(Conflict):
    """ZooKeeper refused the operation on `path`; nothing was written. `index` is the operation's
    place in the multi; 0 if it was not in a multi.
    """

    code = "UNEXPECTED_ZOOKEEPER_ERROR"

    def __init__(self, kind: RefusalKind, path: str, index: int = 0) -> None:
        super().__init__(f"ZooKeeper refused operation {index} on {path}: {kind}")
        self.kind = kind
        self.path = path
        self.index = index


Watch = Callable[[], None]
"""Called once, from another thread, after the watched node changed or the session ended."""


class Keeper(Protocol):
    """One ZooKeeper session. All methods may raise ReplicaRetired.

    Reads raise Unavailable when there is no answer. Writes raise Refused, or OutcomeUnknown when
    there is no answer.
    """

    @property
    def session_id(self) -> int: ...

    @property
    def strays(self) -> "Strays":
        """Ephemeral nodes that this session may have left behind. Each call first deletes them."""
        ...

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """The node's data and Stat. Raises Refused(NO_NODE). The watch fires when the node changes
        or goes.
        """
        ...

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """The data and Stat of each node, None where there is no node. The reads are pipelined and
        carried out in order, but they are not one snapshot.
        """
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The node's Stat, or None. The watch fires when the node changes, goes, or appears."""
        ...

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        """Like `get_many`, without the data."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of the children, sorted. Raises Refused(NO_NODE). The watch fires when a child
        is created or removed, or the node itself is.
        """
        ...

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        """Like `children`, with the stat of `path` from the same read."""
        ...

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The sorted names of the children of each node, None where there is no node. Pipelined and
        in order, like `get_many`.
        """
        ...

    def await_children(self, path: str, watch: Watch) -> bool:
        """Call `watch` once: when a child of `path` is created or removed which reads that follow
        this call may not see, or when the node itself is. This costs a request only the first time
        for a path in a connection.

        Return False if ZooKeeper does not have persistent watches; then the caller has to list the
        children with the watch.
        """
        ...

    def multi(self, ops: Sequence[Op]) -> list[str]:
        """Carry out all operations or none. Return one string per operation: the created path, or
        "" for other operations.

        Raises Refused with the index of the operation that ZooKeeper refused.
        """
        ...

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        """Carry out independent multis, pipelined. Each result is what `multi` would return, or the
        error that it would raise (Refused, OutcomeUnknown, ReplicaRetired).
        """
        ...

    def sync(self, path: str) -> None:
        """Wait until reads of this session see every write that was committed before the call."""
        ...

    def close(self) -> None:
        """End the session, whose ephemeral nodes vanish, and retire the keeper. Further calls do
        nothing.
        """
        ...


class LivingKeeper(Keeper, Protocol):
    """A keeper that knows whether its session is over."""

    @property
    def is_retired(self) -> bool: ...
