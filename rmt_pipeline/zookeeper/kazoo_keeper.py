"""`Keeper` over kazoo, bound to one session. Only this module and `connect` know kazoo.

What kazoo does, and how this adapter deals with it:

1. A transaction returns its errors instead of raising them: we look at each result.
2. In a refused multi ZooKeeper blames one operation; the others are "rolled back". We find the
   operation that is to blame.
3. When a session has expired, kazoo goes on under a *new* session. We prevent that: kazoo's handler
   refuses to connect once the session is over, and the keeper stays retired.
4. When a connection breaks, answers are lost. A write that was handed to kazoo and got no answer is
   OutcomeUnknown, whichever error kazoo reports.
5. kazoo's `retry` would repeat writes. We never use it.
6. While no server answers kazoo tries to reconnect for ever, although the session may have ended
   long ago. After `session_timeout_s` without a connection the keeper retires by itself.
7. kazoo forgets the watches of a stopped client without firing them, and keeps a watch once for
   each time that it was asked for. We keep our own (`watches`), and give kazoo equal watches for
   equal paths, of which it keeps one.
8. A read may be stale. The caller has to deal with that, by `sync`, or by a write that asserts what
   was read.
9. kazoo has no request that reads many nodes, ZooKeeper has one since 3.6: we add it. After a
   server has refused it, and hung up, we read one node per request for the rest of the session.
10. kazoo has no persistent watches either (ZooKeeper 3.6 too). Before 3.9 a watch that fires once
   replaces a persistent one for the same path. So a listing with a watch, of children that have a
   persistent one, waits with that. A server that does not answer a request for a persistent watch
   gets at most a few such requests in a session.
"""

import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    EXCEPTIONS,
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    InvalidACLError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    UnimplementedError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from rmt_pipeline.protocol.errors import (
    AccessDenied,
    OutcomeUnknown,
    ReplicaRetired,
    Unavailable,
)
from rmt_pipeline.system import Clock
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Op,
    RefusalKind,
    Refused,
    SetData,
    Stat,
    Watch,
)
from rmt_pipeline.zookeeper.session import SessionLife
from rmt_pipeline.zookeeper.strays import Strays
from rmt_pipeline.zookeeper.watches import Key, Lasting, What

MULTI_BYTES_MAX = 1_000_000  # ZooKeeper closes a connection that sends a packet of 1 MiB
READ_TOGETHER_MAX = 128  # nodes in one request
LASTING_WATCH_TRIES = 3  # requests without an answer, in one session
IN_FLIGHT_MAX = 200  # requests; kazoo's wake-up pipe holds some 270 and then blocks the caller
CLOSE_TIMEOUT_S = 2.5  # how long the server may take to confirm the end of a session
SETTLE_PAUSE_S = 1.0  # between two tries to delete what the session left

_INTEGER = struct.Struct("!i")
_OPERATION = struct.Struct("!iBii")  # its type, no end yet, no error, the length of its path
_NO_MORE = struct.pack("!iBi", -1, 1, -1)

_KINDS: dict[type[Exception], RefusalKind] = {
    NoNodeError: RefusalKind.NO_NODE,
    NodeExistsError: RefusalKind.NODE_EXISTS,
    BadVersionError: RefusalKind.BAD_VERSION,
    NotEmptyError: RefusalKind.NOT_EMPTY,
    NoChildrenForEphemeralsError: RefusalKind.NO_CHILDREN_FOR_EPHEMERALS,
}

DENIED = (NoAuthError, InvalidACLError, AuthFailedError)

T = TypeVar("T")
U = TypeVar("U")


class _Multi:
    """A multi, encoded as kazoo would, in 40 % of the time: kazoo encodes an object for each
    operation, and each of its fields in a call of its own.

    Paths are sent as they are. kazoo's own `TransactionRequest` would remove the last slash of a
    sequence whose names are digits alone (`T/mutations/`), and so number siblings of the node
    instead of its children.
    """

    type = serialization.Transaction.type
    deserialize = serialization.Transaction.deserialize

    def __init__(self, ops: Sequence[Op], chroot: str, acl: Sequence[Any]) -> None:
        pieces: list[bytes] = []
        access = _access_list(tuple(acl))
        for op in ops:
            path = _rooted(chroot, op.path).encode()
            rest: tuple[bytes, ...]
            match op:
                case Create():
                    flags = _INTEGER.pack(op.ephemeral | op.sequence << 1)
                    rest, kind = (*_sized(op.data), access, flags), serialization.Create.type
                case Delete():
                    rest, kind = (_INTEGER.pack(op.version),), serialization.Delete.type
                case SetData():
                    rest = (*_sized(op.data), _INTEGER.pack(op.version))
                    kind = serialization.SetData.type
                case Check():
                    rest, kind = (_INTEGER.pack(op.version),), serialization.CheckVersion.type
            pieces += (_OPERATION.pack(kind, 0, -1, len(path)), path, *rest)
        self._body = b"".join((*pieces, _NO_MORE))

    @property
    def size(self) -> int:
        return len(self._body)

    def serialize(self) -> bytes:
        return self._body


