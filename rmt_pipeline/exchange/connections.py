"""HTTP to peers: connections that are used again, since a new one costs more than a small part."""

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
PEERS_MAX = 32  # with idle connections; those of the peer that was asked longest ago are closed


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a replica's server answers, as ZooKeeper has it in the replica's `host`. `str` is the
    beginning of its URLs.
    """

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`receive_s` bounds each wait for bytes; also the head of an answer as a whole, and of a part
    each chunk (256 KiB), so that a peer that trickles is given up too.
    """

    connect_s: float = 1.0
    receive_s: float = 30.0


class Connections:
    """Safe for threads. After a fork the child starts with none: two processes that read from
    one connection would each get half an answer. With `tls` all of them are encrypted, and new
    certificates are taken as soon as they are there.
    """

    def __init__(self, tls: TlsFiles | None = None) -> None:
        """Raises BadConfiguration for certificates that can't be used."""
        self._lock = threading.Lock()
        self._tls = None if tls is None else Renewed.client(tls)
        self._forget()

    @property
    def scheme(self) -> str:
        """What peers are spoken to in."""
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
        """Asks `peer` for `target` (path and query); the answer's body is not read yet. `headers`
        go with the request beside the secret; "" is none.

        Read to its end, its connection is idle again; else `close` it. Raises urllib3's
        HTTPError when there is no answer. A connection that was idle may be one that the peer
        has just closed. All that is asked of peers may be asked twice, so it is: once more, and
        not after a timeout. A redirect is not followed: the secret is for this peer alone.
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
            if name in answer.headers:  # and it would be undone, whatever comes of it
                answer.close()
                raise ProtocolError(f"it answers with a {name}, which no server of ours does")
        return answer

    def pool(self, peer: Peer) -> urllib3.HTTPConnectionPool:
        """The connections to one peer."""
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
            num_pools=PEERS_MAX, maxsize=limits.FETCHES_MAX, ssl_context=self._context
        )
        self._pools.pool_classes_by_scheme = {"http": _Pool, "https": _EncryptedPool}


def whole_body(response: BaseHTTPResponse, timeouts: Timeouts, bytes_max: int) -> bytes:
    """Of an answer that is not a part. Raises Unavailable when it is larger, or slower."""
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
    """What arrives at a socket; until `end_s` is taken away, only what does until then."""

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
                raise TimeoutError("timed out: the head of an answer trickles")
            self._connection.settimeout(left_s)
        return self._arriving.readinto(buffer)

    def close(self) -> None:
        self._arriving.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """Its head is there within the timeout, or never: the timeout of a socket begins anew with
    each byte, and there may be any number of answers that say "continue".
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
