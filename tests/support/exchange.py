"""Parts of any bytes, and servers that send them: the real one, and evil ones."""

import hashlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from rmt_pipeline.config import Address
from rmt_pipeline.exchange import wire
from rmt_pipeline.exchange.guard import Guard
from rmt_pipeline.exchange.server import BandwidthOf, exchange_app
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.server.listener import HttpListener
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.manifest import Manifest, PartColumn, PartFile
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import RandomIds

ENDPOINT = "/tables/t/replicas/r1"
SECRET = "a-secret"


def manifest_of(files: dict[str, bytes], partition: str = "2013") -> Manifest:
    entries = tuple(
        PartFile(name, len(data), hashlib.sha256(data).hexdigest())
        for name, data in files.items()
    )
    return Manifest(
        columns=(PartColumn("n", "UInt64"),),
        rows=3,
        bytes_on_disk=sum(map(len, files.values())),
        partition_id=partition,
        partition=partition,
        key_bounds=(),
        files=entries,
        row_hash=7,
        column_hashes={"n": 7},
        content_hash=9,
        created_s=1,
    )


def store_at(directory: Path) -> PartStore:
    return PartStore(LocalDisk(directory), ids=RandomIds(), durable=False)


def put(store: PartStore, part: PartName, files: dict[str, bytes]) -> Manifest:
    manifest = manifest_of(files, part.partition)
    staging = store.begin("insert", part.partition)
    for name, data in files.items():
        staging.write(name, data)
    store.publish(staging.seal(manifest), part)
    return manifest


def address(port: int, scheme: str = "http", host: str = "127.0.0.1") -> ReplicaAddress:
    return ReplicaAddress(host, port, 0, "default", "t", scheme)


class SlowClock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def now_s(self) -> float:
        return self.now

    def monotonic_s(self) -> float:
        return self.now

    def sleep_s(self, seconds: float) -> None:
        self.now += seconds


class Sender:
    """A real exchange server on a free port; `broken` is what it reported."""

    def __init__(
        self,
        store: PartStore | None,
        *,
        sends_max: int = 64,
        bandwidth_of: BandwidthOf = lambda _: None,
        guard: Guard | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.broken: list[tuple[str, PartName, Corruption]] = []
        self.find: Callable[[str], PartStore | None] = {ENDPOINT: store}.get
        app = exchange_app(
            lambda endpoint: self.find(endpoint),  # noqa: PLW0108  tests replace it
            guard or Guard((SECRET,)),
            lambda *what: self.broken.append(what),
            sends_max=sends_max,
            bandwidth_of=bandwidth_of,
        )
        self._app = app
        self._listener = HttpListener(Address("127.0.0.1", 0), "[test] listen", tls)
        self.port = self._listener.port

    def __enter__(self) -> Self:
        self._listener.start(self._app)
        return self

    def stop(self) -> None:
        self._listener.stop(at_once=True)

    def __exit__(self, *_: object) -> None:
        self.stop()


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def whole_answer(manifest: Manifest, files: dict[str, bytes]) -> bytes:
    """What an honest server would send as the body."""
    body = wire.encode_head(manifest.encode(), manifest.files)
    for file in manifest.files:
        data = files[file.name]
        body += wire.encode_file_head(file) + data + wire.hash_of(data)
    return body


@contextmanager
def scripted_peer(*talks: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of as many connections, one after the other: on each it reads a request and then
    does what its `talk` says.
    """

    def after_request(talk: Callable[[socket.socket], None]) -> _Talk:
        return lambda _, connection: talk(connection)

    with _peer(*map(after_request, talks)) as port:
        yield port


_Talk = Callable[[bytes, socket.socket], None]


@contextmanager
def _peer(*talks: _Talk) -> Iterator[int]:
    def serve() -> None:
        for talk in talks:
            connection, _ = listener.accept()
            with connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(65536)
                with suppress(BrokenPipeError, ConnectionResetError):  # the client had enough
                    talk(request, connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def answering(body: bytes, *, announced: int | None = None) -> Callable[[socket.socket], None]:
    length = len(body) if announced is None else announced

    def talk(connection: socket.socket) -> None:
        connection.sendall(
            f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode() + body
        )

    return talk


@contextmanager
def cutting(port: int, *sizes: int) -> Iterator[tuple[int, list[str]]]:
    """A way to the sender at `port` that cuts each connection after so many bytes of the answer;
    its own port, and the requests that went that way, one after the other.
    """
    requests: list[str] = []

    def pass_on(size: int) -> Callable[[bytes, socket.socket], None]:
        def talk(request: bytes, connection: socket.socket) -> None:
            requests.append(request.decode("ascii"))
            left = size
            with socket.create_connection(("127.0.0.1", port)) as sender:
                sender.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                while left and (found := sender.recv(min(left, 65536))):
                    connection.sendall(found)
                    left -= len(found)

        return talk

    with _peer(*map(pass_on, sizes)) as own:
        yield own, requests


def renamed(manifest: Manifest, name: str) -> Manifest:
    """With another first file name, past every check that a Manifest makes of itself."""
    first, *others = manifest.files
    changed = replace(manifest)
    object.__setattr__(changed, "files", (first._replace(name=name), *others))
    return changed
