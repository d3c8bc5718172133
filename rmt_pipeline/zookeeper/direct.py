"""kazoo's client, with a connection on which each thread sends its requests itself, and which opens
no second session.
"""

import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol import serialization
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KeeperState

from rmt_pipeline.tls import Renewed

TCP_TIMEOUT_MAX_S = 3.0  # to open a connection or to write; `close` may have to wait for it
READ_AHEAD_BYTES = 65_536
XID_MAX = 2**31 - 1  # the number of a request on a connection; the next one is 1 again
DIRECT_BYTES_MAX = 65_536  # kazoo's thread sends larger requests
_LENGTH = struct.Struct(">i")
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_ENDED = select.POLLHUP | select.POLLERR | select.POLLNVAL


class DirectConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, on which the calling thread sends its request itself.

    In kazoo one thread sends and reads. A caller wakes that thread through a pipe. Each of the
    thread's system calls releases the interpreter lock, which other threads may then hold for
    milliseconds: to wait for the pipe, to read it, to ask whether the socket can be written to, to
    read four bytes of the answer and then the rest, with a wait before each. Here kazoo's thread
    only reads, and takes everything that has arrived at once.

    Requests must be sent in the order of `client._pending`, or kazoo would give answers to the
    wrong callers. So every thread sends a request and adds it there under `_sending`. `shut`, too,
    takes that lock: it ends direct sending before kazoo tells all callers that the connection is
    lost, so that no later request waits for an answer on a connection that is gone.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sending = threading.Lock()
        self._is_open = False
        self._xid: int | None = None
        self._ahead = bytearray()
        self._process = os.getpid()

    def send_now(self, request: Any, answer: Any) -> bool:
        """Send the request in this thread, if possible. Return True if it was sent, or if sending
        failed and the connection was cut; False if kazoo's thread has to send it, after those that
        are queued.

        Not on an encrypted connection (`_is_open` is False there): two threads must not use one at
        the same time. Nor in a fork of the process: the parent would receive the answers on the
        shared socket, for requests with numbers that it uses itself.
        """
        if os.getpid() != self._process:
            return False
        with self._sending:
            # Under the lock: kazoo replaces both when a session has ended.
            queue, waiting = self.client._queue, self.client._pending  # noqa: SLF001
            if not self._is_open or queue:
                return False
            xid = (self._xid or 0) % XID_MAX + 1
            framed = _framed(request, xid)
            if len(framed) > DIRECT_BYTES_MAX:
                return False
            self._xid = xid
            is_sent = False
            try:
                waiting.append((request, answer, xid))
                self._write(framed, TCP_TIMEOUT_MAX_S)
                is_sent = True
            except (ConnectionDropped, KazooTimeoutError):
                pass  # kazoo's thread finds that out, and tells all callers
            finally:
                if not is_sent:
                    self.handler.cut()
            return True

    def shut(self) -> None:
        """End direct sending: from now on only kazoo's thread sends on this connection."""
        with self._sending:
            self._is_open = False

    def _connect(self, *args: Any) -> Any:
        self._ahead.clear()
        timeouts = super()._connect(*args)
        self._is_open = not isinstance(self._socket, ssl.SSLSocket)
        return timeouts

    def _send_request(self, *timeouts_s: float) -> None:
        with self._sending:
            super()._send_request(*timeouts_s)

    def _send_ping(self, timeout_s: float) -> None:
        with self._sending:
            super()._send_ping(timeout_s)

    def _submit(self, request: Any, timeout_s: float, xid: int | None = None) -> None:
        self._write(_framed(request, xid), timeout_s)

    def _write(self, message: bytes, timeout_s: float) -> None:
        """Send the whole message. `timeout_s` is for each DIRECT_BYTES_MAX of it: every thread that
        wants to send waits meanwhile, and a server that takes a byte now and then must not make
        them wait for ever. Raises KazooTimeoutError, ConnectionDropped.
        """
        whole = memoryview(message)
        with self._socket_error_handling():
            for start in range(0, len(whole), DIRECT_BYTES_MAX):
                self._write_piece(whole[start : start + DIRECT_BYTES_MAX], timeout_s)

    def _write_piece(self, left: memoryview, timeout_s: float) -> None:
        """Wait only when the system can't take it at once."""
        deadline_s: float | None = None
        while left:
            try:
                left = left[self._socket.send(left) :]
            except _NOT_NOW:
                now_s = time.monotonic()
                deadline_s = now_s + timeout_s if deadline_s is None else deadline_s
                wait_s = max(0.0, deadline_s - now_s)
                if not wait_s or not self.handler.select([], [self._socket], [], wait_s)[1]:
                    raise KazooTimeoutError("the request could not be written") from None

    def _read_socket(self, timeout_s: float) -> Any:
        """Handle all answers that have arrived completely; wait for the first.

        Nothing is sent on this connection after an error. kazoo's thread ends on some of them, for
        example an answer without a request, and closes the socket before it reports the end. A
        thread that sends then might write to a file that got the socket's number.
        """
        try:
            answer = super()._read_socket(timeout_s)
            while answer is None and self._next_end() <= len(self._ahead):
                answer = super()._read_socket(timeout_s)
        except BaseException:
            self.shut()
            raise
        return answer

    def _read_header(self, timeout_s: float) -> tuple[Any, bytes, int]:
        while (end := self._next_end()) > len(self._ahead):
            self._ahead += self._arrived(timeout_s)
        answer = bytes(memoryview(self._ahead)[_LENGTH.size : end])
        del self._ahead[:end]
        header, offset = serialization.ReplyHeader.deserialize(answer, 0)
        return header, answer, offset

    def _next_end(self) -> int:
        """Where the next answer ends in `_ahead`; the end of its length if that has not arrived."""
        if len(self._ahead) < _LENGTH.size:
            return _LENGTH.size
        return _LENGTH.size + int(_LENGTH.unpack_from(self._ahead)[0])

    def _arrived(self, timeout_s: float) -> bytes:
        """The bytes that have arrived; waits for the first. Raises KazooTimeoutError,
        ConnectionDropped.
        """
        with self._socket_error_handling():
            while True:
                try:
                    data = bytes(self._socket.recv(READ_AHEAD_BYTES))
                except _NOT_NOW:
                    if not self.handler.select([self._socket], [], [], timeout_s)[0]:
                        raise KazooTimeoutError("no answer came") from None
                    continue
                if not data:
                    raise ConnectionDropped("the server has hung up")
                return data


