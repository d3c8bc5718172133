"""HTTP connections to peers, kept open because a new one costs more than a small part."""

import http.client
import io
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import urllib3
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ProtocolError

from rmt_pipeline.config import TlsFiles
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.tls import Renewed

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
PEERS_MAX = 32  # with idle connections; beyond it the least recently used peer's are closed


@dataclass(frozen=True, slots=True)
class Peer:
    """The address of a replica's server, from the replica's node `host` in ZooKeeper. `str` gives
    the beginning of its URLs.
    """

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `receive_s` bounds each wait for bytes, the head of an answer as a whole, and each
    chunk (256 KiB) of a part, so that a peer that sends single bytes is given up too.
    """

    connect_s: float = 1.0
    receive_s: float = 30.0


class Connections:
    """Pools of connections to peers. Thread-safe.

    After a fork the child starts with none: two processes that read from one connection would each
    get half an answer. With `tls` all connections are encrypted, and new certificates are used as
    soon as their files are replaced.
    """

    def __init__(
        self, tls: TlsFiles | None = None, *, idle_max: int = limits.FETCHES_MAX
    ) -> None:
        """Of each peer at most `idle_max` connections are kept while nothing is asked. Raises
        BadConfiguration if the certificates can't be used.
        """
        self._lock = threading.Lock()
        self._idle_max = idle_max
        self._tls = None if tls is None else Renewed.client(tls)
        self._forget()

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        return "http" if self._tls is None else "https"

    def ask(
        self,
        method: str,
        peer: Peer,
        target: str,
        secret: str,
        *,
        timeouts: Timeouts,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> BaseHTTPResponse:
        """Ask `peer` for `target` (path and query). The body of the answer is not read yet: read it
        to its end, which gives the connection back to the pool, or `close` it. `secret` is sent as
        a bearer token unless it is empty.

        An idle connection may be one that the peer has just closed. All requests to peers may be
        repeated, so one that fails is sent once more, but not after a timeout. Redirects are not
        followed, because the secret is for this peer alone. Raises urllib3's HTTPError when there
        is no answer.
        """
        pool = self.pool(peer)
        shown = {"Authorization": f"Bearer {secret}"} if secret else {}

        def ask() -> BaseHTTPResponse:
            return pool.urlopen(
                method,
                target,
                headers={**headers, **shown},
                timeout=urllib3.Timeout(connect=timeouts.connect_s, read=timeouts.receive_s),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )

        try:
            answer = ask()
        except ProtocolError:
            answer = ask()
        for name in ("Transfer-Encoding", "Content-Encoding"):
            if name in answer.headers:  # urllib3 would unpack it, whatever its size
                answer.close()
                raise ProtocolError(f"it answers with a {name}, which an rmt server never does")
        return answer

    def pool(self, peer: Peer) -> urllib3.HTTPConnectionPool:
        """The pool of connections to one peer."""
        with self._lock:
            renewed = self._tls is not None and self._tls.context() is not self._context
            if renewed or self._process != os.getpid():
                self._forget()
            return self._pools.connection_from_host(peer.host, peer.port, peer.scheme)

    def close(self) -> None:
        self._pools.clear()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._context = None if self._tls is None else self._tls.context()
        self._pools = PoolManager(
            num_pools=PEERS_MAX, maxsize=self._idle_max, ssl_context=self._context
        )
        self._pools.pool_classes_by_scheme = {"http": _Pool, "https": _EncryptedPool}


def whole_body(response: BaseHTTPResponse, timeouts: Timeouts, bytes_max: int) -> bytes:
    """The whole body of an answer other than a part. Raises Unavailable if it has more than
    `bytes_max` bytes or takes longer than the timeout.
    """
    deadline_s, body, problem = time.monotonic() + timeouts.receive_s, b"", ""
    try:
        while not problem and (piece := response.read1(bytes_max + 1 - len(body))):
            body += piece
            if len(body) > bytes_max:
                problem = f"has more than {bytes_max} bytes"
            elif time.monotonic() > deadline_s:
                problem = f"took longer than {timeouts.receive_s:g} s"
    except HTTPError as error:
        problem = f"broke off: {error!r}"
    if problem:
        response.close()
        raise Unavailable(f"the answer {problem}")
    return body


class _Head(io.RawIOBase):
    """The bytes that arrive at a socket, until the time `end_s`; None is no limit."""

    def __init__(self, arriving: io.RawIOBase, connection: socket.socket, end_s: float) -> None:
        self._arriving = arriving
        self._connection = connection
        self.end_s: float | None = end_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.end_s is not None:
            left_s = self.end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("timed out: the head of the answer arrives too slowly")
            self._connection.settimeout(left_s)
        return self._arriving.readinto(buffer)

    def close(self) -> None:
        self._arriving.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """An answer whose head must arrive as a whole within the timeout. The timeout of the socket
    alone begins anew with each byte, and a peer may send any number of "100 Continue" answers.
    """

    def __init__(self, sock: socket.socket, *args: Any, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self._connection = sock

    def begin(self) -> None:
        timeout_s = self._connection.gettimeout()
        if timeout_s is None:
            super().begin()
            return
        arriving = self.fp.detach()
        head = _Head(arriving, self._connection, time.monotonic() + timeout_s)
        self.fp = io.BufferedReader(head)
        super().begin()
        head.end_s = None
        self._connection.settimeout(timeout_s)


class _Connection(HTTPConnection):
    response_class = _Answer


class _EncryptedConnection(HTTPSConnection):
    response_class = _Answer


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _EncryptedPool(HTTPSConnectionPool):
    ConnectionCls = _EncryptedConnection
