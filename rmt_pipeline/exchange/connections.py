"""HTTP to peers: connections that are used again, since a new one costs more than a small part."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import urllib3
from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.exceptions import ProtocolError

from rmt_pipeline.protocol import limits

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
PEERS_MAX = 32  # with idle connections; those of the peer that was asked longest ago are closed


@dataclass(frozen=True, slots=True)
class Peer:
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`receive_s` bounds each wait for bytes; of a part also each chunk (256 KiB), so that a peer
    that trickles is given up too.
    """

    connect_s: float = 1.0
    receive_s: float = 30.0


class Connections:
    """Safe for threads. After a fork the child starts with none: two processes that read from
    one connection would each get half an answer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def post(
        self,
        peer: Peer,
        target: str,
        secret: str,
        timeouts: Timeouts,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> BaseHTTPResponse:
        """Asks `peer` for `target` (path and query); the answer's body is not read yet. `headers`
        go with the request beside the secret.

        Read to its end, its connection is idle again; else `close` it. Raises urllib3's
        HTTPError when there is no answer. A connection that was idle may be one that the peer
        has just closed. All that is asked of peers may be asked twice, so it is: once more, and
        not after a timeout. A redirect is not followed: the secret is for this peer alone.
        """
        pool = self.pool(peer)

        def ask() -> BaseHTTPResponse:
            return pool.urlopen(
                "POST",
                target,
                headers={**headers, "Authorization": f"Bearer {secret}"},
                timeout=urllib3.Timeout(connect=timeouts.connect_s, read=timeouts.receive_s),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )

        try:
            return ask()
        except ProtocolError:
            return ask()

    def pool(self, peer: Peer) -> urllib3.HTTPConnectionPool:
        """The connections to one peer."""
        with self._lock:
            if self._process != os.getpid():
                self._forget()
            return self._pools.connection_from_host(peer.host, peer.port, peer.scheme)

    def close(self) -> None:
        self._pools.clear()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._pools = PoolManager(num_pools=PEERS_MAX, maxsize=limits.FETCHES_MAX)
