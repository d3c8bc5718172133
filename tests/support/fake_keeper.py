"""A ZooKeeper in memory: one tree, many sessions, no threads, no clock of its own.

Exact where the protocol leans on ZooKeeper (`tests/contract` runs the same tests against this
and a real server): atomic multis that see their own operations and name the culprit, versions
that restart at 0, sequence numbers that count creations, ephemeral nodes, watches that fire
once.

Reads may be stale: a session sees the tree as of some transaction, which only moves forward. It
reaches the present at each `sync` and at each answer to a write of its own; in between, `lag`
decides. Without a `lag` the session is never behind.

Nodes are never changed, only replaced. So the past costs nothing: a transaction remembers the
nodes that it replaced, and a stale read looks through the few transactions it has not seen.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from rmt_pipeline.protocol.errors import OutcomeUnknown, ReplicaRetired
from rmt_pipeline.system import Clock
from rmt_pipeline.zookeeper.keeper import (
    ANY_VERSION,
    Create,
    Delete,
    Op,
    RefusalKind,
    Refused,
    SetData,
    Stat,
    Watch,
)
from rmt_pipeline.zookeeper.strays import Strays

HISTORY_MAX = 64  # transactions that a session can be behind
MULTI_BYTES_MAX = 1_000_000
_OP_OVERHEAD_BYTES = 80

_PATH = re.compile(r"(/[^/]+)+")

Lag = Callable[[int], int]
"""How many of the transactions that a session has not seen stay unseen at this read."""


class Node:
    """Immutable. `creations` counts the children ever created: the next sequence number."""

    __slots__ = (
        "children",
        "children_zxid",
        "created_ms",
        "created_zxid",
        "creations",
        "data",
        "modified_ms",
        "modified_zxid",
        "owner",
        "stat_cache",
        "version",
    )

    def __init__(  # noqa: PLR0917  made a million times per simulation: no keywords
        self,
        data: bytes,
        version: int,
        created_ms: int,
        modified_ms: int,
        created_zxid: int,
        creations: int,
        owner: int,
        children: frozenset[str],
        modified_zxid: int,
        children_zxid: int,
    ) -> None:
        self.data = data
        self.version = version
        self.created_ms = created_ms
        self.modified_ms = modified_ms
        self.created_zxid = created_zxid
        self.creations = creations
        self.owner = owner
        self.children = children
        self.modified_zxid = modified_zxid
        self.children_zxid = children_zxid
        self.stat_cache: Stat | None = None

    @property
    def stat(self) -> Stat:
        if self.stat_cache is None:
            self.stat_cache = Stat(
                self.version,
                self.created_ms,
                self.modified_ms,
                self.created_zxid,
                # four bytes with a sign, in which Java goes on below zero
                (2 * self.creations - len(self.children) + 2**31) % 2**32 - 2**31,
                len(self.children),
                self.owner,
                len(self.data),
                self.modified_zxid,
                self.children_zxid,
            )
        return self.stat_cache

    def with_children(self, children: frozenset[str], creations: int, zxid: int) -> "Node":
        return Node(
            self.data,
            self.version,
            self.created_ms,
            self.modified_ms,
            self.created_zxid,
            creations,
            self.owner,
            children,
            self.modified_zxid,
            zxid,
        )


_NO_CHILDREN: frozenset[str] = frozenset()

DATA, CHILDREN = 0, 1  # the two kinds of watches
Event = tuple[int, str]


class _Transaction:
    __slots__ = ("before", "events", "zxid")

    def __init__(self, zxid: int, before: dict[str, Node | None], events: list[Event]) -> None:
        self.zxid = zxid
        self.before = before
        self.events = events


class FakeZooKeeper:
    """The ensemble: its decided state, and the sessions on it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.zxid = 0
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0, 0, 0, 0, _NO_CHILDREN, 0, 0)}
        self.sessions: dict[int, FakeKeeper] = {}
        self._sessions_ever = 0
        self.writer = 0
        """The session whose transaction was last."""
        self._history: deque[_Transaction] = deque()
        self._commit_observers: list[Callable[[dict[str, Node | None]], None]] = []

    def connect(self, lag: Lag | None = None) -> "FakeKeeper":
        self._sessions_ever += 1
        keeper = FakeKeeper(self, 0x1000_0000 + self._sessions_ever, lag)
        self.sessions[keeper.session_id] = keeper
        return keeper

    def on_commit(self, observer: Callable[[dict[str, Node | None]], None]) -> None:
        """Call `observer` after each transaction with the nodes as they were before it."""
        self._commit_observers.append(observer)

    def forget_watches(self) -> None:
        """Of all sessions: whatever happens from now on, nobody who waits for it is told."""
        for session in self.sessions.values():
            session.forget_watches()

    def go_back(self, nodes: Mapping[str, Node]) -> None:
        """It was restored from an older copy, which had these nodes. No session outlives that."""
        for session_id in list(self.sessions):
            self.expire(session_id)
        self.nodes.clear()
        self.nodes.update(nodes)
        self._history.clear()
        held = [Delete(path) for path, node in nodes.items() if node.owner]
        if held:
            self._commit(0, held)

    def expire(self, session_id: int) -> None:
        """The session is over: its ephemeral nodes vanish together, its keeper is retired."""
        keeper = self.sessions.pop(session_id, None)
        if keeper is None:
            return
        mine = [path for path, node in self.nodes.items() if node.owner == session_id]
        if mine:
            self._commit(session_id, [Delete(path) for path in mine])
        keeper.end()

    def commit(self, session_id: int, ops: Sequence[Op]) -> list[str]:
        """Carry out a multi. Raises Refused; then nothing has changed."""
        size = sum(
            len(op.path)
            + (len(op.data) if isinstance(op, (Create, SetData)) else 0)
            + _OP_OVERHEAD_BYTES
            for op in ops
        )
        assert ops, "a multi has operations"
        assert size <= MULTI_BYTES_MAX, f"a multi of {size} bytes: ZooKeeper takes 1 MiB"
        return self._commit(session_id, ops)

    def _commit(self, session_id: int, ops: Sequence[Op]) -> list[str]:
        multi = _Multi(self.nodes, session_id, self.zxid + 1, int(self.clock.now_s() * 1000))
        created = [multi.apply(op, index) for index, op in enumerate(ops)]
        self.zxid += 1
        self.writer = session_id
        before = {path: self.nodes.get(path) for path in multi.changed}
        for path, node in multi.changed.items():
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node
        self._history.append(_Transaction(self.zxid, before, multi.events))
        self._tell_sessions()
        for observer in self._commit_observers:
            observer(before)
        return created

    def _tell_sessions(self) -> None:
        too_long = len(self._history) > HISTORY_MAX
        oldest = self._history[0].zxid
        # A watch may end its own session or open another: go through a copy.
        for keeper in list(self.sessions.values()):
            if keeper.lag is None:
                keeper.see(self.zxid)
            elif too_long and keeper.seen < oldest:
                keeper.see(oldest)
        if too_long:
            self._history.popleft()

    def remembers(self, zxid: int) -> bool:
        """Whether `node_at` knows what was after this transaction."""
        return self.zxid - zxid <= len(self._history)

    def node_at(self, path: str, zxid: int) -> Node | None:
        """The node as it was after transaction `zxid`."""
        unseen = self.zxid - zxid
        if unseen:
            history = self._history
            for position in range(len(history) - unseen, len(history)):
                before = history[position].before
                if path in before:
                    return before[path]
        return self.nodes.get(path)

    def events_between(self, seen: int, zxid: int) -> Iterable[Event]:
        """What happened in the transactions after `seen` up to `zxid`."""
        history = self._history
        first = len(history) - (self.zxid - seen)
        for position in range(first, first + zxid - seen):
            yield from history[position].events