class DirectClient(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """kazoo's client with a `DirectConnection`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connection = DirectConnection(
            self, self._conn_retry.copy(), logger=self.logger, sasl_options=None
        )

    def _call(self, request: Any, answer: Any) -> Any:
        if self._state != KeeperState.CONNECTED or not self._connection.send_now(
            request, answer
        ):
            return super()._call(request, answer)
        return None

    def _notify_pending(self, state: str) -> None:
        self._connection.shut()
        super()._notify_pending(state)


def _framed(request: Any, xid: int | None) -> bytes:
    """The bytes of a request: the length, the request's number and type, if it has
    them, its body.
    """
    numbers = [number for number in (xid, request.type) if number]
    body: bytes = request.serialize()
    return struct.pack(f">{len(numbers) + 1}i", 4 * len(numbers) + len(body), *numbers) + body


class OneSessionHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A kazoo handler that connects only while `may_connect` returns True, so that kazoo can't
    start a second session after one that has ended.

    With `tls` each connection uses the context that `tls` has at that moment. kazoo's own TLS would
    trust the authorities that this system trusts, whatever the configuration says.
    """

    def __init__(self, tls: Renewed | None = None) -> None:
        super().__init__()
        self.may_connect: Callable[[], bool] = lambda: True
        self._socket: socket.socket | None = None
        self._tls = tls
        self._refused = ""

    @property
    def refused_because(self) -> str:
        """Why the last connection failed, if TLS was the reason, as a piece of an error message;
        else "".
        """
        return self._refused

    def create_connection(self, *args: Any, **kwargs: Any) -> socket.socket:
        if not self.may_connect():
            raise ConnectionDropped("the session is over")
        kwargs["timeout"] = min(kwargs["timeout"], TCP_TIMEOUT_MAX_S)
        if self._tls is None:
            self._socket = super().create_connection(*args, **kwargs)
        else:
            plain = super().create_connection(*args, **{**kwargs, "use_ssl": False})
            self._socket = self._encrypted(plain, kwargs["hostname"], self._tls)
        return self._socket

    def _encrypted(self, plain: socket.socket, name: str, tls: Renewed) -> socket.socket:
        try:
            encrypted = tls.context().wrap_socket(plain, server_hostname=name)
        except OSError as error:
            plain.close()
            self._refused = f" that speaks TLS as we want it ({error})"
            raise
        self._refused = ""
        return encrypted

    def cut(self) -> None:
        """Break the connection, even if the server hangs."""
        connection = self._socket
        if connection is not None:
            try:  # the plain socket's method: that of an SSLSocket would first drop its TLS state
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                return  # the connection is closed already

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        errors: Sequence[Any],
        timeout_s: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Like select.select, but with poll: kazoo's own method makes and closes an epoll object at
        each call, which costs more than everything else that kazoo does for a request. `errors` is
        ignored.

        A TLS socket also counts as readable if it has decrypted bytes that were not read yet. kazoo
        would wait for further bytes, perhaps until the next ping.
        """
        del errors
        ahead = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        if ahead:
            timeout_s = 0
        waiting = select.poll()
        for reader in readers:
            waiting.register(reader, select.POLLIN)
        for writer in writers:
            waiting.register(writer, select.POLLOUT)
        timeout_ms = None if timeout_s is None else ceil(timeout_s * 1000)
        happened = dict(waiting.poll(timeout_ms))
        return (
            [
                it
                for it in readers
                if it in ahead or happened.get(it.fileno(), 0) & (select.POLLIN | _ENDED)
            ],
            [it for it in writers if happened.get(it.fileno(), 0) & (select.POLLOUT | _ENDED)],
            [],
        )
