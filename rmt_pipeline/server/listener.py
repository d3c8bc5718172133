"""One HTTP port of this process: uvicorn on a thread that starts and ends when we say so."""

import asyncio
import errno
import resource
import socket
import ssl
import threading
from asyncio.sslproto import SSLProtocol
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http import auto

from rmt_pipeline.config import Address
from rmt_pipeline.protocol.errors import AddressInUse, BadConfiguration

BACKLOG = 64  # also how many connections are accepted before the first of them is looked at
CONNECTIONS_MAX = 1000  # and at most a quarter of the files that this process may open
KEEP_ALIVE_S = 75  # for idle connections of peers, which come back after each poll and linger
REQUEST_S = 10.0  # for a client to send a request, from the connection or its first byte on
REQUEST_BYTES_MAX = 64 << 10  # of head and body; no request of ours has a body
UNREAD_S = 300.0  # for a client to read some of what was sent; as in the original
GRACE_S = 1  # for answers that are being sent when the server stops
JOIN_S = 3.0


class HttpListener:
    """Accepts connections from its construction on, and answers them between `start` and `stop`."""

    def __init__(self, address: Address, key: str, tls: ssl.SSLContext | None = None) -> None:
        """`key` names the address in the configuration, for error messages.

        Raises AddressInUse, or BadConfiguration when this host cannot listen there at all.
        """
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            self._socket = socket.create_server(
                (address.host, address.port), family=family, backlog=BACKLOG
            )
        except OSError as error:
            raise _explained(address, key, error) from error
        # An answer is two writes, its head and its body. Without this the second waits until
        # the peer has acknowledged the first, which a peer puts off for 40 ms.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = tls
        self._visitors: set[_Visitor] = set()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def start(self, app: ASGIApp) -> None:
        assert self._thread is None, "started already"
        config = uvicorn.Config(
            app,
            loop="asyncio",  # uvloop's close waits for peers that do not read
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        config.load()
        visited: Any = partial(_Visitor, self._visitors)
        if self._tls is not None:
            visited = partial(_encrypted, self._tls, visited)
        config.http_protocol_class = visited
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=asyncio.run, args=[self._serve(self._server)], name="rmt-http", daemon=True
        )
        self._thread.start()

    def stop(self, *, at_once: bool = False) -> None:
        """Stop answering. Answers that are being sent get a second to end, unless `at_once`. May be
        called again.
        """
        if self._server is not None and self._thread is not None:
            self._server.force_exit = at_once
            self._server.should_exit = True
            self._thread.join(JOIN_S)
        self._socket.close()

    async def _serve(self, server: uvicorn.Server) -> None:
        await server.serve(sockets=[self._socket])
        for visitor in list(self._visitors):
            visitor.hang_up()  # else a peer that does not read keeps it open
        await asyncio.sleep(0)


_Protocol: Any = auto.AutoHTTPProtocol  # the one of uvicorn's two that is installed


class _Visitor(_Protocol):  # type: ignore[misc]
    """A connection whose client has to send its request soon and briefly, and to read the answer.

    uvicorn alone would wait for a request without limit, in time and in size, on any number of
    connections. It also keeps what it has written until the client has read it, and a connection
    that is to be closed waits for that, too.
    """

    def __init__(self, visitors: "set[_Visitor]", **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._visitors = visitors  # all that are connected, TLS or not yet
        self._wire: Any = None  # to the client: `transport`, or what is below its TLS
        self._received = 0
        self._due: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connected(self, wire: asyncio.BaseTransport) -> None:
        """With TLS this is before the handshake, and `connection_made` after it."""
        self._wire = wire
        self._idle_since_s = asyncio.get_running_loop().time()
        self._visitors.add(self)
        self._make_room()
        self._expect()

    def disconnected(self) -> None:
        self._visitors.discard(self)
        self._expected()
        self._read()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._wire is None:
            self.connected(transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > REQUEST_BYTES_MAX:
            self.hang_up()
            return
        self._expect()  # the first bytes of the next request
        super().data_received(data)
        if self._is_answered():
            self._expected()

    def connection_lost(self, exc: Exception | None) -> None:
        self.disconnected()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._received = 0
        self._idle_since_s = asyncio.get_running_loop().time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._expect_to_be_read()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()  # closes when what was written has been read
        self._expect_to_be_read()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_to_be_read()

    def resume_writing(self) -> None:
        if not self.transport.is_closing():
            self._read()
        super().resume_writing()

    def _make_room(self) -> None:
        """If there are too many connections, hang up the one that has waited longest for a request,
        or this new one if all others are being answered. Else somebody who only opens connections
        would use up the descriptors of this process. A peer whose idle connection is hung up opens
        another one with its next request.
        """
        if len(self._visitors) <= _connections_max():
            return
        connected = [one for one in self._visitors if not one._wire.is_closing()]  # noqa: SLF001
        if len(connected) > _connections_max():
            idle = [one for one in connected if one._is_idle()]  # noqa: SLF001
            min(idle, key=lambda one: one._idle_since_s, default=self).hang_up()  # noqa: SLF001

    def _expect(self) -> None:
        if self._due is None and not self._is_answered():
            loop = asyncio.get_running_loop()
            self._due = loop.call_later(REQUEST_S, self.hang_up)

    def _expected(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _expect_to_be_read(self) -> None:
        if self._unread is None:
            self._unread = asyncio.get_running_loop().call_later(UNREAD_S, self.hang_up)

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _is_answered(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _is_idle(self) -> bool:
        """Nothing is asked, and the last answer has left this process."""
        unsent: int = self._wire.get_write_buffer_size()  # TLS hands all that fits on to it
        return not self._is_answered() and not unsent

    def hang_up(self) -> None:
        self._wire.abort()


class _Encrypted(SSLProtocol):
    """The TLS between a visitor and the client. The visitor is told when this begins, so that who
    never shakes hands is counted, and hung up on, as anybody else.
    """

    def __init__(self, tls: ssl.SSLContext, visitor: _Visitor) -> None:
        nobody: Any = None
        loop = asyncio.get_running_loop()
        super().__init__(loop, visitor, tls, waiter=nobody, server_side=True)
        self._visitor = visitor

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._visitor.connected(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._visitor.disconnected()
        super().connection_lost(exc)


def _encrypted(tls: ssl.SSLContext, visited: Any, **of_uvicorn: Any) -> _Encrypted:
    return _Encrypted(tls, visited(**of_uvicorn))


def _connections_max() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(CONNECTIONS_MAX, files // 4) if files > 0 else CONNECTIONS_MAX


def _explained(address: Address, key: str, error: OSError) -> AddressInUse | BadConfiguration:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(
            f"port {address.port} of {address.host} is in use: end the program that has it "
            f"(maybe this server runs already), or change {key} in the configuration"
        )
    return BadConfiguration(f"cannot listen on {address} ({key}): {error.strerror or error}")