class _Multi:
    """One multi while it is being checked: changes on top of a tree that they don't touch."""

    def __init__(self, nodes: dict[str, Node], session_id: int, zxid: int, now_ms: int) -> None:
        self._nodes = nodes
        self._session_id = session_id
        self._zxid = zxid
        self._now_ms = now_ms
        self.changed: dict[str, Node | None] = {}
        self.events: list[Event] = []

    def _node(self, path: str) -> Node | None:
        if path in self.changed:
            return self.changed[path]
        return self._nodes.get(path)

    def apply(self, op: Op, index: int) -> str:
        if isinstance(op, Create):
            return self._create(op, index)
        node = self._node(op.path)
        if node is None:
            raise Refused(RefusalKind.NO_NODE, op.path, index)
        if op.version not in (ANY_VERSION, node.version):
            raise Refused(RefusalKind.BAD_VERSION, op.path, index)
        if isinstance(op, Delete):
            self._delete(op.path, node, index)
        elif isinstance(op, SetData):
            self._set(op, node)
        return ""

    def _create(self, op: Create, index: int) -> str:
        path = f"{op.path}0" if op.sequence else op.path  # digits alone may be the name
        assert _PATH.fullmatch(path), f"ZooKeeper takes no path like {op.path!r}"
        parent_path, _, name = op.path.rpartition("/")
        parent_path = parent_path or "/"
        parent = self._node(parent_path)
        if parent is None:
            raise Refused(RefusalKind.NO_NODE, op.path, index)
        path = op.path
        if op.sequence:
            number = f"{parent.creations:010d}"
            path, name = path + number, name + number
        if self._node(path) is not None:
            raise Refused(RefusalKind.NODE_EXISTS, op.path, index)
        if parent.owner:
            raise Refused(RefusalKind.NO_CHILDREN_FOR_EPHEMERALS, op.path, index)
        owner = self._session_id if op.ephemeral else 0
        self.changed[path] = Node(
            *(op.data, 0, self._now_ms, self._now_ms, self._zxid, 0, owner, _NO_CHILDREN),
            *(self._zxid, self._zxid),
        )
        self.changed[parent_path] = parent.with_children(
            parent.children | {name}, parent.creations + 1, self._zxid
        )
        self.events.append((DATA, path))
        self.events.append((CHILDREN, parent_path))
        return path

    def _delete(self, path: str, node: Node, index: int) -> None:
        if node.children:
            raise Refused(RefusalKind.NOT_EMPTY, path, index)
        parent_path, _, name = path.rpartition("/")
        parent_path = parent_path or "/"
        parent = self._node(parent_path)
        assert parent is not None, "a node has a parent"
        self.changed[path] = None
        self.changed[parent_path] = parent.with_children(
            parent.children - {name}, parent.creations, self._zxid
        )
        self.events.append((DATA, path))
        self.events.append((CHILDREN, path))
        self.events.append((CHILDREN, parent_path))

    def _set(self, op: SetData, node: Node) -> None:
        self.changed[op.path] = Node(
            op.data,
            node.version + 1,
            node.created_ms,
            self._now_ms,
            node.created_zxid,
            node.creations,
            node.owner,
            node.children,
            self._zxid,
            node.children_zxid,
        )
        self.events.append((DATA, op.path))


