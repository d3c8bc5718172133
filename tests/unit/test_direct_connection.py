"""A request is sent by the thread that asks, beside kazoo's own, and no answer goes astray."""

import itertools
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol import serialization
from kazoo.protocol.connection import CLOSE_RESPONSE, PING_XID
from kazoo.protocol.states import KeeperState

from rmt_pipeline.zookeeper import connect, direct
from rmt_pipeline.zookeeper.direct import DirectClient, OneSessionHandler

READ = serialization.GetData("/a", None)
STAT = bytes(serialization.stat_struct.size)


class Wire:
    """A socket of which a test decides what it takes and what else happens then."""

    def __init__(self, inside: socket.socket) -> None:
        self._inside = inside
        self.on_send: Callable[[], object] = lambda: None
        self.taken_max = self.given_max = 1 << 20

    def send(self, data: memoryview) -> int:
        self.on_send()
        return self._inside.send(data[: self.taken_max])

    def recv(self, size: int) -> bytes:
        return self._inside.recv(min(size, self.given_max))

    def fileno(self) -> int:
        return self._inside.fileno()


class Line:
    """A client with a connection that is open, and the server's end of it."""

    def __init__(self, wire: Wire, server: socket.socket) -> None:
        self.handler = OneSessionHandler()
        self.cuts: list[str] = []
        self.handler.cut = lambda: self.cuts.append("cut")  # type: ignore[method-assign]
        self.client = DirectClient("127.0.0.1:1", handler=self.handler)
        self.client._state = KeeperState.CONNECTED
        self.connection = self.client._connection
        self.connection._socket, self.connection._xid = wire, 0
        self.connection._is_open = True
        self.wire, self.server = wire, server

    def ask(self, request: Any = READ) -> Any:
        answer = self.handler.async_result()
        self.client._call(request, answer)
        return answer

    def asked(self) -> list[int]:
        """The numbers of the requests that have arrived, each whole."""
        data, numbers = self.server.recv(1 << 20), []
        while data:
            length, number, _ = struct.unpack_from(">iii", data)
            assert len(data) >= 4 + length
            numbers.append(number)
            data = data[4 + length :]
        return numbers


@contextmanager
def a_line() -> Iterator[Line]:
    inside, server = socket.socketpair()
    with inside, server:
        inside.setblocking(False)
        server.settimeout(5)
        yield Line(Wire(inside), server)


@pytest.fixture
def line() -> Iterator[Line]:
    with a_line() as opened:
        yield opened


def answer(number: int, data: bytes) -> bytes:
    body = struct.pack(">iqii", number, 1, 0, len(data)) + data + STAT
    return struct.pack(">i", len(body)) + body


def test_the_thread_that_asks_sends_its_request_whole(line: Line) -> None:
    line.wire.taken_max = 5
    line.ask()
    assert not line.client._queue
    assert line.asked() == [1]
    line.ask()
    assert line.asked() == [2]


def test_the_place_of_the_answer_is_there_before_the_request_is(line: Line) -> None:
    waiting: list[int] = []
    line.wire.on_send = lambda: waiting.append(line.client._pending[-1][2])
    line.ask()
    line.ask()
    assert waiting == [1, 2]


def test_answers_that_arrive_together_are_read_together(line: Line) -> None:
    first, second, third = line.ask(), line.ask(), line.ask()
    last = answer(3, b"third")
    line.server.sendall(answer(1, b"first") + answer(2, b"second") + last[:9])
    line.connection._read_socket(5)
    assert first.get_nowait()[0] == b"first"
    assert second.get_nowait()[0] == b"second"
    assert not third.ready()
    line.server.sendall(last[9:])
    line.connection._read_socket(5)
    assert third.get_nowait()[0] == b"third"


def test_no_answer_that_has_arrived_waits_for_more_to_come(line: Line) -> None:
    first, second = line.ask(), line.ask()
    line.server.sendall(answer(1, b"first") + answer(2, b"second"))
    line.connection._read_socket(5)
    assert first.get_nowait()[0] == b"first"
    assert second.get_nowait()[0] == b"second"


@pytest.mark.parametrize("given_max", [1, 2, 3, 4, 5, 19])
def test_an_answer_may_come_in_pieces_of_any_length(line: Line, given_max: int) -> None:
    line.wire.given_max = given_max
    first, second = line.ask(), line.ask()
    line.server.sendall(answer(1, b"first") + answer(2, b"second"))
    while not second.ready():
        line.connection._read_socket(5)
    assert first.get_nowait()[0] == b"first"
    assert second.get_nowait()[0] == b"second"


