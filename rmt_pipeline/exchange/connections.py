"""Idle HTTP connections to peers, to be used again: a new one costs more than a small part."""

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection

IDLE_PER_PEER_MAX = 15  # as the original's keep-alive pool
IDLE_MAX = 256


@dataclass(frozen=True, slots=True)
class Peer:
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


class Connections:
    """Safe for threads. After a fork the child starts with none: two processes that read from
    one connection would each get half an answer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._idle: OrderedDict[HTTPConnection, Peer] = OrderedDict()

    def take(self, peer: Peer) -> HTTPConnection | None:
        """The connection to `peer` that was used last, if one is idle."""
        with self._lock:
            self._forget_after_fork()
            for connection in reversed(self._idle):
                if self._idle[connection] == peer:
                    del self._idle[connection]
                    return connection
        return None

    def give_back(self, peer: Peer, connection: HTTPConnection) -> None:
        """Only after an answer was read to its end."""
        with self._lock:
            self._forget_after_fork()
            same = [one for one, other in self._idle.items() if other == peer]
            self._idle[connection] = peer
            surplus = (
                same[:1] if len(same) >= IDLE_PER_PEER_MAX else list(self._idle)[:-IDLE_MAX]
            )
            for old in surplus:
                del self._idle[old]
        for old in surplus:
            old.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = list(self._idle), OrderedDict()
        for connection in idle:
            connection.close()

    def _forget_after_fork(self) -> None:
        if self._process != os.getpid():
            self._process, self._idle = os.getpid(), OrderedDict()


def peer_connection(peer: Peer, *, timeout_s: float) -> HTTPConnection:
    """A new connection, not yet connected."""
    kind = HTTPSConnection if peer.scheme == "https" else HTTPConnection
    return kind(peer.host, peer.port, timeout=timeout_s)