def _sized(data: bytes) -> tuple[bytes, bytes]:
    return _INTEGER.pack(len(data)), data


@lru_cache(maxsize=16)
def _access_list(acl: tuple[Any, ...]) -> bytes:
    text = serialization.write_string
    entries = [_INTEGER.pack(one.perms) + text(one.id.scheme) + text(one.id.id) for one in acl]
    return b"".join((_INTEGER.pack(len(entries)), *entries))


class _ReadMany:
    """A request with several reads; its answer has for each the result, or the exception."""

    type = 22

    def __init__(self, reads: Sequence[Any]) -> None:
        self._reads = reads

    def serialize(self) -> bytes:
        sent: bytes = serialization.Transaction(self._reads).serialize()
        return sent

    @staticmethod
    def deserialize(answer: bytes, offset: int) -> list[Any]:
        found: list[Any] = []
        header, offset = serialization.MultiHeader.deserialize(answer, offset)
        while not header.done:
            if header.type == serialization.GetData.type:
                data, offset = serialization.read_buffer(answer, offset)
                stat = serialization.stat_struct.unpack_from(answer, offset)
                offset += serialization.stat_struct.size
                found.append((data, ZnodeStat._make(stat)))
            elif header.type == serialization.GetChildren.type:
                [count] = serialization.int_struct.unpack_from(answer, offset)
                offset += serialization.int_struct.size
                names: list[str] = []
                for _ in range(count):
                    name, offset = serialization.read_string(answer, offset)
                    names.append(name)
                found.append(names)
            else:
                [code] = serialization.int_struct.unpack_from(answer, offset)
                offset += serialization.int_struct.size
                found.append(EXCEPTIONS[code]())
            header, offset = serialization.MultiHeader.deserialize(answer, offset)
        return found


class _ChildWatchers(defaultdict[str, set[Any]]):
    """kazoo's child watchers by path. kazoo removes those of a path when it fires them; this
    dictionary puts the persistent ones back. When the connection breaks kazoo calls all watchers
    and starts with a new dictionary.
    """

    def pop(self, path: str, *default: Any) -> Any:
        found = super().pop(path, *default)
        if stays := {one for one in found if isinstance(one, _StaysHere)}:
            self[path] = stays
        return found


@dataclass(frozen=True, slots=True)
class _StaysHere:
    """The watcher that kazoo calls for a persistent watch. The event that tells of a broken
    connection has the type NONE.
    """

    event: Lasting

    def __call__(self, happened: WatchedEvent) -> None:
        if happened.type == EventType.NONE:
            self.event.lapse()
        else:
            self.event()


class _AddWatch:
    """The request for a persistent watch of a node's children."""

    type = 106
    _FOR_CHILDREN = 0

    def __init__(self, client: KazooClient, path: str, event: Lasting) -> None:
        self._client = client
        self._path = _rooted(client.chroot, path)
        self._event = event

    def serialize(self) -> bytes:
        path: bytes = serialization.write_string(self._path)
        mode: bytes = serialization.int_struct.pack(self._FOR_CHILDREN)
        return path + mode

    def deserialize(self, answer: bytes, offset: int) -> bool:
        """Register the watch. kazoo calls this in its own thread, which delivers the watch's events
        after this answer, and the end of the connection after both: so no event is missed.
        """
        del answer, offset
        watchers = self._client._child_watchers  # noqa: SLF001
        if not isinstance(watchers, _ChildWatchers):
            watchers = _ChildWatchers(set, watchers)
            self._client._child_watchers = watchers  # noqa: SLF001
        watchers[self._path].add(_StaysHere(self._event))
        self._event.watches.lasts(self._event.key)
        return True


class SessionHandler(Protocol):
    """What the keeper needs of kazoo's handler.

    kazoo connects, also again, only while `may_connect` returns True; `cut` breaks a connection
    that hangs.
    """

    may_connect: Callable[[], bool]

    def cut(self) -> None: ...