def test_an_answer_that_does_not_come_is_waited_for_so_long_and_no_longer(line: Line) -> None:
    line.server.sendall(answer(1, b"first")[:9])
    with pytest.raises(KazooTimeoutError, match="no answer came"):
        line.connection._read_header(0.01)
    line.server.close()
    with pytest.raises(ConnectionDropped, match="hung up"):
        line.connection._read_header(5)


def test_kazoos_thread_says_that_we_live_and_sends_what_it_was_left(line: Line) -> None:
    line.connection._read_sock = SimpleNamespace(recv=lambda _: b"\0")
    line.client._queue.append((READ, None))
    line.connection._send_request(5, 5)
    assert line.asked() == [1]
    assert not line.client._queue
    line.connection._send_ping(5)
    assert line.asked() == [PING_XID]


def test_a_request_larger_than_the_system_takes_at_once_arrives_whole(line: Line) -> None:
    large = serialization.SetData("/a", bytes(range(256)) * 3_000, -1)
    sending = threading.Thread(target=lambda: line.connection._submit(large, 60, 7))
    sending.start()
    wanted = struct.pack(">ii", 7, large.type) + bytes(large.serialize())
    arrived = b""
    while len(arrived) < 4 + len(wanted):
        arrived += line.server.recv(1 << 20)
    sending.join()
    assert arrived == struct.pack(">i", len(wanted)) + wanted


def test_what_the_system_can_not_take_now_is_sent_when_it_can(line: Line) -> None:
    is_full = iter([True, True])

    def take() -> None:
        if next(is_full, False):
            raise BlockingIOError

    line.wire.on_send = take
    line.ask()
    assert line.asked() == [1]
    assert line.cuts == []


def test_the_numbers_of_requests_begin_anew_where_kazoos_do(line: Line) -> None:
    line.connection._xid = direct.XID_MAX - 1
    line.ask()
    line.ask()
    assert line.asked() == [direct.XID_MAX, 1]


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (KeeperState.EXPIRED_SESSION, SessionExpiredError),
        (KeeperState.CLOSED, ConnectionClosedError),
        (KeeperState.AUTH_FAILED, AuthFailedError),
    ],
)
def test_a_session_that_is_over_sends_nothing(
    line: Line, state: str, error: type[Exception]
) -> None:
    line.client._state = state
    with pytest.raises(error):
        line.ask().get_nowait()
    assert not line.client._pending
    assert not line.client._queue


def test_on_a_connection_that_is_lost_nobody_is_left_waiting(line: Line) -> None:
    """1. One request is on its way when the connection breaks; kazoo tells it so.
    2. Before kazoo has closed the socket another thread asks, and might still send.
    3. Then its request is one of the next connection: no answer is to come on this one.
    """
    first = line.ask()
    line.client._notify_pending(KeeperState.CONNECTING)
    with pytest.raises(ConnectionLoss):
        first.get_nowait()
    line.ask()
    assert not line.client._pending
    assert len(line.client._queue) == 1


def test_what_waits_for_kazoos_thread_goes_first(line: Line) -> None:
    line.client._queue.append((READ, None))
    line.ask()
    assert not line.client._pending
    assert len(line.client._queue) == 2


@pytest.mark.parametrize("is_larger", [False, True])
def test_what_is_large_is_sent_by_kazoos_thread(line: Line, *, is_larger: bool) -> None:
    """Not what is just so large as it may be."""
    frame = len(direct._framed(serialization.SetData("/a", b"", -1), 1))
    data = bytes(direct.DIRECT_BYTES_MAX - frame + is_larger)
    line.ask(serialization.SetData("/a", data, -1))
    assert len(line.client._pending) == (not is_larger)
    assert len(line.client._queue) == is_larger


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(32, "broken pipe")])
def test_a_connection_on_which_half_a_request_may_be_is_cut(
    line: Line, error: BaseException
) -> None:
    """Whoever waits is told by kazoo's thread, which sees the end of the connection."""

    def fail() -> None:
        raise error

    line.wire.on_send = fail
    answered = line.handler.async_result()
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            line.client._call(READ, answered)
    else:
        line.client._call(READ, answered)
    assert line.cuts == ["cut"]
    line.client._notify_pending(KeeperState.CONNECTING)
    assert answered.ready()


