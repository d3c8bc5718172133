"""A peer that does not take what is sent to it holds nothing up for ever."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request

from rmt_pipeline.config import TlsFiles
from rmt_pipeline.exchange import wire
from rmt_pipeline.exchange.server import Broken, Exchange
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.server import listener
from rmt_pipeline.tls import Renewed, client_context
from tests.support.certificates import Authority
from tests.support.exchange import ENDPOINT, SECRET, Sender, put
from tests.support.waiting import LIMIT_S, until

PART = PartName("2013", 1, 4, 2)


def request(connection: str = "keep-alive") -> bytes:
    """For the part, as it is on the wire."""
    return (
        f"POST {wire.request_target(ENDPOINT, PART)} HTTP/1.1\r\nHost: us\r\n"
        f"Authorization: Bearer {SECRET}\r\nConnection: {connection}\r\n"
        "Content-Length: 0\r\n\r\n"
    ).encode()


@contextmanager
def small_buffers(sender: Sender) -> Iterator[socket.socket]:
    """A peer that is connected; little goes on its way without being read."""
    with socket.socket() as peer:
        sender._listener._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        peer.settimeout(LIMIT_S)
        peer.connect(("127.0.0.1", sender.port))
        yield peer


@pytest.mark.parametrize("message", ["http.response.start", "http.response.body"])
def test_a_peer_that_does_not_read_keeps_no_slot_and_no_pin(source, message):
    put(source, PART, {"data-00000.parquet": b"a" * 3_000_000})
    exchange = Exchange(
        lambda _: source, lambda *what: pytest.fail(str(what)), send_timeout_s=0.01
    )
    target = wire.request_target(ENDPOINT, PART)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": urlsplit(target).query.encode(),
        "headers": [],
    }

    async def never(sent: Any = None) -> None:
        if sent is None or sent["type"] == message:
            await asyncio.Event().wait()

    async def answered() -> None:
        response = await exchange.answer(Request(scope))
        assert exchange.sends == 1
        await asyncio.wait_for(response(scope, never, never), LIMIT_S)

    with pytest.raises(Broken, match="has read nothing for"):
        asyncio.run(answered())
    assert exchange.sends == 0
    assert not source.is_pinned(PART)


@pytest.mark.parametrize("end", ["close", "keep-alive", "another request"])
def test_a_peer_that_reads_no_small_answer_keeps_no_connection(monkeypatch, source, end):
    """They are written at once, into a buffer that nobody empties: whoever closes such a connection
    waits for the peer.
    """
    monkeypatch.setattr(listener, "KEEP_ALIVE_S", 1)
    monkeypatch.setattr(listener, "UNREAD_S", 1.0)
    put(source, PART, {"data-00000.parquet": b"a" * 900_000})
    asked = "close" if end == "close" else "keep-alive"
    with Sender(source) as sender, small_buffers(sender) as peer:
        peer.sendall(request(asked) * (20 if end == "another request" else 1))
        server = sender._listener._server
        until(lambda: server.server_state.total_requests)
        until(lambda: not server.server_state.connections)


def test_a_peer_that_reads_slowly_gets_the_whole_answer(monkeypatch, source):
    """It is still at the last answer when a connection that asks for nothing would end."""
    monkeypatch.setattr(listener, "KEEP_ALIVE_S", 0)
    size = 900_000
    put(source, PART, {"data-00000.parquet": b"a" * size})
    with Sender(source) as sender, small_buffers(sender) as peer:
        peer.sendall(request())
        state = sender._listener._server.server_state
        until(lambda: state.total_requests)
        until(lambda: all(one.transport.is_closing() for one in [*state.connections]))
        received = 0
        while chunk := peer.recv(1 << 16):
            received += len(chunk)
        assert received > size


@pytest.mark.parametrize("encrypted", [False, True], ids=["http", "https"])
def test_newcomers_cut_off_no_answer_that_is_still_being_read(
    monkeypatch, source, tmp_path, encrypted
):
    """The server is done with it, but most of it has not left."""
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 8)
    size = 900_000
    put(source, PART, {"data-00000.parquet": b"a" * size})
    authority = Authority(tmp_path / "authority")
    own = authority.sign("server", "127.0.0.1")
    files = TlsFiles("[tls]", authority.file, own.file, own.key)
    tls = Renewed.server(files, client_certificates=False) if encrypted else None
    with Sender(source, tls=tls) as sender, ExitStack() as opened:
        peer = opened.enter_context(small_buffers(sender))
        if encrypted:
            context = client_context(files)
            peer = opened.enter_context(context.wrap_socket(peer, server_hostname="127.0.0.1"))
        peer.sendall(request())
        state = sender._listener._server.server_state
        until(lambda: state.total_requests)
        (visitor,) = state.connections
        until(lambda: visitor.cycle.response_complete)
        newcomers = [
            opened.enter_context(socket.create_connection(("127.0.0.1", sender.port), LIMIT_S))
            for _ in range(20)
        ]
        for newcomer in newcomers[:10]:  # of the peer and 20, 13 have to go
            with suppress(ConnectionResetError):
                assert newcomer.recv(1) == b""
        received = 0
        while received <= size and (chunk := peer.recv(1 << 16)):
            received += len(chunk)
        assert received > size


def test_who_comes_when_all_are_being_answered_is_hung_up_on(monkeypatch, source):
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 2)
    put(source, PART, {"data-00000.parquet": b"a" * 900_000})
    with Sender(source) as sender, ExitStack() as opened:
        peers = [opened.enter_context(small_buffers(sender)) for _ in range(2)]
        for peer in peers:
            peer.sendall(request())
        state = sender._listener._server.server_state
        until(lambda: state.total_requests == len(peers))
        until(lambda: all(one.cycle.response_complete for one in [*state.connections]))
        before = {*state.connections}
        newcomer = opened.enter_context(
            socket.create_connection(("127.0.0.1", sender.port), LIMIT_S)
        )
        with suppress(ConnectionResetError):
            assert newcomer.recv(1) == b""
        assert {*state.connections} == before