class KazooKeeper:
    """A `Keeper` on a connected kazoo client, which it owns from now on. Thread-safe.

    A write raises ReplicaRetired only if it was certainly not carried out, and OutcomeUnknown
    whenever it may have been.
    """

    def __init__(
        self,
        client: KazooClient,
        handler: SessionHandler,
        clock: Clock,
        *,
        session_timeout_s: float,
        who: str = "this client",
    ) -> None:
        """`who` is the identity that we have for ZooKeeper, in words for error messages. Raises
        Unavailable if the connection is broken already.
        """
        self._client = client
        self._who = who
        self._handler = handler
        self._clock = clock
        self._session_timeout_s = session_timeout_s
        self._disconnected_s: float | None = None  # when the connection broke
        self._life = SessionLife(self._hang_up)
        self._listings = (client.get_children_async, self._children_stat_async)
        self._strays = Strays(self._see_to_strays)
        self._can_read_together = True
        self._lasting_watch_tries = LASTING_WATCH_TRIES
        self._settler = threading.Lock()  # held by the one thread that settles in background
        self._hung_up = threading.Event()
        client.add_listener(self._on_state)
        handler.may_connect = self._may_connect
        identity = client.client_id
        if identity is None:
            self.close()
            raise Unavailable("the connection to ZooKeeper broke at once; try again")
        self._life.session_id = identity[0]

    @property
    def session_id(self) -> int:
        return self._life.session_id

    @property
    def is_retired(self) -> bool:
        """Whether the session is over: then every call raises ReplicaRetired."""
        return self._life.is_over

    @property
    def session_timeout_s(self) -> float:
        return self._session_timeout_s

    @property
    def strays(self) -> Strays:
        return self._strays

    def on_retired(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from another thread, when the session ends in any way but by
        `close`; at once, in this thread, if it has ended so already. `callback` may call `close`.
        """
        self._life.on_retired(callback)

    # Reads

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        data, stat = self._read(self._client.get_async, path, watch)
        return data or b"", _stat(stat)

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return [
            None if found is None else (found[0] or b"", _stat(found[1]))
            for found in self._read_together(
                serialization.GetData, self._client.get_async, paths
            )
        ]

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = self._read(self._client.exists_async, path, watch)
        return None if stat is None else _stat(stat)

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        """Read the nodes: ZooKeeper has a request that reads many nodes, but none that asks whether
        many exist. Both need the right to read.
        """
        return [None if found is None else found[1] for found in self.get_many(paths)]

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return sorted(self._read(self._client.get_children_async, path, watch))

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        names, stat = self._read(self._children_stat_async, path, watch)
        return sorted(names), _stat(stat)

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return [
            None if names is None else sorted(names)
            for names in self._read_together(
                serialization.GetChildren, self._client.get_children_async, paths
            )
        ]

    def await_children(self, path: str, watch: Watch) -> bool:
        self._life.require()
        self._strays.settle(self)
        key: Key = ("children", path)
        if self._life.wait(key, watch):
            return True
        if not self._lasting_watch_tries:
            return False
        pending = self._client.handler.async_result()
        event = Lasting(key, self._life.watches)
        self._client._call(_AddWatch(self._client, path, event), pending)  # noqa: SLF001
        try:
            self._answer(pending, path)
        except Unavailable as unavailable:
            self._lasting_watch_tries -= 1  # perhaps the server hung up because of this request
            if isinstance(unavailable.__cause__, UnimplementedError):
                self._lasting_watch_tries = 0
                return False
            raise
        return self._life.wait(key, watch)

    def sync(self, path: str) -> None:
        self._read(self._sync_async, path, None)

    # Writes

    def multi(self, ops: Sequence[Op]) -> list[str]:
        self._strays.settle(self)
        result = self._outcome_of_write(self._send(ops), ops)
        if isinstance(result, Exception):
            raise result
        return result

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        def send(ops: Sequence[Op]) -> Any:
            try:
                return self._send(ops)
            except ReplicaRetired as retired:
                return retired

        self._strays.settle(self)
        return list(_pipelined(multis, send, self._outcome_of_write))

    def close(self) -> None:
        self._life.close()

    # How reads and writes go through kazoo

    def _read(self, call: Callable[..., Any], path: str, watch: Watch | None) -> Any:
        self._life.require()
        self._strays.settle(self)
        if watch is None:
            return self._answer(call(path), path)
        what: What = "children" if call in self._listings else "data"
        if self._life.wait((what, path), watch):
            return self._answer(call(path), path)
        asked, event = self._life.ask(what, path, watch)
        try:
            answer = self._answer(call(path, event), path)
        except BaseException:
            self._life.watches.failed(asked)
            raise
        self._life.watches.answered(asked)
        return answer

    def _read_many(self, call: Callable[[str], Any], paths: Sequence[str]) -> Iterable[Any]:
        def outcome(pending: Any, path: str) -> Any:
            try:
                return self._answer(pending, path)
            except Refused as refused:
                if refused.kind is RefusalKind.NO_NODE:
                    return None
                raise

        self._life.require()
        self._strays.settle(self)
        return _pipelined(paths, call, outcome)

    def _read_together(
        self,
        kind: Callable[[str, None], Any],
        one_by_one: Callable[[str], Any],
        paths: Sequence[str],
    ) -> Iterable[Any]:
        """Like `_read_many`, with as few requests as possible: `kind` makes one read of a request
        for many nodes, `one_by_one` is kazoo's call for one node.
        """
        if len(paths) < 2 or not self._can_read_together:
            return self._read_many(one_by_one, paths)
        self._life.require()
        self._strays.settle(self)
        groups = [
            paths[start : start + READ_TOGETHER_MAX]
            for start in range(0, len(paths), READ_TOGETHER_MAX)
        ]

        def send(group: Sequence[str]) -> Any:
            reads = [kind(_rooted(self._client.chroot, path), None) for path in group]
            pending = self._client.handler.async_result()
            self._client._call(_ReadMany(reads), pending)  # noqa: SLF001  like kazoo's own requests
            return pending

        def outcome(pending: Any, group: Sequence[str]) -> list[Any]:
            return [
                self._found(one, path)
                for one, path in zip(self._answer(pending, group[0]), group, strict=True)
            ]

        try:
            return [one for found in _pipelined(groups, send, outcome) for one in found]
        except Unavailable as unavailable:
            if isinstance(unavailable.__cause__, UnimplementedError):
                self._can_read_together = False
            raise

    def _found(self, one: Any, path: str) -> Any:
        if isinstance(one, NoNodeError):
            return None
        if isinstance(one, DENIED):
            raise denied(path, self._who, one)
        if isinstance(one, Exception):
            raise Unavailable(
                f"ZooKeeper gave no answer about {path} ({_name(one)}); try again"
            )
        return one

    def _children_stat_async(self, path: str, watch: Any = None) -> Any:
        return self._client.get_children_async(path, watch, include_data=True)

    def _sync_async(self, path: str) -> Any:
        return self._client.sync_async(path)

    def _answer(self, pending: Any, path: str) -> Any:
        try:
            return pending.get(timeout=self._session_timeout_s)
        except tuple(_KINDS) as refusal:
            raise Refused(_KINDS[type(refusal)], path) from None
        except SessionExpiredError:
            raise self._life.retired() from None
        except DENIED as problem:
            raise denied(path, self._who, problem) from None
        except (ZookeeperError, KazooTimeoutError) as problem:
            if self._life.is_over:
                raise self._life.retired() from None
            raise Unavailable(
                f"ZooKeeper gave no answer about {path} ({_name(problem)}); try again"
            ) from problem

    def _send(self, ops: Sequence[Op]) -> Any:
        self._life.require()
        assert ops, "a multi has operations"
        acl = self._client.default_acl or OPEN_ACL_UNSAFE
        multi = _Multi(ops, self._client.chroot, acl)
        assert multi.size <= MULTI_BYTES_MAX, (
            f"a multi of {len(ops)} operations and {multi.size} bytes: ZooKeeper takes 1 MiB"
        )
        pending = self._client.handler.async_result()
        self._client._call(multi, pending)  # noqa: SLF001  like kazoo's own requests
        return pending

    def _outcome_of_write(self, pending: Any, ops: Sequence[Op]) -> list[str] | Exception:
        if isinstance(pending, ReplicaRetired):
            return pending
        try:
            results = pending.get(timeout=self._session_timeout_s)
        except SessionExpiredError:
            # kazoo raises this for requests that it had not sent yet, the server for requests that
            # it did not carry out. Requests that kazoo had sent end in ConnectionLoss.
            return self._life.retired()
        except (ZookeeperError, KazooTimeoutError) as problem:
            unknown = OutcomeUnknown(
                f"ZooKeeper gave no answer to a write of {len(ops)} operations, the first on "
                f"{ops[0].path} ({_name(problem)}); it may have happened, or still happen"
            )
            unknown.__cause__ = problem
            return unknown
        return _refusal(results, ops, self._who) or [
            result if isinstance(result, str) else "" for result in results
        ]

    # The life of the session

    def _may_connect(self) -> bool:
        """Whether kazoo may connect again; called by kazoo's thread before it does. Retires the
        keeper if the connection has been broken for longer than the session's timeout.
        """
        broken_s = self._disconnected_s
        if broken_s is not None:
            silent_s = self._clock.monotonic_s() - broken_s
            if silent_s > self._session_timeout_s:
                self._life.retire(f"no ZooKeeper answered for {silent_s:.1f} s")
        return not self._life.is_over

    def _on_state(self, state: str) -> None:
        """Note a new state of the connection. Called by kazoo's thread; must not block."""
        if state == KazooState.LOST:
            self._life.retire("expired")
        elif state == KazooState.SUSPENDED:
            self._disconnected_s = self._clock.monotonic_s()
        else:
            self._disconnected_s = None
            identity = self._client.client_id
            if identity is not None and identity[0] != self.session_id:
                self._life.retire("another one took its place")

    def _see_to_strays(self) -> None:
        """Start a thread that tries to delete the strays until they are gone, unless one runs:
        perhaps nothing will use this session again, and each use is what else deletes them.
        """
        if self._settler.acquire(blocking=False):
            settler = threading.Thread(
                target=self._settle_unasked, name="rmt-settle", daemon=True
            )
            try:
                settler.start()
            except RuntimeError:  # no thread can be started now
                self._settler.release()

    def _settle_unasked(self) -> None:
        try:
            while self._strays:
                self._hung_up.wait(SETTLE_PAUSE_S)
                self._strays.settle(self)
        finally:
            self._settler.release()
        if self._strays:
            self._see_to_strays()  # for strays left between our last look and the release

    def _hang_up(self) -> None:
        self._hung_up.set()
        # `stop` would wait for a server that hangs: then the timer cuts the connection.
        cut = threading.Timer(CLOSE_TIMEOUT_S, self._handler.cut)
        cut.start()
        try:
            self._client.stop()
        finally:
            cut.cancel()
            cut.join()
        self._client.close()


def _pipelined(
    items: Sequence[T], send: Callable[[T], Any], outcome: Callable[[Any, T], U]
) -> Iterable[U]:
    """Yield the outcomes in the items' order, with up to IN_FLIGHT_MAX requests in flight."""
    pending: deque[tuple[Any, T]] = deque()
    for item in items:
        if len(pending) == IN_FLIGHT_MAX:
            yield outcome(*pending.popleft())
        pending.append((send(item), item))
    while pending:
        yield outcome(*pending.popleft())


def denied(path: str, who: str, problem: Exception) -> AccessDenied:
    """The error to raise when ZooKeeper denies us access to `path`, with the remedy."""
    if isinstance(problem, InvalidACLError):
        return AccessDenied(
            f"ZooKeeper cannot make {path} for its creator alone, because it takes us for {who}: "
            "set [zookeeper] identity in rmt.toml, or a certificate that this ZooKeeper asks for "
            'and checks, or acl = "open"'
        )
    if isinstance(problem, AuthFailedError):
        return AccessDenied(
            f"ZooKeeper does not believe that we are {who}: correct user, password and "
            "authentication of [zookeeper] in rmt.toml"
        )
    return AccessDenied(
        f"ZooKeeper refuses {path} to {who}: the node's access list is for others, or for the same "
        "user with another password. Set [zookeeper] identity in rmt.toml to the user who made it, "
        "with the password of then, or have that user give it to us (setAcl)"
    )


def _refusal(results: Sequence[Any], ops: Sequence[Op], who: str) -> Exception | None:
    """The error for the one operation that ZooKeeper blames; None if the multi succeeded."""
    failed = False
    for index, (result, op) in enumerate(zip(results, ops, strict=True)):
        if isinstance(result, (RolledBackError, RuntimeInconsistency)):
            failed = True  # not to blame: it only stands before or after the one that is
        elif isinstance(result, Exception):
            kind = _KINDS.get(type(result))
            if kind is not None:
                return Refused(kind, op.path, index)
            if isinstance(result, DENIED):
                return denied(op.path, who, result)
            return Unavailable(
                f"ZooKeeper refused operation {index} on {op.path}: {_name(result)}; "
                "check its quotas"
            )
    assert not failed, "ZooKeeper rolled back a multi and blamed no operation"
    return None


def _rooted(chroot: str, path: str) -> str:
    root = chroot.rstrip("/")
    return root + path if path != "/" else root or "/"


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(
        stat.version,
        stat.ctime,
        stat.mtime,
        stat.czxid,
        stat.cversion,
        stat.numChildren,
        stat.ephemeralOwner,
        stat.dataLength,
        stat.mzxid,
        stat.pzxid,
    )


def _name(problem: Exception) -> str:
    if isinstance(problem, ConnectionLoss):
        return "the connection broke"
    if isinstance(problem, KazooTimeoutError):
        return "time ran out"
    return type(problem).__name__