class FakeKeeper:
    """One session: the `Keeper` protocol, and `on_retired` as KazooKeeper has it."""

    def __init__(self, zookeeper: FakeZooKeeper, session_id: int, lag: Lag | None) -> None:
        self._zookeeper = zookeeper
        self._session_id = session_id
        self.lag = lag
        self.strays = Strays()
        self.seen = zookeeper.zxid
        self._over = False
        self._closed = False
        self._watches: dict[Event, dict[Watch, None]] = {}  # each waiter once
        self._callbacks: list[Callable[[], None]] = []

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def is_retired(self) -> bool:
        return self._over

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        node = self._require_node(path)
        if watch is not None:
            self._watches.setdefault((DATA, path), {})[watch] = None
        return node.data, node.stat

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        nodes = [self._read(path) for path in paths]
        return [None if node is None else (node.data, node.stat) for node in nodes]

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        node = self._read(path)
        if watch is not None:
            self._watches.setdefault((DATA, path), {})[watch] = None
        return None if node is None else node.stat

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        nodes = [self._read(path) for path in paths]
        return [None if node is None else node.stat for node in nodes]

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self.children_stat(path, watch)[0]

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        node = self._require_node(path)
        if watch is not None:
            self._watches.setdefault((CHILDREN, path), {})[watch] = None
        return sorted(node.children), node.stat

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        nodes = [self._read(path) for path in paths]
        return [None if node is None else sorted(node.children) for node in nodes]

    def await_children(self, path: str, watch: Watch) -> bool:
        self._require_session()
        self._watches.setdefault((CHILDREN, path), {})[watch] = None
        return True

    def multi(self, ops: Sequence[Op]) -> list[str]:
        self._require_session()
        assert ops, "a multi has operations"
        self.strays.settle(self)
        try:
            return self._zookeeper.commit(self._session_id, ops)
        finally:
            self.see(self._zookeeper.zxid)  # a refusal is decided by the leader too

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        results: list[list[str] | Exception] = []
        for ops in multis:
            try:
                results.append(self.multi(ops))
            except (Refused, ReplicaRetired, OutcomeUnknown) as error:
                results.append(error)
        return results

    def node_seen(self, path: str) -> Node | None:
        """As it was at the last read, without reading; None also if that was too long ago, which
        only a session that is over can be told.
        """
        if not self._zookeeper.remembers(self.seen):
            return None
        return self._zookeeper.node_at(path, self.seen)

    def sync(self, path: str) -> None:
        del path
        self._require_session()
        self.see(self._zookeeper.zxid)

    def close(self) -> None:
        self._closed = True
        self._zookeeper.expire(self._session_id)

    def on_retired(self, callback: Callable[[], None]) -> None:
        if not self._over:
            self._callbacks.append(callback)
        elif not self._closed:
            callback()

    def end(self) -> None:
        """The ensemble ended this session."""
        self._over = True
        callbacks, self._callbacks = self._callbacks, []
        if not self._closed:
            for callback in callbacks:
                callback()
        watches, self._watches = self._watches, {}
        for waiting in watches.values():
            for watch in waiting:
                watch()

    def forget_watches(self) -> None:
        self._watches.clear()

    def see(self, zxid: int) -> None:
        """This session's server has applied everything up to `zxid`; watches fire."""
        if zxid <= self.seen:
            return
        seen, self.seen = self.seen, zxid
        if self._watches:
            for event in list(self._zookeeper.events_between(seen, zxid)):
                for watch in self._watches.pop(event, ()):
                    watch()

    def _read(self, path: str) -> Node | None:
        self._require_session()
        self.strays.settle(self)
        if self.lag is not None and self.seen != self._zookeeper.zxid:
            behind = self._zookeeper.zxid - self.seen
            self.see(self._zookeeper.zxid - min(self.lag(behind), behind))
        return self._zookeeper.node_at(path, self.seen)

    def _require_node(self, path: str) -> Node:
        node = self._read(path)
        if node is None:
            raise Refused(RefusalKind.NO_NODE, path)
        return node

    def _require_session(self) -> None:
        if self._over:
            raise ReplicaRetired(
                f"ZooKeeper session {self._session_id:#x} is over; start over with a new one"
            )
