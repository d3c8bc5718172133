"""A TCP proxy that can deliver requests and swallow the answers, then cut the connection."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards 127.0.0.1:`port` to a server. Everything is passed on until told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._swallow_answers = threading.Event()
        self._drop_requests = threading.Event()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def swallow_answers(self) -> None:
        """From now on the server hears everything and the client nothing."""
        self._swallow_answers.set()

    def drop_requests(self) -> None:
        """From now on the server hears nothing."""
        self._drop_requests.set()

    def pass_everything(self) -> None:
        self._swallow_answers.clear()
        self._drop_requests.clear()

    def cut(self) -> None:
        """Break the connections that exist. New ones are accepted."""
        connections, self._connections = self._connections, []
        for connection in connections:
            with contextlib.suppress(OSError):  # the other side was faster
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._connections += [client, server]
            for source, target, dropped in (
                (client, server, self._drop_requests),
                (server, client, self._swallow_answers),
            ):
                thread = threading.Thread(
                    target=_pump, args=(source, target, dropped), daemon=True
                )
                self._threads.append(thread)
                thread.start()


def _pump(source: socket.socket, target: socket.socket, dropped: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            if not dropped.is_set():
                target.sendall(chunk)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
    source.close()