def test_an_encrypted_connection_is_not_used_by_two_threads(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL's connections are not made for it."""
    plain = ssl.create_default_context().wrap_socket(
        socket.socket(), server_hostname="localhost", do_handshake_on_connect=False
    )
    with plain:

        def connected(connection: Any, *_: object) -> tuple[int, int]:
            connection._socket = plain
            return 1, 1

        monkeypatch.setattr(direct.ConnectionHandler, "_connect", connected)
        line.connection._connect("localhost", "127.0.0.1", 1)
    assert not line.connection.send_now(READ, None)


def test_nothing_is_read_behind_the_answer_that_ends_the_session(line: Line) -> None:
    line.client._pending.append((serialization.Close(), None, 1))
    line.server.sendall(answer(1, b"") + answer(2, b"nobody has asked for it"))
    assert line.connection._read_socket(5) is CLOSE_RESPONSE


def test_a_new_connection_begins_with_nothing_of_the_old_one(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.ask()
    line.server.sendall(answer(1, b"first") + answer(2, b"half of it")[:9])
    line.connection._read_socket(5)
    monkeypatch.setattr(direct.ConnectionHandler, "_connect", lambda *_: (1, 1))
    line.connection._connect("localhost", "127.0.0.1", 1)
    second = line.ask()
    line.server.sendall(answer(2, b"second"))
    line.connection._read_socket(5)
    assert second.get_nowait()[0] == b"second"


def test_a_fork_does_not_speak_on_the_connection_of_the_process_that_it_is_a_copy_of(
    line: Line,
) -> None:
    """Its requests would have numbers that are taken, and their answers would come to the other
    process, which would take them for its own.
    """
    child = os.fork()
    if not child:
        line.ask()
        os._exit(0)
    os.waitpid(child, 0)
    line.ask()
    assert line.asked() == [1]


def test_a_server_that_takes_a_byte_now_and_then_does_not_keep_all_waiting(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.wire.taken_max = 1
    is_full = itertools.cycle([False, True])
    sent: list[int] = []
    clock_s = [0.0]
    monkeypatch.setattr(direct, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))

    def take() -> None:
        if next(is_full):
            raise BlockingIOError
        sent.append(1)

    def writable(readers: Any, writers: Any, errors: Any, wait_s: float) -> Any:
        clock_s[0] += min(wait_s, 0.5)
        return readers, writers, errors

    line.wire.on_send = take
    line.handler.select = writable  # type: ignore[method-assign]
    line.ask()
    assert line.cuts == ["cut"]
    assert (len(sent), clock_s) == (7, [direct.TCP_TIMEOUT_MAX_S])


def test_nothing_is_sent_on_a_connection_of_which_kazoos_thread_dies(line: Line) -> None:
    """It closes the socket before it tells anybody, and the socket's number may be a file's."""
    line.ask()
    line.server.sendall(answer(7, b"nobody has asked for it"))
    with pytest.raises(RuntimeError):
        line.connection._read_socket(5)
    line.ask()
    assert not line.client._pending
    assert len(line.client._queue) == 1


def test_who_waited_to_send_while_a_session_ended_waits_among_those_of_the_next_one(
    line: Line,
) -> None:
    """kazoo has new lists of those that wait then: in the old one nobody would look."""
    lock = line.connection._sending

    class Late:
        def __enter__(self) -> None:
            line.client._reset()
            lock.__enter__()

        def __exit__(self, *raised: object) -> None:
            lock.__exit__()

    line.connection._sending = Late()
    line.ask()
    assert len(line.client._pending) == 1


@pytest.mark.parametrize("is_connected", [False, True])
def test_who_gives_up_tells_a_server_that_is_there_and_waits_for_no_other(
    is_connected: bool,
) -> None:
    """Else the session would live on there until it is timed out."""
    done: list[str] = []
    client = SimpleNamespace(
        connected=is_connected,
        stop=lambda: done.append("says so"),
        close=lambda: done.append("closes"),
    )
    handler = SimpleNamespace(may_connect=lambda: True, cut=lambda: done.append("cuts"))
    connect._give_up(client, handler)  # type: ignore[arg-type]
    assert done == [*["cuts"] * (not is_connected), "says so", "closes"]
    assert handler.may_connect() is is_connected
