"""Who asks ZooKeeper what: requests named by their bytes, and a relay in front of it that names
those of a process.
"""

import contextlib
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator

MULTI, READ_MANY = 14, 22
KINDS = {
    1: "create",
    2: "delete",
    3: "exists",
    4: "get",
    5: "set",
    8: "list",
    9: "sync",
    11: "ping",
    12: "list with stat",
    13: "check",
    MULTI: "multi",
    READ_MANY: "read many",
    106: "watch that stays",
    -11: "close",
}
WITHOUT_PATH = {11, -11, 100, 101, 105}
SHOWN = 6  # operations of one multi
_NUMBERS = re.compile(r"\d+(_\d+)*")


def named(kind: int, body: bytes) -> str:
    """The kind of a request and the nodes that it is about, without their numbers."""
    name = KINDS.get(kind, f"kind {kind}")
    if kind in WITHOUT_PATH:
        return name
    if kind not in (MULTI, READ_MANY):
        return f"{name} {_about(body, 0)}"
    about = dict.fromkeys(f"{KINDS[one]} {_about(body, at)}" for one, at in _operations(body))
    return f"{name}: {', '.join(list(about)[:SHOWN])}"


def _operations(body: bytes) -> Iterator[tuple[int, int]]:
    """Of a multi: the kind of each, and where it begins."""
    at = 0
    while True:
        kind, is_done = _int(body, at), body[at + 4]
        at += 9  # the header ends with an error code
        if is_done:
            return
        yield kind, at
        at += 4 + _int(body, at)  # the path
        if kind in (1, 5):
            at += 4 + max(0, _int(body, at))  # data; it may be none
        if kind == 1:
            count, at = _int(body, at), at + 4
            for _ in range(count):  # permissions, scheme, id
                at += 4
                for _ in range(2):
                    at += 4 + _int(body, at)
        at += 1 if kind in (4, 8) else 4  # whether to watch; flags or a version


def _int(data: bytes, at: int) -> int:
    [number] = struct.unpack_from(">i", data, at)
    return int(number)


def _about(body: bytes, at: int) -> str:
    """The last names of the path there."""
    path = body[at + 4 : at + 4 + _int(body, at)].decode(errors="replace")
    names = path.split("/")
    return "/".join(_NUMBERS.sub("#", name) for name in names[-2:])


class Relay:
    """What listens at `port` in place of ZooKeeper, for one process. It ends with this one."""

    def __init__(self, zookeeper_port: int) -> None:
        self._zookeeper_port = zookeeper_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._asked: Counter[str] = Counter()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def taken(self) -> Counter[str]:
        """What was asked since the last call, by kind and node."""
        with self._lock:
            asked, self._asked = self._asked, Counter()
        return asked

    def _accept(self) -> None:
        while True:
            inside, _ = self._listener.accept()
            outside = socket.create_connection(("127.0.0.1", self._zookeeper_port))
            for one in (inside, outside):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for target, *ends in (
                (self._requests, inside, outside),
                (self._answers, outside, inside),
            ):
                threading.Thread(target=target, args=ends, daemon=True).start()

    def _answers(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        _hang_up(source, sink)

    def _requests(self, source: socket.socket, sink: socket.socket) -> None:
        kept, is_first = b"", True
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                kept += data
                while len(kept) >= 4 and len(kept) >= (size := 4 + _int(kept, 0)):
                    if not is_first:  # that one begins the session
                        self._note(kept[4:size])
                    kept, is_first = kept[size:], False
                sink.sendall(data)
        _hang_up(source, sink)

    def _note(self, request: bytes) -> None:
        """Behind its number."""
        name = named(_int(request, 4), request[8:])
        with self._lock:
            self._asked[name] += 1


def _hang_up(*ends: socket.socket) -> None:
    for one in ends:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
